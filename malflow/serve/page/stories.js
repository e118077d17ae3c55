// Events in words.

import { bytes, count, counted, isNumber, percent, plain, span } from "./format.js";

const failure = (error) => (error ? plain(error.message, 600) : "of an unknown cause");

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
  rescaled: (it) => ({ shape: "diamond", text: `Rescaled from ${count(it.previous)} to ${counted(it.parallelism, "worker")}` }),
  rescale_refused: (it) => ({
    shape: "cross",
    isBad: true,
    text: `Stays as it is instead of ${counted(it.parallelism, "worker")}: ${failure(it.error)}`,
  }),
  restarted: (it) => ({ shape: "turn", isBad: true, text: `Failed, and starts again (${count(it.restarts)}): ${failure(it.error)}` }),
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
  run_finished: (it) =>
    it.error
      ? { shape: "cross", isBad: true, text: `Failed: ${failure(it.error)}` }
      : { shape: "check", text: `Ended after tick ${count(it.tick)}${it.snapshot === null ? "" : `, with snapshot ${it.snapshot}`}` },
};

/** Return an event as a text, with the shape that stands before it, and whether it is trouble. */
export function storyOf(event) {
  const story = STORIES[event.event];
  // Later versions add kinds of events.
  return story ? story(event) : { shape: "ring", text: plain(event.event.replaceAll("_", " ")) };
}
