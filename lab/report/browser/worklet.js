// The microphone and the listener of `rejoinder report --page`. Runs on the audio threads of the page.
//
// Both give moments in ms of Date.now(). A frame's moment comes from the audio clock, not from when the thread ran: a
// device renders a buffer of frames in one burst. A microphone hands over a buffer when its last frame has been spoken,
// and a loudspeaker begins to play one when it has been rendered, so the same frame is played one buffer later.

const QUANTUM = 128;
const AUDIBLE = 0.01;
const REPORT_INTERVAL_MS = 100;
const CLOCK_WINDOW_S = 0.5;

class AudioClock {
  constructor(bufferMs) {
    this.bufferMs = bufferMs;
    this.previous = this.lowest = Infinity; // Date.now() minus the audio clock, over two windows of time
    this.windowEnd = 0;
    this.latest = 0;
  }

  // To be called for every quantum. The thread may run late, but never early: the lowest offset is the right one.
  tick() {
    if (currentTime >= this.windowEnd) {
      this.previous = this.lowest;
      this.lowest = Infinity;
      this.windowEnd = currentTime + CLOCK_WINDOW_S;
    }
    this.lowest = Math.min(this.lowest, Date.now() - (1000 * (currentFrame + QUANTUM)) / sampleRate);
  }

  get offset() {
    return Math.min(this.previous, this.lowest);
  }

  spoken(frame) {
    return (1000 * frame) / sampleRate + this.offset;
  }

  // To be called for later and later frames. A stalled thread renders a frame after the moment at which it was due, and
  // no frame is played before an earlier one, whatever the offset.
  played(frame) {
    this.latest = Math.max(this.latest, this.spoken(frame) + this.bufferMs, Date.now());
    return this.latest;
  }

  frameAt(moment) {
    return Math.round(((moment - this.offset) * sampleRate) / 1000);
  }
}

class Microphone extends AudioWorkletProcessor {
  constructor({ processorOptions: { bufferMs } }) {
    super();
    this.clock = new AudioClock(bufferMs);
    this.clips = [];
    this.background = null;
    this.lateMs = 0;
    this.port.onmessage = ({ data }) => ("background" in data ? this.setBackground(data.background) : this.play(data));
  }

  setBackground(background) {
    this.background = background;
    this.backgroundStart = currentFrame;
  }

  play({ id, at, pcm }) {
    const next = currentFrame + QUANTUM;
    const first = at === null ? next : Math.max(next, this.clock.frameAt(at));
    const speechEnd = first + 1 + pcm.findLastIndex((sample) => Math.abs(sample) >= 32768 * AUDIBLE);
    this.clips.push({ id, first, pcm, speechEnd });
    this.lateMs = 0;
    this.port.postMessage({ kind: "started", id, at: this.clock.spoken(first) });
  }

  process(inputs, [[out]]) {
    this.clock.tick();
    this.lateMs = Math.max(this.lateMs, Date.now() - this.clock.spoken(currentFrame) - this.clock.bufferMs);
    if (this.background) {
      const { background, backgroundStart } = this;
      for (let n = 0; n < out.length; n++) {
        out[n] += background[(currentFrame - backgroundStart + n) % background.length] / 32768;
      }
    }
    for (const { first, pcm } of this.clips) {
      const stop = Math.min(out.length, first + pcm.length - currentFrame);
      for (let n = Math.max(0, first - currentFrame); n < stop; n++) out[n] += pcm[currentFrame + n - first] / 32768;
    }
    this.clips = this.clips.filter(({ id, first, pcm, speechEnd }) => {
      if (first + pcm.length > currentFrame + out.length) return true;
      this.port.postMessage({ kind: "ended", id, at: this.clock.spoken(speechEnd), late_ms: this.lateMs });
      return false;
    });
    return true;
  }
}

class Listener extends AudioWorkletProcessor {
  constructor({ processorOptions: { bufferMs } }) {
    super();
    this.clock = new AudioClock(bufferMs);
    this.span = null; // what was audible since the last report
    this.reportAfter = 0;
    // What the page has just sent to its own worklet, which plays or stops from the next quantum on.
    this.port.onmessage = ({ data }) => {
      this.port.postMessage({ ...data, at: this.clock.played(currentFrame + QUANTUM) });
    };
  }

  process([[samples]]) {
    this.clock.tick();
    if (samples) {
      const first = samples.findIndex((sample) => Math.abs(sample) >= AUDIBLE);
      if (first >= 0) {
        const last = samples.findLastIndex((sample) => Math.abs(sample) >= AUDIBLE);
        this.span ??= { at: this.clock.played(currentFrame + first) };
        this.span.until = this.clock.played(currentFrame + last);
      }
    }
    if (this.span && Date.now() >= this.reportAfter) {
      this.port.postMessage({ kind: "audible", ...this.span });
      this.span = null;
      this.reportAfter = Date.now() + REPORT_INTERVAL_MS;
    }
    return true;
  }
}

registerProcessor("report-microphone", Microphone);
registerProcessor("report-listener", Listener);
