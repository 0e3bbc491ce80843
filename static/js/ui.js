// Small things of every page: dialogs instead of confirm pages, focus on what is wrong, leave guard,
// times that stay true.

import { duration } from "./format.js";

const TIMES_INTERVAL_MS = 5_000;

for (const opener of document.querySelectorAll("[data-dialog]")) {
  opener.addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById(opener.dataset.dialog).showModal();
  });
}

document.querySelector("[data-focus]")?.focus();

for (const form of document.querySelectorAll("form[data-leave-guard]")) {
  let isChanged = false;
  form.addEventListener("input", () => (isChanged = true));
  form.addEventListener("submit", () => (isChanged = false));
  addEventListener("beforeunload", (event) => isChanged && event.preventDefault());
}

// A form sent twice by a double click is sent once.
document.addEventListener("submit", (event) => {
  if (event.target.dataset.isSent) return event.preventDefault();
  if (event.target.method !== "dialog") event.target.dataset.isSent = "yes";
});
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-is-sent]")) delete form.dataset.isSent;
});

setInterval(() => {
  for (const time of document.querySelectorAll("time[data-ago]")) {
    time.textContent = `${duration(Math.max(0, Date.now() - Date.parse(time.dateTime)))} ago`;
  }
}, TIMES_INTERVAL_MS);
