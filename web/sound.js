// Microphone and loudspeaker, each behind one small class.

const SPEAKING_RATE = 24000;

/** The microphone. `onblock` gets Int16Array blocks of 20 ms at `rate` Hz. */
export class Microphone {
  constructor(onblock, onended) {
    this.onblock = onblock;
    this.onended = onended; // it was unplugged
    this.muted = false;
  }

  /** Open a microphone, or throw an Error whose message says what is wrong. */
  async open(deviceId) {
    if (!window.isSecureContext || !navigator.mediaDevices) {
      throw new Error(
        "This page is not in a secure context, so the browser gives it no microphone. Open it on localhost, or over " +
        "https (rejoinder serve --tls-self-signed).");
    }
    const wanted = { echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1 };
    if (deviceId) wanted.deviceId = { exact: deviceId };
    try {
      this.stream = await navigator.mediaDevices.getUserMedia({ audio: wanted });
    } catch (error) {
      throw new Error(refusal(error));
    }
    for (const track of this.stream.getAudioTracks()) track.onended = this.onended;
    const [context, source] = await this.connect();
    this.context = context;
    const node = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0 });
    this.rate = [8000, 16000, 24000, 48000].includes(context.sampleRate) ? context.sampleRate : SPEAKING_RATE;
    node.port.onmessage = ({ data }) => this.onblock(data);
    source.connect(node);
    this.mute(this.muted);
  }

  // Firefox connects a microphone only to a context of the hardware's own rate; others convert it for us.
  async connect() {
    for (const options of [{ sampleRate: SPEAKING_RATE, latencyHint: "interactive" }, { latencyHint: "interactive" }]) {
      const context = new AudioContext(options);
      await context.audioWorklet.addModule("capture-worklet.js");
      try {
        return [context, context.createMediaStreamSource(this.stream)];
      } catch {
        await context.close();
      }
    }
    throw new Error("This browser cannot connect the microphone to the page. Try another microphone or browser.");
  }

  /** Send silence instead of sound: the server's clock runs on the sound it receives, so that goes on. */
  mute(muted) {
    this.muted = muted;
    for (const track of this.stream?.getAudioTracks() ?? []) track.enabled = !muted;
  }

  async close() {
    for (const track of this.stream?.getTracks() ?? []) track.stop();
    await this.context?.close();
    this.stream = this.context = undefined;
  }

  static async list() {
    const devices = await navigator.mediaDevices?.enumerateDevices() ?? [];
    return devices.filter((device) => device.kind === "audioinput" && device.deviceId);
  }
}

function refusal(error) {
  switch (error.name) {
    case "NotAllowedError": return "The microphone was refused. Allow it for this page in the browser's address bar, then start again.";
    case "NotFoundError": return "There is no microphone. Plug one in, then start again.";
    case "NotReadableError": return "The microphone is in use by another program. Close that program, then start again.";
    case "OverconstrainedError": return "That microphone is gone. Choose another one in the settings.";
    default: return `The microphone cannot be opened: ${error.message}`;
  }
}

/** The loudspeaker. Knows which item each played sample belongs to. */
export class Loudspeaker {
  constructor() {
    this.pushed = 0;
    this.played = 0;
    this.items = new Map(); // item id → { start, end } in samples pushed
    this.silenced = new Set(); // items that were cut: nothing more of them is played
    this.clearing = [];
    this.onstart = () => {};
  }

  async open() {
    this.context = new AudioContext({ sampleRate: SPEAKING_RATE, latencyHint: "interactive" });
    await this.context.audioWorklet.addModule("playback-worklet.js");
    this.node = new AudioWorkletNode(this.context, "playback", { numberOfInputs: 0, outputChannelCount: [1] });
    this.node.port.onmessage = ({ data }) => this.hear(data);
    this.node.connect(this.context.destination);
    await this.context.resume();
  }

  hear({ type, played }) {
    this.played = played;
    if (type === "started") this.onstart();
    if (type === "cleared") {
      this.pushed = played;
      for (const resolve of this.clearing.splice(0)) resolve();
    }
  }

  play(itemId, pcm) {
    if (this.silenced.has(itemId)) return; // was under way when its answer was stopped
    if (!this.items.has(itemId)) this.items.set(itemId, { start: this.pushed });
    this.pushed += pcm.length;
    this.items.get(itemId).end = this.pushed;
    this.node.port.postMessage(pcm, [pcm.buffer]);
  }

  /** Fall silent now. Resolves with the items that were not heard to their end, and how many ms of each were. */
  async clear() {
    if (!this.node) return [];
    await new Promise((resolve) => {
      this.clearing.push(resolve);
      this.node.port.postMessage("clear");
    });
    const cut = [];
    for (const [itemId, { start, end }] of this.items) {
      if (end <= this.played) continue;
      const heard = Math.max(0, this.played - start);
      cut.push({ itemId, heardMs: Math.floor((heard * 1000) / SPEAKING_RATE) });
      this.silenced.add(itemId);
    }
    this.items.clear();
    return cut;
  }

  /** Milliseconds between a sample leaving the page and reaching the ear, as far as the browser knows. */
  get latencyMs() {
    return ((this.context.outputLatency || 0) + (this.context.baseLatency || 0)) * 1000;
  }

  async close() {
    await this.context?.close();
    this.node = this.context = undefined;
    this.hear({ type: "cleared", played: 0 });
    this.items.clear();
    this.pushed = this.played = 0;
  }
}
