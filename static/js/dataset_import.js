// A large upload that is being read: asks how far it is, and goes on where it ended.

import { count } from "./format.js";

const INTERVAL_MS = 1_000;
const part = document.querySelector("[data-import]");

async function look() {
  try {
    const answer = await fetch(part.dataset.import);
    if (answer.ok) show(await answer.json());
  } catch {
    // the service is away for a moment; the next look tells
  }
}

function show({ state, dataset, is_new: isNew, bytes_read: read, num_rows: rows }) {
  if (state === "ready" && dataset) return location.replace(`/datasets/${dataset}/${isNew ? "?stored" : "?same"}`);
  if (state !== "importing") return location.reload();
  const progress = part.querySelector("progress");
  if (progress.hasAttribute("value")) progress.value = read;
  part.querySelector("[data-read]").textContent = `${(read / 2 ** 20).toFixed(1)} MiB`;
  part.querySelector("[data-rows]").textContent = count(rows);
}

if (part) setInterval(look, INTERVAL_MS);
