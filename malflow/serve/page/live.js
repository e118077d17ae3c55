// The run as this page knows it. It is read once a second, kept for ten minutes, and passed to the listener.

import { writtenOf } from "./figures.js";
import { isNumber, moment } from "./format.js";
import { headlineOf } from "./stories.js";

const SECOND = 1000;
const HIDDEN = 5 * SECOND;
const PAUSES = [1, 2, 4, 8, 15].map((it) => it * SECOND);
const PATIENCE = 12 * SECOND;
const MOST_SAMPLES = 600;
const MOST_EVENTS = 500;
const WHY_EVERY = 4 * SECOND;
const RATE_SECONDS = 5; // as on the server
const MOST_STALLS = 50;

/** An error document in answer to a request, with its kind and message. */
export class Refused extends Error {
  constructor(status, error) {
    super(error?.message ?? `the server answered ${status}`);
    this.status = status;
    this.kind = error?.kind ?? "Refused";
  }
}

async function asked(path, options = {}) {
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), options.patience ?? PATIENCE);
  try {
    const answer = await fetch(path, { credentials: "same-origin", cache: "no-store", signal: stop.signal, ...options });
    if (answer.status === 304) return null;
    const content = await answer.json().catch(() => null);
    if (!answer.ok || content?.kind === "error") throw new Refused(answer.status, content?.error);
    return content;
  } finally {
    clearTimeout(timer);
  }
}

/** Return the document at a path, with arguments; those that are null are left out. */
export function get(path, given = {}, patience = PATIENCE) {
  const query = new URLSearchParams(Object.entries(given).filter(([, value]) => value != null));
  return asked(`api/${path}${query.size ? `?${query}` : ""}`, { patience });
}

/** Ask the run to do something; return its answer. */
export const post = (path, given = {}) =>
  asked(`api/${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(given),
    patience: 60 * SECOND,
  });

/** Whether an error means that nobody answered, rather than that the answer was a refusal. */
const isSilence = (error) => !(error instanceof Refused) || error.status >= 502;

/** Return events with news, in which the letters of an operator are one event, unless others than snapshots lie between. */
function withNews(events, news) {
  const all = [...events];
  for (const event of news) {
    const before = event.event === "letters_taken" ? lettersBefore(all, event.operator) : -1;
    if (before === -1) {
      all.push(event);
      continue;
    }
    const [{ count, since, at }] = all.splice(before, 1);
    all.push({ ...event, count: count + event.count, since: since ?? at });
  }
  return all.slice(-MOST_EVENTS);
}

function lettersBefore(events, operator) {
  for (let at = events.length - 1; at >= 0; at -= 1) {
    const it = events[at];
    if (it.event === "letters_taken" && it.operator === operator) return at;
    if (it.event !== "letters_taken" && it.event !== "snapshot_committed") return -1;
  }
  return -1;
}

/** The run: `state` changes as a whole; after each change the listener is called. */
export class Live {
  constructor(listener) {
    this.listener = listener;
    this.state = {
      phase: "loading", // loading, locked, waiting, live, lost
      progress: null,
      graph: null,
      why: null,
      events: [],
      stalls: [], // the standstills that this page has seen, as events
      letters: [],
      samples: [],
      allowed: { control: false, samples: false },
      seen: null, // when the run last answered, by its clock
      failures: 0,
    };
    this.names = [];
    this.clockAt = 0;
    this.after = null;
    this.lastEvent = 0;
    this.whyAt = 0;
    this.held = null;
    this.timer = null;
    this.wasHidden = false;
  }

  /** The time by the clock of the run, in seconds since 1970; it stands still when the run is lost. */
  now() {
    const { seen, phase } = this.state;
    if (seen === null) return Date.now() / 1000;
    return phase === "live" ? seen + (performance.now() - this.clockAt) / 1000 : seen;
  }

  /** For how many seconds the run has not answered. */
  silence() {
    return (performance.now() - this.clockAt) / 1000;
  }

  start() {
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.soon(0);
    });
    setInterval(() => this.state.phase === "lost" && !document.hidden && this.listener(), SECOND); // the age of the figures grows
    return this.turn();
  }

  isOver() {
    return ["ended", "failed"].includes(this.state.progress?.status);
  }

  soon(pause) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.turn(), pause);
  }

  set(changes) {
    Object.assign(this.state, changes);
    this.listener();
  }

  async turn() {
    if (this.turning) return;
    this.turning = true;
    let pause = document.hidden || this.isOver() ? HIDDEN : SECOND;
    try {
      await this.update();
    } catch (error) {
      if (error.kind === "NoRun" || error.kind === "NotBuilt") {
        this.set({ phase: "waiting" });
      } else if (error instanceof Refused && error.status === 401) {
        this.set({ phase: "locked" });
        pause = null;
      } else {
        const failures = this.state.failures + 1;
        pause = Math.max(pause, PAUSES[Math.min(failures, PAUSES.length) - 1]);
        if (!isSilence(error)) console.warn(`malflow: ${error.message}`);
        this.set({ failures, phase: failures >= 2 || this.state.progress === null ? "lost" : this.state.phase });
      }
    } finally {
      this.turning = false;
    }
    if (pause !== null) this.soon(pause);
  }

  async update() {
    let progress = this.state.graph === null ? await this.begin() : await get("progress", { after: this.after });
    const { run } = this.state.progress ?? {};
    if (progress !== null && run !== undefined && run !== progress.run) {
      this.forget(); // the page shows the next run of its process
      progress = await this.begin();
    }
    const heard = performance.now();
    if (progress !== null) this.state.seen = moment(progress.at) ?? Date.now() / 1000;
    else this.state.seen += (heard - this.clockAt) / 1000;
    this.clockAt = heard;
    if (progress !== null) this.take(progress);
    else this.repeat();
    const changes = { failures: 0, phase: "live" };
    this.takeLetters(changes);
    this.takeWhy();
    this.set(changes);
    if (this.state.progress.run === run) await this.takeEvents();
  }

  forget() {
    Object.assign(this.state, { progress: null, graph: null, why: null, events: [], stalls: [], letters: [], samples: [] });
    Object.assign(this, { after: null, lastEvent: 0, whyAt: 0, held: null });
  }

  /** Read the documents that do not change, and the last minutes; return the progress. */
  async begin() {
    const words = ["page", "graph", "history", "progress"];
    const [page, graph, history, progress] = await Promise.all([...words.map((it) => get(it)), this.takeEvents()]);
    this.state.allowed = { control: page.control === true, samples: page.samples === true };
    this.state.graph = graph;
    this.names = history.operators.map((it) => it.name);
    const columns = history.operators;
    this.state.samples = history.at.map((at, number) => ({
      at: moment(at),
      tick: history.ticks[number],
      taken: Float64Array.from(columns, (it) => it.taken[number]),
      given: Float64Array.from(columns, (it) => it.given.reduce((sum, each) => sum + each[number], 0)),
      busy: Float64Array.from(columns, (it) => it.busy?.[number] ?? NaN),
      lag: new Float64Array(columns.length).fill(NaN),
    }));
    return progress;
  }

  take(progress) {
    const { state } = this;
    const operators = progress.operators;
    const names = operators.map((it) => it.name);
    const isOther = names.length !== this.names.length || names.some((name, at) => name !== this.names[at]);
    if (isOther || (state.progress && progress.restarts !== state.progress.restarts)) {
      this.names = names;
      state.samples = [];
    }
    this.after = progress.number ?? progress.tick;
    this.keep({
      at: moment(progress.at),
      tick: progress.tick,
      taken: Float64Array.from(operators, (it) => it.taken),
      given: Float64Array.from(operators, (it) => it.given.reduce((sum, each) => sum + each, 0)),
      busy: Float64Array.from(operators, (it) => it.busy ?? NaN),
      lag: Float64Array.from(operators, (it) => it.lag ?? NaN),
    });
    state.progress = progress;
  }

  /** Note that nothing has changed. */
  repeat() {
    const { samples, seen } = this.state;
    const last = samples.at(-1);
    if (last !== undefined && !this.isOver()) this.keep({ ...last, at: seen });
  }

  keep(sample) {
    const { samples } = this.state;
    if (samples.length && sample.at <= samples.at(-1).at + 0.2) return;
    samples.push(sample);
    if (samples.length > MOST_SAMPLES) samples.splice(0, samples.length - MOST_SAMPLES);
  }

  async takeEvents() {
    const answer = await get("events", { after: this.lastEvent });
    const news = answer?.events ?? [];
    if (news.length === 0) return;
    this.lastEvent = Math.max(...news.map((it) => it.number));
    this.state.events = withNews(this.state.events, news);
    if (this.state.phase === "live") this.set({});
  }

  takeLetters(changes) {
    const held = this.lettersHeld();
    if (held === this.held) return;
    this.held = held;
    // Letters, like the reason, are read between two ticks; the page waits for neither.
    if (!/[1-9]\d*\//.test(held)) changes.letters = [];
    else get("letters", { timeout: 20 }, 30 * SECOND).then(({ letters }) => this.set({ letters }), () => (this.held = null));
  }

  /** Return a text that changes when letters come or go. */
  lettersHeld() {
    return (this.state.progress?.operators ?? []).map((it) => `${it.counts.kept ?? 0}/${it.counts.letters ?? 0}`).join();
  }

  takeWhy() {
    if (performance.now() - this.whyAt < WHY_EVERY || this.isOver()) return;
    this.whyAt = performance.now();
    get("why", { timeout: 10 }, 20 * SECOND).then((why) => this.set({ why, stalls: this.stallsWith(why) }), () => {});
  }

  /** Return the standstills after another answer, which may begin, continue or end one. */
  stallsWith(why) {
    const { stalls, progress } = this.state;
    const last = stalls.at(-1);
    if (!why.is_fault && !last?.isOpen) return stalls;
    const { text } = why.is_fault ? headlineOf(why, writtenOf(progress)) : last;
    const until = this.now();
    if (last?.isOpen) return [...stalls.slice(0, -1), { ...last, text, until, isOpen: why.is_fault }];
    const at = new Date(this.lastOutput() * SECOND).toISOString();
    return [...stalls, { number: `stall ${at}`, event: "standstill", at, until, text, isOpen: true }].slice(-MOST_STALLS);
  }

  /** Return when sinks last got a record, as far as this page knows. */
  lastOutput() {
    const { progress, samples } = this.state;
    const written = (it) => (progress?.operators ?? []).reduce((sum, { is }, at) => sum + (is === "sink" ? it.taken[at] : 0), 0);
    const all = samples.length ? written(samples.at(-1)) : 0;
    return samples.find((it) => written(it) === all)?.at ?? this.now();
  }
}

/** Return the growth per second of the sum of columns, for each sample but the first, over the seconds before it; null where unknown. */
export function rates(samples, column, columns) {
  const total = (it) => columns.reduce((sum, at) => sum + it[column][at], 0);
  let first = 0;
  return samples.slice(1).map((after, before) => {
    while (first < before && after.at - samples[first].at > RATE_SECONDS) first += 1;
    const passed = after.at - samples[first].at;
    const more = total(after) - total(samples[first]);
    return passed > 0 && more >= 0 && isNumber(more) ? more / passed : null;
  });
}
