// Playback: a ring buffer that can be cleared at once. Runs on the audio thread.

const BUFFER_S = 120;
const FADE_SAMPLES = 96; // fade-out when the buffer is cleared: 4 ms, enough to avoid a click

class Playback extends AudioWorkletProcessor {
  constructor() {
    super();
    this.ring = new Float32Array(BUFFER_S * sampleRate);
    this.read = 0; // samples played since the page was opened
    this.write = 0; // samples pushed
    this.fading = -1;
    this.port.onmessage = ({ data }) => {
      if (data === "clear") this.clear();
      else if (data === "drop") this.finishClearing(); // nothing plays, so nothing can fade
      else this.push(data);
    };
  }

  push(pcm) {
    if (this.write === this.read) this.starting = true;
    for (const sample of pcm) this.ring[this.write++ % this.ring.length] = sample / 32768;
    // If more than two minutes wait, skip the oldest samples instead of overwriting those that play.
    this.read = Math.max(this.read, this.write - this.ring.length);
  }

  clear() {
    this.fading = Math.min(FADE_SAMPLES, this.write - this.read);
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
        out[n] *= this.fading / FADE_SAMPLES;
        if (--this.fading === 0) this.finishClearing();
      }
    }
    if (this.starting) {
      this.starting = false;
      this.port.postMessage({ type: "started", played: this.read, at: currentTime + out.length / sampleRate });
    }
    return true;
  }
}

registerProcessor("playback", Playback);
