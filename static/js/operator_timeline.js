// The operators' timeline: the lanes of all tasks, asked for anew while somebody looks.

import "./lanes.js";

const REFRESH_MS = 10_000;
const lanes = document.querySelector("rl-lanes");
const spansOf = (page) => page.getElementById("spans");

function show(data) {
  const found = JSON.parse(data.textContent);
  const width = lanes.windowMs;
  lanes.setSpans(found, found.server_time, found.server_time);
  if (!width) lanes.fit();
  else if (lanes.isFollowing) {
    lanes.windowMs = width;
    lanes.draw();
  }
}

async function refresh() {
  if (document.hidden) return;
  const answer = await fetch(location.href).catch(() => null);
  if (!answer?.ok) return; // the moment in the heading says how old it is
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const data = spansOf(page);
  if (Boolean(data) !== Boolean(lanes)) location.reload(); // the first lane, the last one, or signed out
  if (!data || !lanes) return;
  show(data);
  for (const part of document.querySelectorAll("[data-refresh]")) {
    const next = page.querySelector(`[data-refresh="${part.dataset.refresh}"]`);
    if (!part.contains(document.activeElement)) part.replaceChildren(...next.childNodes);
  }
}

if (lanes) show(spansOf(document));
setInterval(refresh, REFRESH_MS);
