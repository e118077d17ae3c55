// The figures of operators. They are computed once for each update, and used by graph, table and panel.

import { count, counted, isNumber, percent, rate, short } from "./format.js";

const sum = (values) => values.reduce((total, it) => total + it, 0);
const known = (values) => values.filter(isNumber);

/** Return the figures of a run's operators, the busiest and the one with the most input waiting. */
export function modelOf(state) {
  const { progress, graph, why } = state;
  const kinds = new Map((graph?.nodes ?? []).map((it) => [it.name, it]));
  const over = isOver(progress);
  const hot = new Map((progress?.hot ?? []).map((it) => [it.operator, it]));
  const operators = (progress?.operators ?? []).map((it, at) => {
    const node = kinds.get(it.name);
    return {
      ...it,
      at,
      node,
      hot: hot.get(it.name),
      in: over ? 0 : it.taken_per_second,
      out: over ? it.given.map(() => 0) : it.given_per_second ?? [],
      given: it.given,
      busy: over ? null : (it.busy_share ?? null),
      failed: it.failed ?? it.counts.failed ?? 0,
      letters: it.counts.kept ?? 0,
    };
  });
  const has = {
    busy: operators.some((it) => isNumber(it.busy)),
    rate: true,
    lag: operators.some((it) => isNumber(it.lag)),
    failed: true,
  };
  const most = (key) => operators.reduce((best, it) => (isNumber(it[key]) && it[key] > (best?.[key] ?? 0) ? it : best), null);
  const model = {
    operators,
    byName: new Map(operators.map((it) => [it.name, it])),
    has,
    busiest: most("busy"),
    fastest: most("in"),
    laggard: most("lag"),
    greatest: { rate: most("in")?.in ?? 0, lag: most("lag")?.lag ?? 0 },
    late: sum(known(operators.map((it) => it.late))),
    letters: sum(operators.map((it) => it.letters)),
    failed: sum(operators.map((it) => it.failed)),
    cause: why?.is_fault && !isOver(progress) ? why.stops_at : null,
  };
  model.fault = why?.is_fault && !isOver(progress) ? why : null;
  model.read = over ? 0 : progress?.polled_per_second;
  model.written = writtenOf(progress);
  model.waiting = waitingFor(model, graph);
  return model;
}

const allOf = (values) => (values.length && values.every(isNumber) ? sum(values) : null);

/** Return the records per second that sinks get; null if there are no sinks, or the rate is unknown. */
export const writtenOf = (progress) =>
  isOver(progress) ? 0 : allOf((progress?.operators ?? []).filter((it) => it.is === "sink").map((it) => it.taken_per_second));

/** Return the operators that give nothing because the cause is upstream of them. */
function waitingFor({ byName, cause }, graph) {
  if (cause === null || !graph) return new Set();
  const after = new Set([cause]);
  // They are in the order of their targets, and each leads to a later one.
  for (const { source, target } of graph.edges) {
    if (after.has(graph.nodes[source].name)) after.add(graph.nodes[target].name);
  }
  after.delete(cause);
  return new Set([...after].filter((name) => {
    const it = byName.get(name);
    return it && (it.is === "sink" ? it.in === 0 : it.out.length > 0 && sum(it.out) === 0);
  }));
}

/** Return how many workers may work at the same time. */
export const atOnce = (progress) => (progress.runtime === "single" ? 1 : Math.max(1, progress.parallelism));

export const isOver = (progress) => progress?.status === "ended" || progress?.status === "failed";

export const busyText = (share) => (isNumber(share) ? percent(share) : "not measured");

const total = (members, key) => {
  const values = known(members.map((it) => it[key]));
  return values.length ? sum(values) : null;
};

const flow = (members) => (members[0] ? rate(members[0].in) : "not counted");

/** The figures by which boxes can be filled, each with the texts at the left and right of a box. */
export const FIGURES = [
  {
    key: "busy",
    name: "busy",
    missing: "this run does not measure the time spent in operators",
    texts: (members) => {
      const busy = total(members, "busy");
      return [flow(members), isNumber(busy) ? percent(busy) : ""];
    },
  },
  { key: "rate", name: "rate", texts: (members) => [flow(members), ""] },
  {
    key: "lag",
    name: "lag",
    missing: "no source of this run reports its lag",
    texts: (members) => {
      const lag = total(members, "lag");
      return [isNumber(lag) ? `${short(lag)} waiting` : flow(members), ""];
    },
  },
  {
    key: "failed",
    name: "failed",
    texts: (members) => {
      const failed = total(members, "failed");
      return [failed ? `${short(failed)} failed` : "none failed", ""];
    },
  },
];

/** Return how full a box is, from 0 to 1; null if the figure is unknown. */
export function shareOf(figure, members, model) {
  const value = total(members, figure === "rate" ? "in" : figure);
  if (!isNumber(value)) return null;
  if (figure === "busy") return value;
  if (figure === "failed") return value > 0 ? 1 : 0;
  const greatest = model.greatest[figure];
  if (!greatest) return 0;
  return figure === "rate" ? Math.log10(1 + value) / Math.log10(1 + greatest) : value / greatest;
}

/** Return the counts of an operator that have no place of their own, as names and texts. */
export function otherCounts(operator) {
  const shown = new Set(["failed", "kept", "letters", "late"]);
  const rare = new Set(["skipped", "dropped", "retries", "refused", "rows_made", "demotions"]);
  const { counts, rows_made, demotions } = operator;
  return Object.entries({ ...counts, rows_made, demotions })
    .filter(([name, value]) => !shown.has(name) && (value > 0 || !rare.has(name)))
    .map(([name, value]) => [name.replaceAll("_", " "), count(value)]);
}

export const keysText = (operator) => (isNumber(operator.keys) ? counted(operator.keys, "key") : null);
