// The check before submitting: begun from the form without leaving it, or followed on its own page.

const INTERVAL_MS = 700;
const start = document.querySelector("[data-preflight-start]");
const said = document.querySelector("[data-preflight-said]");
const page = document.querySelector("[data-preflight-follow]");

const wait = (ms) => new Promise((done) => setTimeout(done, ms));

// The server draws the part; it is put in whole. Returns the check's state.
async function draw(url, target) {
  const answer = await fetch(url);
  if (!answer.ok) return answer.status === 429 ? "running" : "gone";
  const drawn = new DOMParser().parseFromString(await answer.text(), "text/html");
  target.replaceChildren(...drawn.body.children);
  return target.querySelector("[data-preflight-state]").dataset.preflightState;
}

async function follow(url, target) {
  for (;;) {
    let state = "running";
    try {
      state = await draw(url, target);
    } catch {
      // the service is away for a moment; the next look tells
    }
    if (state !== "queued" && state !== "running") return state;
    await wait(INTERVAL_MS);
  }
}

function refused(target, title, lines) {
  const box = document.createElement("div");
  box.className = "alert";
  box.dataset.tone = "bad";
  const list = document.createElement("ul");
  for (const [id, name, message] of lines) {
    const item = document.createElement("li");
    item.className = "break";
    if (id && document.getElementById(id)) item.append(Object.assign(document.createElement("a"), { href: `#${id}`, textContent: name }), ": ");
    item.append(message);
    list.append(item);
  }
  box.append(Object.assign(document.createElement("strong"), { textContent: title }), list);
  target.replaceChildren(box);
}

async function begin(event) {
  event.preventDefault();
  if (start.getAttribute("aria-disabled") === "true") return;
  const target = start.form.querySelector("[data-preflight-part]");
  start.setAttribute("aria-disabled", "true");
  said.textContent = "The check has begun; you may go on with the form.";
  try {
    said.textContent = await check(target);
  } catch {
    refused(target, "The check could not be begun", [["", "", "The service did not answer. Try again in a moment."]]);
    said.textContent = "";
  }
  start.setAttribute("aria-disabled", "false");
}

// What is to be said once it is over.
async function check(target) {
  const sent = await fetch(start.formAction, { method: "POST", body: new FormData(start.form), headers: { Accept: "application/json" } });
  if (sent.status === 422) {
    const { summary } = await sent.json();
    refused(target, "Nothing was checked", summary);
    return "The check was not begun: some fields need a change.";
  }
  if (sent.status !== 202) throw new Error(`status ${sent.status}`);
  const { part } = await sent.json();
  const state = await follow(part, target);
  if (state !== "done") return "The check has failed.";
  const count = target.querySelectorAll("[data-problem]").length;
  return `The check is done: ${count === 0 ? "nothing is wrong" : count === 1 ? "1 finding" : `${count} findings`}. It is of the form as it was then.`;
}

if (start) start.addEventListener("click", begin);
if (page) follow(page.dataset.preflightFollow, page).then(() => location.reload());
