// <rl-chart>: one metric over steps. uPlot draws; this element gives it data, theme and keyboard.

import { colour, onThemeChange, plain } from "./format.js";

const EMA_WEIGHT = 0.3; // of the newest step in the smoothed line
const FONT = "12px system-ui, sans-serif";

// What the y axis spans. All points at one height lie in the middle; all at 0 on the floor.
function heights(u, low, high) {
  if (low === null) return [0, 1];
  if (low === high) return low === 0 ? [0, 1] : [low - Math.abs(low) / 2, low + Math.abs(low) / 2];
  return window.uPlot.rangeNum(low, high, 0.1, true);
}

class RlChart extends HTMLElement {
  connectedCallback() {
    this.metric = this.dataset.metric;
    this.plotBox = this.querySelector("[data-plot]");
    this.valueBox = this.querySelector("[data-value]");
    this.points = { x: [], last: [], low: [], high: [] };
    this.bucket = 1;
    onThemeChange(() => this.uplot?.redraw());
    new ResizeObserver(() => this.#resize()).observe(this.plotBox);
  }

  get isEmpty() {
    return !this.points.last.some((value) => value !== null);
  }

  // curves: the snapshot's series. x counts steps from 1.
  setCurves(curves) {
    const found = curves.metrics[this.metric];
    this.bucket = curves.bucket;
    const x = curves.x.map((step) => step + 1);
    const none = () => x.map(() => null);
    this.points = { x, last: found?.last ?? none(), low: found?.low ?? none(), high: found?.high ?? none() };
    this.#draw();
  }

  // Absolute values: a step that is drawn already is drawn over.
  push(step, metrics) {
    const value = Number.isFinite(metrics[this.metric]) ? metrics[this.metric] : null;
    const { x, last, low, high } = this.points;
    const number = step + 1;
    const end = x.length - 1;
    const isSame = end >= 0 && Math.floor((x[end] - 1) / this.bucket) === Math.floor(step / this.bucket);
    const known = isSame ? [low[end], high[end], value].filter((v) => v !== null) : [value];
    const place = isSame ? end : end + 1;
    if (end >= 0 && number < x[end]) return;
    x[place] = number;
    last[place] = value ?? (isSame ? last[place] : null);
    low[place] = known.length && known[0] !== null ? Math.min(...known) : null;
    high[place] = known.length && known[0] !== null ? Math.max(...known) : null;
    this.#schedule();
  }

  #schedule() {
    this.timer ||= setTimeout(() => {
      this.timer = 0;
      requestAnimationFrame(() => this.#draw());
    }, 250);
  }

  #smoothed() {
    let mean = null;
    return this.points.last.map((value) => {
      if (value === null) return null;
      mean = mean === null ? value : mean + EMA_WEIGHT * (value - mean);
      return mean;
    });
  }

  #data() {
    const { x, last, low, high } = this.points;
    return [x, this.bucket > 1 ? low : last.map(() => null), this.bucket > 1 ? high : last.map(() => null), last, "smooth" in this.dataset ? this.#smoothed() : last.map(() => null)];
  }

  #draw() {
    this.dataset.points = this.points.x.length;
    if (this.isEmpty) return;
    if (!this.uplot) return this.#create();
    const { min, max } = this.uplot.scales.x;
    const before = this.uplot.data[0];
    const isWhole = min <= before[0] && max >= before[before.length - 1];
    this.uplot.setData(this.#data(), isWhole);
    if (!isWhole && max >= before[before.length - 1]) {
      const end = this.points.x[this.points.x.length - 1];
      this.uplot.setScale("x", { min: min + end - max, max: end }); // the right edge was in view
    } else if (!isWhole) this.uplot.redraw();
  }

  #create() {
    this.plotBox.replaceChildren();
    const isSmooth = "smooth" in this.dataset;
    const axis = (size, values) => ({
      stroke: () => colour("--text-2"), grid: { stroke: () => colour("--line"), width: 1 },
      ticks: { show: false }, font: FONT, size, values, gap: 6,
    });
    const line = (width, alpha, dash) => ({
      stroke: () => colour("--curve-1"), width, alpha, dash, spanGaps: false,
      points: { show: (u, i, from, to) => to - from < 40 && i === 3, size: 4, fill: () => colour("--curve-1") },
    });
    const bound = { stroke: "transparent", width: 0, points: { show: false } };
    this.uplot = new window.uPlot({
      ...this.#size(), legend: { show: false },
      padding: [8, 12, 0, 0],
      cursor: { sync: { key: "task-page" }, drag: { x: true, y: false, uni: 10 }, points: { size: 7 } },
      scales: { x: { time: false, range: (u, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) }, y: { range: heights } },
      axes: [
        { ...axis(28, (u, ticks) => ticks.map((v) => (Number.isInteger(v) ? plain(v) : ""))), incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000] },
        axis(52, (u, ticks) => ticks.map(plain)),
      ],
      series: [{}, bound, bound, line(isSmooth ? 1 : 1.75, isSmooth ? 0.45 : 1), { ...line(2.25, 1), points: { show: false } }],
      bands: [{ series: [2, 1], fill: () => colour("--curve-band") }],
      hooks: { setCursor: [(u) => this.#tell(u.cursor.idx)] },
    }, this.#data(), this.plotBox);
    this.valueBox.textContent = this.#legend();
    this.plotBox.tabIndex = 0;
    this.plotBox.setAttribute("role", "group");
    this.plotBox.setAttribute("aria-label", `${this.metric} by step; left and right arrows move from point to point`);
    this.plotBox.addEventListener("keydown", (event) => this.#key(event));
  }

  #size() {
    return { width: Math.max(120, this.plotBox.clientWidth), height: Number(this.dataset.height) };
  }

  #resize() {
    if (this.uplot && this.plotBox.clientWidth !== this.uplot.width) this.uplot.setSize(this.#size());
  }

  #key(event) {
    const last = this.points.x.length - 1;
    const here = this.place ?? last;
    const stride = event.shiftKey ? 10 : 1;
    const target = { ArrowLeft: here - stride, ArrowRight: here + stride, Home: 0, End: last }[event.key];
    if (event.key === "Escape") return this.uplot.setCursor({ left: -10, top: -10 });
    if (target === undefined) return;
    event.preventDefault();
    this.place = Math.min(last, Math.max(0, target));
    const value = this.points.last[this.place];
    const top = value === null ? 0 : this.uplot.valToPos(value, "y");
    this.uplot.setCursor({ left: this.uplot.valToPos(this.points.x[this.place], "x"), top });
    this.#tell(this.place);
  }

  #legend() {
    if (this.bucket > 1) return `1 point = ${this.bucket} steps; the band is their lowest and highest`;
    return "smooth" in this.dataset ? "Thin: each step. Thick: smoothed over about six steps." : "";
  }

  // The value under the cursor, in a polite live region, at most every 150 ms.
  #tell(place) {
    clearTimeout(this.teller);
    this.teller = setTimeout(() => {
      if (place === null || place === undefined) {
        this.valueBox.textContent = this.#legend();
        return;
      }
      this.place = place;
      const smooth = "smooth" in this.dataset ? `, smoothed ${plain(this.#smoothed()[place])}` : "";
      this.valueBox.textContent = `Step ${this.points.x[place]}: ${plain(this.points.last[place])} ${this.dataset.unit}${smooth}`;
    }, 150);
  }
}

customElements.define("rl-chart", RlChart);
