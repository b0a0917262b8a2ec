// The microphone and the loudspeaker.

const OUTPUT_RATE = 24000;
const ACCEPTED_RATES = [8000, 16000, 24000, 48000]; // that the server accepts

export const INSECURE_CONTEXT =
  "This page is not in a secure context, so the browser does not give it access to the microphone. Open it on " +
  "localhost, or over https (rejoinder serve --tls-self-signed).";

export const SILENT_MICROPHONE =
  "The microphone is on, but delivers only silence. Check that it is not muted, by a switch or in the system's sound " +
  "settings, and that the browser may use it in the system's privacy settings; or choose another one under Settings.";

/** The microphone. `onblock` receives blocks of 32 ms at `rate` Hz, Int16Array, and the peak of each, 0 to 1;
 * `onended` is called when it is unplugged. */
export class Microphone {
  constructor(onblock, onended) {
    this.onblock = onblock;
    this.onended = onended;
    this.muted = false;
  }

  /** Open a microphone. Throws an Error with a message for the user. */
  async open(deviceId) {
    if (!window.isSecureContext || !navigator.mediaDevices) throw new Error(INSECURE_CONTEXT);
    const constraints = { echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1 };
    if (deviceId) constraints.deviceId = { exact: deviceId };
    try {
      this.stream = await navigator.mediaDevices.getUserMedia({ audio: constraints });
    } catch (error) {
      throw new Error(microphoneError(error));
    }
    for (const track of this.stream.getAudioTracks()) track.onended = this.onended;
    this.mute(this.muted);
  }

  /** Receive blocks from now on, in the loudspeaker's context if possible: every context renders 188 times a second.
   * Throws an Error with a message for the user. */
  async connect(loudspeakerContext) {
    this.source = await this.sourceIn(loudspeakerContext);
    const { context } = this.source;
    await context.audioWorklet.addModule("capture-worklet.js");
    this.node = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0 });
    this.rate = ACCEPTED_RATES.includes(context.sampleRate) ? context.sampleRate : OUTPUT_RATE;
    this.node.port.onmessage = ({ data: { block, peak } }) => this.onblock(block, peak);
    this.source.connect(this.node);
  }

  // Firefox connects a microphone only to a context at the hardware's own rate. Other browsers resample.
  async sourceIn(context) {
    try {
      return context.createMediaStreamSource(this.stream);
    } catch {
      this.ownContext = new AudioContext({ latencyHint: "interactive" });
    }
    try {
      return this.ownContext.createMediaStreamSource(this.stream);
    } catch {
      throw new Error("This browser cannot connect the microphone to the page. Try another microphone or browser.");
    }
  }

  /** Send silence when muted: the server's clock counts the audio it receives. */
  mute(muted) {
    this.muted = muted;
    for (const track of this.stream?.getAudioTracks() ?? []) track.enabled = !muted;
  }

  async close() {
    for (const track of this.stream?.getTracks() ?? []) track.stop();
    this.source?.disconnect();
    this.node?.port.postMessage("close");
    await this.ownContext?.close();
    this.stream = this.source = this.node = this.ownContext = undefined;
  }

  static async list() {
    const devices = await navigator.mediaDevices?.enumerateDevices() ?? [];
    return devices.filter((device) => device.kind === "audioinput" && device.deviceId);
  }
}

function microphoneError(error) {
  switch (error.name) {
    case "NotAllowedError":
      return "Microphone access was denied. Allow it for this page: press the icon at the left end of the address bar, then " +
        "start again. If it is allowed there, allow it to the browser in the system's privacy settings.";
    case "NotFoundError": return "There is no microphone. Plug one in, then start again.";
    case "NotReadableError":
      return "The microphone is in use by another program. Close that program, then start again.";
    case "OverconstrainedError": return "That microphone is no longer connected. Choose another one in the settings.";
    default: return `The microphone cannot be opened: ${error.message}`;
  }
}

/** The loudspeaker. Tracks which item each played sample belongs to. */
export class Loudspeaker {
  constructor() {
    this.pushed = 0;
    this.played = 0;
    this.items = new Map(); // item id → { start, end } in samples pushed
    this.interrupted = new Set(); // items whose remaining audio is not played
    this.clearResolvers = [];
    this.onstart = () => {};
  }

  async open() {
    if (this.context) return;
    this.context = new AudioContext({ sampleRate: OUTPUT_RATE, latencyHint: "interactive" });
    await this.context.audioWorklet.addModule("playback-worklet.js");
    this.node = new AudioWorkletNode(this.context, "playback", { numberOfInputs: 0, outputChannelCount: [1] });
    this.node.port.onmessage = ({ data }) => this.onReport(data);
    this.node.connect(this.context.destination);
    await this.context.resume();
  }

  onReport({ type, played, at }) {
    this.played = played;
    this.reportedAt = at; // in the context's time; undefined while nothing plays
    if (type === "started") this.onstart();
    if (type === "cleared") {
      this.pushed = played;
      for (const resolve of this.clearResolvers.splice(0)) resolve();
    }
  }

  play(itemId, pcm) {
    if (!this.node || this.interrupted.has(itemId)) return; // audio in transit when its response was stopped
    if (!this.items.has(itemId)) this.items.set(itemId, { start: this.pushed });
    this.pushed += pcm.length;
    this.items.get(itemId).end = this.pushed;
    this.node.port.postMessage(pcm, [pcm.buffer]);
  }

  /** Stop playback at once. Resolves with the items that were not heard to the end and how many ms of each were. */
  async clear() {
    if (!this.node) return [];
    await new Promise((resolve) => {
      this.clearResolvers.push(resolve);
      this.node.port.postMessage(this.context.state === "running" ? "clear" : "drop");
    });
    const unfinished = [];
    for (const [itemId, { start, end }] of this.items) {
      if (end <= this.played) continue;
      const heardSamples = Math.max(0, this.played - start);
      unfinished.push({ itemId, heardMs: Math.floor((heardSamples * 1000) / OUTPUT_RATE) });
      this.interrupted.add(itemId);
    }
    this.items.clear();
    return unfinished;
  }

  /** The item that is heard now and how many ms of it were; undefined if none is. Playback goes on from the last report as
   * long as there is audio. */
  get playing() {
    if (!this.reportedAt) return undefined;
    const elapsed = this.context.currentTime - this.reportedAt - this.latencyMs / 1000;
    const position = this.played + elapsed * OUTPUT_RATE;
    for (const [itemId, { start, end }] of this.items) {
      if (position >= start && position < end) return { itemId, heardMs: ((position - start) * 1000) / OUTPUT_RATE };
    }
    return undefined;
  }

  /** Time in ms from a sample leaving the page to reaching the ear, as far as the browser knows. */
  get latencyMs() {
    return ((this.context.outputLatency || 0) + (this.context.baseLatency || 0)) * 1000;
  }

  async close() {
    await this.context?.close();
    this.node = this.context = undefined;
    this.onReport({ type: "cleared", played: 0 });
    this.items.clear();
    this.pushed = this.played = 0;
  }
}
