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
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const key = this.apiKey();
    const protocols = key ? ["realtime", `openai-insecure-api-key.${key}`] : ["realtime"];
    this.socket = new WebSocket(`${scheme}://${location.host}/v1/realtime`, protocols);
    this.socket.onmessage = ({ data }) => this.receive(JSON.parse(data));
    this.socket.onclose = (close) => this.lost(close);
  }

  close() {
    this.wanted = false;
    clearTimeout(this.timer);
    this.socket?.close();
  }

  get open() {
    return this.socket?.readyState === WebSocket.OPEN && this.greeted === this.socket;
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
      this.greeted = this.socket;
      this.configure();
      for (const item of this.history()) this.send("conversation.item.create", { item });
    }
    this.dispatchEvent(new CustomEvent(event.type, { detail: event }));
    this.dispatchEvent(new CustomEvent("any", { detail: event }));
  }

  lost({ code, reason }) {
    if (!this.wanted) return;
    const refused = code === 1008;
    this.dispatchEvent(new CustomEvent("lost", { detail: { refused, reason, retryMs: this.retryMs } }));
    if (refused) {
      this.wanted = false;
      return;
    }
    this.timer = setTimeout(() => this.connect(), this.retryMs);
    this.retryMs = Math.min(2 * this.retryMs, LONGEST_RETRY_MS);
  }
}

/** base64 → Int16Array */
export function decodePcm(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let n = 0; n < raw.length; n++) bytes[n] = raw.charCodeAt(n);
  return new Int16Array(bytes.buffer);
}
