// The dataflow: boxes where the server placed them, filled by a figure, and edges as wide as their rate.

import { isNumber, plain, rate } from "./format.js";
import { Choice, html, useEffect, useMemo, useRef, useState, useWidth } from "./view.js";
import { FIGURES, shareOf } from "./figures.js";

// The smallest text is 12 units high, and at least 11 pixels unless somebody zooms out.
const LEAST_SCALE = 11 / 12;
const LEAST_SHARE = 0.02; // a smaller bar would be a speck
const STEPS = [0.5, 0.72, 0.85, 1, 1.25, 1.5];

/** Return the path of an edge, whose arrow ends before the box. */
function route(points, room) {
  const [[x, y], ...rest] = points;
  const path = [`M${x} ${y}`];
  let [left, before] = [x, y];
  rest.forEach(([right, after], at) => {
    const end = at === rest.length - 1 ? right - room : right;
    const middle = (left + end) / 2;
    path.push(before === after ? `H${end}` : `C${middle} ${before} ${middle} ${after} ${end} ${after}`);
    [left, before] = [end, after];
  });
  return path.join("");
}

const widthOf = (perSecond) => (isNumber(perSecond) ? Math.min(6, 1.25 + 0.8 * Math.log10(1 + perSecond)) : 1.25);

const Edge = ({ edge, source, target, perSecond, isDim, isQuiet }) => {
  const [tip, low] = edge.points.at(-1);
  const [left, top] = edge.points[0];
  const isLow = edge.output > 0 && edge.output === source.outputs.length - 1;
  const end = tip - (target.exchange ? 6 : 0);
  const width = widthOf(perSecond);
  return html`
    <g class=${`edge${isDim ? " dim" : ""}${isQuiet ? " quiet" : ""}`}>
      <path d=${route(edge.points, tip - end + 7)} stroke-width=${width.toFixed(2)} />
      <path class="tip" d=${`M${end} ${low}l-8-4.5v9z`} />
      ${edge.label && html`<text x=${left + 2} y=${top + (isLow ? 15 : -6)}>${plain(edge.label, 20)}</text>`}
      <title>${rate(perSecond)}${edge.label ? ` through ${plain(edge.label, 40)} of ${plain(source.name, 80)}` : ""}</title>
    </g>
  `;
};

const Box = ({ node, left, right, share, isCause, isWaiting, isChosen, isDim, isTab, spoken, onChoose, onKey }) => {
  const { x, y, width, height } = node;
  const round = node.kind === "source" || node.kind === "sink" ? height / 2 : 4;
  const names = ["node", isCause && "cause", isWaiting && "waiting", isChosen && "chosen", isDim && "dim"].filter(Boolean).join(" ");
  const margin = Math.min(round + 6, 14);
  const inner = Math.max(0, width - 2 * margin);
  const isTwo = node.lines.length > 1;
  const low = y + (isTwo ? 43 : 40);
  const full = isNumber(share) && share >= LEAST_SHARE ? Math.max(3, inner * Math.min(1, share)) : 0;
  return html`
    <g class=${names} role="button" tabindex=${isTab ? 0 : -1} data-node=${node.id} aria-label=${spoken}
      aria-pressed=${isChosen} onClick=${onChoose} onKeyDown=${onKey}>
      <title>${spoken}</title>
      ${node.exchange && html`<path class="exchange" d=${`M${x - 6} ${y + 4}v${height - 8}M${x - 2.5} ${y + 4}v${height - 8}`}>
        <title>Records move between workers here, to the one that has their key</title></path>`}
      <rect class="paper" x=${x} y=${y} width=${width} height=${height} rx=${round} />
      <rect class="heat" x=${x} y=${y} width=${width} height=${height} rx=${round}
        fill-opacity=${(isNumber(share) ? 0.05 + 0.42 * Math.min(1, share) : 0).toFixed(3)} />
      <rect class="border" x=${x} y=${y} width=${width} height=${height} rx=${round} />
      <text class="name">${node.lines.map((line, at) => html`<tspan x=${x + margin} y=${y + (isTwo ? 15 : 21) + 13 * at}>${line}</tspan>`)}</text>
      <text class="figure" x=${x + margin} y=${low}>${left}</text>
      ${right && html`<text class="figure" x=${x + width - margin} y=${low} text-anchor="end">${right}</text>`}
      ${full > 0 && html`<rect class="meter" x=${x + margin} y=${y + height - 6} width=${inner} height="3" />
        <rect class="meter full" x=${x + margin} y=${y + height - 6} width=${full.toFixed(1)} height="3" />`}
      ${isCause && html`
        <g class="flag"><rect x=${x + width / 2 - 24} y=${y - 18} width="48" height="15" rx="3" />
        <text x=${x + width / 2} y=${y - 6.5} text-anchor="middle">cause</text></g>
      `}
    </g>
  `;
};

/** Return the node in a direction that is nearest to another. */
function neighbour(nodes, from, key) {
  const middle = (it) => [it.x + it.width / 2, it.y + it.height / 2];
  const [x, y] = middle(from);
  const axes = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[key];
  let best = null;
  for (const node of nodes) {
    const [right, down] = [middle(node)[0] - x, middle(node)[1] - y];
    const along = right * axes[0] + down * axes[1];
    const across = Math.abs(right * axes[1]) + Math.abs(down * axes[0]);
    if (node !== from && along > 8 && (best === null || along + 2 * across < best.far)) best = { node, far: along + 2 * across };
  }
  return best?.node ?? null;
}

/** Return the figures of a node: for its operator, or for all operators in the chain that it stands for. */
function membersOf(node, drawn, model) {
  const ids = node.members ?? [node.id];
  return ids.map((id) => model.byName.get(drawn.nodes[id].name)).filter(Boolean);
}

export function Graph({ graph, model, chosen, onChoose, filter, onFilter, figure, onFigure }) {
  const [frame, room] = useWidth();
  const [zoom, setZoom] = useState(null);
  const [isWhole, setWhole] = useState(false);
  const [tab, setTab] = useState(0);
  const drawn = graph.collapsed && !isWhole ? graph.collapsed : graph;
  const whole = room ? Math.min(1, room / drawn.width) : 1;
  // At first, texts stay legible; "Fit" shows all of a wide drawing.
  const scale = zoom === "whole" ? whole : zoom ?? Math.max(LEAST_SCALE, whole);
  // Extra room at both sides belongs to the first and the last stage.
  const across = Math.max(drawn.width, room / scale);
  const side = (across - drawn.width) / 2;
  const wanted = filter.trim().toLowerCase();
  const matches = useMemo(() => {
    const names = graph.nodes.map((it) => it.name.toLowerCase().includes(wanted));
    return drawn.nodes.map((it) => (it.members ?? [it.id]).some((id) => names[id]));
  }, [drawn, wanted]);
  const cause = model.cause;
  const focusNode = (id) => {
    setTab(id);
    frame.current?.querySelector(`[data-node="${id}"]`)?.focus();
  };
  useEffect(() => {
    // Keep the cause in sight if the drawing is wider than its frame.
    const at = drawn.nodes.find((it) => (it.members ?? [it.id]).some((id) => graph.nodes[id].name === cause));
    const box = frame.current;
    if (at && box && drawn.width * scale > box.clientWidth) box.scrollLeft = at.x * scale - box.clientWidth / 2 + (at.width * scale) / 2;
  }, [cause, drawn]);
  const step = (by) => {
    const near = STEPS.reduce((best, it) => (Math.abs(it - scale) < Math.abs(best - scale) ? it : best));
    setZoom(STEPS[Math.min(STEPS.length - 1, Math.max(0, STEPS.indexOf(near) + by))]);
  };
  const names = drawn.nodes.map((node) => (node.members ?? [node.id]).map((id) => graph.nodes[id].name));
  return html`
    <section class="card graph" aria-label="Dataflow">
      <div class="bar">
        <h2>Dataflow</h2>
        <label class="field"><span>Filter</span>
          <input type="search" placeholder="operator" value=${filter} onInput=${(event) => onFilter(event.target.value)} /></label>
        <${Choice} label="Colour" name="figure" value=${figure} onChange=${onFigure}
          options=${FIGURES.map((it) => [it.key, it.name, !model.has[it.key], it.missing])} />
        ${graph.collapsed && html`
          <label class="check"><input type="checkbox" checked=${isWhole} onChange=${(event) => setWhole(event.target.checked)} />
            <span>All ${graph.nodes.length} operators</span></label>
        `}
        <div class="zoom" role="group" aria-label="Size of the drawing">
          <button type="button" onClick=${() => step(-1)} aria-label="Smaller">−</button>
          <button type="button" onClick=${() => setZoom("whole")} aria-pressed=${scale === whole}>Fit</button>
          <button type="button" onClick=${() => step(1)} aria-label="Larger">+</button>
        </div>
      </div>
      <div class="frame" ref=${frame} tabindex="-1">
        <svg width=${Math.floor(across * scale)} height=${Math.ceil(drawn.height * scale)}
          viewBox=${`${-side} 0 ${across} ${drawn.height}`} role="group" aria-label="Operators; arrow keys move between them">
          ${drawn.stages.map((it, at) => html`
            <g key=${`s${it.number}`} class=${`stage${at % 2 ? " odd" : ""}`}>
              <rect x=${it.x - (at ? 0 : side)} y="0" width=${it.width + (at ? 0 : side) + (at === drawn.stages.length - 1 ? side : 0)} height=${drawn.height} />
              <text x=${it.x + 16} y="16">stage ${it.number}</text>
              <title>A stage: within it, records stay on their worker; between stages, they move to the worker of their key</title>
            </g>
          `)}
          ${drawn.edges.map((edge, at) => {
            const source = graph.nodes[(drawn.nodes[edge.source].members ?? [edge.source]).at(-1)];
            const perSecond = model.byName.get(source.name)?.out[edge.output];
            return html`<${Edge} key=${`e${at}`} edge=${edge} source=${source} target=${drawn.nodes[edge.target]} perSecond=${perSecond}
              isQuiet=${perSecond === 0} isDim=${!(matches[edge.source] && matches[edge.target])} />`;
          })}
          ${drawn.nodes.map((node, at) => {
            const members = membersOf(node, graph, model);
            const share = shareOf(figure, members, model);
            const [left, right] = FIGURES.find((it) => it.key === figure).texts(members);
            const isCause = names[at].includes(cause);
            const full = names[at].map((it) => plain(it, 80)).join(", ");
            const isWaiting = !isCause && names[at].some((it) => model.waiting.has(it));
            const spoken = `${full}: ${left}${right && `, ${right} busy`}${isCause ? ", where records stop" : isWaiting ? ", gives nothing, since it waits" : ""}`;
            return html`<${Box} key=${`n${node.id}`} node=${node} left=${left} right=${isWaiting ? "waits" : right} share=${share} spoken=${spoken}
              isCause=${isCause} isWaiting=${isWaiting}
              isChosen=${names[at].includes(chosen)} isDim=${!matches[at]} isTab=${node.id === tab}
              onChoose=${() => { setTab(node.id); onChoose(names[at][0] === chosen ? null : names[at][0], names[at]); }}
              onKey=${(event) => {
                if (event.key === "Enter" || event.key === " ") {
                  event.preventDefault();
                  onChoose(names[at][0], names[at]);
                } else if (event.key.startsWith("Arrow")) {
                  const next = neighbour(drawn.nodes, node, event.key);
                  event.preventDefault();
                  if (next) focusNode(next.id);
                }
              }} />`;
          })}
        </svg>
      </div>
      <p class="legend">
        <span>Wide lines: many records</span><span>Dashed: none</span>
        ${drawn.nodes.some((it) => it.exchange) && html`<span>Double bars: records move between workers</span>`}
        <span>Rates and busy time: means of the last 5 s</span>
        <span>Fill and bar: ${figure === "busy" ? "share of the workers’ time" : figure}</span>
      </p>
      ${wanted && !matches.some(Boolean) && html`<p class="empty over">No operator has “${plain(filter, 40)}” in its name.</p>`}
    </section>
  `;
}

