// Charts, drawn by uPlot. They all share one range of time.

import { clock, isNumber, UNKNOWN } from "./format.js";
import { html, useEffect, useRef, useState, useWidth } from "./view.js";

const HEIGHT = 112;
const SCHEME = window.matchMedia("(prefers-color-scheme: dark)");

export const RANGES = [
  [60, "1 min"],
  [300, "5 min"],
  [600, "10 min"],
];

const shade = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function options(width, series, unit, onCursor) {
  const grid = { stroke: shade("--line"), width: 1 };
  const font = `11px ${shade("--font")}`;
  const axis = { stroke: shade("--quiet"), grid, ticks: { show: false }, font, border: { show: false } };
  const looks = [
    { stroke: shade("--accent"), fill: shade("--accent-veil"), width: 1.75 },
    { stroke: shade("--quiet"), width: 1.5, dash: [5, 4] },
  ];
  return {
    width,
    height: HEIGHT,
    padding: [8, 28, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: "malflow" }, drag: { x: false, y: false }, points: { size: 6 }, y: false },
    scales: { x: { time: true }, y: { range: (_, least, most) => [0, most > 0 ? most * 1.15 : 1] } },
    axes: [
      { ...axis, size: 22, space: 72, values: (_, ticks) => ticks.map((it) => clock(it)) },
      { ...axis, size: 56, space: 32, values: (_, ticks) => ticks.map((it) => unit(it)) },
    ],
    series: [{}, ...series.map((_, at) => ({ ...looks[at % looks.length], points: { show: false }, spanGaps: false }))],
    hooks: { setCursor: [(chart) => onCursor(chart.cursor.idx)] },
  };
}

/** A chart of one or two series. `data` has the times, then the values of each series, null where there are none. `now` has the current values. */
export function Chart({ title, series, data, now, unit, says = unit, range, until }) {
  const [box, width] = useWidth();
  const chart = useRef(null);
  const latest = useRef(null);
  const [pointed, setPointed] = useState(null);
  const [scheme, setScheme] = useState(SCHEME.matches);
  latest.current = { data, range, until };
  useEffect(() => {
    const change = () => setScheme(SCHEME.matches);
    SCHEME.addEventListener("change", change);
    return () => SCHEME.removeEventListener("change", change);
  }, []);
  useEffect(() => {
    if (!width) return undefined;
    const made = new window.uPlot(options(width, series, unit, setPointed), latest.current.data, box.current);
    made.setScale("x", { min: latest.current.until - latest.current.range, max: latest.current.until });
    made.root.setAttribute("aria-hidden", "true");
    chart.current = made;
    return () => {
      chart.current = null;
      made.destroy();
    };
  }, [width, scheme, series.length]);
  useEffect(() => {
    const made = chart.current;
    if (!made) return;
    made.batch(() => {
      made.setData(data, false);
      made.setScale("x", { min: until - range, max: until });
    });
  }, [data, range, until]);
  const at = isNumber(pointed) && pointed < data[0].length ? pointed : data[0].length - 1;
  const said = (number) => {
    const value = isNumber(pointed) ? data[number + 1][at] : now[number];
    return isNumber(value) ? says(value) : UNKNOWN;
  };
  return html`
    <figure class="chart">
      <figcaption>
        <span class="title">${title}</span>
        ${series.map((name, number) => html`
          <span key=${name} class=${`key key${number}`}><i aria-hidden="true"></i>${name} <b>${said(number)}</b></span>
        `)}
        ${isNumber(pointed) && at >= 0 && html`<span class="at">at ${clock(data[0][at])}</span>`}
      </figcaption>
      <div class="plot" ref=${box}></div>
    </figure>
  `;
}

/** A line without axes, which shows the last minute at a glance. */
export function Spark({ values, width = 88, height = 24 }) {
  const known = values.filter(isNumber);
  if (known.length < 2) return html`<svg class="spark" width=${width} height=${height} aria-hidden="true"></svg>`;
  const most = Math.max(...known, 1e-9);
  const points = values
    .map((it, at) => [(at / (values.length - 1)) * (width - 2) + 1, it])
    .filter(([, it]) => isNumber(it))
    .map(([x, it]) => `${x.toFixed(1)},${(height - 2 - (it / most) * (height - 4)).toFixed(1)}`);
  return html`<svg class="spark" width=${width} height=${height} aria-hidden="true"><polyline points=${points.join(" ")} /></svg>`;
}
