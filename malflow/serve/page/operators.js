// The table of all operators, and the panel with all facts about one.

import { Chart } from "./charts.js";
import { atOnce, busyText, keysText, otherCounts } from "./figures.js";
import { bytes, count, counted, finePercent, isNumber, lines, percent, place, plain, rate, short } from "./format.js";
import { Letters } from "./lists.js";
import { get, rates } from "./live.js";
import { Parts } from "./parts.js";
import { Sample } from "./sample.js";
import { Bar, Fact, html, Shape, useMemo, useState, Word } from "./view.js";

// The kinds of state in which a run can look up a key.
const KEYED = new Set(["stateful_map", "stateful_op", "ttl_map", "aggregate", "table", "distinct", "changes", "throttle", "batch"]);

const out = (operator) => (operator.out.length ? operator.out.reduce((total, it) => total + it, 0) : null);

const Cell = ({ value, text, name, isBad }) =>
  html`<td class=${`number${isBad ? " bad" : ""}`} data-name=${name}>${value === null || value === undefined ? html`<${Word}>–<//>` : text(value)}</td>`;

/** All operators, one per row; a click shows one. */
export function Table({ model, filter, onChoose }) {
  const wanted = filter.trim().toLowerCase();
  const shown = model.operators.filter((it) => it.name.toLowerCase().includes(wanted));
  return html`
    <section class="card operators" aria-label="Operators">
      <div class="bar"><h2>Operators</h2><span class="quiet">${counted(model.operators.length, "operator")}</span></div>
      <div class="scroll" tabindex="0" role="group" aria-label="Table of operators">
        <table>
          <thead>
            <tr>
              <th scope="col">operator</th><th scope="col" class="number">in</th><th scope="col" class="number">out</th>
              ${model.has.busy && html`<th scope="col" class="number">busy</th>`}
              <th scope="col" class="number">keys</th><th scope="col" class="number wide">lag</th>
              <th scope="col" class="number wide">late</th><th scope="col" class="number">failed</th>
            </tr>
          </thead>
          <tbody>
            ${shown.map((it) => html`
              <tr key=${it.name} class=${it.name === model.cause ? "cause" : ""} onClick=${() => onChoose(it.name)}>
                <th scope="row">
                  <button type="button" class="link" title=${plain(it.name, 400)} onClick=${(event) => { event.stopPropagation(); onChoose(it.name); }}>
                    ${it.name === model.cause && html`<${Shape} name="warning" />`}<span>${plain(it.name, 60)}</span>
                  </button>
                </th>
                <${Cell} value=${it.in} text=${rate} />
                <${Cell} value=${it.is === "sink" ? null : out(it)} text=${rate} />
                ${model.has.busy && html`<${Cell} value=${it.busy} text=${percent} />`}
                <${Cell} value=${it.keys} text=${count} />
                <${Cell} value=${it.lag} text=${short} name="wide" />
                <${Cell} value=${it.late} text=${count} name="wide" />
                <${Cell} value=${it.failed || null} text=${count} isBad=${it.failed > 0} />
              </tr>
            `)}
          </tbody>
        </table>
        ${!shown.length && html`<p class="empty">${wanted ? `No operator has “${plain(filter, 40)}” in its name.` : "This dataflow has no operators."}</p>`}
      </div>
    </section>
  `;
}

/** How unevenly the records of an operator are spread over workers and keys. */
function Skew({ operator, parallelism }) {
  const { hot } = operator;
  const loads = operator.workers?.taken?.by_worker ?? [];
  const sum = loads.reduce((total, it) => total + it, 0);
  if (loads.length > 1 && sum) {
    const most = Math.max(...loads);
    return html`
      <h3>Workers <span class="quiet">records in all, skew ${((most * loads.length) / sum).toFixed(1)}</span></h3>
      ${loads.map((it, at) => html`<${Bar} key=${at} name=${`worker ${at}`} share=${it / most} text=${short(it)} isStrong=${it === most && it * loads.length > 1.5 * sum} />`)}
      ${hot && html`<${Bar} name=${html`key <code>${plain(hot.key, 40)}</code>`} share=${hot.key_share} text=${percent(hot.key_share)} />`}
    `;
  }
  if (!hot || parallelism < 2) return null;
  const even = 1 / parallelism;
  return html`
    <h3>Workers <span class="quiet">skew ${(hot.worker_share / even).toFixed(1)}, estimated from a sample</span></h3>
    <${Bar} name=${`worker ${hot.worker}`} share=${hot.worker_share} text=${percent(hot.worker_share)} isStrong=${hot.worker_share > 1.5 * even} />
    <${Bar} name="even share" share=${even} text=${percent(even)} />
    <${Bar} name=${html`key <code>${plain(hot.key, 40)}</code>`} share=${hot.key_share} text=${percent(hot.key_share)} />
  `;
}

/** Look up the state of a key in the last snapshot, or in the run. */
function Lookup({ name }) {
  const [key, setKey] = useState("");
  const [found, setFound] = useState(null);
  const look = (event) => {
    event.preventDefault();
    setFound({ says: "Looking…" });
    get("state", { operator: name, key }, 30000).then(
      (answer) => setFound(answer),
      (error) => setFound({ says: lines(error.message), isBad: true }),
    );
  };
  return html`
    <h3>State of a key</h3>
    <form class="lookup" onSubmit=${look}>
      <label class="field"><span>Key</span><input value=${key} onInput=${(event) => setKey(event.target.value)} required spellcheck="false" /></label>
      <button type="submit">Look up</button>
    </form>
    <div class="answer" role="status">
      ${found?.says && html`<p class=${found.isBad ? "bad" : "quiet"}>${found.says}</p>`}
      ${found?.states?.map((it, at) => html`<p key=${at}><code>${plain(it.key, 120)}</code> → <code>${plain(it.value, 2000)}</code></p>`)}
      ${found?.states && html`<p class="quiet">${found.states.length ? `after tick ${count(found.tick)}` : `No state has this key after tick ${count(found.tick)}.`}</p>`}
    </div>
  `;
}

/** Ask why nothing comes out of an operator. */
function Reason({ name }) {
  const [told, setTold] = useState(null);
  const ask = () => {
    setTold({ text: "Waiting for the end of the tick…" });
    get("why", { operator: name, timeout: 30 }, 40000).then(setTold, (error) => setTold({ text: error.message, isBad: true }));
  };
  return html`
    <button type="button" onClick=${ask}>Why does nothing come out?</button>
    <div class="answer" role="status">${told && html`<pre class=${told.isBad ? "bad" : ""}>${lines(told.text)}</pre>`}</div>
  `;
}

/** Return a function that cuts columns of the samples to a range, with the times before them. */
function cutTo(samples, range, until) {
  const times = samples.slice(1).map((it) => it.at);
  const from = Math.max(0, times.findIndex((it) => it >= until - range - 2));
  return (...columns) => [times, ...columns].map((it) => it.slice(from));
}

/** The records that all sources have read and all sinks have received. */
export function Flow({ model, samples, range, until }) {
  const columnsOf = (kind) => model.operators.filter((it) => it.is === kind).map((it) => it.at);
  const data = useMemo(
    () => cutTo(samples, range, until)(...["source", "sink"].map((kind) => rates(samples, "taken", columnsOf(kind)))),
    [samples.at(-1), samples.length, range],
  );
  return html`
    <section class="card" aria-label="Whole run">
      <${Chart} title="Whole run" unit=${rate} range=${range} until=${until} series=${["records in", "records out"]} data=${data} now=${[model.read, model.written]} />
    </section>
  `;
}

/** One operator. */
export function Panel({ operator, model, state, range, until, onChoose, onReplay, group }) {
  const { samples, progress, allowed } = state;
  const { node, at } = operator;
  const last = samples.at(-1);
  const charts = useMemo(() => {
    const cut = cutTo(samples, range, until);
    const taken = rates(samples, "taken", [at]);
    const busy = rates(samples, "busy", [at]).map((it) => (isNumber(it) ? Math.min(1, it / atOnce(progress)) : null));
    return {
      taken: cut(taken),
      flow: cut(taken, rates(samples, "given", [at])),
      busy: cut(busy),
      lag: cut(samples.slice(1).map((it) => (isNumber(it.lag[at]) ? it.lag[at] : null))),
    };
  }, [last, samples.length, at, range]);
  const isSource = operator.is === "source";
  const isSink = operator.is === "sink";
  const largest = isNumber(operator.largest_state) ? `, the largest ${bytes(operator.largest_state)}` : "";
  return html`
    <section class="card panel" aria-label=${`Operator ${plain(operator.name, 80)}`}>
      <div class="bar">
        <h2 title=${plain(operator.name, 2000)}>${plain(operator.name, 60)}</h2>
        <button type="button" onClick=${() => onChoose(null)}>All operators</button>
      </div>
      <p class="is" title=${isNumber(node?.version) ? `v${node.version}: the version of its state format` : undefined}>
        ${plain([node?.kind, node?.implementation, isNumber(node?.version) ? `v${node.version}` : null].filter(Boolean).join(" ") || operator.is, 80)}
        ${node?.location && html`<code title=${plain(node.location, 400)}>${place(node.location)}</code>`}
        ${operator.name === model.cause && html`<strong class="bad"><${Shape} name="warning" />records stop here</strong>`}
      </p>
      ${group && group.length > 1 && html`
        <div class="chain" role="group" aria-label="Operators of this chain">
          ${group.map((it) => html`<button type="button" key=${it} aria-pressed=${it === operator.name} onClick=${() => onChoose(it, group)}>${plain(it, 30)}</button>`)}
        </div>
      `}
      <dl class="facts">
        <${Fact} name=${isSource ? "read" : "in"} title=${counted(operator.taken, "record")}>${rate(operator.in)} <small>${short(operator.taken)} in all</small><//>
        ${!isSink && operator.given.map((it, number) => html`
          <${Fact} key=${number} name=${operator.given.length > 1 ? `out: ${plain(node?.outputs[number] ?? number, 16)}` : "out"} title=${counted(it, "record")}>
            ${rate(operator.out[number])} <small>${short(it)} in all</small><//>
        `)}
        <${Fact} name="busy">${busyText(operator.busy)}<//>
        ${node?.state && html`<${Fact} name="keys">${keysText(operator) ?? "none stored yet"}<small>${largest}</small><//>`}
        ${isSource && html`<${Fact} name="lag" title="Input waiting to be read">${isNumber(operator.lag) ? `${short(operator.lag)} waiting` : "not told by the source"}<//>`}
        ${isNumber(operator.late) && html`<${Fact} name="late" title="Late records: older than the last epoch (watermark) of the stream">${counted(operator.late, "record")}${operator.lateness ? html` <small>at most by ${plain(operator.lateness, 40)}</small>` : null}<//>`}
        ${operator.failed > 0 && html`<${Fact} name="failed"><span class="bad">${counted(operator.failed, "record")}</span><//>`}
        ${isNumber(operator.largest) && operator.largest > 0 && html`<${Fact} name="largest batch" title="The most records that it has received at once">${counted(operator.largest, "record")}<//>`}
        ${otherCounts(operator).map(([name, value]) => html`<${Fact} key=${name} name=${plain(name, 24)}>${value}<//>`)}
      </dl>
      <div class="charts">
        <${Chart} title="records" unit=${rate} range=${range} until=${until}
          series=${isSource || isSink ? [isSource ? "read" : "in"] : ["in", "out"]}
          data=${isSource || isSink ? charts.taken : charts.flow} now=${[operator.in, out(operator)]} />
        ${model.has.busy && html`<${Chart} title="busy" unit=${finePercent} says=${percent} range=${range} until=${until} series=${["of the workers' time"]} data=${charts.busy} now=${[operator.busy]} />`}
        ${isSource && model.has.lag && html`<${Chart} title="lag" unit=${short} range=${range} until=${until} series=${["waiting"]} data=${charts.lag} now=${[operator.lag]} />`}
      </div>
      <${Skew} operator=${operator} parallelism=${progress.parallelism} />
      ${isSource && html`<${Parts} name=${operator.name} progress=${progress} />`}
      ${allowed.samples && html`<${Sample} key=${`s${operator.name}`} name=${operator.name} />`}
      ${KEYED.has(node?.state) && html`<${Lookup} key=${`l${operator.name}`} name=${operator.name} />`}
      ${operator.letters > 0 && html`<h3>Letters <span class="quiet">${count(operator.letters)}</span></h3>
        <div class="held" tabindex="0" role="group" aria-label="Letters of this operator">
          <${Letters} letters=${state.letters} operator=${operator.name} isAllowed=${allowed.control} onReplay=${onReplay} /></div>`}
      <${Reason} key=${`r${operator.name}`} name=${operator.name} />
    </section>
  `;
}
