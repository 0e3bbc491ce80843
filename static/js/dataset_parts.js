// Parts that pages of datasets build themselves. Whatever a file holds is text, never markup.

import { count } from "./format.js";

export function make(tag, text = "", className = "") {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  if (className) element.className = className;
  return element;
}

const MAX_RUNS = 12;

// [["2–61", message], …] of {line, message}, as jobs/services/imports/findings.py groups them.
function groupedLines(lines) {
  const groups = new Map();
  for (const { line, message } of lines) groups.set(message, [...(groups.get(message) ?? []), line]);
  return [...groups].map(([message, numbers]) => [runsOf(numbers), message]);
}

function runsOf(numbers) {
  const runs = [];
  for (const number of numbers) {
    if (runs.length && number === runs.at(-1)[1] + 1) runs.at(-1)[1] = number;
    else runs.push([number, number]);
  }
  const told = runs.slice(0, MAX_RUNS).map(([a, b]) => (a === b ? count(a) : `${count(a)}–${count(b)}`));
  const left = runs.slice(MAX_RUNS).reduce((sum, [a, b]) => sum + b - a + 1, 0);
  return told.join(", ") + (left ? ` and ${count(left)} more` : "");
}

// A table of {line, message}, as templates/datasets/bad_lines.html writes it.
export function badLines(title, lines, total) {
  const section = make("section", "", "card");
  const head = make("div", "", "card-head");
  head.append(make("h3", title), make("span", `${count(lines.length)} of ${count(total)} shown, numbered as in your file`, "note"));
  const wrap = make("div", "", "table-wrap");
  const table = document.createElement("table");
  const titles = table.createTHead().insertRow();
  for (const text of ["Lines", "What is wrong"]) titles.append(Object.assign(make("th", text, text === "Lines" ? "number" : ""), { scope: "col" }));
  const body = table.createTBody();
  for (const [places, message] of groupedLines(lines)) {
    body.insertRow().append(Object.assign(make("th", places, "number"), { scope: "row" }), make("td", message, "break"));
  }
  wrap.append(table);
  section.append(head, wrap);
  return section;
}

// What an error of the API says, its fields included.
export function problemOf({ message, fields }) {
  const texts = Object.entries(fields ?? {}).map(([name, found]) => (name === "file" ? found.join(" ") : `${name}: ${found.join(" ")}`));
  return texts.length ? texts.join(" ") : message;
}
