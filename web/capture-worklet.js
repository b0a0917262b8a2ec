// Microphone capture: blocks of 32 ms at a rate that the server accepts. Runs on the audio thread.

const FALLBACK_RATE = 24000;
const ACCEPTED_RATES = new Set([8000, 16000, 24000, 48000]);
const BLOCK_MS = 32; // a window of the server's voice detector, which would wait for the rest of one in shorter blocks

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.rate = ACCEPTED_RATES.has(sampleRate) ? sampleRate : FALLBACK_RATE;
    this.block = new Int16Array((this.rate * BLOCK_MS) / 1000);
    this.filled = 0;
    this.peak = 0;
    this.position = 0; // of the next output sample, in input samples from the start of this quantum
    this.lastSample = 0; // of the previous quantum
    this.isOpen = true;
    this.port.onmessage = () => { this.isOpen = false; };
  }

  process([input]) {
    const samples = input[0];
    if (!samples) return this.isOpen;
    if (this.rate === sampleRate) {
      for (const sample of samples) this.add(sample);
    } else {
      this.resample(samples);
    }
    return this.isOpen;
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
    const clipped = Math.max(-1, Math.min(1, sample));
    this.peak = Math.max(this.peak, Math.abs(clipped));
    this.block[this.filled++] = clipped * 32767;
    if (this.filled === this.block.length) {
      this.port.postMessage({ block: this.block.slice(), peak: this.peak });
      this.filled = this.peak = 0;
    }
  }
}

registerProcessor("capture", Capture);
