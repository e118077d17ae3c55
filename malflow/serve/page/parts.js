// The parts of a source, by the worker that reads them.

import { counted, isNumber, plain, rate, short } from "./format.js";
import { Bar, html } from "./view.js";

const SHOWN = 50;

/** Return the parts of each worker with their speed, the fastest first. */
function byWorker(parts) {
  const found = new Map();
  for (const it of parts) {
    const held = found.get(it.worker) ?? { worker: it.worker, parts: [], speed: 0 };
    held.parts.push(it);
    held.speed += it.per_second ?? 0;
    found.set(it.worker, held);
  }
  return [...found.values()].sort((one, other) => other.speed - one.speed);
}

export function Parts({ name, progress }) {
  const all = progress.parts.filter((it) => it.source === name && isNumber(it.worker));
  if (all.length < 2) return null;
  const parts = all.filter((it) => !it.is_finished);
  const workers = byWorker(parts);
  const most = workers[0]?.speed || 1;
  return html`
    <h3>Parts <span class="quiet">${all.length - parts.length} of ${counted(all.length, "part")} ended</span></h3>
    ${progress.parallelism > 1 && workers.map((it) => html`
      <${Bar} key=${it.worker} name=${`worker ${it.worker}, ${counted(it.parts.length, "part")}`} share=${it.speed / most} text=${rate(it.speed)} />
    `)}
    <div class="sample parts" tabindex="0" role="group" aria-label="Parts of this source">
      ${workers.flatMap((it) => it.parts).slice(0, SHOWN).map((it) => html`
        <p key=${it.part}><span>worker ${it.worker}</span><code>${plain(it.part, 120)}</code><span>${rate(it.per_second)}</span><span>${short(it.records)} in all</span></p>
      `)}
    </div>
  `;
}
