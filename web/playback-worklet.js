// The loudspeaker: a ring buffer that plays what is pushed and can be cleared in an instant. Runs on the audio thread.

const SECONDS = 120;
const REPORT_EVERY = 20; // quanta, about 100 ms at 24 kHz
const FADE = 96; // samples over which sound falls silent when it is cleared: 4 ms, short of a click

class Playback extends AudioWorkletProcessor {
  constructor() {
    super();
    this.ring = new Float32Array(SECONDS * sampleRate);
    this.read = 0; // samples played so far, since the page was opened
    this.write = 0; // samples pushed so far
    this.fading = -1;
    this.quanta = 0;
    this.port.onmessage = ({ data }) => (data === "clear" ? this.clear() : this.push(data));
  }

  push(pcm) {
    if (this.write === this.read) this.starting = true;
    for (const sample of pcm) this.ring[this.write++ % this.ring.length] = sample / 32768;
    // More than two minutes waiting: the oldest is skipped rather than the newest overwritten while it plays.
    this.read = Math.max(this.read, this.write - this.ring.length);
  }

  clear() {
    this.fading = Math.min(FADE, this.write - this.read);
    if (this.fading === 0) this.finishClearing();
  }

  finishClearing() {
    this.write = this.read;
    this.fading = -1;
    this.port.postMessage({ type: "cleared", played: this.read });
  }

  process(inputs, [output]) {
    const out = output[0];
    for (let n = 0; n < out.length && this.read < this.write; n++) {
      out[n] = this.ring[this.read++ % this.ring.length];
      if (this.fading > 0) {
        out[n] *= this.fading / FADE;
        if (--this.fading === 0) this.finishClearing();
      }
    }
    if (this.starting) {
      this.starting = false;
      this.port.postMessage({ type: "started", played: this.read });
    }
    if (++this.quanta % REPORT_EVERY === 0) this.port.postMessage({ type: "played", played: this.read });
    return true;
  }
}

registerProcessor("playback", Playback);
