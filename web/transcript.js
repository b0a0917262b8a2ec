// What both sides said, on the page, with the latency of each turn under the answer.

const STAGE_NAMES = {
  end_of_turn: "end of turn", transcription: "transcription", first_token: "first word", first_clause: "first clause",
  synthesis: "voice", sending: "sending", playing: "playing",
};

const WORDS_PER_SECOND = 2.7; // of the voice, to guess what was heard

export class Transcript {
  constructor(list, empty) {
    Object.assign(this, { list, empty });
    this.entries = new Map(); // item id → { role, text, element, … }
  }

  entry(itemId, role) {
    let entry = this.entries.get(itemId);
    if (!entry) {
      const element = document.createElement("li");
      element.className = role;
      element.append(document.createElement("p"));
      entry = { role, text: "", unsettled: "", element };
      this.entries.set(itemId, entry);
      this.list.append(element);
      this.empty.hidden = true;
    }
    return entry;
  }

  /** `text` is final, `unsettled` may still change. */
  show(itemId, role, text, unsettled = "") {
    const entry = this.entry(itemId, role);
    Object.assign(entry, { text, unsettled });
    const rest = document.createElement("span");
    rest.className = "unsettled";
    rest.textContent = unsettled;
    entry.element.firstChild.replaceChildren(text, rest);
    this.list.parentElement.scrollTop = this.list.parentElement.scrollHeight;
  }

  remove(itemId) {
    this.entries.get(itemId)?.element.remove();
    this.entries.delete(itemId);
  }

  /** An answer was interrupted: show what was heard of it. */
  cut(itemId, heard) {
    const entry = this.entries.get(itemId);
    if (!entry) return;
    this.show(itemId, entry.role, heard);
    entry.element.firstChild.classList.add("cut");
  }

  /** The page stopped in the middle of an answer: without a server to ask, words count as evenly spread. */
  forgetUnheard(itemId, heardMs) {
    const entry = this.entries.get(itemId);
    if (!entry) return;
    const words = entry.text.split(" ");
    this.cut(itemId, words.slice(0, Math.floor((heardMs / 1000) * WORDS_PER_SECOND)).join(" "));
  }

  /** The latency of a turn and the stages it is made of, both in ms. */
  latency(itemId, total, stages) {
    const entry = this.entries.get(itemId);
    if (!entry || total === null) return;
    const box = document.createElement("div");
    box.className = "latency";
    const bar = document.createElement("div");
    const names = document.createElement("ul");
    bar.className = "bar";
    names.className = "stages";
    const said = [];
    for (const [name, ms] of Object.entries(stages)) {
      const piece = document.createElement("span");
      piece.style.flexGrow = ms;
      piece.title = `${STAGE_NAMES[name]} ${Math.round(ms)} ms`;
      const label = document.createElement("li");
      label.textContent = piece.title;
      said.push(piece.title);
      bar.append(piece);
      names.append(label);
    }
    bar.setAttribute("role", "img");
    bar.setAttribute("aria-label", `Answered in ${Math.round(total)} ms: ${said.join(", ")}`);
    const sum = document.createElement("b");
    sum.textContent = `${Math.round(total)} ms`;
    box.append(bar, sum, names);
    entry.element.querySelector(".latency")?.remove();
    entry.element.append(box);
  }

  /** The conversation as items, to put back after a lost connection. */
  items() {
    return [...this.entries].filter(([, entry]) => entry.text.trim()).map(([, { role, text }]) => ({
      type: "message", role, content: [{ type: role === "assistant" ? "output_text" : "input_text", text }],
    }));
  }
}
