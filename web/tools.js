// Functions that the assistant may call in this page. Calls are shown in the transcript and logged to the console.
//
// Add one from the console or from a script: rejoinder.tools.add({ name, description, parameters }, async (args) => …)

export class Tools {
  /** `onCall` is called with { itemId, name, args, output } when a call is made, and again when it has returned. */
  constructor(realtime, onCall) {
    Object.assign(this, { realtime, onCall, functions: new Map(), waiting: false, responding: false });
    realtime.addEventListener("response.created", () => { this.responding = true; });
    realtime.addEventListener("response.done", () => {
      this.responding = false;
      this.respond();
    });
    realtime.addEventListener("response.function_call_arguments.done", ({ detail }) => this.call(detail));
    realtime.addEventListener("conversation.item.done", ({ detail: { item } }) => {
      if (item.type === "mcp_call") this.report(item.id, item.name, item.arguments, item.output ?? item.error?.message);
    });
  }

  get declarations() {
    return [...this.functions.values()].map(({ declaration }) => declaration);
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
    this.onCall({ itemId, name, args, output });
  }
}
