// Events and dead letters.

import { clock, count, counted, moment, place, plain } from "./format.js";
import { storyOf } from "./stories.js";
import { html, Shape, Time, useState } from "./view.js";

const SHOWN = 100;

/** Return the lines for events; consecutive snapshots share one line. */
function rowsOf(events) {
  const rows = [];
  for (const event of events) {
    const last = rows.at(-1);
    if (event.event === "snapshot_committed" && last?.event.event === event.event) Object.assign(last, { event, isLast: true });
    else rows.push({ key: event.number, event, isLast: false });
  }
  return rows;
}

function Events({ rows }) {
  if (!rows.length) return html`<p class="empty">No events yet. Snapshots, restarts, rescales and failures appear here.</p>`;
  return html`
    <ol class="events">
      ${rows.slice(-SHOWN).reverse().map(({ key, event, isLast }) => {
        const { shape, text, isBad } = storyOf(event);
        return html`
          <li key=${key} class=${isBad ? "bad" : ""}>
            <${Shape} name=${shape} /><span class="text">${text}${isLast && html`<span class="quiet">, and earlier ones</span>`}${event.since && html`<span class="quiet"> since ${clock(moment(event.since))}</span>`}</span><${Time} at=${moment(event.at)} />
          </li>
        `;
      })}
    </ol>
  `;
}

/** Dead letters, with buttons to process them again if that is allowed. */
export function Letters({ letters, operator, isAllowed, onReplay }) {
  const held = operator ? letters.filter((it) => it.operator === operator) : letters;
  if (!held.length) {
    return html`<p class="empty">No letters. Records that fail with <code>on_error="dead_letter"</code> are kept here.</p>`;
  }
  const names = [...new Set(held.map((it) => it.operator))];
  return html`
    ${isAllowed && html`
      <div class="actions">
        ${names.map((name) => html`
          <button type="button" key=${name} onClick=${() => onReplay(name, null)}>Replay all of ${plain(name, 40)}</button>
        `)}
      </div>
    `}
    <ol class="letters">
      ${held.slice(0, SHOWN).map((it) => html`
        <li key=${`${it.operator} ${it.id}`}>
          <div class="what"><b>${plain(it.error, 60)}</b> <span>${plain(it.message, 300)}</span></div>
          <div class="record">key <code>${plain(it.key ?? "none", 120)}</code>, value <code>${plain(it.value, 400)}</code></div>
          <div class="where">
            <span>${plain(it.operator, 60)}</span>
            ${it.place && html`<span title=${plain(it.place, 400)}>${place(it.place)}</span>`}
            <span><${Time} at=${moment(it.at)} /></span>
            <span>${counted(it.attempts, "attempt")}</span>
          </div>
          ${isAllowed && html`
            <button type="button" onClick=${() => onReplay(it.operator, [it.id])}>Replay</button>
          `}
        </li>
      `)}
    </ol>
    ${held.length > SHOWN && html`<p class="more">${counted(held.length - SHOWN, "more letter")}: <code>malflow errors ls</code> lists all.</p>`}
  `;
}

/** Two lists; one of them is shown. */
export function Lists({ events, letters, held, isAllowed, onReplay }) {
  const [tab, setTab] = useState("events");
  const rows = rowsOf(events);
  const tabs = [
    ["events", "Events", rows.length],
    ["letters", "Letters", held],
  ];
  const move = (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    const other = tab === "events" ? "letters" : "events";
    setTab(other);
    document.getElementById(`tab-${other}`).focus();
  };
  return html`
    <section class="card lists" aria-label="Events and letters">
      <div class="tabs" role="tablist" onKeyDown=${move}>
        ${tabs.map(([key, name, number]) => html`
          <button type="button" role="tab" key=${key} id=${`tab-${key}`} aria-selected=${tab === key} aria-controls="listed"
            tabindex=${tab === key ? 0 : -1} onClick=${() => setTab(key)}>${name} <span class="number">${count(number)}</span></button>
        `)}
      </div>
      <div class="listed" id="listed" role="tabpanel" aria-labelledby=${`tab-${tab}`} tabindex="0">
        ${tab === "events"
          ? html`<${Events} rows=${rows} />`
          : html`<${Letters} letters=${letters} isAllowed=${isAllowed} onReplay=${onReplay} />`}
      </div>
    </section>
  `;
}
