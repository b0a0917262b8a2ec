// What the caption view and the dictation have in common: a microphone, and a session that transcribes it.

import { storedKey } from "./key.js";
import { Realtime } from "./realtime.js";
import { INSECURE_CONTEXT, Microphone } from "./sound.js";

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
    this.on("session.created", () => phase("listening", "Listening"));
    this.on("session.updated", () => notice());
    this.on("rejoinder.phase", ({ phase: name }) => {
      if (name === "user_speaking") phase(name, "Speaking");
      else phase("listening", "Listening");
    });
    this.on("rejoinder.waiting", () => phase("waiting", "Waiting for a free line…"));
    this.on("error", ({ error }) => notice(error.message));
    this.on("lost", ({ rejected, reason }) => {
      phase("lost", "Connection lost");
      notice(rejected ? `The server refused the connection: ${reason}` : "The connection is lost. Connecting again…");
    });
    $("start").onclick = () => (this.context ? this.stop() : this.start());
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
    this.realtime.close();
    await this.microphone.close();
    await this.context?.close();
    this.context = undefined;
    $("start").textContent = this.label;
    phase("off", "Stopped");
    this.onstop();
  }
}

/** Copy a text, and say so on the button. */
export async function copy(button, text) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    notice("This browser does not let the page copy. Select the text and copy it.");
  }
  setTimeout(() => { button.textContent = label; }, 1500);
}
