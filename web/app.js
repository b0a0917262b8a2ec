// The page: joins microphone, loudspeaker, connection and transcript.

import { Realtime, decodePcm } from "./realtime.js";
import { Loudspeaker, Microphone } from "./sound.js";
import { Transcript } from "./transcript.js";

const TAIL_MS = 200; // sound that is still on its way through the microphone when the key is let go

const PHASES = {
  off: "Not started", connecting: "Connecting…", listening: "Listening", user_speaking: "You are speaking",
  thinking: "Thinking", answering: "Answering", lost: "Connection lost",
};

const $ = (id) => document.getElementById(id);
const transcript = new Transcript($("talk"), $("empty"));
const loudspeaker = new Loudspeaker();
const microphone = new Microphone(onBlock, onUnplugged);
const realtime = new Realtime({ session, history: () => transcript.items(), apiKey: () => $("api-key").value.trim() });

let running = false;
let held = false; // push-to-talk: the key or button is down
let releasing; // push-to-talk: timer of the tail that is still sent after it was let go
let responding = false; // a response is in progress on the server
let firstSound; // when the first sound of an answer arrived: { itemId, at }
const playingMs = new Map(); // item id → ms from arrival of its first sound to the ear
const turns = new Map(); // item id → rejoinder.turn

function session() {
  const format = { type: "audio/pcm", rate: microphone.rate ?? 24000 };
  const detection = pushToTalk() ? null : { type: "semantic_vad" };
  return { audio: { input: { format, turn_detection: detection } } };
}

function pushToTalk() {
  return $("push-to-talk").checked;
}

function phase(name) {
  $("phase").dataset.phase = name;
  $("phase").textContent = PHASES[name];
}

function notice(text = "") {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

function onBlock(block) {
  const loudest = block.reduce((most, sample) => Math.max(most, Math.abs(sample)), 0);
  $("level").style.width = `${Math.min(100, Math.sqrt(loudest / 32768) * 100)}%`;
  if (!pushToTalk() || held || releasing) realtime.sendSound(block);
}

async function onUnplugged() {
  await stop();
  notice("The microphone is gone. Plug it in again or choose another one, then start again.");
}

async function start() {
  notice();
  $("start").disabled = true;
  try {
    await microphone.open($("microphone").value);
    await loudspeaker.open();
  } catch (error) {
    await stop();
    notice(error.message);
    return;
  } finally {
    $("start").disabled = false;
  }
  running = true;
  $("start").textContent = "Stop";
  $("mute").disabled = false;
  $("hold").hidden = !pushToTalk();
  phase("connecting");
  realtime.connect();
  await listMicrophones();
}

async function stop() {
  running = responding = false;
  letGo();
  const [cut] = await Promise.all([loudspeaker.clear(), microphone.close()]);
  for (const { itemId, heardMs } of cut) transcript.forgetUnheard(itemId, heardMs);
  realtime.close();
  await loudspeaker.close();
  $("start").textContent = "Start talking";
  $("mute").disabled = true;
  $("hold").hidden = true;
  $("level").style.width = "0";
  phase("off");
}

async function listMicrophones() {
  const chosen = $("microphone").value;
  const options = [new Option("System default", "")];
  for (const device of await Microphone.list()) options.push(new Option(device.label || "Microphone", device.deviceId));
  $("microphone").replaceChildren(...options);
  $("microphone").value = chosen;
}

/** Stop the answer's sound at once and tell the server how much of it was heard. */
async function fallSilent() {
  for (const { itemId, heardMs } of await loudspeaker.clear()) {
    realtime.send("conversation.item.truncate", { item_id: itemId, content_index: 0, audio_end_ms: heardMs });
    realtime.send("conversation.item.retrieve", { item_id: itemId });
  }
}

function mute() {
  microphone.mute(!microphone.muted);
  $("mute").setAttribute("aria-pressed", String(microphone.muted));
  $("mute").firstChild.textContent = microphone.muted ? "Unmute " : "Mute ";
}

function press() {
  if (!running || !pushToTalk() || held || !realtime.open) return;
  letGo();
  held = true;
  if (responding) realtime.send("response.cancel");
  fallSilent();
  realtime.send("input_audio_buffer.clear");
  $("hold").setAttribute("aria-pressed", "true");
  phase("user_speaking");
}

function release() {
  if (!held) return;
  letGo();
  phase("thinking");
  releasing = setTimeout(() => {
    releasing = undefined;
    realtime.send("input_audio_buffer.commit");
  }, TAIL_MS);
}

function letGo() {
  held = false;
  clearTimeout(releasing);
  releasing = undefined;
  $("hold").setAttribute("aria-pressed", "false");
}

function showLatency(itemId) {
  const turn = turns.get(itemId);
  if (!turn || turn.latency_ms === null) return;
  const playing = playingMs.get(itemId);
  const { end_of_turn: _, ...stages } = turn.stages_ms; // the wait runs beside the work
  if (playing !== undefined) stages.playing = playing;
  transcript.latency(itemId, turn.latency_ms + (playing ?? 0), stages);
}

loudspeaker.onstart = () => {
  if (!firstSound) return;
  playingMs.set(firstSound.itemId, performance.now() - firstSound.at + loudspeaker.latencyMs);
  showLatency(firstSound.itemId);
  firstSound = undefined;
};

// What the server says.

const on = (type, take) => realtime.addEventListener(type, ({ detail }) => take(detail));
const answers = new Map(); // response id → { itemId, spoken, committed, draft }

on("session.updated", () => {
  notice();
  phase("listening");
});
on("rejoinder.phase", ({ phase: name }) => phase(name));
on("input_audio_buffer.speech_started", fallSilent);
on("rejoinder.transcript", ({ item_id, stable, unstable }) => transcript.show(item_id, "user", "", `${stable} ${unstable}`.trim()));
on("conversation.item.input_audio_transcription.completed", ({ item_id, transcript: text }) => {
  if (text) transcript.show(item_id, "user", text);
  else transcript.remove(item_id);
  if (!pushToTalk() || held) return;
  if (text) realtime.send("response.create");
  else phase("listening"); // the key was held and nothing was said
});
on("conversation.item.input_audio_transcription.failed", ({ error }) => notice(error.message));
on("response.created", () => { responding = true; });
on("response.output_item.added", ({ response_id, item }) => {
  answers.set(response_id, { itemId: item.id, spoken: "", committed: "", draft: "" });
  playingMs.delete(item.id);
});
on("rejoinder.draft", ({ response_id, committed, draft }) => {
  const answer = answers.get(response_id);
  if (!answer) return;
  answer.committed += committed;
  answer.draft = draft;
  showAnswer(answer);
});
on("response.output_audio_transcript.delta", ({ response_id, delta }) => {
  const answer = answers.get(response_id);
  if (!answer) return;
  answer.spoken += delta;
  showAnswer(answer);
});
on("response.output_audio.delta", ({ item_id, delta }) => {
  if (!loudspeaker.items.has(item_id)) firstSound = { itemId: item_id, at: performance.now() };
  loudspeaker.play(item_id, decodePcm(delta));
});
on("response.done", ({ response }) => {
  responding = false;
  const answer = answers.get(response.id);
  answers.delete(response.id);
  if (response.status === "failed") notice(response.status_details.error.message);
  if (!answer) return;
  if (response.status === "cancelled") transcript.cut(answer.itemId, response.output[0].content[0].transcript ?? "");
  else transcript.show(answer.itemId, "assistant", answer.spoken.trim());
});
on("conversation.item.retrieved", ({ item }) => transcript.cut(item.id, item.content[0].transcript ?? ""));
on("rejoinder.turn", (turn) => {
  turns.set(turn.item_id, turn);
  showLatency(turn.item_id);
});
on("error", ({ error }) => {
  if (error.code === "input_audio_buffer_commit_empty") phase("listening"); // the key was only touched
  // Both sides may stop an answer at the same moment; that it is over already is no news.
  else if (!["response_cancel_not_active", "item_not_found"].includes(error.code)) notice(error.message);
});
on("lost", ({ refused, reason, retryMs }) => {
  phase("lost");
  responding = false;
  letGo();
  if (refused) {
    if (!$("notice").textContent) notice(`The server refused the connection (${reason || "no reason given"}).`);
    stop();
  } else {
    notice(`The connection to the server is lost. Trying again in ${(retryMs / 1000).toFixed(1)} s…`);
  }
});

function showAnswer({ itemId, spoken, committed, draft }) {
  const rest = committed.startsWith(spoken) ? committed.slice(spoken.length) + draft : "";
  transcript.show(itemId, "assistant", spoken, rest);
}

// What the user does.

$("start").onclick = () => (running ? stop() : start());
$("mute").onclick = mute;
$("push-to-talk").onchange = () => {
  $("hold").hidden = !(running && pushToTalk());
  realtime.configure();
};
$("microphone").onchange = async () => {
  if (!running) return;
  try {
    await microphone.close();
    await microphone.open($("microphone").value);
    realtime.configure();
  } catch (error) {
    notice(error.message);
  }
};
$("hold").onpointerdown = (event) => { event.target.setPointerCapture?.(event.pointerId); press(); };
$("hold").onpointerup = $("hold").onpointercancel = release;
document.addEventListener("keydown", (event) => {
  if (event.repeat || event.target.matches("input[type=password], select")) return;
  if (event.key === "m" && running) mute();
  if (event.code === "Space" && running && pushToTalk()) {
    event.preventDefault();
    press();
  }
});
document.addEventListener("keyup", (event) => {
  if (event.code === "Space" && held) {
    event.preventDefault();
    release();
  }
});
window.addEventListener("blur", release);
navigator.mediaDevices?.addEventListener("devicechange", listMicrophones);
if (!window.isSecureContext) notice("This page is not in a secure context, so the browser gives it no microphone. Open it on localhost, or over https (rejoinder serve --tls-self-signed).");
window.rejoinder = { realtime, loudspeaker, transcript }; // for the console, and for tests
