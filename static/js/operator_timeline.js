// The operators' timeline: the lanes of all tasks as they were when the page was made.

import "./lanes.js";

const data = document.getElementById("spans");
if (data) {
  const found = JSON.parse(data.textContent);
  const lanes = document.querySelector("rl-lanes");
  lanes.setSpans(found, found.server_time, found.server_time);
  lanes.fit();
}
