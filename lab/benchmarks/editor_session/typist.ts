// Types a session into llama.vscode's own completion code, and prints the requests that it sends. See record.py.

import axios from "axios";
import * as fs from "fs";
import * as vscode from "vscode";
import { Completion } from "./src/completion";
import { Configuration } from "./src/configuration";
import { ExtraContext } from "./src/extra-context";
import { LlamaServer } from "./src/llama-server";
import { LRUCache } from "./src/lru-cache";

const { document: edited, other, typed } = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
let kind = ""; // of the next request
let open = 0; // requests that have no response yet

axios.interceptors.request.use((request) => {
  const sent = request.data.n_predict === 0 ? "context" : kind || "ahead";
  console.log(JSON.stringify({ kind: sent, body: request.data }));
  kind = "";
  open += 1;
  return request;
});
axios.interceptors.response.use((response) => {
  open -= 1;
  return response;
});

const nothing: any = new Proxy({}, { get: () => () => undefined });
const app: any = { statusbar: nothing, logger: nothing, getComplModel: () => undefined };
app.configuration = new Configuration();
app.llamaServer = new LlamaServer(app);
app.extraContext = new ExtraContext(app);
app.lruResultCache = new LRUCache(app.configuration.max_cache_keys);
app.completion = new Completion(app);

const textDocument = (fileName: string, lines: string[]): any => ({
  fileName,
  languageId: "python",
  isDirty: false,
  lineCount: lines.length,
  lineAt: (number: number) => ({ text: lines[number] }),
});

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

async function idle() {
  do await pause(50);
  while (open > 0);
}

async function main() {
  const lines = edited.text.split("\n");
  const document = textDocument(edited.filename, lines);
  (vscode as any).window.activeTextEditor = { document };
  app.extraContext.lastComplStartTime = 0;
  app.extraContext.pickChunk(other.text.split("\n"), false, true, textDocument(other.filename, []));
  app.extraContext.periodicRingBufferUpdate();
  await idle();
  const context: any = { triggerKind: vscode.InlineCompletionTriggerKind.Automatic };
  const token: any = { isCancellationRequested: false };
  for (const { line, pieces } of typed) {
    for (const [number, text] of pieces.entries()) {
      lines[line - 1] = text;
      kind = number ? "typing" : "moved";
      await app.completion.getCompletionItems(document, new vscode.Position(line - 1, text.length), context, token);
      kind = "";
      await idle();
    }
  }
}

main();
