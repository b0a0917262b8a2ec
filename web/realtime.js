// The connection: OpenAI Realtime events over a websocket that reconnects automatically, to the same conversation if the
// server still has it.

const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 8000;
const NORMAL_CLOSURE = 1000; // ends the conversation; after any other close code the server waits for us
const POLICY_VIOLATION = 1008; // close code of a server that rejects this client
const IDLE = "idle_timeout"; // close reason of a server to which this client has sent nothing for a while
const EXTENSIONS = [
  "rejoinder.alarms", "rejoinder.draft", "rejoinder.phase", "rejoinder.remote", "rejoinder.resume", "rejoinder.sources",
  "rejoinder.transcript", "rejoinder.turn",
];

/** Dispatches every server event under its type and under "any", and "lost" when the connection closes: whether the server
 * `rejected` the client, whether it found it `idle`, and its `message`, if it sent one. */
export class Realtime extends EventTarget {
  /** `session` returns the settings to send after every connect, `history` the items to give to a new conversation;
   * `isAwaited` tells whether an idle client still expects something of the server. */
  constructor({ session, history, apiKey, isAwaited = () => false }) {
    super();
    Object.assign(this, { session, history, apiKey, isAwaited });
    this.extensions = EXTENSIONS;
    this.retryMs = FIRST_RETRY_MS;
    this.keepConnected = false;
  }

  connect() {
    this.keepConnected = true;
    clearTimeout(this.timer);
    this.socket?.close(NORMAL_CLOSURE);
    this.socket = this.lastError = undefined;
    const address = new URL("v1/realtime", location.href);
    address.protocol = address.protocol.replace("http", "ws");
    const key = this.apiKey();
    const protocols = ["realtime", "rejoinder-waiting"];
    if (key) protocols.push(`openai-insecure-api-key.${key}`);
    if (this.resumeToken) protocols.push(`rejoinder-resume.${this.resumeToken}`);
    let socket;
    try {
      socket = new WebSocket(address, protocols);
    } catch {
      this.keepConnected = false;
      this.emit("lost", { rejected: true, idle: false, reason: "the API key contains invalid characters" });
      return;
    }
    // An older socket may still close or deliver events after a new one was opened.
    const ifCurrent = (handler) => (event) => { if (socket === this.socket) handler(event); };
    socket.onmessage = ifCurrent(({ data }) => this.receive(JSON.parse(data)));
    socket.onclose = ifCurrent((close) => this.onClose(close));
    this.socket = socket;
    this.sessionCreated = false;
  }

  close() {
    this.keepConnected = false;
    clearTimeout(this.timer);
    this.socket?.close(NORMAL_CLOSURE);
    this.socket = this.resumeToken = this.sessionId = undefined;
  }

  get open() {
    return this.socket?.readyState === WebSocket.OPEN && this.sessionCreated;
  }

  send(type, fields = {}) {
    if (this.open) this.socket.send(JSON.stringify({ type, ...fields }));
  }

  sendAudio(block) {
    if (!this.open) return;
    const bytes = new Uint8Array(block.buffer, block.byteOffset, block.byteLength);
    this.send("input_audio_buffer.append", { audio: btoa(String.fromCharCode(...bytes)) });
  }

  configure() {
    this.send("session.update", { session: { type: "realtime", include: this.extensions, ...this.session() } });
  }

  receive(event) {
    if (event.type === "session.created") {
      const resumed = event.session.id === this.sessionId;
      this.sessionId = event.session.id;
      this.retryMs = FIRST_RETRY_MS;
      this.sessionCreated = true;
      this.configure();
      if (!resumed) for (const item of this.history()) this.send("conversation.item.create", { item });
    } else if (event.type === "rejoinder.resume") {
      this.resumeToken = event.token;
    } else if (event.type === "error") {
      this.lastError = event.error;
    }
    this.emit(event.type, event);
    this.emit("any", event);
  }

  onClose({ code, reason }) {
    this.socket = undefined;
    if (!this.keepConnected) return;
    const rejected = code === POLICY_VIOLATION;
    const idle = reason === IDLE && !this.isAwaited();
    const message = reason && reason === this.lastError?.code ? this.lastError.message : undefined;
    if (rejected || idle) this.keepConnected = false;
    this.emit("lost", { rejected, idle, reason, message });
    if (!this.keepConnected) return;
    this.timer = setTimeout(() => this.connect(), this.retryMs);
    this.retryMs = Math.min(2 * this.retryMs, MAX_RETRY_MS);
  }

  emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** base64 → Int16Array */
export function decodePcm(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let n = 0; n < binary.length; n++) bytes[n] = binary.charCodeAt(n);
  return new Int16Array(bytes.buffer);
}
