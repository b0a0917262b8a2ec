// The connection: OpenAI Realtime events over a websocket that comes back by itself.

const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 8000;
const EXTENSIONS = ["rejoinder.draft", "rejoinder.phase", "rejoinder.transcript", "rejoinder.turn"];

export class Realtime extends EventTarget {
  /** `session` gives the settings to send after every connect; `history` the items to put back. */
  constructor({ session, history, apiKey }) {
    super();
    Object.assign(this, { session, history, apiKey });
    this.retryMs = FIRST_RETRY_MS;
    this.wanted = false;
  }

  connect() {
    this.wanted = true;
    clearTimeout(this.timer);
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const key = this.apiKey();
    const protocols = key ? ["realtime", `openai-insecure-api-key.${key}`] : ["realtime"];
    let socket;
    try {
      socket = new WebSocket(`${scheme}://${location.host}/v1/realtime`, protocols);
    } catch {
      this.wanted = false;
      this.tell("lost", { refused: true, reason: "the API key has letters that no key has" });
      return;
    }
    // An older socket may still close, or even speak, after a new one was opened.
    const current = (take) => (event) => { if (socket === this.socket) take(event); };
    socket.onmessage = current(({ data }) => this.receive(JSON.parse(data)));
    socket.onclose = current((close) => this.lost(close));
    this.socket = socket;
    this.greeted = false;
  }

  close() {
    this.wanted = false;
    clearTimeout(this.timer);
    this.socket?.close();
    this.socket = undefined;
  }

  get open() {
    return this.socket?.readyState === WebSocket.OPEN && this.greeted;
  }

  send(type, fields = {}) {
    if (this.open) this.socket.send(JSON.stringify({ type, ...fields }));
  }

  sendSound(block) {
    if (!this.open) return;
    const bytes = new Uint8Array(block.buffer, block.byteOffset, block.byteLength);
    this.send("input_audio_buffer.append", { audio: btoa(String.fromCharCode(...bytes)) });
  }

  configure() {
    this.send("session.update", { session: { type: "realtime", include: EXTENSIONS, ...this.session() } });
  }

  receive(event) {
    if (event.type === "session.created") {
      this.retryMs = FIRST_RETRY_MS;
      this.greeted = true;
      this.configure();
      for (const item of this.history()) this.send("conversation.item.create", { item });
    }
    this.tell(event.type, event);
    this.tell("any", event);
  }

  lost({ code, reason }) {
    this.socket = undefined;
    if (!this.wanted) return;
    const refused = code === 1008;
    this.tell("lost", { refused, reason, retryMs: this.retryMs });
    if (refused) {
      this.wanted = false;
      return;
    }
    this.timer = setTimeout(() => this.connect(), this.retryMs);
    this.retryMs = Math.min(2 * this.retryMs, LONGEST_RETRY_MS);
  }

  tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** base64 → Int16Array */
export function decodePcm(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let n = 0; n < raw.length; n++) bytes[n] = raw.charCodeAt(n);
  return new Int16Array(bytes.buffer);
}
