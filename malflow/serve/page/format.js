// Numbers, ages and names as people read them. An unknown value is shown as a word, never as NaN.

export const UNKNOWN = "not known";

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const UNITS = ["", "k", "M", "G", "T", "P"];
const SPACE = "\u00a0";
// Control characters, direction marks, and zero-width characters: they could hide or reorder text.
// eslint-disable-next-line no-control-regex
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

// The last second that a Date can hold.
const LAST = 8.64e12;

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

const isDate = (seconds) => isNumber(seconds) && Math.abs(seconds) <= LAST;

/** Return a number with all its digits: 48,213. */
export const count = (value) => (isNumber(value) ? WHOLE.format(value) : UNKNOWN);

/** Return a number in three digits or fewer: 183 k. */
export function short(value) {
  if (!isNumber(value)) return UNKNOWN;
  let size = Math.abs(value);
  let power = 0;
  while (size >= 999.5 && power < UNITS.length - 1) {
    size /= 1000;
    power += 1;
  }
  const text = size < 9.95 && !(power === 0 && Number.isInteger(size)) ? size.toFixed(1) : size.toFixed(0);
  return `${value < 0 ? "-" : ""}${text}${power ? SPACE + UNITS[power] : ""}`;
}

/** Return records per second: 183 k/s. */
export const rate = (value) => (isNumber(value) ? `${short(value)}/s` : UNKNOWN);

export const percent = (share) => (isNumber(share) ? `${Math.round(share * 100)}${SPACE}%` : UNKNOWN);

/** Return a share for an axis, with one decimal if it is small. */
export const finePercent = (share) =>
  isNumber(share) && share > 0 && share < 0.0995 ? `${(share * 100).toFixed(1)}${SPACE}%` : percent(share);

export function bytes(value) {
  if (!isNumber(value)) return UNKNOWN;
  return value < 1000 ? `${value}${SPACE}B` : `${short(value)}B`;
}

/** Return a number with its noun: 1 key, 1,203 keys. */
export const counted = (value, noun) => `${count(value)}${SPACE}${noun}${value === 1 ? "" : "s"}`;

/** Return a duration in its largest unit: 12 ms, 4 s, 9 min, 3 h, 2 d. */
export function span(seconds) {
  if (!isNumber(seconds)) return UNKNOWN;
  const size = Math.max(0, seconds);
  if (size < 0.0095) return `${(size * 1000).toFixed(1)}${SPACE}ms`;
  if (size < 1) return `${Math.round(size * 1000)}${SPACE}ms`;
  if (size < 9.95) return `${size.toFixed(1)}${SPACE}s`;
  if (size < 99.5) return `${Math.round(size)}${SPACE}s`;
  if (size < 5940) return `${Math.round(size / 60)}${SPACE}min`;
  if (size < 171000) return `${Math.round(size / 3600)}${SPACE}h`;
  return `${Math.round(size / 86400)}${SPACE}d`;
}

/** Return an age in whole units: 4 s, 9 min. */
export const age = (seconds) => (isNumber(seconds) ? span(Math.max(0, Math.floor(seconds))).replace(/^0\.0.ms$/, `0${SPACE}s`).replace(".0", "") : UNKNOWN);

/** Return a running time: 3 d 04:12:10. */
export function running(seconds) {
  if (!isNumber(seconds)) return UNKNOWN;
  const whole = Math.max(0, Math.floor(seconds));
  const two = (value) => String(value).padStart(2, "0");
  const clock = [Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60, whole % 60].map(two).join(":");
  return whole >= 86400 ? `${Math.floor(whole / 86400)}${SPACE}d${SPACE}${clock}` : clock;
}

/** Return the seconds since 1970 of an ISO time; null for none. */
export function moment(text) {
  const at = typeof text === "string" ? Date.parse(text) / 1000 : NaN;
  return isNumber(at) ? at : null;
}

/** Return the reader's local time of day for seconds since 1970: 12:03:10. */
export const clock = (seconds) => (isDate(seconds) ? new Date(seconds * 1000).toLocaleTimeString("en-GB") : UNKNOWN);

/** Return an exact time with its date and zone, for a title. */
export const exact = (seconds) =>
  isDate(seconds) ? new Date(seconds * 1000).toISOString().replace("T", " ").replace("Z", " UTC") : UNKNOWN;

/** Return a text of a user in printable characters, cut if it is long. */
export function plain(text, limit = 200) {
  const whole = String(text ?? "");
  const cut = whole.length > limit ? `${whole.slice(0, limit - 1)}…` : whole;
  return cut.replace(HIDDEN, (it) => `\\u${it.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Return a text of several lines in printable characters. */
export const lines = (text, limit = 4000) => String(text ?? "").split("\n").map((it) => plain(it, limit)).join("\n");

/** Return the file and line of a location, or of a function with its location, without folders. */
export const place = (location) =>
  plain(String(location ?? "").replaceAll("\\", "/").replace(/(^|\()[^()]*\//, "$1"), 80);
