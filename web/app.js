// The page: connects the microphone, the loudspeaker, the server connection and the transcript.

import { Alarms } from "./alarms.js";
import { drawSoon } from "./drawing.js";
import { Face } from "./face.js";
import { storeKey, storedKey } from "./key.js";
import { Realtime, decodePcm } from "./realtime.js";
import { KEY_ERRORS, askForKey, asSentence, keyProblem, showModel, showServer } from "./server_status.js";
import { INSECURE_CONTEXT, Loudspeaker, Microphone, SILENT_MICROPHONE } from "./sound.js";
import { Tools } from "./tools.js";
import { Transcript } from "./transcript.js";

const RELEASE_TAIL_MS = 200; // audio still in transit from the microphone when the key is released
const LEVEL_STEPS = 20; // of the microphone's meter, so that silence is not drawn again and again
const OR_TYPE = "You can also type.";
const PAUSED = "Paused, because the conversation was idle for a while. Type, or press Start talking, to go on.";
const SILENT_MS = 6000; // of nothing but zeros: no microphone that is on is so quiet

const PHASE_LABELS = {
  off: "Not started", asking: "Allow the microphone…", connecting: "Connecting…", listening: "Listening",
  user_speaking: "You are speaking", thinking: "Thinking", answering: "Responding", lost: "Connection lost",
  waiting: "Waiting for a free line…",
};

const HINTS = {
  off: "Press Start talking and ask a question, or type one.",
  asking: "The browser asks whether this page may use the microphone: allow it.",
  talking: "Speak when you like, or type.",
};

/** Both sides may stop a response at the same moment. */
const EXPECTED_ERRORS = ["response_cancel_not_active", "item_not_found", "item_retrieve_invalid_item_id"];

const $ = (id) => document.getElementById(id);
const transcript = new Transcript($("talk"), $("empty"), $("settled"));
const loudspeaker = new Loudspeaker();
const microphone = new Microphone(onBlock, onUnplugged);
const realtime = new Realtime({
  session, history: () => transcript.items(), apiKey: () => $("api-key").value.trim(),
  isAwaited: () => alarms.alarms.length > 0, // they are spoken over the connection
});
const tools = new Tools(realtime, (call) => transcript.showCall(call));
const alarms = new Alarms($("alarms"), realtime);
new Face($("face"), $("show-face"), { realtime, loudspeaker, transcript });

let level = 0; // of the microphone, in steps
let running = false; // there is a session, or one is wanted
let talking = false; // the microphone is open
let silentSince; // when the microphone was opened, until it hears something
let phaseName = "off";
let asking = false; // the browser asks for the microphone
let configured = false; // the session of this connection is
let held = false; // push-to-talk: the key or button is down
let releaseTimer; // push-to-talk: audio is still sent until it fires, after the release
let unanswered = false; // push-to-talk: a question was transcribed while the key was down again
let responding = false; // a response is in progress on the server
let firstAudio; // arrival of the first audio of a response: { itemId, at }
const playbackDelayMs = new Map(); // item id → ms from the arrival of its first audio to the ear
const turns = new Map(); // item id of a message → rejoinder.turn event
const typed = []; // what the user has typed and the session has not got yet
const messages = new Map(); // response id → item id of its message, until its turn is reported

function session() {
  const format = { type: "audio/pcm", rate: microphone.rate ?? 24000 };
  const detection = pushToTalk() ? null : { type: "semantic_vad" };
  const output = $("voice").value ? { voice: $("voice").value } : {};
  const modality = $("aloud").checked && loudspeaker.context ? "audio" : "text";
  const audio = { input: { format, turn_detection: detection }, output };
  return { audio, output_modalities: [modality], tools: tools.declarations };
}

function pushToTalk() {
  return $("push-to-talk").checked;
}

function phase(name = phaseName) {
  phaseName = name;
  drawSoon("phase", () => {
    const name = asking ? "asking" : phaseName;
    $("phase").dataset.phase = name;
    const listening = microphone.muted ? "Muted" : PHASE_LABELS.listening;
    $("phase").textContent = name !== "listening" ? PHASE_LABELS[name] : talking ? listening : "Ready";
    const hint = HINTS[name] ?? (talking ? HINTS.talking : HINTS.off);
    if ($("hint").textContent !== hint) $("hint").textContent = hint;
  });
}

function notice(text = "") {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

function showLevel(peak) {
  const steps = Math.round(LEVEL_STEPS * Math.sqrt(peak));
  if (steps === level) return;
  level = steps;
  drawSoon("level", () => { $("level").style.transform = `scaleX(${level / LEVEL_STEPS})`; });
}

function onBlock(block, peak) {
  showLevel(peak);
  if (silentSince) checkSound(peak);
  if (!pushToTalk() || held || releaseTimer) realtime.sendAudio(block);
}

/** Say so if the microphone is open but delivers nothing, until it does. */
function checkSound(peak) {
  if (microphone.muted) silentSince = performance.now();
  else if (peak > 0) {
    silentSince = undefined;
    if ($("notice").textContent === SILENT_MICROPHONE) notice();
  } else if (performance.now() - silentSince > SILENT_MS && $("notice").hidden) notice(SILENT_MICROPHONE);
}

async function onUnplugged() {
  await stop();
  notice("The microphone was disconnected. Plug it in again or choose another one, then start again.");
}

/** Open the microphone, and connect if that has not been done. */
async function start() {
  notice();
  $("start").disabled = asking = true;
  phase();
  try {
    await microphone.open($("microphone").value);
    await loudspeaker.open();
    await microphone.connect(loudspeaker.context);
  } catch (error) {
    await microphone.close();
    if (!running) await loudspeaker.close();
    notice(`${error.message} ${OR_TYPE}`);
    return;
  } finally {
    $("start").disabled = asking = false;
    phase();
  }
  talking = true;
  silentSince = performance.now();
  $("start").textContent = "Stop";
  $("mute").disabled = false;
  $("hold").hidden = !pushToTalk();
  if (running) realtime.configure();
  else connect();
  await listMicrophones();
}

function connect() {
  running = true;
  phase("connecting");
  realtime.connect();
}

/** Send a typed message, and connect for it if need be, without the microphone. */
async function type(text) {
  const id = `typed_${Math.random().toString(36).slice(2)}`;
  typed.push({ id, text });
  transcript.showWaiting(id, text);
  if (running) {
    await sendTyped();
    return;
  }
  notice();
  running = true;
  phase("connecting");
  await loudspeaker.open().catch(() => loudspeaker.close()); // where a page may not play sound, answers are read
  if (running) realtime.connect();
}

/** Give the session what was typed, in place of the response in progress. */
async function sendTyped() {
  if (!typed.length || !realtime.open) return;
  if (responding) realtime.send("response.cancel");
  await stopPlayback();
  for (const { id, text } of typed.splice(0)) {
    const item = { id, type: "message", role: "user", content: [{ type: "input_text", text }] };
    transcript.show(id, "user", text);
    realtime.send("conversation.item.create", { item });
  }
  respond();
}

function respond() {
  unanswered = false;
  realtime.send("response.create");
}

async function stop() {
  running = talking = false;
  silentSince = undefined;
  $("start").disabled = true;
  await Promise.all([endSession(), microphone.close()]);
  await loudspeaker.close();
  $("start").disabled = false;
  $("start").textContent = "Start talking";
  $("mute").disabled = true;
  $("hold").hidden = true;
  showLevel(0);
  phase("off");
}

/** Disconnect. The transcript keeps what was heard, which the next session gets. */
async function endSession() {
  await silence();
  realtime.close();
}

/** Stop playback without a server to tell. */
async function silence() {
  responding = unanswered = false;
  resetPushToTalk();
  for (const id of responses.keys()) transcript.remove(id);
  responses.clear();
  transcript.dropUnstable();
  for (const { itemId, heardMs } of await loudspeaker.clear()) transcript.truncateByTime(itemId, heardMs);
}

async function listMicrophones() {
  const selected = $("microphone").value;
  const options = [new Option("System default", "")];
  for (const device of await Microphone.list()) options.push(new Option(device.label || "Microphone", device.deviceId));
  $("microphone").replaceChildren(...options);
  $("microphone").value = selected;
}

/** Stop playback at once and tell the server how much of the response was heard. */
async function stopPlayback() {
  for (const { itemId, heardMs } of await loudspeaker.clear()) {
    realtime.send("conversation.item.truncate", { item_id: itemId, content_index: 0, audio_end_ms: heardMs });
    realtime.send("conversation.item.retrieve", { item_id: itemId });
  }
}

function mute() {
  microphone.mute(!microphone.muted);
  $("mute").setAttribute("aria-pressed", String(microphone.muted));
  phase();
}

function press() {
  if (!talking || !pushToTalk() || held || !realtime.open) return;
  const goesOn = releaseTimer !== undefined; // the key was up for a moment within an utterance
  resetPushToTalk();
  held = true;
  $("hold").setAttribute("aria-pressed", "true");
  phase("user_speaking");
  if (goesOn) return;
  if (responding) realtime.send("response.cancel");
  stopPlayback();
  realtime.send("input_audio_buffer.clear");
}

function release() {
  if (!held) return;
  resetPushToTalk();
  phase("thinking");
  releaseTimer = setTimeout(() => {
    releaseTimer = undefined;
    realtime.send("input_audio_buffer.commit");
  }, RELEASE_TAIL_MS);
}

/** An utterance was transcribed, or was empty: answer it, or a question before it that was not answered yet. */
function answerPushToTalk() {
  if (held || releaseTimer) return; // the user goes on
  if (unanswered) respond();
  else phase("listening");
}

function resetPushToTalk() {
  held = false;
  clearTimeout(releaseTimer);
  releaseTimer = undefined;
  $("hold").setAttribute("aria-pressed", "false");
}

function showLatency(itemId) {
  const turn = turns.get(itemId);
  if (!turn) return;
  const playing = playbackDelayMs.get(itemId);
  const { end_of_turn: _, ...stages } = turn.stages_ms; // the wait runs in parallel with the other stages
  if (playing !== undefined) stages.playing = playing;
  transcript.showLatency(itemId, turn.latency_ms && turn.latency_ms + (playing ?? 0), stages, turn);
}

loudspeaker.onstart = () => {
  if (!firstAudio) return;
  playbackDelayMs.set(firstAudio.itemId, performance.now() - firstAudio.at + loudspeaker.latencyMs);
  showLatency(firstAudio.itemId);
  firstAudio = undefined;
};

// Server events.

const on = (type, handler) => realtime.addEventListener(type, ({ detail }) => handler(detail));
/** Response id → { itemId, spoken, committed, draft, origin }. It is the item id, too, until the message begins, with its
 * audio: the text is earlier. */
const responses = new Map();
const newResponse = (itemId) => ({ itemId, spoken: "", committed: "", draft: "", origin: "" });

on("session.created", ({ session: { model } }) => {
  configured = false;
  showModel(model);
});
on("session.updated", async () => {
  if (!configured) {
    configured = true;
    notice();
    phase("listening");
  }
  await sendTyped();
});
on("rejoinder.waiting", () => phase("waiting"));
on("rejoinder.phase", ({ phase: name }) => phase(name));
on("input_audio_buffer.speech_started", stopPlayback);
on("rejoinder.transcript", ({ item_id, stable, unstable }) => {
  transcript.show(item_id, "user", stable, stable && unstable ? ` ${unstable}` : unstable);
});
on("conversation.item.input_audio_transcription.completed", ({ item_id, transcript: text }) => {
  if (text) {
    transcript.show(item_id, "user", text);
    transcript.settle(text, "user");
  } else transcript.remove(item_id);
  if (!pushToTalk()) return;
  unanswered ||= Boolean(text);
  answerPushToTalk();
});
on("conversation.item.input_audio_transcription.failed", ({ error }) => notice(error.message));
on("response.created", ({ response: { id } }) => {
  responding = true;
  responses.set(id, newResponse(id));
});
on("response.output_item.added", ({ response_id, item }) => {
  if (item.type !== "message") return;
  transcript.rename(response_id, item.id);
  responses.set(response_id, { ...responses.get(response_id) ?? newResponse(), itemId: item.id });
  playbackDelayMs.delete(item.id);
});
on("rejoinder.sources", ({ item_id, sources }) => transcript.showSources(item_id, sources));
on("rejoinder.draft", ({ response_id, committed, draft, denoised, origin, step }) => {
  const response = responses.get(response_id);
  if (!response) return;
  response.committed += committed;
  Object.assign(response, { draft, origin });
  transcript.showStep(response.itemId, step, committed, denoised);
  showResponse(response);
});
for (const type of ["response.output_audio_transcript.delta", "response.output_text.delta"]) {
  on(type, ({ response_id, delta }) => {
    const response = responses.get(response_id);
    if (!response) return;
    response.spoken += delta;
    showResponse(response);
  });
}
on("response.output_audio.delta", ({ item_id, delta }) => {
  if (!loudspeaker.items.has(item_id)) firstAudio = { itemId: item_id, at: performance.now() };
  loudspeaker.play(item_id, decodePcm(delta));
});
on("response.done", ({ response: { id, status, status_details, output } }) => {
  responding = false;
  const response = responses.get(id);
  responses.delete(id);
  if (status === "failed") notice(status_details.error.message);
  transcript.remove(id); // what was drafted of a message that did not begin
  if (!response || response.itemId === id) return;
  messages.set(id, response.itemId);
  const message = output.find(({ id: itemId }) => itemId === response.itemId);
  if (status === "cancelled") {
    transcript.truncate(response.itemId, textOf(message));
    return;
  }
  transcript.show(response.itemId, "assistant", response.spoken.trim());
  transcript.settle(response.spoken.trim(), "assistant");
});
on("conversation.item.retrieved", ({ item }) => transcript.truncate(item.id, textOf(item)));
on("rejoinder.remote", ({ model, host, leaves_machine: leaves, reason }) => {
  transcript.showNote(leaves ? `Sent to ${model} at ${host}: ${reason}` : `Answered by ${model}: ${reason}`);
});
on("rejoinder.turn", (turn) => {
  const itemId = messages.get(turn.response_id) ?? turn.item_id; // a response may begin with calls
  messages.delete(turn.response_id);
  turns.set(itemId, turn);
  showLatency(itemId);
});
on("error", ({ error }) => {
  if (error.code === "input_audio_buffer_commit_empty") answerPushToTalk(); // the key was only tapped
  else if (KEY_ERRORS.includes(error.code)) {
    $("starting").hidden = true; // it says the same
    notice(`${keyProblem()}, then try again.`);
    askForKey();
  } else if (!EXPECTED_ERRORS.includes(error.code)) notice(error.message);
});
on("rejoinder.resumed", ({ items }) => {
  for (const { id, type, role, content } of items) {
    if (type === "message" && role !== "system") transcript.restore(id, role, content);
  }
});
on("lost", ({ rejected, idle, reason, message }) => {
  phase("lost");
  silence();
  if (idle) {
    notice(PAUSED);
    stop();
  } else if (rejected) {
    if (!$("notice").textContent) notice(`The server rejected the connection (${reason || "no reason given"}).`);
    stop();
  } else {
    notice(message ? `${asSentence(message)}. Trying again…` : "The connection to the server is lost. Trying again…");
  }
});

function showResponse({ itemId, spoken, committed, draft, origin }) {
  const written = committed.startsWith(spoken); // otherwise the words are spoken in another form
  transcript.show(itemId, "assistant", written ? committed : spoken, written ? draft : "", origin);
}

const textOf = ({ content: [part] }) => part.transcript ?? part.text ?? "";

// User actions.

$("start").onclick = () => {
  if (!talking) start();
  else stop().then(() => notice());
};
$("mute").onclick = mute;
$("typing").onsubmit = (event) => {
  event.preventDefault(); // sent over the connection
  const text = $("typed").value.trim();
  $("typed").value = "";
  if (text) type(text);
};
$("examples").onclick = ({ target }) => target.matches("button") && type(target.textContent);
$("push-to-talk").onchange = () => {
  $("hold").hidden = !(talking && pushToTalk());
  if (!$("hold").hidden) $("hold").focus(); // where the space bar talks
  realtime.configure();
};
$("aloud").onchange = () => {
  if (!$("aloud").checked) stopPlayback();
  realtime.configure();
};
$("microphone").onchange = async () => {
  if (!talking) return;
  try {
    await microphone.close();
    await microphone.open($("microphone").value);
    await microphone.connect(loudspeaker.context);
    realtime.configure();
  } catch (error) {
    notice(error.message);
  }
};
$("voice").onchange = async () => {
  if (!running) return;
  await endSession(); // a session that has spoken keeps its voice
  phase("connecting");
  realtime.connect();
};
$("hold").onpointerdown = (event) => { event.target.setPointerCapture?.(event.pointerId); press(); };
$("hold").onpointerup = $("hold").onpointercancel = release;
document.addEventListener("keydown", (event) => {
  if (event.repeat || event.target.matches("input, select, summary")) return;
  const isShortcut = event.ctrlKey || event.metaKey || event.altKey; // of the browser
  if (event.key.toLowerCase() === "m" && !isShortcut && talking) mute();
  if (event.code === "Space" && talking && pushToTalk()) {
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
$("api-key").value = storedKey();
$("api-key").addEventListener("change", () => {
  storeKey($("api-key").value.trim());
  showServer();
});
showServer();
if (!window.isSecureContext) notice(`${INSECURE_CONTEXT} ${OR_TYPE}`);
window.rejoinder = { realtime, loudspeaker, tools, transcript }; // for the console and tests
