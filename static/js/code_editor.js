// A textarea for Python with colours and line numbers. The textarea stays what one types into, what a
// screen reader reads and what is sent; the colours lie behind it, letter under letter. Both are as
// large as the source, and what scrolls is what holds them, so that they cannot come apart.

const INDENT = "    ";

export class CodeEditor {
  constructor(box) {
    this.box = box;
    this.text = box.querySelector("[data-code-text]");
    this.shown = box.querySelector("[data-code-shown]");
    this.lines = box.querySelector("[data-code-lines]");
    this.badLines = new Set();
    this.shown.hidden = this.lines.hidden = false;
    box.classList.add("is-live");
    this.text.addEventListener("input", () => this.mark([]));
    this.text.addEventListener("keydown", (event) => this.#key(event));
    this.draw();
  }

  get source() {
    return this.text.value;
  }

  // Lines that are to blame, from 1; what was marked before is not any more.
  mark(lines) {
    this.badLines = new Set(lines);
    this.draw();
  }

  draw() {
    const texts = this.source.split("\n");
    this.lines.replaceChildren(...texts.map((_, place) => this.#number(place + 1)));
    const parts = Prism.tokenize(this.source, Prism.languages.python).flatMap((token) => leaves(token, ""));
    this.shown.replaceChildren(...this.#nodes(parts), "\n");
  }

  #number(line) {
    const isBad = this.badLines.has(line);
    const element = document.createElement("span");
    element.className = isBad ? "bad" : "";
    element.textContent = `${isBad ? "! " : ""}${line}\n`;
    return element;
  }

  // Elements of the parts; those on a marked line say so.
  #nodes(parts) {
    const nodes = [];
    let line = 1;
    for (const [text, kind] of parts) {
      for (const [place, piece] of text.split("\n").entries()) {
        if (place) {
          nodes.push("\n");
          line += 1;
        }
        if (piece) nodes.push(element(piece, this.badLines.has(line) && piece.trim() ? `${kind} bad` : kind));
      }
    }
    return nodes;
  }

  #key(event) {
    const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (event.key === "Escape") this.leaves = true;
    else if (event.key === "Tab" && isPlain && !this.leaves) this.#indent(event);
    else if (event.key === "Enter" && isPlain && !event.isComposing) this.#newLine(event);
    if (!["Escape", "Tab", "Shift"].includes(event.key)) this.leaves = false;
  }

  // Tab indents, with Shift less; of several lines each.
  #indent(event) {
    const { selectionStart: from, selectionEnd: to, value } = this.text;
    event.preventDefault();
    if (from === to && !event.shiftKey) return insert(this.text, INDENT);
    const start = value.lastIndexOf("\n", from - 1) + 1;
    const found = value.indexOf("\n", to);
    const end = found < 0 ? value.length : found;
    const old = value.slice(start, end);
    const changed = event.shiftKey ? old.replaceAll(/^ {1,4}/gm, "") : old.replaceAll(/^(?=.)/gm, INDENT);
    if (changed === old) return;
    this.text.setSelectionRange(start, end);
    insert(this.text, changed);
    const caret = Math.max(start, from + changed.length - old.length);
    this.text.setSelectionRange(from === to ? caret : start, from === to ? caret : start + changed.length);
  }

  // A new line begins where the last one did, and deeper after a colon.
  #newLine(event) {
    const { selectionStart: from, value } = this.text;
    const line = value.slice(value.lastIndexOf("\n", from - 1) + 1, from);
    event.preventDefault();
    insert(this.text, `\n${/^\s*/.exec(line)[0]}${/:\s*$/.test(line) ? INDENT : ""}`);
  }
}

// As if it were typed, so that it can be undone: the only way that browsers have, old as it is.
function insert(field, text) {
  const isDone = text ? document.execCommand("insertText", false, text) : document.execCommand("delete");
  if (isDone) return;
  field.setRangeText(text, field.selectionStart, field.selectionEnd, "end");
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

function leaves(token, kind) {
  if (typeof token === "string") return [[token, kind]];
  const inner = Array.isArray(token.content) ? token.content : [token.content];
  return inner.flatMap((one) => leaves(one, `${kind} ${token.type}`.trim()));
}

function element(text, kind) {
  if (!kind) return text;
  const made = document.createElement("span");
  made.className = kind;
  made.textContent = text;
  return made;
}
