// A textarea for Python with colours and line numbers. The textarea stays what one types into, what a
// screen reader reads and what is sent; the colours lie behind it, letter under letter. Both are as
// large as the source, and what scrolls is what holds them, so that they cannot come apart.

const INDENT = "    ";
// Prism's kinds that look other than plain text, by the class that colours them.
const COLOURS = {
  keyword: "keyword", decorator: "keyword", string: "string", "triple-quoted-string": "string",
  number: "number", boolean: "number", comment: "comment", function: "name", "class-name": "name",
};

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
    if (lines.length) this.text.setAttribute("aria-invalid", "true");
    else this.text.removeAttribute("aria-invalid");
    // Some browsers tell of every line of a pasted text by itself; it is drawn once.
    this.frame ??= requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = null;
    const numLines = this.source.split("\n").length;
    const numbers = Array.from({ length: numLines }, (_, place) => this.#number(place + 1));
    this.lines.replaceChildren(...merged(numbers));
    const tokens = Prism.tokenize(this.source, Prism.languages.python);
    const parts = tokens.flatMap((token) => leaves(token, ""));
    this.shown.replaceChildren(...merged(this.badLines.size ? this.#marked(parts) : parts), "\n");
  }

  #number(line) {
    return this.badLines.has(line) ? [`! ${line}\n`, "bad"] : [`${line}\n`, ""];
  }

  // The parts line by line; those on a marked one say so.
  #marked(parts) {
    let line = 1;
    return parts.flatMap(([text, kind]) =>
      text.split(/(?<=\n)/).map((piece) => {
        const isBad = this.badLines.has(line) && piece.trim();
        if (piece.endsWith("\n")) line += 1;
        return [piece, isBad ? `${kind} bad`.trim() : kind];
      }),
    );
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

// [text, colour] of a token and what is in it.
function leaves(token, kind) {
  if (typeof token === "string") return [[token, kind]];
  const inner = Array.isArray(token.content) ? token.content : [token.content];
  const own = COLOURS[token.type] ?? kind;
  return inner.flatMap((one) => leaves(one, own));
}

// Nodes of [text, class], one for neighbours that look the same: a long source has few.
function merged(parts) {
  const runs = [];
  for (const [text, kind] of parts) {
    if (runs.length && runs.at(-1).kind === kind) runs.at(-1).texts.push(text);
    else runs.push({ kind, texts: [text] });
  }
  return runs.map(({ kind, texts }) => {
    if (!kind) return texts.join("");
    return Object.assign(document.createElement("span"), { className: kind, textContent: texts.join("") });
  });
}
