// Vercel's AI SDK: chat, a stream, functions and structured output, each whole and streamed, and a loop of two steps.
//
//     npm install --prefix DIR ai @ai-sdk/openai-compatible zod
//     node vercel_client.mjs http://HOST:PORT DIR

import { createRequire } from 'node:module';
import { join } from 'node:path';

const [url, packages] = process.argv.slice(2);
const require = createRequire(join(packages, 'package.json'));
const { generateText, streamText, Output, stepCountIs, tool } = require('ai');
const { createOpenAICompatible } = require('@ai-sdk/openai-compatible');
const { z } = require('zod');

const provider = createOpenAICompatible({
  name: 'rejoinder', baseURL: `${url}/v1`, apiKey: 'none', includeUsage: true, supportsStructuredOutputs: true,
});
const common = { model: provider('rejoinder'), maxRetries: 0 };
const question = { ...common, prompt: 'What is the capital of France?', maxOutputTokens: 40 };
const extract = {
  ...common,
  prompt: 'Extract the person: Mary Smith is 42 years old.',
  output: Output.object({ schema: z.object({ name: z.string().max(40), age: z.number().int().min(0) }) }),
};
const weather = {
  ...common,
  prompt: 'What is the weather in Oslo?',
  tools: {
    get_weather: tool({
      description: 'The weather in a city now',
      inputSchema: z.object({ city: z.string().max(40) }),
      execute: async ({ city }) => `It is snowing in ${city}, two degrees below zero.`,
    }),
  },
  toolChoice: 'required',
};

async function collected(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return parts;
}

const streaming = streamText(question);
const streamed = (await collected(streaming.textStream)).join('');
const { totalTokens } = await streaming.totalUsage;
const looped = await generateText({
  ...weather,
  maxOutputTokens: 60,
  stopWhen: stepCountIs(2),
  prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? 'required' : 'none' }),
});
const streamedParts = await collected(streamText(weather).fullStream);
const report = {
  chat: (await generateText(question)).text,
  streamed,
  streamed_tokens: totalTokens,
  call: looped.steps[0].toolCalls[0].input,
  after_call: looped.text,
  streamed_call: streamedParts.find((part) => part.type === 'tool-call')?.input ?? {},
  extracted: (await generateText(extract)).output,
  streamed_object: (await collected(streamText(extract).partialOutputStream)).at(-1),
};
console.log(JSON.stringify(report));
