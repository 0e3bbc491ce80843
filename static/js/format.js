// Numbers and times as the server writes them (jobs/templatetags/ui.py).

const lang = document.documentElement.lang || "en";
const clockFormat = new Intl.DateTimeFormat(lang, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const shortFormat = new Intl.DateTimeFormat(lang, { hour: "2-digit", minute: "2-digit", hour12: false });

export const score = (value) => (value === null || value === undefined ? "–" : value.toFixed(3).replace("-", "−"));
export const signed = (value) => (value === null || value === undefined ? "–" : (value >= 0 ? "+" : "") + score(value));
export const count = (value) => Math.round(value).toString().replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
export const clock = (ms) => clockFormat.format(ms);
export const shortClock = (ms) => shortFormat.format(ms);

// A number with about four significant digits, for axes and values of any metric.
export function plain(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  const text = size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  return text.replace("-", "−");
}

export function duration(ms) {
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole >= 86400) return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
  if (whole >= 3600) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  if (whole >= 60) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${whole} s`;
}

// An estimated stretch of time, without false precision.
export function roughly(ms) {
  const seconds = ms / 1000;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

// A colour token resolved for the theme in force; canvases cannot read light-dark().
const probe = document.createElement("span");
probe.hidden = true;
export function colour(token) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(${token})`;
  return getComputedStyle(probe).color;
}

export function onThemeChange(redraw) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

// The status of a state, from the server's own template of it.
export function status(state) {
  const template = document.querySelector(`template[data-status="${state}"]`);
  return template ? template.content.cloneNode(true) : document.createTextNode(state);
}
