// The list of tasks: states and reasons follow the tenant's stream; rows never move by themselves.

import { status } from "./format.js";
import { LiveClient } from "./live.js";

const OUTLOOK_MS = 20_000;
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
    row.querySelector('[data-cell="reason"]').textContent = data.pause_reason || data.reason;
    if (data.state !== "running") row.querySelector('[data-cell="left"]').textContent = "";
  }
}

// Estimates are worked out when asked; one task after the other, so that a long list asks gently.
async function askOutlooks() {
  if (document.hidden) return;
  for (const row of table.querySelectorAll("tr[data-task]:has([data-state=running])")) {
    const url = `/api/v1/tasks/${row.dataset.task}/outlook`;
    const answer = await fetch(url, { headers: { Accept: "application/json" } }).catch(() => null);
    if ([401, 403].includes(answer?.status)) clearInterval(asking); // signed out
    if (!answer?.ok) return;
    const { task_done: left } = await answer.json();
    row.querySelector('[data-cell="left"]').textContent = left ? `${left.text} left` : "";
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
