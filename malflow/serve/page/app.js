// The page of one run.

import { RANGES, Spark } from "./charts.js";
import { busyText, isOver, modelOf } from "./figures.js";
import { age, bytes, clock, count, counted, exact, isNumber, lines, moment, plain, rate, running, short } from "./format.js";
import { Graph } from "./graph.js";
import { Lists } from "./lists.js";
import { Live, post, rates } from "./live.js";
import { Flow, Panel, Table } from "./operators.js";
import { opened, Locked } from "./session.js";
import { headlineOf, lackOf, partName } from "./stories.js";
import { Timeline } from "./timeline.js";
import { Choice, html, render, Shape, Time, useEffect, useMemo, useRef, useState } from "./view.js";

const RUNTIMES = { single: "single thread", processes: "processes", spark: "Spark" };
const STATUSES = {
  starting: "ring", running: "dot", resting: "bars", blocked: "square", stopping: "turn", restarting: "turn", ended: "check", failed: "cross",
};
const SPARK_SECONDS = 60;

function Status({ state, model }) {
  const { phase, progress } = state;
  const isLacking = model.fault && (progress.status === "running" || progress.status === "resting");
  const [word, shape] =
    phase === "lost" && !isOver(progress) ? ["lost contact", "warning"]
    : isLacking ? [`${progress.status}, ${lackOf(model.written)}`, "warning"] : [progress.status, STATUSES[progress.status] ?? "ring"];
  const isBad = isLacking || word === "failed" || word === "lost contact" || word === "blocked" || word === "restarting";
  return html`<span class=${`status ${isBad ? "bad" : ""}`} data-status=${word}><${Shape} name=${shape} />${word}</span>`;
}

function Header({ state, model, live, onAsk }) {
  const { progress, allowed, phase } = state;
  const isOff = phase !== "live" || isOver(progress);
  const started = moment(progress.started);
  const ended = isOver(progress) ? moment(state.events.findLast((it) => it.event === "run_finished")?.at) : null;
  const uptime = started === null ? null : (ended ?? live.now()) - started;
  const buttons = [["snapshot", "Snapshot"], ["rescale", "Rescale"], ["stop", "Stop"]];
  return html`
    <header>
      <div class="who">
        <span class="brand">malflow</span>
        <h1 title=${plain(progress.job, 2000)}>${plain(progress.job, 60)}</h1>
        <span class="runtime" title=${`${counted(progress.parallelism, "worker")}, each with a share of the keys`}>${RUNTIMES[progress.runtime] ?? plain(progress.runtime, 20)} × ${count(progress.parallelism)}</span>
      </div>
      <div class="state">
        <${Status} state=${state} model=${model} />
        <span class="uptime" title=${`since ${exact(started)}`}>${uptime === null ? "not started" : running(uptime)}</span>
        <span class="tick" title="A tick is one round of the run: records are read, and pass through all operators">tick ${count(progress.tick)}</span>
        ${progress.restarts > 0 && html`<span class="restarts">${counted(progress.restarts, "restart")}</span>`}
      </div>
      ${allowed.control
        ? html`<div class="buttons">${buttons.map(([key, text]) => html`
            <button type="button" key=${key} disabled=${isOff} onClick=${() => onAsk(key)}>${text}</button>`)}</div>`
        : html`<span class="quiet readonly" title="Start the run with control = true in [serve], or --control, to steer it from here.">Read only</span>`}
    </header>
  `;
}

const Tile = ({ name, children, note, title, isBad, onClick }) => html`
  <div class=${`tile${isBad ? " bad" : ""}`} title=${title}>
    <dt>${name}</dt>
    <dd>${onClick ? html`<button type="button" class="link" onClick=${onClick}>${children}</button>` : children}</dd>
    <dd class="note">${note}</dd>
  </div>
`;

/** Return the silent part or source that a fault names, and for how long it has been silent; null if it names none. */
function silentOf(fault) {
  const facts = fault?.facts;
  if (!facts?.source || !("silent_for" in facts)) return null;
  return {
    name: facts.part ? `part ${partName(facts.part)}` : plain(facts.source, 28),
    note: facts.silent_for ? `silent for ${plain(facts.silent_for, 20)}` : "silent since the start",
  };
}

function Figures({ state, model, live, onChoose }) {
  const { progress, samples } = state;
  const sources = model.operators.filter((it) => it.is === "source").map((it) => it.at);
  const trend = rates(samples.slice(-SPARK_SECONDS - 1), "taken", sources);
  const silent = silentOf(model.fault);
  const busiest = model.has.busy ? model.busiest : model.fastest;
  const { snapshot, snapshot_failure: failure } = progress;
  const taken = moment(snapshot?.at);
  const old = taken === null ? null : live.now() - taken;
  const total = (kind) => progress.operators.reduce((sum, it) => sum + (it.is === kind ? it.taken : 0), 0);
  const [read, written] = [total("source"), total("sink")];
  const speed = (value) => (isNumber(value) ? rate(value) : "measuring");
  return html`
    <dl class="tiles">
      <${Tile} name="records in" note=${`${short(read)} read in all`} title=${`${counted(read, "record")} read by all sources`}>
        <span class="big">${speed(model.read)}</span>
        <${Spark} values=${trend} />
      <//>
      <${Tile} name="records out" isBad=${model.fault && model.written === 0} note=${`${short(written)} written in all`} title=${`${counted(written, "record")} received by all sinks`}>
        ${progress.operators.some((it) => it.is === "sink") ? speed(model.written) : "no sinks"}
      <//>
      <${Tile} name=${model.has.busy ? "busiest" : "most records"} onClick=${busiest && (() => onChoose(busiest.name))}
        note=${busiest ? (model.has.busy ? `${busyText(busiest.busy)} of the workers' time` : rate(busiest.in)) : "no records lately"}>
        ${busiest ? plain(busiest.name, 28) : "none"}
      <//>
      ${silent && html`<${Tile} name="laggard" isBad title="The part or source that holds back the time of the stream" note=${silent.note}
        onClick=${model.byName.has(model.fault.facts.source) && (() => onChoose(model.fault.facts.source))}>${silent.name}<//>`}
      ${!silent && html`<${Tile} name="laggard" title="The source with the most input waiting to be read" onClick=${model.laggard && (() => onChoose(model.laggard.name))}
        note=${model.laggard ? `${short(model.laggard.lag)} waiting` : model.has.lag ? "no input waiting" : "sources report no lag"}>
        ${model.laggard ? plain(model.laggard.name, 28) : "none"}
      <//>`}
      <${Tile} name="snapshot" isBad=${Boolean(failure)} title=${taken === null ? undefined : exact(taken)}
        note=${failure ? `failed: ${plain(failure.error, 80)}` : snapshot ? [isNumber(snapshot.bytes) ? bytes(snapshot.bytes) : null, isNumber(snapshot.keys) ? counted(snapshot.keys, "key") : null].filter(Boolean).join(", ") || "size unknown" : "none taken yet"}>
        ${snapshot ? html`${count(snapshot.id)} <small>${old === null ? "time unknown" : `${age(old)} ago`}</small>` : "none"}
      <//>
      <${Tile} name="late" title="Late records: older than the last epoch (watermark) of the stream" note=${model.late ? "came too late" : "no late records"}>${count(model.late)}<//>
      <${Tile} name="letters" title="Dead letters: failed records, kept so that they can be processed again" isBad=${model.letters > 0} note=${model.failed ? `${counted(model.failed, "record")} failed` : "no record failed"}>${count(model.letters)}<//>
    </dl>
  `;
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Return the status of the run: a shape, a headline, a full text, the operator to look at, and whether it is trouble. */
function sayingOf(state, model, live) {
  const { phase, progress, why, seen, events } = state;
  const end = events.findLast((it) => it.event === "run_finished");
  if (progress.status === "failed") {
    const error = end?.error;
    const text = [error?.message ?? "The cause is unknown.", error?.location].filter(Boolean).join("\n");
    return { shape: "cross", isBad: true, head: `The run failed${error?.operator ? ` at “${plain(error.operator, 40)}”` : ""}`, text, at: error?.operator };
  }
  if (progress.status === "ended") {
    return { shape: "check", head: `The run has ended${end ? ` at ${clock(moment(end.at))}` : ""}, after tick ${count(progress.tick)}.` };
  }
  if (phase === "lost") {
    return { shape: "warning", isBad: true, head: `Lost contact with the run, last seen ${clock(seen)}`, since: `: all figures are ${age(live.silence())} old`, text: "Its process has ended or can't be reached. This page keeps trying." };
  }
  if (progress.status === "restarting") {
    const last = events.findLast((it) => it.event === "restarted");
    return { shape: "turn", isBad: true, head: "The run restarts after an error", text: last?.error?.message };
  }
  if (model.fault) {
    const { text: head, since } = headlineOf(why, model.written);
    return { shape: "warning", isBad: true, head, since, text: sentence(why.text), at: why.stops_at };
  }
  if (progress.snapshot_failure) {
    return { shape: "warning", isBad: true, head: "The last snapshot failed", text: progress.snapshot_failure.error };
  }
  if (progress.status === "starting") return { shape: "ring", head: "The run is starting." };
  if (progress.status === "stopping") return { shape: "turn", head: "The run stops after this tick." };
  if (why && why.cause === "waits") return { shape: "bars", head: "No result is due yet.", text: sentence(why.text) };
  return why ? { shape: "check", head: "Records reach the sinks." } : { shape: "ring", head: "Checking how records flow through the run…" };
}

function Alert({ state, model, live, onChoose }) {
  const [isOpen, setOpen] = useState(false);
  const { shape, head, since, text, isBad, at } = sayingOf(state, model, live);
  return html`
    <section class=${`alert${isBad ? " bad" : ""}${isOpen ? " open" : ""}`} aria-label="Run status">
      <${Shape} name=${shape} />
      <p class="head" role="status" aria-live="polite">${head}${since && html`<span aria-hidden="true">${since}</span>`}</p>
      ${text && (isBad || isOpen) && html`<p class="detail">${lines(text)}</p>`}
      <span class="do">
        ${isBad && at && model.byName.has(at) && html`<button type="button" onClick=${() => onChoose(at)}>Show “${plain(at, 24)}”</button>`}
        ${text && html`<button type="button" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>${isOpen ? "Less" : "More"}</button>`}
      </span>
    </section>
  `;
}

/** A dialog that asks before the run is changed. */
function Question({ word, progress, onClose, onDo }) {
  const box = useRef(null);
  const [workers, setWorkers] = useState(progress.parallelism);
  useEffect(() => box.current.showModal(), []);
  const submit = (event) => {
    event.preventDefault();
    onDo(word, word === "rescale" ? { parallelism: Number(workers) } : {});
    onClose();
  };
  return html`
    <dialog ref=${box} onClose=${onClose} aria-labelledby="question">
      <form onSubmit=${submit}>
        <h2 id="question">${word === "stop" ? "Stop this run?" : "Rescale this run?"}</h2>
        ${word === "stop"
          ? html`<p>It ends after the current tick, with a last snapshot if the run keeps snapshots.</p>`
          : html`<p>The state moves to the new workers between two ticks.</p>
              <label class="field"><span>Workers</span><input type="number" min="1" max="10000" required value=${workers} onInput=${(event) => setWorkers(event.target.value)} /></label>`}
        <div class="actions">
          <button type="button" onClick=${() => box.current.close()}>Cancel</button>
          <button type="submit" class="main">${word === "stop" ? "Stop" : "Rescale"}</button>
        </div>
      </form>
    </dialog>
  `;
}

/** Return the run's answer to a request, as a text. */
function doneText(word, answer) {
  if (answer?.kind === "letters_done") {
    const rest = [answer.late && `${count(answer.late)} too late`, answer.texts && `${count(answer.texts)} kept, since only their texts are stored`].filter(Boolean);
    return [`${counted(answer.done, "letter")} of ${plain(answer.operator, 40)} replayed`, ...rest].join(", ");
  }
  if (answer?.kind === "accepted") return word === "stop" ? "The run stops after this tick" : `${word}: requested, not done yet`;
  if (isNumber(answer?.snapshot)) return `Snapshot ${answer.snapshot} taken`;
  if (isNumber(answer?.parallelism)) return `Now with ${counted(answer.parallelism, "worker")}`;
  return `${word}: done`;
}

function Page({ live, state }) {
  const [chosen, setChosen] = useState({ name: null, group: null });
  const [filter, setFilter] = useState("");
  const [figure, setFigure] = useState(null);
  const [wanted, setRange] = useState(null);
  const [question, setQuestion] = useState(null);
  const [said, setSaid] = useState(null);
  const model = modelOf(state);
  const until = Math.floor(live.now());
  const life = until - (moment(state.progress.started) ?? until);
  // Unless somebody has chosen a range, the shortest one that holds the whole run.
  const range = wanted ?? (RANGES.find(([seconds]) => life < seconds) ?? RANGES.at(-1))[0];
  const operator = model.byName.get(chosen.name);
  const choose = (name, group = null) => setChosen({ name, group });
  useEffect(() => {
    if (!said || said.isBad) return undefined;
    const timer = setTimeout(() => setSaid(null), 8000);
    return () => clearTimeout(timer);
  }, [said]);
  const act = (word, given) => {
    setSaid({ text: `${word}: waiting for the end of the tick…` });
    post(word, given).then(
      (answer) => { setSaid({ text: doneText(word, answer) }); live.soon(0); },
      (error) => setSaid({ text: `${word}: ${lines(error.message)}`, isBad: true }),
    );
  };
  const ask = (word) => (word === "snapshot" ? act(word, {}) : setQuestion(word));
  const replay = (name, ids) => act("replay", ids ? { operator: name, ids } : { operator: name });
  // Standstills begin before they are found, so the events are sorted.
  const events = useMemo(() => [...state.events, ...state.stalls].sort((one, other) => moment(one.at) - moment(other.at)), [state.events, state.stalls]);
  const shownFigure = figure ?? (model.has.busy ? "busy" : "rate");
  const seen = state.seen ?? 0;
  return html`
    <${Header} state=${state} model=${model} live=${live} onAsk=${ask} />
    <main class=${state.phase === "lost" ? "lost" : ""}>
      <${Figures} state=${state} model=${model} live=${live} onChoose=${choose} />
      <${Alert} state=${state} model=${model} live=${live} onChoose=${choose} />
      <${Graph} graph=${state.graph} model=${model} chosen=${chosen.name} onChoose=${choose} filter=${filter} onFilter=${setFilter}
        figure=${shownFigure} onFigure=${setFigure} />
      <div class="columns">
        ${operator
          ? html`<${Panel} key="operator" operator=${operator} group=${chosen.group} model=${model} state=${state} range=${range} until=${until} onChoose=${choose} onReplay=${replay} />`
          : html`<div class="side" key="operators"><${Table} model=${model} filter=${filter} onChoose=${choose} />
              <${Flow} model=${model} samples=${state.samples} range=${range} until=${until} /></div>`}
        <div class="side" key="events">
          <section class="card" aria-label="Timeline">
            <div class="bar"><h2>Timeline</h2>
              <${Choice} label="Range of all charts" name="range" options=${RANGES} value=${range} onChange=${setRange} /></div>
            <${Timeline} events=${events} range=${range} until=${until} />
          </section>
          <${Lists} events=${events} letters=${state.letters} held=${model.letters} isAllowed=${state.allowed.control} onReplay=${replay} />
        </div>
      </div>
    </main>
    <footer>
      <span>run ${plain(state.progress.run, 16)}</span><span>process ${plain(state.progress.pid, 12)}</span>
      <span>last seen <${Time} at=${seen} /></span>
    </footer>
    <div class=${`said${said?.isBad ? " bad" : ""}`} role="status" aria-live="polite">
      ${said && html`<span>${said.text}</span><button type="button" aria-label="Close this message" onClick=${() => setSaid(null)}>×</button>`}
    </div>
    ${question && html`<${Question} word=${question} progress=${state.progress} onClose=${() => setQuestion(null)} onDo=${act} />`}
  `;
}

const WAITING = {
  loading: "Asking the run for its status…",
  waiting: "No run has begun yet. This page waits for it.",
};

function Root({ live }) {
  const { state } = live;
  if (state.phase === "locked") return html`<${Locked} onOpen=${() => live.soon(0)} />`;
  if (state.progress && state.graph) return html`<${Page} live=${live} state=${state} />`;
  return html`
    <main class="waiting" aria-busy=${state.phase === "loading"}>
      <span class="brand">malflow</span>
      <p role="status">${WAITING[state.phase] ?? "The run does not answer. This page keeps trying."}</p>
    </main>
  `;
}

const root = document.getElementById("page");
let isDue = false;
const live = new Live(() => {
  if (isDue) return;
  isDue = true;
  queueMicrotask(() => {
    isDue = false;
    const started = performance.now();
    render(html`<${Root} live=${live} />`, root);
    const { state } = live;
    if (state.progress) document.title = `${plain(state.progress.job, 60)} – malflow`;
    if (state.phase === "live" && document.body.dataset.ready !== "live") performance.mark("malflow-ready");
    if (state.phase !== "loading") document.body.dataset.ready = state.phase;
    document.body.dataset.updates = String(Number(document.body.dataset.updates ?? 0) + 1);
    performance.measure("malflow-update", { start: started, end: performance.now() });
    performance.clearMeasures("malflow-update");
  });
});

render(html`<${Root} live=${live} />`, root);
await opened();
live.start();
