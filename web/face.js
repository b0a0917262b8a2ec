// An optional face that speaks, and the word that is spoken, marked in the transcript: both follow the times that the
// server sends with a response's audio.

const EXTENSIONS = ["rejoinder.visemes", "rejoinder.words"];
const SVG = "http://www.w3.org/2000/svg";
const SMOOTHING_MS = 45; // how long the mouth takes for two thirds of the way to a new shape
const BLINK_MS = 130;
const BLINKS_EVERY_MS = [2500, 5500];

/** The mouth of each viseme: width, opening, roundness of its corners, and how much the teeth and the tongue show; 0 to 1. */
const MOUTHS = {
  sil: [0.5, 0, 0, 0, 0], PP: [0.42, 0, 0.1, 0, 0], FF: [0.48, 0.14, 0, 1, 0], TH: [0.5, 0.24, 0, 0.7, 1],
  DD: [0.52, 0.26, 0, 0.9, 0.6], kk: [0.5, 0.34, 0, 0.3, 0.2], CH: [0.34, 0.34, 0.8, 0.9, 0], SS: [0.6, 0.16, 0, 1, 0],
  nn: [0.5, 0.26, 0, 0.5, 0.7], RR: [0.36, 0.3, 0.6, 0.3, 0.3], aa: [0.56, 0.9, 0.2, 0.3, 0.3],
  E: [0.66, 0.5, 0, 0.6, 0.3], ih: [0.72, 0.32, 0, 0.8, 0.2], oh: [0.36, 0.7, 0.9, 0.1, 0], ou: [0.22, 0.42, 1, 0, 0],
};

/** The last of `times` that has begun at `ms`, unless it is over. */
export function timedAt(times, ms) {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle].start_ms <= ms) low = middle + 1;
    else high = middle;
  }
  const found = times[low - 1];
  return found && ms < found.end_ms ? found : undefined;
}

/** Shows the face while `checkbox` is checked, and only then asks the server for times. */
export class Face {
  constructor(container, checkbox, { realtime, loudspeaker, transcript }) {
    Object.assign(this, { container, checkbox, realtime, loudspeaker, transcript });
    this.spoken = new Map(); // item id of a message → { words, visemes }
    this.mouth = [...MOUTHS.sil];
    this.viseme = "sil";
    realtime.addEventListener("rejoinder.words", ({ detail }) => this.add(detail, "words"));
    realtime.addEventListener("rejoinder.visemes", ({ detail }) => this.add(detail, "visemes"));
    realtime.addEventListener("lost", () => this.spoken.clear());
    checkbox.addEventListener("change", () => this.toggle());
    this.toggle();
  }

  toggle() {
    const shown = this.checkbox.checked;
    this.container.hidden = !shown;
    const others = this.realtime.extensions.filter((name) => !EXTENSIONS.includes(name));
    this.realtime.extensions = shown ? [...others, ...EXTENSIONS] : others;
    this.realtime.configure();
    this.spoken.clear();
    if (shown && !this.parts) this.parts = draw(this.container);
    if (shown) this.next();
    else this.mark();
  }

  /** Times arrive with each clause, just before its audio. Those of the user's words have no response. */
  add({ response_id: response, item_id: itemId, ...times }, kind) {
    if (!response || !this.checkbox.checked) return;
    if (!this.spoken.has(itemId)) this.spoken.set(itemId, { words: [], visemes: [] });
    this.spoken.get(itemId)[kind].push(...times[kind]);
  }

  next() {
    requestAnimationFrame((now) => this.frame(now));
  }

  frame(now) {
    if (!this.checkbox.checked) return;
    const { itemId, heardMs } = this.loudspeaker.playing ?? {};
    const { words, visemes } = this.spoken.get(itemId) ?? { words: [], visemes: [] };
    this.viseme = timedAt(visemes, heardMs)?.viseme ?? "sil";
    this.mark(itemId, words, timedAt(words, heardMs));
    this.move(now);
    for (const id of this.spoken.keys()) if (id !== itemId && itemId) this.spoken.delete(id);
    this.next();
  }

  /** Move the mouth towards the shape, and blink now and then. */
  move(now) {
    const share = 1 - Math.exp(-(now - (this.drawnAt ?? now)) / SMOOTHING_MS);
    this.drawnAt = now;
    const shape = MOUTHS[this.viseme];
    const change = Math.max(...shape.map((value, n) => Math.abs(value - this.mouth[n])));
    if (change > 0) {
      this.mouth = this.mouth.map((value, n) => (change < 0.01 ? shape[n] : value + share * (shape[n] - value)));
      this.parts.drawMouth(this.mouth);
    }
    this.blinkAt ??= now + BLINKS_EVERY_MS[0];
    const closed = now >= this.blinkAt;
    if (closed !== this.closed) this.parts.drawEyes(closed);
    this.closed = closed;
    if (now > this.blinkAt + BLINK_MS) {
      const [least, most] = BLINKS_EVERY_MS;
      this.blinkAt = now + least + Math.random() * (most - least);
    }
  }

  /** Mark a word in the transcript, where the browser can mark text without changing the page. */
  mark(itemId, words = [], word = undefined) {
    if (!globalThis.Highlight || (!word && !this.range) || this.range?.toString() === word?.word) return;
    this.range = undefined; // the word is over, or its text was drawn again
    CSS.highlights.delete("spoken");
    const line = word && this.transcript.entries.get(itemId)?.line;
    if (!line) return;
    const parts = textNodes(line);
    const text = parts.map(({ data }) => data).join("");
    let end = 0; // words are in order, and each is written as in the text
    for (const { word: earlier } of words.slice(0, words.indexOf(word) + 1)) {
      const start = text.indexOf(earlier, end);
      if (start >= 0) end = start + earlier.length;
    }
    if (end < word.word.length || text.slice(end - word.word.length, end) !== word.word) return;
    this.range = new Range();
    const [last, index] = placeOf(parts, end - 1);
    this.range.setStart(...placeOf(parts, end - word.word.length));
    this.range.setEnd(last, index + 1);
    CSS.highlights.set("spoken", new Highlight(this.range));
  }
}

function textNodes(element) {
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) found.push(walker.currentNode);
  return found;
}

/** The text node that has the character at `index` of all of them, and its index there. */
function placeOf(nodes, index) {
  for (const node of nodes) {
    if (index < node.data.length) return [node, index];
    index -= node.data.length;
  }
  return undefined;
}

function element(name, attributes, parent) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent.append(made);
  return made;
}

/** Draw a face of 200 by 200. Returns how to draw what moves in it. */
function draw(container) {
  const svg = element("svg", { viewBox: "0 0 200 200", role: "img", "aria-label": "The assistant's face" }, container);
  element("path", { class: "skin", d: "M100 12C152 12 178 50 178 100C178 156 144 190 100 190C56 190 22 156 22 100C22 50 48 12 100 12Z" }, svg);
  const eyes = [66, 134].map((x) => {
    element("path", { class: "line", d: `M${x - 16} 60Q${x} 50 ${x + 16} 60` }, svg);
    return element("ellipse", { class: "eye", cx: x, cy: 84, rx: 7, ry: 9 }, svg);
  });
  element("path", { class: "line", d: "M100 92Q92 112 101 116" }, svg);
  const clip = element("clipPath", { id: "lips" }, element("defs", {}, svg));
  const opening = element("path", {}, clip);
  const mouth = element("path", { class: "mouth" }, svg);
  const inside = element("g", { "clip-path": "url(#lips)" }, svg);
  const tongue = element("ellipse", { class: "tongue", cx: 100, rx: 22, ry: 12 }, inside);
  const teeth = element("rect", { class: "teeth", x: 60, width: 80, height: 9, rx: 3 }, inside);
  const lips = element("path", { class: "lips" }, svg);
  const drawMouth = ([width, open, round, teethShown, tongueShown]) => {
    const half = 50 * width;
    const height = 34 * open;
    const pull = half * (0.45 + 0.4 * round); // control points: near the corners the mouth is round
    const top = 142 - 0.4 * height;
    const bottom = 142 + 0.6 * height;
    const smile = 4 * (1 - open) * (1 - round);
    const corner = 142 - smile;
    const d = `M${100 - half} ${corner}C${100 - pull} ${top - smile / 4} ${100 + pull} ${top - smile / 4} ${100 + half} ${corner}`
      + `C${100 + pull} ${bottom + smile} ${100 - pull} ${bottom + smile} ${100 - half} ${corner}Z`;
    for (const path of [opening, mouth, lips]) path.setAttribute("d", d);
    teeth.setAttribute("y", top - 2);
    teeth.setAttribute("opacity", teethShown);
    tongue.setAttribute("cy", bottom + 8 - 12 * tongueShown);
    tongue.setAttribute("opacity", Math.min(1, 0.3 + tongueShown));
  };
  const drawEyes = (closed) => { for (const eye of eyes) eye.setAttribute("ry", closed ? 1 : 9); };
  drawMouth(MOUTHS.sil);
  return { drawMouth, drawEyes };
}
