// The microphone, as blocks of 20 ms at a rate that the server takes. Runs on the audio thread.

const TARGET = 24000;
const TAKEN = new Set([8000, 16000, 24000, 48000]);

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.rate = TAKEN.has(sampleRate) ? sampleRate : TARGET;
    this.block = new Int16Array(this.rate / 50);
    this.filled = 0;
    this.place = 0; // position of the next output sample, in input samples from the start of this quantum
    this.last = 0;
  }

  process([input]) {
    const samples = input[0];
    if (!samples) return true;
    if (this.rate === sampleRate) {
      for (const sample of samples) this.add(sample);
    } else {
      this.convert(samples);
    }
    return true;
  }

  // A context that runs at neither of the server's rates (44.1 kHz hardware in Firefox): linear interpolation,
  // which is good enough for speech.
  convert(samples) {
    const step = sampleRate / this.rate;
    for (; this.place < samples.length; this.place += step) {
      const at = Math.floor(this.place);
      const before = at === 0 ? this.last : samples[at - 1];
      this.add(before + (samples[at] - before) * (this.place - at));
    }
    this.place -= samples.length;
    this.last = samples[samples.length - 1];
  }

  add(sample) {
    this.block[this.filled++] = Math.max(-1, Math.min(1, sample)) * 32767;
    if (this.filled === this.block.length) {
      this.port.postMessage(this.block.slice());
      this.filled = 0;
    }
  }
}

registerProcessor("capture", Capture);
