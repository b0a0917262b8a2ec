// @openai/agents-realtime: a spoken turn, an interruption, and a function call whose result is spoken.
//
//     npm install --prefix DIR @openai/agents-realtime ws zod
//     node agents_client.mjs http://HOST:PORT FOLDER DIR

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [url, folder, packages] = process.argv.slice(2);
const require = createRequire(join(packages, 'package.json'));
const { OpenAIRealtimeWebSocket, RealtimeAgent, RealtimeSession, tool } = require('@openai/agents-realtime');
const { z } = require('zod');

const BLOCK_BYTES = 24000 * 0.02 * 2;
const WEATHER = 'It is raining in London and the temperature is eleven degrees.';
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

async function waitUntil(condition, ms = 40000) {
  const end = performance.now() + ms;
  while (!condition()) {
    if (performance.now() > end) throw new Error(`timed out: ${condition}`);
    await sleep(20);
  }
}

const calls = [];
const getWeather = tool({
  name: 'get_weather',
  description: 'The weather in a city now',
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => {
    calls.push(city);
    return WEATHER;
  },
});
const agent = new RealtimeAgent({
  name: 'Assistant',
  instructions: 'You are a friendly voice assistant. Answer in one or two short sentences.',
  tools: [getWeather],
});
const transport = new OpenAIRealtimeWebSocket({ url: `${url.replace('http', 'ws')}/v1/realtime?model=rejoinder` });
const session = new RealtimeSession(agent, { transport, config: { toolChoice: 'none' } });

let audioMs = 0, interrupted = false, done = 0, transcript = '';
const errors = [], statuses = [];
session.on('error', (error) => errors.push(JSON.stringify(error)));
session.on('audio', ({ data }) => { audioMs += data.byteLength / 48; });
session.on('audio_interrupted', () => { interrupted = true; });
transport.on('*', (event) => {
  if (event.type === 'response.created') transcript = '';
  if (event.type === 'response.output_audio_transcript.delta') transcript += event.delta;
  if (event.type === 'response.done') {
    done += 1;
    statuses.push(event.response.status);
  }
});

let pending = Buffer.alloc(0);
function speak(name) {
  pending = readFileSync(join(folder, `${name}.wav`)).subarray(44);
}
const began = performance.now();
let blocks = 0;
const sending = setInterval(() => {
  while (blocks * 20 < performance.now() - began) {
    const block = Buffer.alloc(BLOCK_BYTES);
    pending.copy(block, 0, 0, BLOCK_BYTES);
    pending = pending.subarray(BLOCK_BYTES);
    session.sendAudio(new Uint8Array(block).buffer);
    blocks += 1;
  }
}, 10);

await session.connect({ apiKey: 'none' });
speak('question');
await waitUntil(() => done === 1);
const turn = { status: statuses[0], transcript, audio_ms: audioMs };
await sleep(audioMs);

speak('story');
audioMs = 0;
await waitUntil(() => audioMs > 1500);
await sleep(1000);
interrupted = false;
speak('interruption');
await waitUntil(() => interrupted);
await waitUntil(() => statuses.length >= 3 && statuses.at(-1) === 'completed');
const interruption = { interrupted, transcript };
await sleep(2500);

await transport.updateSessionConfig({ ...(await session.getInitialSessionConfig()), toolChoice: 'required' });
const before = done;
speak('weather');
await waitUntil(() => calls.length >= 1 && done >= before + 2);
console.log(JSON.stringify({ turn, interruption, call: { arguments: { city: calls[0] }, transcript }, errors }));
clearInterval(sending);
session.close();
process.exit(0);
