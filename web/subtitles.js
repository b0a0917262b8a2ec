// Words with times as subtitles: SubRip (.srt) and WebVTT (.vtt).

const LINE_CHARACTERS = 42; // what subtitlers put on a line at most
const MAX_CUE_S = 6;
const PAUSE_S = 1; // a longer pause ends a cue

/** Words ({ word, start, end }, in order) → cues ({ start, end, text }) of at most two lines. */
export function cuesOf(words) {
  const cues = [];
  let cue;
  for (const { word, start, end } of words) {
    const pause = cue && start - cue.end > PAUSE_S;
    const full = cue && (cue.text.length + 1 + word.length > 2 * LINE_CHARACTERS || end - cue.start > MAX_CUE_S);
    const sentence = cue && /[.?!]$/.test(cue.text) && cue.text.length > LINE_CHARACTERS;
    if (!cue || pause || full || sentence) cues.push(cue = { start, end, text: word });
    else Object.assign(cue, { end: Math.max(end, cue.end), text: `${cue.text} ${word}` });
  }
  for (const one of cues) one.text = inLines(one.text);
  return cues;
}

export const toSrt = (cues) => cues.map((cue, n) => `${n + 1}\n${range(cue, ",")}\n${cue.text}\n`).join("\n");

export const toVtt = (cues) => ["WEBVTT\n", ...cues.map((cue) => `${range(cue, ".")}\n${escaped(cue.text)}\n`)].join("\n");

function inLines(text) {
  if (text.length <= LINE_CHARACTERS) return text;
  const words = text.split(" ");
  const lengths = words.map((_, n) => words.slice(0, n + 1).join(" ").length);
  const middle = lengths.reduce((best, length, n) => (
    Math.abs(length - text.length / 2) < Math.abs(lengths[best] - text.length / 2) ? n : best), 0);
  return `${words.slice(0, middle + 1).join(" ")}\n${words.slice(middle + 1).join(" ")}`.trim();
}

const range = ({ start, end }, decimal) => `${clock(start, decimal)} --> ${clock(end, decimal)}`;

/** 3725.5 → 01:02:05,500 */
function clock(seconds, decimal) {
  const ms = Math.round(seconds * 1000);
  const two = (number) => String(Math.floor(number)).padStart(2, "0");
  return `${two(ms / 3600000)}:${two((ms / 60000) % 60)}:${two((ms / 1000) % 60)}${decimal}${String(ms % 1000).padStart(3, "0")}`;
}

const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
