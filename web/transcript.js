// The transcript of the conversation, with the latency of each turn below its response.

import { drawSoon } from "./drawing.js";
import { richText } from "./rich_text.js";

const MAX_SETTLED = 5; // texts for screen readers, which read each once
const SHORT_OUTPUT = 160; // characters of a call's output; longer ones are folded
const NEAR_END = 40; // pixels: whoever has scrolled back by more is not taken to the end
const WORDS_PER_SECOND = 2.7; // speaking rate of the voice, to estimate which words were heard

/** Labels of the stages in `rejoinder.turn` events, and of `playing`, which the page adds. */
const STAGE_LABELS = await fetch(new URL("stage_labels.json", import.meta.url))
  .then((response) => response.json())
  .catch(() => ({}));

function stageLabel(name) {
  return STAGE_LABELS[name] ?? name.replaceAll("_", " ");
}

const SPEAKERS = { user: "You: ", assistant: "Rejoinder: " };

/** What a side said: only the assistant writes Markdown. */
const contents = (role, text) => (role === "assistant" ? richText(text) : [text]);

export class Transcript {
  /** `empty` is shown until there is something in `list`; `settled` is what screen readers read out. */
  constructor(list, empty, settled) {
    Object.assign(this, { list, empty, settled });
    this.entries = new Map(); // item id → { role, text, unstable, element, line }
    this.calls = new Map(); // item id of a function call → element
    this.changed = new Set(); // entries that are not drawn yet
    this.follows = true; // what is new is scrolled to
    const box = list.parentElement;
    box.addEventListener("scroll", () => { this.follows = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_END; });
  }

  entry(itemId, role) {
    let entry = this.entries.get(itemId);
    if (!entry) {
      const element = document.createElement("li");
      const speaker = document.createElement("span");
      const line = document.createElement("p");
      element.className = role;
      speaker.className = "unseen";
      speaker.textContent = SPEAKERS[role];
      element.append(speaker, line);
      entry = { role, text: "", unstable: "", element, line };
      this.entries.set(itemId, entry);
    }
    return entry;
  }

  /** `text` is final, `unstable` may still change; `origin` names what drafted it. */
  show(itemId, role, text, unstable = "", origin = "") {
    const entry = this.entry(itemId, role);
    Object.assign(entry, { text, unstable, origin, waiting: false });
    this.changed.add(entry);
    drawSoon(this, () => this.draw());
  }

  /** What the user typed, until it can be sent. */
  showWaiting(itemId, text) {
    this.show(itemId, "user", "", text);
    this.entry(itemId, "user").waiting = true;
    this.follows = true;
  }

  draw() {
    const changed = [...this.changed];
    this.changed.clear();
    for (const { role, text, unstable, origin, waiting, element, line } of changed) {
      if (!element.isConnected) this.append(element);
      const span = document.createElement("span");
      span.className = "unstable";
      span.textContent = unstable;
      span.title = origin ? `drafted: ${origin}` : "";
      line.replaceChildren(...contents(role, text), span);
      element.classList.toggle("waiting", waiting);
    }
    this.scroll();
  }

  append(element) {
    this.empty.hidden = true;
    this.list.hidden = false;
    this.list.append(element);
  }

  scroll() {
    if (this.follows) this.list.parentElement.scrollTop = this.list.parentElement.scrollHeight;
  }

  /** Have screen readers read what a side said, which will not change any more; without a side, a remark. */
  settle(text, role) {
    const line = document.createElement("p");
    line.append(SPEAKERS[role] ?? "", ...contents(role, text));
    this.settled.append(line);
    while (this.settled.children.length > MAX_SETTLED) this.settled.firstChild.remove();
  }

  rename(from, to) {
    const entry = this.entries.get(from);
    if (entry) this.entries.set(to, entry);
    this.entries.delete(from);
  }

  remove(itemId) {
    const entry = this.entries.get(itemId);
    entry?.element.remove();
    this.changed.delete(entry);
    this.entries.delete(itemId);
  }

  /** Show a function call, and its output once it has returned. */
  showCall({ itemId, name, args, output }) {
    let element = this.calls.get(itemId);
    if (!element) {
      element = document.createElement("li");
      element.className = "call";
      this.calls.set(itemId, element);
      this.draw(); // what precedes the call
      this.append(element);
    }
    const call = document.createElement("b");
    const result = document.createElement("span");
    call.textContent = callText(name, args);
    result.textContent = output === undefined ? " …" : ` → ${output}`;
    if ((output?.length ?? 0) > SHORT_OUTPUT) {
      result.textContent = ` → ${output.slice(0, SHORT_OUTPUT)}…`;
      element.replaceChildren(folded("output", [call, result], output));
    } else {
      element.replaceChildren(call, result);
    }
    this.scroll();
  }

  /** Show a remark about the response that follows. */
  showNote(text) {
    const element = document.createElement("li");
    element.className = "note";
    element.textContent = text;
    this.draw(); // what precedes it
    this.append(element);
    this.scroll();
    this.settle(text);
  }

  /** Show the passages of documents that a response is based on: [{ title, location, text }]. */
  showSources(itemId, sources) {
    const { element, line } = this.entry(itemId, "assistant");
    const box = folded("sources", [`From ${[...new Set(sources.map(({ title }) => title))].join(", ")}`]);
    for (const { location, text } of sources) {
      const quote = document.createElement("blockquote");
      const cite = document.createElement("cite");
      quote.textContent = text;
      cite.textContent = location;
      quote.append(cite);
      box.append(quote);
    }
    element.querySelector(".sources")?.remove();
    line.after(box);
  }

  /** Show a step of block diffusion: the text that it made final, and the rest of its blocks, masks included. */
  showStep(itemId, step, committed, denoised) {
    const { element } = this.entry(itemId, "assistant");
    let box = element.querySelector(".steps");
    if (!box) {
      if (!denoised) return; // drafts are verified
      box = folded("steps", ["Denoising steps"], document.createElement("ol"));
      element.append(box);
    }
    const list = box.lastChild;
    let line = list.lastChild;
    if (line?.value !== step) {
      line = document.createElement("li");
      line.value = step;
      line.append("", document.createElement("span"));
      line.lastChild.className = "unstable";
      list.append(line);
    }
    line.firstChild.data += committed;
    line.lastChild.textContent = denoised;
  }

  /** A response was interrupted: show the part that was heard. */
  truncate(itemId, heardText) {
    const entry = this.entries.get(itemId);
    if (!entry) return;
    this.show(itemId, entry.role, heardText);
    entry.line.classList.add("interrupted");
  }

  /** The connection has ended: words that were provisional, or drafted, will not become final. */
  dropUnstable() {
    for (const [itemId, { role, text, unstable, waiting }] of this.entries) {
      if (!unstable || waiting) continue;
      if (role === "user") this.remove(itemId);
      else this.truncate(itemId, text);
    }
  }

  /** The server's record of a message, after a connection that was lost: what was not heard of it is gone. */
  restore(itemId, role, content) {
    const text = content.map((part) => part.transcript ?? part.text ?? "").join(" ").trim();
    if (text.length < (this.entries.get(itemId)?.text.trim().length ?? 0)) this.truncate(itemId, text);
    else if (text) this.show(itemId, role, text);
  }

  /** The user stopped during a response. Without a server to ask, assume an even speaking rate. */
  truncateByTime(itemId, heardMs) {
    const entry = this.entries.get(itemId);
    if (!entry) return;
    const words = entry.text.split(" ");
    this.truncate(itemId, words.slice(0, Math.floor((heardMs / 1000) * WORDS_PER_SECOND)).join(" "));
  }

  /** Show the latency of a turn (ms; null if nothing was spoken) in one line, which opens to its stages (ms), what was
   * decided, and what drafted the response. */
  showLatency(itemId, total, stages, { decided = [], drafted_by = [], drafts_shown, drafts_kept }) {
    const entry = this.entries.get(itemId);
    if (!entry) return;
    const bar = document.createElement("span");
    const legend = document.createElement("ul");
    bar.className = "bar";
    legend.className = "stages";
    for (const [name, ms] of Object.entries(stages)) {
      const segment = document.createElement("span");
      segment.style.flexGrow = ms;
      segment.title = `${stageLabel(name)} ${Math.round(ms)} ms`;
      const label = document.createElement("li");
      label.textContent = segment.title;
      bar.append(segment);
      legend.append(label);
    }
    const details = {
      decided: decided.map(({ policy, reason }) => `${policy} (${reason})`).join(" → "),
      drafted: drafted_by.length && `drafted: ${drafted_by.join(", ")}; ${drafts_kept} of ${drafts_shown} tokens kept`,
    };
    for (const [name, text] of Object.entries(details)) {
      if (!text) continue;
      const line = document.createElement("li");
      line.className = `detail ${name}`;
      line.textContent = text;
      legend.append(line);
    }
    entry.element.querySelector(".latency")?.remove();
    if (!legend.children.length) return;
    const line = total === null ? ["How it was answered"] : [`Answered after ${Math.round(total)} ms`, bar];
    entry.element.append(folded("latency", line, legend));
    this.scroll();
  }

  /** The conversation as items, to restore it after the connection was lost. */
  items() {
    const isWhole = ({ role, text, unstable }) => text.trim() && !(role === "user" && unstable);
    return [...this.entries].filter(([, entry]) => isWhole(entry)).map(([id, { role, text }]) => ({
      id, type: "message", role, content: [{ type: role === "assistant" ? "output_text" : "input_text", text }],
    }));
  }
}

/** What opens when its summary is pressed. */
function folded(className, summary, ...content) {
  const box = document.createElement("details");
  const line = document.createElement("summary");
  box.className = className;
  line.append(...summary);
  box.append(line, ...content);
  return box;
}

/** 'get_weather', '{"city": "Oslo"}' → "get weather (city: Oslo)" */
function callText(name, args) {
  let values;
  try {
    values = Object.entries(JSON.parse(args)).map(([key, value]) => (
      `${key.replaceAll("_", " ")}: ${typeof value === "string" ? value : JSON.stringify(value)}`));
  } catch {
    values = [args]; // they are still being written
  }
  return `${name.replaceAll("_", " ")}${values.join("") ? ` (${values.join(", ")})` : ""}`;
}
