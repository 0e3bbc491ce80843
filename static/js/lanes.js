// <rl-lanes>: swim lanes of stages on a canvas of our own.
//
// A stage is told by lightness, hue, texture and a short word. Where several stages of a lane run at
// once, the bar is divided between them. The legend sums the visible window.

import { clock, colour, count, duration, onThemeChange, shortClock } from "./format.js";

export const STAGES = ["rollout", "environment", "training", "in-use"];
const WORDS = { rollout: "roll", environment: "env", training: "train", "in-use": "in use" };
const [AXIS, STRIP, ROW, BAR] = [24, 26, 28, 18];
const FIRST_WINDOW_MS = 10 * 60_000; // as the button of the operators' timeline says
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
const FONT = "system-ui, sans-serif";

// What runs in a lane between two instants: [{start, end, stages: [...], spans: [...]}], in order.
export function segments(spans, from, to, now) {
  const edges = new Set([from, to]);
  const seen = spans.filter((span) => span.start < to && (span.end ?? now) > from);
  for (const span of seen) {
    edges.add(Math.max(from, span.start));
    edges.add(Math.min(to, span.end ?? now));
  }
  const sorted = [...edges].sort((a, b) => a - b);
  const starts = [...seen].sort((a, b) => a.start - b.start);
  const found = [];
  let active = [];
  let next = 0;
  for (let i = 0; i + 1 < sorted.length; i++) {
    const [start, end] = [sorted[i], sorted[i + 1]];
    while (next < starts.length && starts[next].start <= start) active.push(starts[next++]);
    active = active.filter((span) => (span.end ?? now) > start);
    if (!active.length) continue;
    const stages = STAGES.filter((stage) => active.some((span) => span.stage === stage));
    const before = found[found.length - 1];
    if (before && before.end === start && before.stages.join() === stages.join()) {
      before.end = end;
      for (const span of active) if (!before.spans.includes(span)) before.spans.push(span);
    } else found.push({ start, end, stages, spans: [...active] });
  }
  return found;
}

class RlLanes extends HTMLElement {
  connectedCallback() {
    this.box = this.querySelector("[data-plot]");
    this.lanes = [];
    this.offset = 0;
    this.isFollowing = true;
    this.hidden_stages = new Set();
    onThemeChange(() => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.box);
    setInterval(() => this.isFollowing && !this.endedAt && !document.hidden && this.canvas && this.draw(), 500);
  }

  // found: the snapshot's spans; serverTime in ms; endedAt in ms once the task is over.
  setSpans(found, serverTime, endedAt) {
    this.offset = serverTime - Date.now();
    this.since = found.since;
    this.endedAt = endedAt;
    this.merged = found.merged_ms;
    this.lanes = [];
    for (const lane of found.lanes) this.#lane(lane.key, lane.label, lane.is_own);
    for (const [lane, stage, start, end, step, group, tokens] of found.rows) {
      this.#lane(lane).spans.push({ stage, start, end, step, group, tokens });
    }
    if (!this.canvas) this.#create();
    if (this.isFollowing) this.windowMs = this.lastMs;
    this.draw();
  }

  // A span event; an open one is closed by a later event of the same beginning.
  add(key, data) {
    const lane = this.#lane(key, data.label ?? "", data.is_own ?? true);
    const start = Date.parse(data.started_at);
    const span = {
      stage: data.stage, start, end: data.ended_at ? Date.parse(data.ended_at) : null,
      step: data.step ?? null, group: data.group ?? null, tokens: data.tokens ?? 0,
    };
    const open = lane.spans.findIndex((s) => s.end === null && s.stage === span.stage && s.start === start && s.group === span.group);
    if (open >= 0) lane.spans[open] = span;
    else lane.spans.push(span);
    if (lane.spans.length > 6_000) lane.spans.splice(0, 1_000);
  }

  get now() {
    return this.endedAt ?? Date.now() + this.offset;
  }

  #lane(key, label = "", isOwn = false) {
    let lane = this.lanes.find((one) => one.key === key);
    if (!lane) {
      const number = this.lanes.filter((one) => !one.isOwn).length + 1;
      lane = { key, isOwn, spans: [], label: label || (isOwn ? "another of your tasks" : `other tenant ${number}`) };
      this.lanes.push(lane);
      this.lanes.sort((a, b) => b.isOwn - a.isOwn);
    }
    return lane;
  }

  #create() {
    this.canvas = document.createElement("canvas");
    this.box.replaceChildren(this.canvas);
    this.box.tabIndex = 0;
    this.box.setAttribute("role", "group");
    this.box.setAttribute("aria-label", "Timeline. Up and down arrows choose a lane, left and right a span, plus and minus zoom, f shows all, full stop follows.");
    this.box.addEventListener("keydown", (event) => this.#key(event));
    this.box.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.box.addEventListener("dblclick", () => this.fit());
    this.box.addEventListener("pointerdown", (event) => this.#drag(event));
    this.box.addEventListener("pointermove", (event) => this.#hover(event));
    const tools = this.querySelector("[data-tools]");
    tools.hidden = false;
    tools.querySelector('[data-act="fit"]').addEventListener("click", () => this.fit());
    tools.querySelector('[data-act="now"]')?.addEventListener("click", () => (this.isFollowing ? this.last() : this.follow()));
    tools.querySelector('[data-act="last"]')?.addEventListener("click", () => this.last());
    const keys = this.querySelector("[data-keys]");
    if (keys) keys.hidden = false;
    this.#legend();
  }

  #legend() {
    const legend = this.querySelector("[data-legend]");
    this.sums = {};
    const shown = [...STAGES.slice(0, 3), "idle"];
    legend.replaceChildren(...shown.map((stage) => {
      const item = document.createElement(stage === "idle" ? "span" : "button");
      const swatch = Object.assign(document.createElement("span"), { className: "swatch" });
      swatch.dataset.stage = stage;
      this.sums[stage] = document.createElement("span");
      item.append(swatch, this.sums[stage]);
      if (stage !== "idle") {
        item.type = "button";
        item.setAttribute("aria-pressed", "true");
        item.addEventListener("click", () => {
          const isShown = item.getAttribute("aria-pressed") !== "true";
          item.setAttribute("aria-pressed", String(isShown));
          if (isShown) this.hidden_stages.delete(stage);
          else this.hidden_stages.add(stage);
          this.draw();
        });
      }
      return item;
    }));
  }

  // Window --------------------------------------------------------------------------------------

  get view() {
    if (this.isFollowing) return [this.now - this.windowMs, this.now];
    return [this.from, this.from + this.windowMs];
  }

  #setView(from, windowMs) {
    this.windowMs = Math.min(24 * 3_600_000, Math.max(2_000, windowMs));
    this.from = from;
    this.isFollowing = false;
    this.draw();
  }

  fit() {
    const start = Math.min(this.since, ...this.lanes.flatMap((lane) => lane.spans.slice(0, 1).map((span) => span.start)));
    this.windowMs = Math.max(2_000, this.now - Math.max(start, this.since));
    this.isFollowing = true;
    this.draw();
  }

  follow() {
    this.isFollowing = true;
    this.draw();
  }

  // The last minutes, or all there is of them.
  get lastMs() {
    return Math.min(FIRST_WINDOW_MS, Math.max(30_000, this.now - this.since));
  }

  // However much was shown before.
  last() {
    this.windowMs = this.lastMs;
    this.follow();
  }

  #zoom(factor, at) {
    const [from] = this.view;
    this.#setView(at - (at - from) * factor, this.windowMs * factor);
  }

  #wheel(event) {
    if (!event.ctrlKey && document.activeElement !== this.box) return; // the page scrolls
    event.preventDefault();
    this.#zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, this.#timeAt(event.offsetX));
  }

  #drag(event) {
    if (event.button !== 0) return;
    const [from] = this.view;
    const x = event.clientX;
    let isMoved = false;
    const move = (next) => {
      isMoved ||= Math.abs(next.clientX - x) > 4;
      if (isMoved) this.#setView(from - ((next.clientX - x) / this.plotWidth) * this.windowMs, this.windowMs);
    };
    const up = () => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", up);
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", up);
  }

  // Choosing ------------------------------------------------------------------------------------

  #hover(event) {
    const row = Math.floor((event.offsetY - AXIS - STRIP) / ROW);
    const lane = this.lanes[row];
    const at = this.#timeAt(event.offsetX);
    const found = lane && this.#segments(lane).find((one) => one.start <= at && at < one.end);
    this.#choose(row, found ?? null);
  }

  #key(event) {
    const lane = this.lanes[this.row ?? 0];
    if (!lane) return;
    const list = this.#segments(lane);
    const here = this.chosen ? list.findIndex((one) => one.start === this.chosen.start) : list.length;
    const [from, to] = this.view;
    const acts = {
      ArrowUp: () => this.#choose(Math.max(0, (this.row ?? 0) - 1), null),
      ArrowDown: () => this.#choose(Math.min(this.lanes.length - 1, (this.row ?? 0) + 1), null),
      ArrowLeft: () => this.#choose(this.row ?? 0, list[Math.max(0, here - 1)] ?? null),
      ArrowRight: () => this.#choose(this.row ?? 0, list[Math.min(list.length - 1, here + 1)] ?? null),
      "+": () => this.#zoom(1 / 1.5, (from + to) / 2),
      "-": () => this.#zoom(1.5, (from + to) / 2),
      f: () => this.fit(),
      ".": () => this.follow(),
      " ": () => (this.isFollowing ? this.#setView(from, this.windowMs) : this.follow()),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }

  #choose(row, segment) {
    this.row = row;
    this.chosen = segment;
    const lane = this.lanes[row];
    clearTimeout(this.teller);
    this.teller = setTimeout(() => (this.querySelector("[data-value]").textContent = lane ? this.#words(lane, segment) : ""), 150);
    this.draw();
  }

  #words(lane, segment) {
    if (!segment) return lane.label;
    const steps = [...new Set(segment.spans.map((span) => span.step).filter((step) => step !== null))];
    const tokens = segment.spans.reduce((sum, span) => sum + span.tokens, 0);
    const parts = [`${lane.label}: ${segment.stages.join(" and ")}`];
    if (steps.length) parts.push(`step ${steps.map((step) => step + 1).join(", ")}`);
    parts.push(`${duration(segment.end - segment.start)} from ${clock(segment.start)}`);
    if (tokens) parts.push(`${count(tokens)} tokens`);
    return parts.join(", ");
  }

  // Drawing -------------------------------------------------------------------------------------

  get labelWidth() {
    return this.box.clientWidth < 600 ? 96 : 176;
  }

  get plotWidth() {
    return Math.max(60, this.box.clientWidth - this.labelWidth - (this.box.clientWidth < 600 ? 62 : 92));
  }

  #timeAt(x) {
    const [from] = this.view;
    return from + ((x - this.labelWidth) / this.plotWidth) * this.windowMs;
  }

  #segments(lane) {
    const [from, to] = this.view;
    const spans = this.hidden_stages.size ? lane.spans.filter((span) => !this.hidden_stages.has(span.stage)) : lane.spans;
    return segments(spans, from, Math.min(to, this.now), this.now);
  }

  draw() {
    if (!this.canvas || !this.lanes.length) return;
    const width = this.box.clientWidth;
    const height = AXIS + STRIP + ROW * this.lanes.length + 6;
    const ratio = devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    const g = this.canvas.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, height);
    this.#loadTheme(g);
    this.#axis(g, height);
    const all = this.lanes.map((lane) => this.#segments(lane));
    this.#strip(g, all);
    this.lanes.forEach((lane, row) => this.#row(g, lane, all[row], row));
    if (this.dataset.sums === "all") this.#sum(all.flat(), all.length, "the visible time of all lanes");
    else this.#sum(all[0]);
    const [from, to] = this.view;
    const merged = this.merged ? ` · spans less than ${duration(this.merged)} apart are merged` : "";
    this.querySelector("[data-window]").textContent = `${shortClock(from)} – ${shortClock(to)}, ${duration(to - from)}${this.isFollowing ? (this.endedAt ? "" : " · following") : " · frozen by you"}${merged}`;
  }

  #loadTheme(g) {
    const names = ["--text", "--text-2", "--line", "--line-strong", "--surface", "--focus", "--stage-idle", "--on-rollout", "--on-environment", "--on-training", ...STAGES.map((stage) => `--stage-${stage}`)];
    this.paint = Object.fromEntries(names.map((name) => [name, colour(name)]));
    const key = this.paint["--stage-environment"] + this.paint["--surface"];
    if (this.hatchKey !== key) {
      this.hatchKey = key;
      this.hatch = g.createPattern(hatchTile(this.paint["--stage-environment"], this.paint["--surface"]), "repeat");
    }
  }

  #x(time) {
    const [from] = this.view;
    return this.labelWidth + ((time - from) / this.windowMs) * this.plotWidth;
  }

  #axis(g, height) {
    const [from, to] = this.view;
    const target = this.windowMs / 1000 / Math.max(2, this.plotWidth / 110);
    const step = (STEPS_S.find((s) => s >= target) ?? 86_400) * 1000;
    g.font = `12px ${FONT}`;
    g.textBaseline = "middle";
    g.textAlign = "center";
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
      const x = Math.round(this.#x(t)) + 0.5;
      g.strokeStyle = this.paint["--line"];
      g.beginPath();
      g.moveTo(x, AXIS - 4);
      g.lineTo(x, height);
      g.stroke();
      g.fillStyle = this.paint["--text-2"];
      if (x > this.labelWidth + 20 && x < this.labelWidth + this.plotWidth - 10) g.fillText(step < 60_000 ? clock(t) : shortClock(t), x, AXIS / 2);
    }
  }

  // How many lanes work at each instant: overlap is what the whole thing is for.
  #strip(g, all) {
    const edges = all.flat().flatMap((one) => [[one.start, 1], [one.end, -1]]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    const unit = (STRIP - 8) / Math.max(1, this.lanes.length);
    const base = AXIS + STRIP - 5;
    let [busy, most, before] = [0, 0, 0];
    g.fillStyle = this.paint["--line-strong"];
    for (const [time, change] of edges) {
      if (busy) g.fillRect(this.#x(before), base - busy * unit, Math.max(0.5, this.#x(time) - this.#x(before)), busy * unit);
      busy += change;
      most = Math.max(most, busy);
      before = time;
    }
    this.#texts(g, base - 7, "lanes busy at once", `at most ${most}`, false);
  }

  #texts(g, y, left, right, isBold) {
    g.textBaseline = "middle";
    g.font = `${isBold ? "600 " : ""}13px ${FONT}`;
    g.fillStyle = isBold ? this.paint["--text"] : this.paint["--text-2"];
    g.textAlign = "left";
    g.fillText(shortened(g, left, this.labelWidth - 26), 16, y);
    g.textAlign = "right";
    g.fillText(right, this.box.clientWidth - 14, y);
  }

  #row(g, lane, found, row) {
    const top = AXIS + STRIP + row * ROW + (ROW - BAR) / 2;
    const [from, to] = this.view;
    const left = Math.max(this.labelWidth, this.#x(Math.max(from, this.since)));
    const right = Math.min(this.labelWidth + this.plotWidth, this.#x(Math.min(to, this.now)));
    g.fillStyle = this.paint["--stage-idle"];
    g.fillRect(left, top, Math.max(0, right - left), BAR);
    for (const one of found) this.#segment(g, one, top);
    if (row === this.row && this.chosen) {
      g.strokeStyle = this.paint["--focus"];
      g.lineWidth = 2;
      const x = this.#x(this.chosen.start);
      g.strokeRect(x, top - 2, Math.max(3, this.#x(this.chosen.end) - x), BAR + 4);
      g.lineWidth = 1;
    }
    const busy = found.reduce((sum, one) => sum + one.end - one.start, 0);
    const length = Math.max(1, Math.min(to, this.now) - Math.max(from, this.since));
    this.#texts(g, top + BAR / 2, lane.label, `${Math.round((100 * Math.min(busy, length)) / length)} %${this.box.clientWidth < 600 ? "" : " busy"}`, row === 0 && this.dataset.sums !== "all");
  }

  #segment(g, one, top) {
    const x = this.#x(one.start);
    const width = Math.max(0.75, this.#x(one.end) - x);
    const height = BAR / one.stages.length;
    one.stages.forEach((stage, place) => {
      const y = top + place * height;
      g.save();
      g.translate(Math.round(x), 0); // the hatch moves with its bar
      g.fillStyle = stage === "environment" ? this.hatch : this.paint[`--stage-${stage}`];
      g.fillRect(0, y, width, height);
      if (stage === "training" && height > 8) {
        g.fillStyle = this.paint["--surface"];
        g.fillRect(0, y + height - 4, width, 1.5);
      }
      if (width > 3) {
        g.fillStyle = this.paint["--surface"];
        g.fillRect(width - 1, y, 1, height);
      }
      if (width >= 46 && height > 10) this.#word(g, stage, y + height / 2);
      g.restore();
    });
  }

  #word(g, stage, y) {
    g.font = `600 11px ${FONT}`;
    g.textAlign = "left";
    g.textBaseline = "middle";
    if (stage === "environment") {
      g.fillStyle = this.paint["--stage-environment"];
      g.fillRect(3, y - 7, g.measureText(WORDS[stage]).width + 8, 14);
    }
    g.fillStyle = this.paint[`--on-${stage}`] ?? this.paint["--surface"];
    g.fillText(WORDS[stage], 7, y + (stage === "training" ? -1 : 0.5));
  }

  #sum(found, numLanes = 1, whole = "this task's visible time") {
    const [from, to] = this.view;
    const length = numLanes * Math.max(1, Math.min(to, this.now) - Math.max(from, this.since));
    const percent = (ms) => `${Math.round((100 * ms) / length)} %`;
    for (const stage of STAGES.slice(0, 3)) {
      const ms = found.filter((one) => one.stages.includes(stage)).reduce((sum, one) => sum + one.end - one.start, 0);
      this.sums[stage].textContent = `${stage} ${percent(ms)}`;
    }
    const busy = found.reduce((sum, one) => sum + one.end - one.start, 0);
    this.sums.idle.textContent = `idle ${percent(Math.max(0, length - busy))} of ${whole}`;
  }
}

function hatchTile(front, back) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const g = tile.getContext("2d");
  g.fillStyle = back;
  g.fillRect(0, 0, 6, 6);
  g.strokeStyle = front;
  g.lineWidth = 3;
  g.beginPath();
  for (const shift of [-6, 0, 6]) {
    g.moveTo(shift - 1, 7);
    g.lineTo(shift + 7, -1);
  }
  g.stroke();
  return tile;
}

function shortened(g, text, width) {
  if (g.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && g.measureText(`${text.slice(0, end)}…`).width > width) end--;
  return `${text.slice(0, end)}…`;
}

customElements.define("rl-lanes", RlLanes);
