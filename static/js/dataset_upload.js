// The upload of a dataset: a preview of the file's head while one chooses, progress while it is sent,
// and every bad line if it is refused. Without this the form is sent as it is.

import { count } from "./format.js";
import { make, badLines, problemOf } from "./dataset_parts.js";

const HEAD_BYTES = 256 * 1024;
const WHOLE_BYTES = 1_500_000; // Parquet tells its columns at its end only
const WAIT_MS = 300;
const SHOWN_COLUMNS = 30;
// Errors that a choice of columns, encoding or header mends: they ask to choose; see jobs/web/datasets.py.
const ASKS_FOR_CHOICE = /\bcho+se/i;
const CHOICE_FIELDS = ["mapping", "encoding", "format", "eval_fraction", "has_header"];

const form = document.querySelector("form[data-upload]");
const field = (name) => form.elements.namedItem(name);
let asked = 0;
let timer = 0;

function choices(data) {
  const mapping = {};
  for (const input of form.querySelectorAll("[data-role]")) {
    if (!input.closest("[hidden]") && input.value.trim()) mapping[input.dataset.role] = input.value.trim();
  }
  data.set("mapping", JSON.stringify(mapping));
  for (const name of ["kind", "on_bad_rows", "encoding", "format", "has_header", "eval_fraction"]) {
    if (!field(name).closest("[hidden]")) data.set(name, field(name).value);
  }
  return data;
}

const send = (url, body) => fetch(url, { method: "POST", body, headers: { "X-CSRFToken": field("csrfmiddlewaretoken").value } });

async function preview() {
  const file = field("file").files[0];
  const panel = form.querySelector("[data-preview]");
  panel.hidden = !file;
  if (!file) return;
  const number = ++asked;
  const isParquet = (await file.slice(0, 4).text()) === "PAR1";
  const hasEnds = isParquet && file.size > WHOLE_BYTES;
  const head = isParquet && !hasEnds ? file : file.slice(0, HEAD_BYTES);
  const data = choices(new FormData());
  data.set("file", head, file.name);
  data.set("file_name", file.name);
  data.set("is_head", String(head.size < file.size));
  data.delete("eval_fraction");
  if (hasEnds) {
    data.set("tail", file.slice(-HEAD_BYTES), "tail");
    data.set("size", String(file.size));
  }
  let found;
  try {
    const answer = await send("/api/v1/datasets/preview", data);
    found = await answer.json();
    if (!answer.ok) found = { error: problemOf(found) };
  } catch {
    found = { error: "The preview did not arrive; the upload itself may still work." };
  }
  if (number !== asked) return;
  panel.replaceChildren(...parts(found, file));
  openChoices(found.error);
}

function parts(found, file) {
  const isUnread = found.error && !found.rows?.length;
  if (isUnread && !found.columns?.length) return [alert("bad", "This file cannot be read as it is", [found.error])];
  for (const input of form.querySelectorAll("[data-role]")) input.placeholder = found.mapping[input.dataset.role] ?? "";
  document.getElementById("upload-columns").replaceChildren(...found.columns.map(({ name }) => Object.assign(document.createElement("option"), { value: name })));
  const what = [found.format + (found.is_gzip ? " in gzip" : ""), found.encoding, found.is_head ? `first ${count(found.num_rows)} rows looked at` : `${count(found.num_rows)} rows looked at`];
  const facts = make("p", `${file.name}: ${what.filter(Boolean).join(", ")}`, "note break");
  facts.setAttribute("role", "status");
  const shown = [facts];
  if (found.error) shown.push(alert("bad", isUnread ? "This file cannot be read as it is" : "The file breaks off", [found.error]));
  if (found.warnings.length) shown.push(alert("warn", "Worth knowing", found.warnings));
  shown.push(columnTable(found));
  if (found.bad_lines.length) {
    const table = badLines("Bad rows", found.bad_lines, found.num_bad_lines);
    table.dataset.badRows = "";
    shown.push(table);
  }
  shown.push(...found.rows.map(rowCard));
  return shown;
}

function alert(tone, title, texts) {
  const box = make("div", "", "alert");
  box.dataset.tone = tone;
  const list = document.createElement("ul");
  list.append(...texts.map((text) => make("li", text, "break")));
  box.append(make("strong", title), list);
  return box;
}

function columnTable({ columns, mapping, num_rows: numRows }) {
  const roles = Object.fromEntries(Object.entries(mapping).map(([role, path]) => [path, role]));
  const wrap = make("div", "", "table-wrap");
  const table = document.createElement("table");
  const head = table.createTHead().insertRow();
  for (const title of ["Column", "Used as", "Holds", "Rows"]) head.append(Object.assign(make("th", title), { scope: "col" }));
  const body = table.createTBody();
  for (const { name, types, num_rows: present } of columns.slice(0, SHOWN_COLUMNS)) {
    const row = body.insertRow();
    const role = roles[name] ?? Object.entries(roles).find(([path]) => path.startsWith(`${name}.`))?.[1] ?? "a column of the row";
    const shownRows = numRows ? (present === numRows ? "all" : `${count(present)} of ${count(numRows)}`) : "–";
    const held = Object.entries(types).map(([type, line]) => (Object.keys(types).length > 1 ? `${type} (first in ${count(line)})` : type));
    row.append(Object.assign(make("th", name, "mono break"), { scope: "row" }), make("td", role), make("td", held.join(", ")), make("td", shownRows));
  }
  wrap.append(table);
  wrap.tabIndex = 0;
  wrap.setAttribute("role", "group");
  wrap.setAttribute("aria-label", "Columns");
  return wrap;
}

function rowCard(row, place) {
  const { messages = [], ...rest } = row;
  const card = make("article", "", "group");
  card.setAttribute("aria-label", `Row ${place + 1} as it would be stored`);
  for (const { role, content, tool_calls: calls } of messages) card.append(make("p", role, "note"), textBox(content ?? JSON.stringify(calls), role));
  const list = make("dl", "", "pairs");
  for (const [name, value] of Object.entries(rest)) {
    const text = make("dd", typeof value === "string" ? value : JSON.stringify(value), "mono");
    text.dir = "auto";
    list.append(make("dt", name, "mono"), text);
  }
  if (list.children.length) card.append(list);
  return card;
}

function textBox(text, label) {
  const box = make("div", text, "model-text");
  box.dir = "auto";
  box.tabIndex = 0;
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", label);
  return box;
}

function submit(event) {
  const file = field("file").files[0];
  if (!file || !field("name").value.trim()) return; // the server says what is missing
  event.preventDefault();
  const data = choices(new FormData());
  for (const name of ["name", "tenant"]) data.set(name, field(name).value);
  data.set("file", file, file.name);
  const request = new XMLHttpRequest();
  request.responseType = "json";
  request.upload.addEventListener("progress", ({ loaded, total }) => sending(loaded, total));
  request.addEventListener("load", () => answered(request));
  request.addEventListener("error", () => refuse({ message: "The connection broke off; nothing was stored. Send it again." }));
  request.open("POST", "/api/v1/datasets");
  request.setRequestHeader("X-CSRFToken", field("csrfmiddlewaretoken").value);
  form.querySelector("[data-refused]").hidden = true;
  form.querySelector("[data-sending]").hidden = false;
  request.send(data);
}

function sending(loaded, total) {
  form.querySelector("#upload-progress").value = total ? loaded / total : 0;
  form.querySelector("[data-sent]").textContent = loaded === total ? "Sent; it is being checked." : `${(loaded / 2 ** 20).toFixed(1)} of ${(total / 2 ** 20).toFixed(1)} MiB`;
}

function answered(request) {
  const found = request.response;
  if (request.status === 202) location.assign(`/datasets/imports/${found.id}/`);
  else if (request.status === 201) location.assign(`/datasets/${found.id}/?stored`);
  else if (request.status === 200) location.assign(`/datasets/${found.id}/?same`);
  else refuse(found ?? { message: `The service answered with status ${request.status}.` });
}

function refuse(found) {
  delete form.dataset.isSent;
  form.querySelector("[data-sending]").hidden = true;
  const box = form.querySelector("[data-refused]");
  const lines = found.lines ?? [];
  const isListed = found.num_bad_lines > 1; // a single one is told in a sentence
  const problem = isListed ? `${count(found.num_bad_lines)} lines are wrong; each is told below.` : problemOf(found);
  box.replaceChildren(alert("bad", "Nothing was stored", [problem]));
  if (isListed) box.append(badLines("Lines to mend", lines, found.num_bad_lines));
  asked += 1; // a preview under way would say the same again
  clearTimeout(timer);
  form.querySelector("[data-bad-rows]")?.remove();
  openChoices([problem, ...lines.map(({ message }) => message)].join(" "), found.fields);
  box.hidden = false;
  box.focus();
}

function openChoices(text, fields = {}) {
  if (ASKS_FOR_CHOICE.test(text) || CHOICE_FIELDS.some((name) => name in (fields ?? {}))) form.querySelector("[data-choices]").open = true;
}

function showRoles() {
  for (const part of form.querySelectorAll("[data-role-of]")) part.hidden = part.dataset.roleOf !== field("kind").value;
}

const sourceKind = document.querySelector("[data-source-kind]");

function showSource() {
  for (const part of document.querySelectorAll("[data-source]")) part.hidden = part.dataset.source !== sourceKind.value;
}

if (sourceKind) {
  sourceKind.addEventListener("change", showSource);
  showSource();
}

if (form) {
  const soon = () => {
    form.querySelector("[data-refused]").hidden = true;
    clearTimeout(timer);
    timer = setTimeout(preview, WAIT_MS);
  };
  form.addEventListener("input", (event) => {
    showRoles();
    if (!["name", "eval_fraction"].includes(event.target.name)) soon();
  });
  field("file").addEventListener("change", () => {
    const file = field("file").files[0];
    if (file && !field("name").value) field("name").value = file.name.replace(/(\.[a-z]+){1,2}$/i, "").slice(0, 100);
    soon();
  });
  form.addEventListener("submit", submit);
  showRoles();
  if (field("file").files.length) soon();
}
