// The page's one live client: snapshot, then stream, with no gap.
//
// A stream is followed from a position {epoch, seq}. What follows on is applied, overlap is trimmed,
// a gap is asked for again, another epoch or a reset takes a new snapshot. Doorbells and sockets may
// be lost at any time: positions alone decide.

const SILENT_MS = 25_000; // no message for so long: the socket is dead
const BEHIND_MS = 2_000; // a head ahead of us for so long: ask again
const HIDDEN_MS = 60_000;
const FINAL = { 4401: "Signed out", 4403: "No access" };

export class LiveClient {
  constructor(chip) {
    this.chip = chip;
    this.streams = new Map();
    this.attempt = 0;
    this.heard = 0;
    this.offset = 0; // server's clock minus ours, ms
    this.final = "";
    document.addEventListener("visibilitychange", () => this.#visibility());
    addEventListener("pagehide", () => this.socket?.close());
    addEventListener("pageshow", (event) => event.persisted && this.#connect());
    setInterval(() => this.#watch(), 1000);
    this.#connect();
  }

  // apply(items) draws events; reload() takes a new snapshot and resolves to its position.
  follow(name, position, apply, reload) {
    const stream = { name, epoch: position.epoch, last: position.seq, head: position.seq, behind: 0, apply, reload };
    this.streams.set(name, stream);
    this.#subscribe(stream);
  }

  end(text) {
    this.final = text;
    this.#show();
  }

  #connect() {
    if (this.socket && this.socket.readyState <= WebSocket.OPEN) return;
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/ws/v1/live`);
    this.socket = socket;
    socket.onopen = () => {
      this.heard = Date.now();
      for (const stream of this.streams.values()) this.#subscribe(stream);
      this.#show();
    };
    socket.onmessage = (event) => {
      this.heard = Date.now();
      this.attempt = 0;
      this.#receive(JSON.parse(event.data));
      this.#show();
    };
    socket.onclose = (event) => {
      if (socket !== this.socket) return;
      if (FINAL[event.code]) return this.end(FINAL[event.code]);
      if (!document.hidden || !this.isAsleep) this.#retry();
      this.#show();
    };
  }

  #retry() {
    const limit = Math.min(30_000, 500 * 2 ** this.attempt++);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#connect(), Math.random() * limit);
  }

  #send(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  #subscribe(stream) {
    stream.behind = 0;
    this.#send({ op: "sub", stream: stream.name, epoch: stream.epoch, since: stream.last });
  }

  #receive(message) {
    if (message.op === "hb") return this.#beat(message);
    const stream = this.streams.get(message.stream);
    if (!stream) return;
    if (message.op === "ok") stream.head = Math.max(stream.head, message.head);
    else if (message.op === "ev") this.#events(stream, message);
    else if (message.op === "reset") this.#reload(stream);
    else if (message.op === "revoked") {
      this.streams.delete(stream.name);
      this.end("No access");
    }
  }

  #events(stream, { epoch, from, to, items }) {
    if (epoch !== stream.epoch) return; // of before a snapshot that is newer
    if (from > stream.last + 1) return this.#subscribe(stream);
    const fresh = items.slice(stream.last + 1 - from);
    stream.last = Math.max(stream.last, to);
    stream.head = Math.max(stream.head, to);
    if (fresh.length) stream.apply(fresh);
  }

  #beat({ t, heads }) {
    this.offset = t - Date.now();
    for (const [name, [epoch, seq]] of Object.entries(heads)) {
      const stream = this.streams.get(name);
      if (!stream) continue;
      if (epoch !== stream.epoch) this.#reload(stream);
      else if (seq > stream.last) {
        stream.head = seq;
        stream.behind ||= Date.now();
      }
    }
  }

  async #reload(stream) {
    if (stream.isReloading) return;
    stream.isReloading = true;
    try {
      const position = await stream.reload();
      stream.epoch = position.epoch;
      stream.last = stream.head = position.seq;
      this.#subscribe(stream);
    } catch {
      setTimeout(() => this.#reload(stream), 5_000);
    } finally {
      stream.isReloading = false;
    }
  }

  #watch() {
    const now = Date.now();
    if (this.socket?.readyState === WebSocket.OPEN && now - this.heard > SILENT_MS) this.socket.close();
    for (const stream of this.streams.values()) {
      if (stream.last >= stream.head) stream.behind = 0;
      else if (stream.behind && now - stream.behind > BEHIND_MS) this.#subscribe(stream);
    }
    this.#show();
  }

  #visibility() {
    clearTimeout(this.sleep);
    if (document.hidden) {
      this.sleep = setTimeout(() => {
        this.isAsleep = true;
        this.socket?.close();
      }, HIDDEN_MS);
    } else if (this.isAsleep) {
      this.isAsleep = false;
      this.#connect();
    }
  }

  #show() {
    if (!this.chip) return;
    const [text, tone] = this.#freshness();
    if (this.chip.textContent !== text) this.chip.textContent = text;
    this.chip.dataset.tone = tone;
    this.chip.hidden = false;
  }

  #freshness() {
    if (this.final) return [this.final, this.final === "Ended" ? "" : "bad"];
    if (this.socket?.readyState !== WebSocket.OPEN) {
      const silent = Math.round((Date.now() - this.heard) / 1000);
      return this.heard && silent >= 30 ? [`Stale ${silent} s`, "bad"] : ["Reconnecting", "warn"];
    }
    const missing = [...this.streams.values()].reduce((sum, s) => sum + Math.max(0, s.head - s.last), 0);
    return missing ? [`Catching up ${missing}`, "warn"] : ["● Live", "ok"];
  }
}
