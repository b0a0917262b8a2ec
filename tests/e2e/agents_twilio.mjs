// A phone call through OpenAI's own bridge: `@openai/agents-extensions`' TwilioRealtimeTransportLayer connects a simulated
// Twilio media stream to a Realtime server. Asks a question, interrupts the response, and prints the result.
//
//     npm install --prefix DIR @openai/agents @openai/agents-extensions ws zod
//     node tests/e2e/agents_twilio.mjs DIR ws://127.0.0.1:8000/v1/realtime

import { createRequire } from 'node:module';
import { join } from 'node:path';

const [folder, url] = process.argv.slice(2);
const require = createRequire(join(folder, 'package.json'));
const { RealtimeAgent, RealtimeSession } = require('@openai/agents/realtime');
const { TwilioRealtimeTransportLayer } = require('@openai/agents-extensions');

const LOUD = 0x10, SILENT = 0xff, FRAME = 160;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const now = () => performance.now();

/** Plays at the pace of a telephone, returns marks when playback reaches them, and all of them on a clear. */
class Twilio {
  listeners = { message: [], close: [], error: [] };
  sent = { media: 0, mark: 0, clear: 0 };
  playUntil = 0; pendingMarks = []; chunks = []; chunkNumber = 0; sequenceNumber = 0;

  addEventListener(kind, listener) { this.listeners[kind].push(listener); }

  emit(message) {
    const data = JSON.stringify({ sequenceNumber: String(++this.sequenceNumber), streamSid: 'MZ1', ...message });
    for (const listener of this.listeners.message) listener({ data });
  }

  send(text) {
    const message = JSON.parse(text);
    this.sent[message.event] += 1;
    if (message.streamSid !== 'MZ1') throw new Error(`another stream: ${text}`);
    if (message.event === 'media') {
      const ms = Buffer.from(message.media.payload, 'base64').length / 8;
      const start = Math.max(now(), this.playUntil);
      this.playUntil = start + ms;
      this.chunks.push([start, this.playUntil]);
    } else if (message.event === 'mark') {
      this.pendingMarks.push([this.playUntil, message.mark.name]);
    } else if (message.event === 'clear') {
      this.chunks = this.chunks.map(([start, end]) => [Math.min(start, now()), Math.min(end, now())]);
      this.playUntil = now();
      for (const [, name] of this.pendingMarks.splice(0)) this.emit({ event: 'mark', mark: { name } });
    }
  }

  heardMs() { return this.chunks.reduce((sum, [start, end]) => sum + Math.max(0, Math.min(end, now()) - start), 0); }

  /** Sends the caller's audio for `ms`, on an absolute clock. */
  async speak(ms, level) {
    const payload = Buffer.alloc(FRAME, level).toString('base64');
    const began = now();
    for (let n = 0; n < ms / 20; n++) {
      const chunk = ++this.chunkNumber;
      const media = { track: 'inbound', chunk: String(chunk), timestamp: String(20 * chunk), payload };
      this.emit({ event: 'media', media });
      while (this.pendingMarks.length && this.pendingMarks[0][0] <= now()) {
        this.emit({ event: 'mark', mark: { name: this.pendingMarks.shift()[1] } });
      }
      await sleep(Math.max(0, began + (n + 1) * 20 - now()));
    }
  }
}

const twilio = new Twilio();
const transport = new TwilioRealtimeTransportLayer({ twilioWebSocket: twilio, url });
const agent = new RealtimeAgent({ name: 'phone', instructions: 'You answer the telephone.' });
// Set explicitly: in 0.18, the session's own default of 24 kHz PCM overrides the bridge's.
const audioFormat = { format: 'g711_ulaw' };
const session = new RealtimeSession(agent, { transport, config: { audio: { input: audioFormat, output: audioFormat } } });
const events = {}, errors = [], truncated = [], formats = {};
transport.on('*', (event) => {
  events[event.type] = (events[event.type] ?? 0) + 1;
  if (event.type === 'error') errors.push(event.error?.message ?? String(event.error));
  if (event.type === 'conversation.item.truncated') truncated.push(event.audio_end_ms);
  if (event.type === 'session.updated') {
    formats.input = event.session.audio.input.format;
    formats.output = event.session.audio.output.format;
  }
});
session.on('error', (error) => errors.push(JSON.stringify(error).slice(0, 400)));

await session.connect({ apiKey: 'none', url });
const mediaFormat = { encoding: 'audio/x-mulaw', sampleRate: 8000, channels: 1 };
twilio.emit({ event: 'start', start: { streamSid: 'MZ1', callSid: 'CA1', mediaFormat, customParameters: {} } });
await twilio.speak(500, SILENT);
await twilio.speak(1000, LOUD);
const speechEnd = now();
let latencyMs = null;
while (now() - speechEnd < 8000 && !twilio.chunks.length) await twilio.speak(20, SILENT);
if (twilio.chunks.length) latencyMs = Math.round(twilio.chunks[0][0] - speechEnd);
await twilio.speak(1000, SILENT);
await twilio.speak(600, LOUD);
const heardMs = Math.round(twilio.heardMs());
await twilio.speak(1500, SILENT);
console.log(JSON.stringify({ latencyMs, heardMs, sent: twilio.sent, truncated, formats, errors, events }));
process.exit(0);
