// What the server says of itself: its model and voices, where words may go, and why it cannot be used yet.

import { keyHeaders, storedKey } from "./key.js";

const RETRY_MS = 1000;
const UNREACHABLE = "The server does not answer. Check that it is running (rejoinder serve); the page tries again by itself.";

const KEY_REQUIRED = "This server requires an API key. Enter it under Settings";
const KEY_REJECTED = "The server does not accept the API key. Check it under Settings";
export const KEY_ERRORS = ["invalid_api_key", "api_key_required"];

/** Whether a key is missing, or is wrong: a sentence without its full stop. */
export const keyProblem = () => (storedKey() ? KEY_REJECTED : KEY_REQUIRED);

/** The reason that a server gave, as a sentence without its full stop. */
export const asSentence = (reason) => reason[0].toUpperCase() + reason.slice(1);

const $ = (id) => document.getElementById(id);

/** Offer the server's voices, if there is a choice, and say where words may go; or what the server does before it is
 * ready, or that it needs a key. */
export async function showServer() {
  const unreachable = { starting: UNREACHABLE };
  const server = await fetch("healthz", { headers: keyHeaders() }).then((response) => response.json()).catch(() => unreachable);
  const needsKey = server.starting === undefined && !server.model; // it tells its model to those whom it lets in
  const line = needsKey ? `${keyProblem()}.` : server.starting ?? "";
  if ($("starting").textContent !== line) $("starting").textContent = line;
  $("starting").hidden = !line;
  if (needsKey) askForKey();
  if (server.starting) setTimeout(showServer, RETRY_MS);
  if (server.model) showModel(server.model);
  if (server.voices?.length > 1) {
    $("voice").replaceChildren(...server.voices.map((name) => new Option(name)));
    $("voice").parentElement.hidden = false;
  }
  if (server.remote_llm?.leaves_machine) {
    const { model, host, scope } = server.remote_llm;
    const what = scope === "all" ? "The text of the conversation" : "For hard questions, the text of the conversation";
    $("remote").textContent = `${what} is sent to ${model} at ${host}.`;
    $("remote").hidden = false;
  }
}

/** Name the language model. */
export function showModel(name) {
  $("model").textContent = `Language model: ${name}`;
  $("model").hidden = false;
}

/** Show where the API key is entered. */
export function askForKey() {
  document.querySelector(".settings").open = true;
  $("api-key").scrollIntoView({ block: "nearest" });
}
