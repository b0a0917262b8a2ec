// Dictation: what is said, as its speaker would have written it.

import { drawSoon } from "./drawing.js";
import { Recording, copy } from "./recording.js";

const $ = (id) => document.getElementById(id);
const parts = new Map(); // id of the last item → { ids, raw, text }: text is undefined until it is clean
const cleared = new Set(); // ids of items whose text the user has removed
let interim = "";
let showsRaw = false;

const recording = new Recording({
  label: "Start dictating",
  session: () => ({ include: ["rejoinder.transcript"], transcription: { clean: true } }),
});

recording.on("rejoinder.transcript", ({ stable, unstable }) => {
  interim = `${stable} ${unstable}`.trim();
  drawSoon("dictation", draw);
});
recording.on("conversation.item.input_audio_transcription.completed", ({ item_id: id, transcript: raw }) => {
  interim = "";
  if (raw) parts.set(id, { ids: [id], raw });
  drawSoon("dictation", draw);
});
recording.on("rejoinder.clean", ({ item_ids: ids, raw, text }) => {
  if (ids.every((id) => cleared.has(id))) return;
  for (const id of ids.slice(0, -1)) parts.delete(id); // this sentence corrects the ones before it
  parts.set(ids.at(-1), { ids, raw, text });
  $("settled").textContent = text; // for screen readers
  drawSoon("dictation", draw);
});

/** The text as it is copied. A list has lines of its own. */
function dictated() {
  let whole = "";
  for (const { raw, text } of parts.values()) {
    const part = showsRaw ? raw : text ?? raw;
    if (!part) continue;
    const apart = part.includes("\n") || whole.split("\n\n").at(-1).includes("\n");
    whole += (whole && (apart ? "\n\n" : " ")) + part;
  }
  return whole;
}

function draw() {
  const span = document.createElement("span");
  span.className = "unstable";
  span.textContent = interim && ` ${interim}`;
  $("text").replaceChildren(dictated(), span);
  $("text").parentElement.scrollTop = $("text").parentElement.scrollHeight;
  $("copy").disabled = $("clear").disabled = !parts.size;
}

$("copy").onclick = () => copy($("copy"), dictated());
$("clear").onclick = () => {
  for (const { ids } of parts.values()) ids.forEach((id) => cleared.add(id));
  parts.clear();
  interim = "";
  draw();
};
$("raw").onclick = () => {
  showsRaw = !showsRaw;
  $("raw").setAttribute("aria-pressed", String(showsRaw));
  draw();
};
window.dictation = { recording, parts, dictated }; // for tests
