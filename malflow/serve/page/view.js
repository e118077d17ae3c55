// The building blocks of all parts of the page.

import { h } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { clock, exact, UNKNOWN } from "./format.js";

export { render } from "./vendor/preact.js";
export { useEffect, useMemo, useRef, useState } from "./vendor/hooks.js";

export const html = htm.bind(h);

/** A word in place of a missing value. */
export const Word = ({ children }) => html`<span class="word">${children}</span>`;

/** A time as an age, or as a time of day, with the exact time as its title. */
export const Time = ({ at, text }) =>
  at === null ? html`<${Word}>${UNKNOWN}<//>` : html`<time title=${exact(at)}>${text ?? clock(at)}</time>`;

const SHAPES = {
  dot: "M8 3a5 5 0 1 1 0 10a5 5 0 0 1 0-10z",
  ring: "M8 3a5 5 0 1 1 0 10a5 5 0 0 1 0-10zm0 2a3 3 0 1 0 0 6a3 3 0 0 0 0-6z",
  bars: "M4 3h3v10h-3zM9 3h3v10h-3z",
  square: "M3 3h10v10h-10z",
  check: "M2.5 8.5l1.5-1.6 2.6 2.6 5.4-6 1.6 1.4-7 7.6z",
  cross: "M4.4 3l3.6 3.6 3.6-3.6 1.4 1.4-3.6 3.6 3.6 3.6-1.4 1.4-3.6-3.6-3.6 3.6-1.4-1.4 3.6-3.6-3.6-3.6z",
  turn: "M8 2.5a5.5 5.5 0 1 0 5.5 5.5h-2a3.5 3.5 0 1 1-3.5-3.5v2.3l4-3.3-4-3.3z",
  warning: "M8 1.5l7 12.5h-14zM7.1 6v4h1.8v-4zM7.1 11v1.7h1.8v-1.7z",
  diamond: "M8 2l6 6-6 6-6-6z",
};

/** A small shape beside a word. */
export const Shape = ({ name }) => html`
  <svg class="shape" width="16" height="16" viewBox="0 0 16 16" aria-hidden="true">
    <path d=${SHAPES[name]} fill-rule="evenodd" />
  </svg>
`;

/** Return the width of an element, which follows its container. */
export function useWidth() {
  const ref = useRef(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}

/** A row of choices, one of which is selected. */
export const Choice = ({ label, name, options, value, onChange }) => html`
  <fieldset class="choice">
    <legend>${label}</legend>
    ${options.map(
      ([key, text, isOff, reason]) => html`
        <label key=${key} class=${isOff ? "off" : ""} title=${isOff ? reason : undefined}>
          <input type="radio" name=${name} checked=${key === value} disabled=${isOff} onChange=${() => onChange(key)} />
          <span>${text}</span>
        </label>
      `,
    )}
  </fieldset>
`;

/** A name with its value, in a list of facts. */
export const Fact = ({ name, children, title }) => html`
  <div class="fact"><dt>${name}</dt><dd title=${title}>${children}</dd></div>
`;

/** A share as a bar, with its name and a text. */
export const Bar = ({ name, share, text, isStrong }) => html`
  <div class=${`workload${isStrong ? " strong" : ""}`}>
    <span class="who">${name}</span>
    <span class="track" aria-hidden="true"><i style=${{ width: `${Math.min(100, share * 100).toFixed(1)}%` }}></i></span>
    <span class="share">${text}</span>
  </div>
`;
