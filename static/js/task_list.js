// The list of tasks: states and reasons follow the tenant's stream; rows never move by themselves.

import { status } from "./format.js";
import { LiveClient } from "./live.js";

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
  }
}

if (table) {
  const { stream, epoch, seq } = table.dataset;
  const reload = async () => {
    location.reload();
    return new Promise(() => {});
  };
  new LiveClient(document.querySelector("[data-freshness]")).follow(stream, { epoch, seq: Number(seq) }, apply, reload);
}
