// The list of tasks: states and reasons follow the tenant's stream; rows never move by themselves.

import { status } from "./format.js";
import { LiveClient } from "./live.js";

const OUTLOOK_MS = 20_000;
const ESTIMATED = ["queued", "running", "paused"];
const table = document.querySelector("table[data-stream]");

function apply(items) {
  for (const { kind, data } of items) {
    if (kind !== "task") continue;
    const row = table.querySelector(`tr[data-task="${data.id}"]`);
    if (!row) {
      document.querySelector("[data-new-rows]").hidden = false;
      continue;
    }
    row.querySelector('[data-cell="status"]').replaceChildren(status(data.state));
    const { state, pause_reason, reason, queue_position: place } = data;
    tell(row, "reason", pause_reason || reason, pause_reason || reason);
    tell(row, "place", state === "queued" && place ? `place ${place} in the queue` : "");
    if (!ESTIMATED.includes(state)) tell(row, "left", "");
  }
}

function tell(row, name, text, title = "") {
  const cell = row.querySelector(`[data-cell="${name}"]`);
  cell.textContent = text;
  cell.title = title;
}

function brief({ start, task_done: left, unknown_text, estimate_text }) {
  if (start) return estimate_text;
  if (left) return `${left.text} left`;
  return unknown_text && "time not known";
}

// Estimates are worked out when asked; one task after the other, so that a long list asks gently.
async function askOutlooks() {
  if (document.hidden) return;
  const selector = ESTIMATED.map((state) => `tr[data-task]:has([data-state=${state}])`).join();
  for (const row of table.querySelectorAll(selector)) {
    const url = `/api/v1/tasks/${row.dataset.task}/outlook`;
    const answer = await fetch(url, { headers: { Accept: "application/json" } }).catch(() => null);
    if ([401, 403].includes(answer?.status)) clearInterval(asking); // signed out
    if (!answer?.ok) return;
    const found = await answer.json();
    tell(row, "left", brief(found), found.estimate_text);
  }
}

const asking = table && setInterval(askOutlooks, OUTLOOK_MS);

if (table) {
  const { stream, epoch, seq } = table.dataset;
  const reload = async () => {
    location.reload();
    return new Promise(() => {});
  };
  new LiveClient(document.querySelector("[data-freshness]")).follow(stream, { epoch, seq: Number(seq) }, apply, reload);
}
