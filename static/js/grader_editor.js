// The page of a reward function: Python is checked while it is typed, and tried with Ctrl+Enter.

import { CodeEditor } from "./code_editor.js";

const CHECK_AFTER_MS = 800;

const form = document.querySelector("[data-grader-editor]");
const box = form.querySelector("[data-code]");
form.addEventListener("keydown", (event) => {
  const isTry = event.key === "Enter" && (event.ctrlKey || event.metaKey);
  const button = form.querySelector("[data-try]");
  if (!isTry || !button) return;
  event.preventDefault();
  form.requestSubmit(button);
});
form.querySelector("#id_dataset").addEventListener("change", () => form.requestSubmit(form.querySelector('[value="rows"]')));
if (box && !box.closest("fieldset").disabled) beginChecks(new CodeEditor(box));
else if (box) new CodeEditor(box);

function beginChecks(editor) {
  const note = form.querySelector("[data-code-note]");
  form.querySelector("[data-code-keys]").hidden = false;
  let timer = 0;
  let running = new AbortController();

  function say(text, tone = "") {
    note.textContent = text;
    note.dataset.tone = tone;
  }

  function blame(line, message) {
    editor.mark(line ? [line] : []);
    say(line ? `Line ${line}: ${message}` : message, "bad");
  }

  async function check() {
    running = new AbortController();
    const headers = { "Content-Type": "application/json", "X-CSRFToken": form.elements.csrfmiddlewaretoken.value };
    const body = JSON.stringify({ source: editor.source, tenant: form.querySelector("[data-tenant]").value });
    try {
      const answer = await fetch("/api/v1/graders/check", { method: "POST", headers, body, signal: running.signal });
      const found = await answer.json();
      if (!answer.ok) say(`Not checked: ${Object.values(found.fields ?? {}).flat().join(" ") || found.message}`);
      else if (found.problem) blame(found.problem.line, found.problem.message);
      else say("Nothing is wrong with how it is written.", "ok");
    } catch (error) {
      if (error.name !== "AbortError") say("Not checked: the server does not answer.");
    }
  }

  editor.text.addEventListener("input", () => {
    clearTimeout(timer);
    running.abort();
    say("");
    if (editor.source.trim()) timer = setTimeout(check, CHECK_AFTER_MS);
  });

  const bad = form.querySelectorAll("[data-bad-line]");
  if (bad.length) {
    editor.mark([...bad].map((one) => Number(one.dataset.badLine)));
    say(`Line ${bad[0].dataset.badLine}: ${bad[0].dataset.badText}`, "bad");
  }
}
