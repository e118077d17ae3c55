// The events of the run, over the same range of time as the charts.

import { clock, exact, moment, plain } from "./format.js";
import { storyOf } from "./stories.js";
import { html, useWidth } from "./view.js";

const LANES = [
  ["snapshots", ["snapshot_committed"]],
  ["starts", ["restarted", "run_started"]],
  ["rescales", ["rescaled", "rescale_refused"]],
  ["failures", ["snapshot_failed", "confirmation_failed", "discovery_failed", "budget_exceeded", "run_finished"]],
  ["standstill", ["standstill"]],
];
const LEFT = 76;
const RIGHT = 12;
const LANE = 24;
const TOP = 4;

const isMark = (event) =>
  (event.event !== "run_started" || event.restarts === 0) && (event.event !== "run_finished" || event.error);

const MARKS = {
  snapshots: (x, y) => html`<circle cx=${x} cy=${y} r="4" />`,
  starts: (x, y, { event }) => html`<path class=${event === "restarted" ? "again" : ""} d=${`M${x - 4} ${y - 5}l9 5l-9 5z`} />`,
  rescales: (x, y) => html`<path d=${`M${x} ${y - 5.5}l5.5 5.5l-5.5 5.5l-5.5-5.5z`} />`,
  failures: (x, y) => html`<path class="bad" d=${`M${x - 4} ${y - 4}l8 8m0-8l-8 8`} />`,
  standstill: (x, y, _, end) => html`<rect class="again" x=${x} y=${y - 5} width=${Math.max(3, end - x).toFixed(1)} height="10" />`,
};

export function Timeline({ events, range, until }) {
  const [box, width] = useWidth();
  const low = TOP + LANE * LANES.length;
  const inner = Math.max(0, width - LEFT - RIGHT);
  const from = until - range;
  const across = (at) => LEFT + ((at - from) / range) * inner;
  const ticks = [0, 0.25, 0.5, 0.75, 1].filter((it) => inner > 420 || it % 0.5 === 0);
  const laneOf = new Map(LANES.flatMap(([, kinds], at) => kinds.map((kind) => [kind, at])));
  const marks = events
    .map((event) => ({ event, at: moment(event.at), lane: laneOf.get(event.event) }))
    .filter(({ event, at, lane }) => lane !== undefined && (event.until ?? at) >= from && at <= until && isMark(event));
  return html`
    <div class="timeline" ref=${box}>
      <svg width=${width} height=${low + 22} role="img" aria-label=${`${marks.length} marks between ${clock(from)} and ${clock(until)}`}>
        ${ticks.map((it) => html`
          <line key=${it} class="rule" x1=${LEFT + it * inner} x2=${LEFT + it * inner} y1=${TOP} y2=${low} />
          <text x=${LEFT + it * inner} y=${low + 16} text-anchor=${it === 0 ? "start" : it === 1 ? "end" : "middle"}>${clock(from + it * range)}</text>
        `)}
        ${LANES.map(([name], at) => html`
          <g key=${name}>
            <line class="lane" x1=${LEFT} x2=${LEFT + inner} y1=${TOP + LANE * (at + 0.5)} y2=${TOP + LANE * (at + 0.5)} />
            <text x="0" y=${TOP + LANE * (at + 0.5) + 4}>${name}</text>
          </g>
        `)}
        ${marks.map(({ event, at, lane }) => html`
          <g key=${event.number} class="mark">
            <title>${`${plain(storyOf(event).text)}\n${exact(at)}`}</title>
            ${MARKS[LANES[lane][0]](across(Math.max(at, from)), TOP + LANE * (lane + 0.5), event, across(Math.min(event.until ?? at, until)))}
          </g>
        `)}
      </svg>
    </div>
  `;
}
