// The caption view: what a microphone hears, or, with ?captions=ID, what a speaker elsewhere says.

import { CaptionText, textOf } from "./caption_text.js";
import { drawSoon } from "./drawing.js";
import { keyHeaders } from "./key.js";
import { Recording, copy, notice, phase } from "./recording.js";
import { cuesOf, toSrt, toVtt } from "./subtitles.js";

const LIVE_WORDS = 40; // more than two lines hold
const RETRY_MS = 2000;

const $ = (id) => document.getElementById(id);
const text = new CaptionText();
const lines = new Map(); // item id → line of the scrollback
const id = new URLSearchParams(location.search).get("captions");
const changed = new Set();

function onCaption(event) {
  changed.add(text.apply(event));
  drawSoon("captions", draw);
}

function dropProvisional() {
  for (const itemId of text.dropProvisional()) changed.add(itemId);
  drawSoon("captions", draw);
}

function draw() {
  const main = document.querySelector("main");
  const atEnd = main.scrollHeight - main.scrollTop - main.clientHeight < 40; // who has scrolled back stays there
  for (const itemId of changed) drawLine(itemId);
  changed.clear();
  const turns = [...text.turns.values()];
  const newest = [];
  for (let n = turns.length - 1; n >= 0 && newest.length < LIVE_WORDS; n--) {
    newest.unshift(...turns[n].stable.map((one) => ({ ...one, stable: true })), ...turns[n].provisional);
  }
  const shown = newest.slice(-LIVE_WORDS);
  const unstable = document.createElement("span");
  unstable.className = "unstable";
  unstable.textContent = textOf(shown.filter(({ stable }) => !stable));
  $("live").replaceChildren(`${textOf(shown.filter(({ stable }) => stable))} `, unstable);
  if (atEnd) main.scrollTop = main.scrollHeight;
  $("srt").disabled = $("vtt").disabled = !text.words.length;
}

function drawLine(itemId) {
  const turn = text.turns.get(itemId);
  let line = lines.get(itemId);
  if (!turn?.stable.length) {
    line?.remove();
    lines.delete(itemId);
    return;
  }
  if (!line) {
    line = document.createElement("li");
    line.append(document.createElement("time"), document.createElement("span"));
    const seconds = Math.floor(turn.stable[0].start);
    line.firstChild.textContent = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
    lines.set(itemId, line);
    $("said").append(line);
  }
  line.lastChild.textContent = textOf(turn.stable);
}

function save(name, type, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

$("srt").onclick = () => save("captions.srt", "application/x-subrip", toSrt(cuesOf(text.words)));
$("vtt").onclick = () => save("captions.vtt", "text/vtt", toVtt(cuesOf(text.words)));

// The speaker.

let shared;
let startedAt;
let sessionId;
let lostAt;

function speak() {
  const recording = new Recording({
    label: "Start",
    session: () => ({ include: ["rejoinder.caption", "rejoinder.listeners"] }),
    onstop: () => {
      $("share").disabled = true;
      dropProvisional();
    },
  });
  recording.on("session.created", ({ session: { id: created } }) => {
    const now = performance.now();
    startedAt ??= now;
    if (created !== sessionId) text.offset = (now - startedAt) / 1000;
    else text.offset += (now - (lostAt ?? now)) / 1000;
    sessionId = created;
    lostAt = undefined;
    dropProvisional();
  });
  recording.on("lost", () => {
    lostAt ??= performance.now();
    dropProvisional();
  });
  recording.on("rejoinder.caption", onCaption);
  recording.on("rejoinder.listeners", ({ captions, ticket, listeners }) => {
    shared = `${location.origin}${location.pathname}?captions=${captions}#key=${ticket}`;
    $("share").disabled = false;
    $("listeners").textContent = listeners === 1 ? "1 listener" : `${listeners} listeners`;
    $("listeners").hidden = !listeners;
  });
  $("share").onclick = () => copy($("share"), shared);
}

// A listener.

async function follow() {
  $("start").hidden = $("share").hidden = true;
  for (;;) {
    phase("connecting", "Connecting…");
    try {
      const response = await fetch(`v1/captions/${encodeURIComponent(id)}`, { headers: keyHeaders() });
      if (!response.ok) {
        const { error } = await response.json();
        notice(error.message);
        if (response.status === 404) break;
      } else if (await read(response.body)) break;
    } catch {
      notice("The connection is lost. Connecting again…");
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
  phase("off", "Ended");
}

/** Show what comes. Returns whether the speaker has ended the session. */
async function read(body) {
  phase("listening", "Listening");
  notice();
  let rest = "";
  for await (const piece of chunks(body.pipeThrough(new TextDecoderStream()))) {
    const events = (rest + piece).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (!event.startsWith("data: ")) continue; // a comment, which keeps the connection open
      if (event === "data: [DONE]") return true;
      onCaption(JSON.parse(event.slice("data: ".length)));
    }
  }
  return false;
}

async function* chunks(stream) {
  const reader = stream.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) yield part.value;
}

if (id) follow();
else speak();
window.captions = { text, link: () => shared }; // for tests
