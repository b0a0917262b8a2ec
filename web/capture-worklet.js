// Microphone capture: blocks of 20 ms at a rate that the server accepts. Runs on the audio thread.

const FALLBACK_RATE = 24000;
const ACCEPTED_RATES = new Set([8000, 16000, 24000, 48000]);

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.rate = ACCEPTED_RATES.has(sampleRate) ? sampleRate : FALLBACK_RATE;
    this.block = new Int16Array(this.rate / 50);
    this.filled = 0;
    this.position = 0; // of the next output sample, in input samples from the start of this quantum
    this.lastSample = 0; // of the previous quantum
  }

  process([input]) {
    const samples = input[0];
    if (!samples) return true;
    if (this.rate === sampleRate) {
      for (const sample of samples) this.add(sample);
    } else {
      this.resample(samples);
    }
    return true;
  }

  // For a context at a rate that the server does not accept (44.1 kHz hardware in Firefox). Linear interpolation is
  // good enough for speech.
  resample(samples) {
    const step = sampleRate / this.rate;
    for (; this.position < samples.length; this.position += step) {
      const index = Math.floor(this.position);
      const before = index === 0 ? this.lastSample : samples[index - 1];
      this.add(before + (samples[index] - before) * (this.position - index));
    }
    this.position -= samples.length;
    this.lastSample = samples[samples.length - 1];
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
