// Parts that pages of datasets build themselves. Whatever a file holds is text, never markup.

import { count } from "./format.js";

export function make(tag, text = "", className = "") {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  if (className) element.className = className;
  return element;
}

// A table of {line, message}, as templates/datasets/bad_lines.html writes it.
export function badLines(title, lines, total) {
  const section = make("section", "", "card");
  const head = make("div", "", "card-head");
  head.append(make("h3", title), make("span", `${count(lines.length)} of ${count(total)} shown, numbered as in your file`, "note"));
  const wrap = make("div", "", "table-wrap");
  const table = document.createElement("table");
  const titles = table.createTHead().insertRow();
  for (const text of ["Line", "What is wrong"]) titles.append(Object.assign(make("th", text, text === "Line" ? "number" : ""), { scope: "col" }));
  const body = table.createTBody();
  for (const { line, message } of lines) {
    body.insertRow().append(Object.assign(make("th", count(line), "number"), { scope: "row" }), make("td", message, "break"));
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
