// The last records of an operator, asked for only while somebody looks.

import { moment, plain } from "./format.js";
import { get } from "./live.js";
import { html, Time, useEffect, useState } from "./view.js";

const EVERY = 1000;
const MOST = 20;

export function Sample({ name }) {
  const [isShown, setShown] = useState(false);
  const [records, setRecords] = useState([]);
  const [says, setSays] = useState("");
  useEffect(() => {
    setRecords([]);
    setSays("");
    if (!isShown) return undefined;
    let timer = null;
    let isOver = false;
    let last = 0;
    const turn = async () => {
      try {
        const { samples } = await get("sample", { operator: name, after: last });
        if (isOver) return;
        if (samples.length) {
          last = samples.at(-1).number;
          setRecords((before) => [...before, ...samples].slice(-MOST));
        }
        setSays("");
      } catch (error) {
        if (!isOver) setSays(error.message);
      }
      if (!isOver) timer = setTimeout(turn, EVERY);
    };
    turn();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [isShown]);
  return html`
    <h3>Last records
      <label class="check"><input type="checkbox" checked=${isShown} onChange=${(event) => setShown(event.target.checked)} /><span>Show</span></label>
    </h3>
    ${isShown && html`
      <div class="sample" tabindex="0" role="group" aria-label="Last records">
        ${[...records].reverse().map((it) => html`
          <p key=${it.number}><${Time} at=${moment(it.at)} /><code>${plain(it.key, 60)}</code><code>${plain(it.value, 400)}</code></p>
        `)}
        ${says ? html`<p class="bad">${plain(says, 300)}</p>` : records.length === 0 && html`<p class="empty">Waiting for a record…</p>`}
      </div>
    `}
  `;
}
