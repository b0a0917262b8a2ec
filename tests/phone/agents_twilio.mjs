// A phone call through OpenAI's own bridge: a made-up Twilio media stream on one side of `@openai/agents-extensions`'
// TwilioRealtimeTransportLayer, a Realtime server on its other side. Asks, speaks over the answer, and prints what came.
//
//     npm install --prefix DIR @openai/agents @openai/agents-extensions ws zod
//     node tests/phone/agents_twilio.mjs DIR ws://127.0.0.1:8000/v1/realtime

import { createRequire } from 'node:module';
import { join } from 'node:path';

const [folder, url] = process.argv.slice(2);
const require = createRequire(join(folder, 'package.json'));
const { RealtimeAgent, RealtimeSession } = require('@openai/agents/realtime');
const { TwilioRealtimeTransportLayer } = require('@openai/agents-extensions');

const LOUD = 0x10, SILENT = 0xff, FRAME = 160;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const now = () => performance.now();

/** Plays at the pace of a telephone, returns marks when playback reaches them and all of them on a clear. */
class Twilio {
  listeners = { message: [], close: [], error: [] };
  said = { media: 0, mark: 0, clear: 0 };
  playedMs = 0; until = 0; waiting = []; pieces = []; chunk = 0; sequence = 0;

  addEventListener(kind, listener) { this.listeners[kind].push(listener); }

  emit(message) {
    const data = JSON.stringify({ sequenceNumber: String(++this.sequence), streamSid: 'MZ1', ...message });
    for (const listener of this.listeners.message) listener({ data });
  }

  send(text) {
    const message = JSON.parse(text);
    this.said[message.event] += 1;
    if (message.streamSid !== 'MZ1') throw new Error(`another stream: ${text}`);
    if (message.event === 'media') {
      const ms = Buffer.from(message.media.payload, 'base64').length / 8;
      const start = Math.max(now(), this.until);
      this.until = start + ms;
      this.pieces.push([start, this.until]);
    } else if (message.event === 'mark') {
      this.waiting.push([this.until, message.mark.name]);
    } else if (message.event === 'clear') {
      this.pieces = this.pieces.map(([a, b]) => [Math.min(a, now()), Math.min(b, now())]);
      this.until = now();
      for (const [, name] of this.waiting.splice(0)) this.emit({ event: 'mark', mark: { name } });
    }
  }

  heardMs() { return this.pieces.reduce((sum, [a, b]) => sum + Math.max(0, Math.min(b, now()) - a), 0); }

  /** The caller's sound for so long, on an absolute clock. */
  async speak(ms, level) {
    const payload = Buffer.alloc(FRAME, level).toString('base64');
    const began = now();
    for (let n = 0; n < ms / 20; n++) {
      const media = { track: 'inbound', chunk: String(++this.chunk), timestamp: String(20 * this.chunk), payload };
      this.emit({ event: 'media', media });
      while (this.waiting.length && this.waiting[0][0] <= now()) {
        this.emit({ event: 'mark', mark: { name: this.waiting.shift()[1] } });
      }
      await sleep(Math.max(0, began + (n + 1) * 20 - now()));
    }
  }
}

const twilio = new Twilio();
const transport = new TwilioRealtimeTransportLayer({ twilioWebSocket: twilio, url });
const agent = new RealtimeAgent({ name: 'phone', instructions: 'You answer the telephone.' });
// Said by hand: in 0.18 the session's own default, 24 kHz PCM, goes before the bridge's.
const sound = { format: 'g711_ulaw' };
const session = new RealtimeSession(agent, { transport, config: { audio: { input: sound, output: sound } } });
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
const asked = now();
let answeredMs = null;
while (now() - asked < 8000 && !twilio.pieces.length) await twilio.speak(20, SILENT);
if (twilio.pieces.length) answeredMs = Math.round(twilio.pieces[0][0] - asked);
await twilio.speak(1000, SILENT);
await twilio.speak(600, LOUD);
const heardMs = Math.round(twilio.heardMs());
await twilio.speak(1500, SILENT);
console.log(JSON.stringify({ answeredMs, heardMs, said: twilio.said, truncated, formats, errors, events }));
process.exit(0);
