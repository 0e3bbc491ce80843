// The page of a task: takes the snapshot, draws it, and follows its streams from there.

import "./chart.js";
import "./lanes.js";
import { count, plain, roughly, score, signed, status } from "./format.js";
import { LiveClient } from "./live.js";

const MAX_LOG_LINES = 200;
const OUTLOOK_MS = 4_000;
const SETTLED_MS = 300; // after a change of phase or reason; several come together
const BETWEEN_MS = 1_000; // questions at least, however often the reason changes
const OVER = ["succeeded", "failed", "cancelled"];
const page = document.querySelector("[data-task-page]");
const part = (name) => page.querySelector(`[data-live="${name}"]`);
const charts = [...page.querySelectorAll("rl-chart")];
const lanes = page.querySelector("rl-lanes");
const rewards = new Map(); // step from 1: mean reward
let [state, maxSteps, done, flatShare] = [null, 0, 0, 0]; // flatShare: of the newest step's groups
let [told, askedAt, shownAt, askingSoon] = ["", 0, 0, 0]; // told: phase and reason that the outlook was asked for

async function takeSnapshot() {
  const answer = await fetch(page.dataset.snapshot, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(`snapshot: ${answer.status}`);
  const found = await answer.json();
  [state, maxSteps] = [found.state, found.max_steps];
  const { x, metrics } = found.series;
  rewards.clear();
  x.forEach((step, place) => setReward(step, metrics.reward?.last[place]));
  done = x.length ? x[x.length - 1] + 1 : 0;
  flatShare = metrics.frac_reward_zero_std?.last[x.length - 1] ?? 0;
  for (const chart of charts) chart.setCurves(found.series);
  for (const version of found.versions) addVersion(version);
  lanes.setSpans(found.spans, found.server_time, state.ended_at ? Date.parse(state.ended_at) : null);
  page.querySelector('[data-live="log"]').replaceChildren(...found.log.map(logLine));
  showAll();
  scrollLog();
  return found;
}

function setReward(step, value) {
  if (Number.isFinite(value)) rewards.set(step + 1, value);
}

const applies = {
  state: (data) => {
    state = data;
    if (OVER.includes(data.state)) showOutlook({ waiting_text: "", estimate_text: "" });
    if (OVER.includes(data.state)) lanes.endedAt = data.ended_at ? Date.parse(data.ended_at) : Date.now();
  },
  metric: ({ step, metrics }) => {
    setReward(step, metrics.reward);
    done = Math.max(done, step + 1);
    flatShare = metrics.frac_reward_zero_std ?? 0;
    for (const chart of charts) chart.push(step, metrics);
  },
  span: (data) => lanes.add(page.dataset.task, data),
  version: (data) => addVersion(data),
  group: () => {
    part("new-groups").hidden = false;
    set("no-groups", "There are some now.");
  },
  log: (data) => {
    const list = part("log");
    const isAtEnd = list.scrollTop + list.clientHeight >= list.scrollHeight - 20;
    list.append(logLine(data));
    while (list.children.length > MAX_LOG_LINES) list.firstElementChild.remove();
    if (isAtEnd) scrollLog();
  },
};

function apply(items) {
  for (const { kind, data } of items) applies[kind]?.(data);
  showAll();
}

function applyCluster(items) {
  for (const { kind, data } of items) {
    if (kind === "span" && data.lane !== page.dataset.task) lanes.add(data.lane, data);
  }
}

function showAll() {
  const values = [...rewards.entries()].sort((a, b) => a[0] - b[0]);
  const [first, last] = [values[0]?.[1], values[values.length - 1]?.[1]];
  const best = values.reduce((top, one) => (!top || one[1] > top[1] ? one : top), null);
  set("reward", score(last));
  set("change", values.length ? signed(last - first) : "–");
  set("best", score(best?.[1]));
  set("best-step", best ? `at step ${count(best[0])}` : "");
  set("done", count(done));
  part("meter").value = done;
  part("flat").hidden = flatShare < 1;
  if (best) set("sentence", `From ${score(first)} to ${score(last)} over ${count(done)} steps, best ${score(best[1])} at step ${count(best[0])}.`);
  for (const chart of charts) chart.closest("[data-chart-card]")?.toggleAttribute("hidden", done > 0 && chart.isEmpty);
  showState();
}

function showState() {
  askSoon();
  part("status").replaceChildren(status(state.state));
  set("reason", state.reason);
  part("reason").hidden = Boolean(state.pause_reason);
  part("pause-reason").hidden = !state.pause_reason;
  set("pause-reason", state.pause_reason);
  const parts = [`${count(done)} of ${count(maxSteps)} steps done`];
  if (state.state === "queued" && state.queue_position) parts.push(`place ${state.queue_position} in the queue`);
  if (state.started_at && state.ended_at) parts.push(`took ${roughly(Date.parse(state.ended_at) - Date.parse(state.started_at))}`);
  set("headline", parts.join(", "));
  for (const action of page.querySelectorAll("[data-when]")) action.hidden = !action.dataset.when.split(" ").includes(state.state);
}

function set(name, text) {
  const element = part(name);
  if (element && element.textContent !== text) element.textContent = text;
}

function logLine({ level, text, at }) {
  const line = document.createElement("li");
  line.dataset.level = level;
  const time = Object.assign(document.createElement("time"), { dateTime: at, title: at, textContent: at.slice(11, 19) });
  line.append(time, span("level", level), span("text", text));
  return line;
}

function span(className, textContent) {
  return Object.assign(document.createElement("span"), { className, textContent });
}

function scrollLog() {
  const list = part("log");
  list.scrollTop = list.scrollHeight;
}

function addVersion({ number, digest, canary }) {
  const body = part("versions");
  const known = body.querySelector(`[data-version="${number}"]`);
  if (known) return showCanary(known, canary);
  body.querySelector("[data-none]")?.remove();
  const row = page.querySelector("template[data-version-row]").content.firstElementChild.cloneNode(true);
  row.dataset.version = number;
  row.querySelector("[data-number]").textContent = number;
  row.querySelector("[data-digest]").textContent = digest.slice(0, 12);
  const link = row.querySelector("a");
  link.href = link.getAttribute("href").replace("/0/", `/${number}/`);
  link.querySelector(".visually-hidden").textContent = ` version ${number}`;
  showCanary(row, canary);
  body.prepend(row);
}

// As the server writes it (jobs/templatetags/ui.py).
function showCanary(row, canary) {
  if (!canary) return;
  const [tone, glyph, word] = canary.problem ? ["bad", "!", "off by"] : ["ok", "✓", "within"];
  const box = span("status", "");
  box.dataset.tone = tone;
  box.title = canary.problem;
  const sign = span("glyph", glyph);
  sign.setAttribute("aria-hidden", "true");
  box.append(sign, span("word", `${word} ${plain(canary.mean)} nats`));
  row.querySelector("[data-canary]").replaceChildren(box);
}

// What it waits for and when it may be done is worked out when asked, so it is asked for now and then,
// and as soon as the phase line says something else: the two must not contradict each other.
async function askOutlook() {
  if (document.hidden || OVER.includes(state.state)) return;
  const mine = (askedAt = Date.now());
  const answer = await fetch(page.dataset.outlook, { headers: { Accept: "application/json" } }).catch(() => null);
  if ([401, 403, 404].includes(answer?.status)) clearInterval(asking); // signed out, or no access any more
  const found = answer?.ok ? await answer.json().catch(() => null) : null;
  if (!found || mine < shownAt || OVER.includes(state.state)) return; // one that was asked later came sooner
  shownAt = mine;
  showOutlook(found);
}

function askSoon() {
  const now = [state.state, state.phase, state.reason].join("\n");
  if (now === told) return;
  told = now;
  if (askingSoon || OVER.includes(state.state)) return;
  askingSoon = setTimeout(() => {
    askingSoon = 0;
    askOutlook();
  }, Math.max(SETTLED_MS, askedAt + BETWEEN_MS - Date.now()));
}

function showOutlook({ waiting_text, estimate_text }) {
  for (const [name, text] of [["waiting", waiting_text], ["estimate", estimate_text]]) {
    set(name, text);
    part(name).hidden = !text;
  }
}

const first = await takeSnapshot();
const client = new LiveClient(document.querySelector("[data-freshness]"));
client.follow(`task:${page.dataset.task}`, first, apply, takeSnapshot);
client.follow("cluster", first.cluster, applyCluster, async () => (await takeSnapshot()).cluster);
const asking = setInterval(askOutlook, OUTLOOK_MS);
