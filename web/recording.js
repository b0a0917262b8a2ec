// What the caption view and the dictation have in common: a microphone, and a session that transcribes it.

import { storedKey } from "./key.js";
import { Realtime } from "./realtime.js";
import { KEY_ERRORS, asSentence, keyProblem } from "./server_status.js";
import { INSECURE_CONTEXT, Microphone } from "./sound.js";

const FINISH_MS = 5000; // for the last words, which are transcribed in about a second, and cleaned up in another
const COMMIT_EMPTY = "input_audio_buffer_commit_empty";
const OWN_COMMIT = "own commit"; // stands for the turn that the page ends, until its id is known
const TRANSCRIPTION = "conversation.item.input_audio_transcription";

const $ = (id) => document.getElementById(id);

export function notice(message = "") {
  $("notice").textContent = message;
  $("notice").hidden = !message;
}

export function phase(name, label) {
  $("phase").dataset.phase = name;
  $("phase").textContent = label;
}

/** A transcription session that the start button begins and ends. `session` returns its settings but the audio format;
 * `label` is what the button says when nothing is recorded. */
export class Recording {
  constructor({ label, session, onstop = () => {} }) {
    Object.assign(this, { label, onstop });
    this.microphone = new Microphone((block) => this.realtime.sendAudio(block), () => this.stop());
    this.realtime = new Realtime({ session: () => this.settings(session()), history: () => [], apiKey: storedKey });
    this.pending = new Set(); // ids of the turns whose final text has not come
    this.finish = () => {}; // ends the wait for the last words
    this.on("session.created", () => {
      this.pending.clear();
      phase("listening", "Listening");
    });
    this.on("session.updated", () => notice());
    this.on("rejoinder.phase", ({ phase: name }) => {
      if (!this.context) return; // it is being stopped
      if (name === "user_speaking") phase(name, "Speaking");
      else phase("listening", "Listening");
    });
    this.on("rejoinder.waiting", () => phase("waiting", "Waiting for a free line…"));
    this.on("input_audio_buffer.committed", ({ item_id: id }) => {
      this.pending.delete(OWN_COMMIT);
      this.pending.add(id);
    });
    this.on(`${TRANSCRIPTION}.completed`, ({ item_id: id, transcript }) => {
      if (!transcript || !session().transcription?.clean) this.settle([id]);
    });
    this.on(`${TRANSCRIPTION}.failed`, ({ item_id: id }) => this.settle([id]));
    this.on("rejoinder.clean", ({ item_ids: ids }) => this.settle(ids));
    this.on("error", ({ error }) => {
      if (error.code === COMMIT_EMPTY) this.settle([OWN_COMMIT]);
      else if (KEY_ERRORS.includes(error.code)) notice(`${keyProblem()} on the conversation page, then start again.`);
      else notice(error.message);
    });
    this.on("lost", ({ rejected, idle, reason, message }) => {
      if (!this.context) { // it is being stopped
        notice("The connection was lost before the last words were transcribed.");
        this.finish();
        return;
      }
      phase("lost", "Connection lost");
      if (rejected || idle) {
        if (!message) notice(`The server refused the connection: ${reason || "no reason given"}`);
        this.stop();
      } else {
        notice(message ? `${asSentence(message)}. Connecting again…` : "The connection is lost. Connecting again…");
      }
    });
    $("start").onclick = () => {
      if (!this.context) this.start();
      else {
        if (!this.realtime.open) notice(); // nothing is tried again
        this.stop();
      }
    };
    if (!window.isSecureContext) notice(INSECURE_CONTEXT);
  }

  on(type, handler) {
    this.realtime.addEventListener(type, ({ detail }) => handler(detail));
  }

  settings({ include, transcription = {} }) {
    const format = { type: "audio/pcm", rate: this.microphone.rate };
    const all = [...include, "rejoinder.phase", "rejoinder.resume"];
    return { type: "transcription", include: all, audio: { input: { format, transcription } } };
  }

  async start() {
    notice();
    $("start").disabled = true;
    try {
      await this.microphone.open();
      this.context = new AudioContext({ latencyHint: "interactive" });
      await this.microphone.connect(this.context);
      await this.context.resume();
      phase("connecting", "Connecting…");
      this.realtime.connect();
      $("start").textContent = "Stop";
    } catch (error) {
      await this.stop();
      notice(error.message);
    } finally {
      $("start").disabled = false;
    }
  }

  async stop() {
    const { context } = this;
    this.context = undefined;
    $("start").disabled = true;
    await this.microphone.close();
    await this.lastWords();
    this.realtime.close();
    await context?.close();
    $("start").textContent = this.label;
    $("start").disabled = false;
    phase("off", "Stopped");
    this.onstop();
  }

  /** End the turn, and wait for the final text of all turns. */
  async lastWords() {
    if (!this.realtime.open) return;
    phase("thinking", "Finishing…");
    const finished = new Promise((resolve) => { this.finish = resolve; });
    this.pending.add(OWN_COMMIT);
    this.realtime.send("input_audio_buffer.commit");
    const timer = setTimeout(this.finish, FINISH_MS);
    await finished;
    clearTimeout(timer);
  }

  settle(ids) {
    for (const id of ids) this.pending.delete(id);
    if (!this.pending.size) this.finish();
  }
}

/** Copy a text, and say so on the button. */
export async function copy(button, text) {
  button.dataset.label ??= button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    notice("This browser does not let the page copy. Select the text and copy it.");
  }
  setTimeout(() => { button.textContent = button.dataset.label; }, 1500);
}
