// Events and reasons in words.

import { bytes, clock, count, counted, isNumber, percent, plain, span } from "./format.js";

const failure = (error) => (error ? plain(error.message, 600) : "cause unknown");

const STORIES = {
  run_started: (it) => ({
    shape: "ring",
    text: it.snapshot === null
      ? `Started with ${counted(it.parallelism, "worker")}, without a snapshot`
      : `${it.restarts ? "Restarted" : "Resumed"} from snapshot ${it.snapshot}, at tick ${count(it.tick)}`,
  }),
  snapshot_committed: (it) => ({
    shape: "dot",
    text: [
      `Snapshot ${it.snapshot} of tick ${count(it.tick)}`,
      isNumber(it.bytes) ? bytes(it.bytes) : null,
      isNumber(it.seconds) ? `in ${span(it.seconds)}` : null,
    ].filter(Boolean).join(", "),
  }),
  snapshot_failed: (it) => ({
    shape: "cross",
    isBad: true,
    text: `A snapshot failed: ${failure(it.error)}${isNumber(it.retry_after) ? `. Next attempt after ${span(it.retry_after)}` : ""}`,
  }),
  confirmation_failed: (it) => ({ shape: "cross", isBad: true, text: `${plain(it.source)} could not confirm: ${failure(it.error)}` }),
  discovery_failed: (it) => ({ shape: "cross", isBad: true, text: `${plain(it.source)} could not list its parts: ${failure(it.error)}` }),
  parts_discovered: (it) => ({
    shape: "diamond",
    text: `${plain(it.source)} has ${counted(it.parts.length, "new part")}: ${plain(it.parts.slice(0, 4).join(", "), 120)}`,
  }),
  parts_moved: (it) => ({ shape: "diamond", text: `${plain(it.parts.join(", "), 120)} of ${plain(it.source)} moved from worker ${it.before} to ${it.after}` }),
  rescaled: (it) => ({ shape: "diamond", text: `Rescaled from ${count(it.previous)} to ${counted(it.parallelism, "worker")}` }),
  rescale_refused: (it) => ({
    shape: "cross",
    isBad: true,
    text: `Not rescaled to ${counted(it.parallelism, "worker")}: ${failure(it.error)}`,
  }),
  restarted: (it) => ({ shape: "turn", isBad: true, text: `Failed, and restarts (${count(it.restarts)}): ${failure(it.error)}` }),
  input_ended: (it) => ({
    shape: "square",
    text: it.at_end === "keep" ? "Input has ended; open results are kept for the next run" : "Input has ended; open results are emitted",
  }),
  letters_taken: (it) => ({ shape: "diamond", text: `${counted(it.count, "record")} of ${plain(it.operator)} became ${it.count === 1 ? "a dead letter" : "dead letters"}` }),
  budget_exceeded: (it) => ({
    shape: "cross",
    isBad: true,
    text: `${count(it.failed)} of ${counted(it.taken, "record")} of ${plain(it.operator)} failed, more than its budget of ${percent(it.share)}`,
  }),
  standstill: (it) => ({ shape: "warning", isBad: true, text: it.isOpen ? it.text : `${it.text}, until ${clock(it.until)}` }),
  run_finished: (it) =>
    it.error
      ? { shape: "cross", isBad: true, text: `Failed: ${failure(it.error)}` }
      : { shape: "check", text: `Ended after tick ${count(it.tick)}${it.snapshot === null ? "" : `, with snapshot ${it.snapshot}`}` },
};

/** Return an event as a text, with the shape shown before it, and whether it is trouble. */
export function storyOf(event) {
  const story = STORIES[event.event];
  // Later versions may add kinds of events.
  return story ? story(event) : { shape: "ring", text: plain(event.event.replaceAll("_", " ")) };
}

const named = (name) => `“${plain(name, 40)}”`;

/** Return the name of a part, without quotes if it is a text. */
export const partName = (part) => plain(String(part).replace(/^(['"])(.*)\1$/, "$2"), 40);

// By cause: a few words, made from the facts and the operator at which records stop.
const HEADLINES = {
  silent_part: (it) => (it.dropped_by ? `${named(it.dropped_by)} drops the records of part ${partName(it.part)}` : `part ${partName(it.part)} of ${named(it.source)} is silent`),
  silent_source: (it) => `source ${named(it.source)} is silent`,
  silent_input: (it) => `input ${count(it.input)} of ${named(it.join)} gets nothing`,
  unfinished_source: (it) => `source ${named(it.source)} has no more input, but is not finished`,
  filter: (_, at) => `filter ${at} lets nothing pass`,
  all_late: (_, at) => `all records are late at ${at}`,
  future_record: (_, at) => `a record from the future has made all others late at ${at}`,
  units: (_, at) => `timestamps and bound of ${at} have different units`,
  bound: (_, at) => `the bound of ${at} is longer than the time that its input covers`,
  no_epochs: (_, at) => `no epochs (watermarks) at ${at}`,
  reads_before: (_, at) => `${at} reads the stream from before its epochs (watermarks)`,
  pattern: (_, at) => `pattern ${at} has no match`,
  letters: (_, at) => `all records fail at ${at}`,
  sink_waits: (_, at) => `sink ${at} waits for a snapshot`,
  snapshots_fail: (_, at) => `sink ${at} waits for a snapshot, and the last one failed`,
  blocked: (_, at) => `reading has stopped, since sink ${at} waits for a snapshot`,
  long_tick: (it) => `a tick takes long${it.operator ? ` in ${named(it.operator)}` : ""}`,
  breaker: (it) => `${named(it.operator)} waits, since its breaker is open`,
};

/** Return in two words whether there is no output or only some. */
export const lackOf = (written) => (written === 0 ? "no output" : "output missing");

/** Return in a few words why nothing comes out, and for how long a source has been silent; empty if that does not matter. */
export function headlineOf(why, written) {
  const { cause, facts, stops_at: at } = why;
  const lack = lackOf(written);
  const reason = HEADLINES[cause]?.(facts, named(at)) ?? (at ? `records stop at ${named(at)}` : "the cause is unknown");
  const isSilent = "silent_for" in facts && reason.endsWith("is silent");
  const since = isSilent ? (facts.silent_for ? ` for ${plain(facts.silent_for, 20)}` : " since the start") : "";
  return { text: `${lack[0].toUpperCase()}${lack.slice(1)}: ${reason}`, since };
}
