// The server's tools, and functions that the assistant may call in this page. Calls are shown in the transcript and
// logged to the console.
//
// Add one from the console or from a script: rejoinder.tools.add({ name, description, parameters }, async (args) => …)

const TOKEN_KEY = "rejoinder-token";

/** Names this browser to the server, so that its timers and notes are there again next time. */
function token() {
  try {
    let stored = localStorage.getItem(TOKEN_KEY);
    if (!stored) {
      stored = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
      localStorage.setItem(TOKEN_KEY, stored);
    }
    return stored;
  } catch {
    return undefined; // storage is blocked: timers last as long as the connection
  }
}

export class Tools {
  /** `onCall` is called with { itemId, name, args, output } when a call is made, and again when it has returned. */
  constructor(realtime, onCall) {
    Object.assign(this, { realtime, onCall, functions: new Map(), names: new Map(), waiting: false, responding: false });
    realtime.addEventListener("response.created", () => { this.responding = true; });
    realtime.addEventListener("response.done", () => {
      this.responding = false;
      this.respond();
    });
    realtime.addEventListener("response.function_call_arguments.done", ({ detail }) => this.call(detail));
    realtime.addEventListener("conversation.item.added", ({ detail: { item } }) => {
      if (item.type === "mcp_call") this.report(item.id, item.name, item.arguments);
    });
    realtime.addEventListener("response.mcp_call_arguments.done", ({ detail: { item_id: itemId, arguments: args } }) => {
      this.report(itemId, this.names.get(itemId), args);
    });
    realtime.addEventListener("conversation.item.done", ({ detail: { item } }) => {
      if (item.type === "mcp_call") this.report(item.id, item.name, item.arguments, item.output ?? item.error?.message);
    });
  }

  get declarations() {
    const own = { type: "mcp", server_label: "rejoinder", server_url: "rejoinder:tools", authorization: token() };
    return [own, ...[...this.functions.values()].map(({ declaration }) => declaration)];
  }

  /** Declare a function. `run` gets its arguments as an object and returns, or resolves to, its result. */
  add({ name, description, parameters }, run) {
    this.functions.set(name, { declaration: { type: "function", name, description, parameters }, run });
    this.realtime.configure();
  }

  async call({ item_id: itemId, call_id, name, arguments: args }) {
    this.report(itemId, name, args);
    let output;
    try {
      const result = await this.functions.get(name).run(JSON.parse(args));
      output = typeof result === "string" ? result : JSON.stringify(result ?? null);
    } catch (error) {
      output = `The function failed: ${error.message}`;
    }
    this.report(itemId, name, args, output);
    this.realtime.send("conversation.item.create", { item: { type: "function_call_output", call_id, output } });
    this.waiting = true;
    this.respond();
  }

  /** Ask for a response to the outputs, once the response that made the calls has ended. */
  respond() {
    if (!this.waiting || this.responding) return;
    this.waiting = false;
    this.realtime.send("response.create");
  }

  report(itemId, name, args, output) {
    console.info(`function call ${name}(${args})${output === undefined ? "" : ` → ${output}`}`);
    this.names.set(itemId, name);
    this.onCall({ itemId, name, args, output });
  }
}
