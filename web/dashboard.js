// The operator's dashboard: open conversations, the latest turns with their stages, and how latency is distributed.

import { keyHeaders, storeKey, storedKey } from "./key.js";

const REFRESH_MS = 2000;
const BUCKET_MS = 100;
const MAX_BUCKETS = 30; // the last one holds everything above
const KEY_REFUSED = [401, 403]; // HTTP status

const $ = (id) => document.getElementById(id);

let labels = {};

/** An element with text and children. */
function element(tag, { text, className } = {}, ...children) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  made.append(...children);
  return made;
}

const ms = (value) => (value === null ? "–" : `${Math.round(value)} ms`);

function showFigures({ server, percentiles_ms: percentiles, refused }) {
  const total = Object.values(refused).reduce((sum, count) => sum + count, 0);
  const figures = {
    conversations: `${server.conversations} of ${server.capacity}`,
    "latency p95": ms(percentiles.p95),
    refused: total,
    model: server.model,
    memory: `${server.peak_memory_mb} MB`,
  };
  $("figures").replaceChildren(...Object.entries(figures).map(([name, value]) =>
    element("div", {}, element("dt", { text: name }), element("dd", { text: value }))));
  $("state").textContent = server.status;
}

function showDistribution({ latencies_ms: latencies, percentiles_ms: percentiles }) {
  const counts = new Array(MAX_BUCKETS).fill(0);
  for (const latency of latencies) counts[Math.min(MAX_BUCKETS - 1, Math.floor(latency / BUCKET_MS))] += 1;
  const most = Math.max(1, ...counts);
  $("distribution").replaceChildren(...counts.map((count, bucket) => {
    const bar = element("div");
    bar.style.height = `${100 * count / most}%`;
    const isLast = bucket === MAX_BUCKETS - 1;
    const range = isLast ? `${bucket * BUCKET_MS} ms and more` : `${bucket * BUCKET_MS}–${(bucket + 1) * BUCKET_MS} ms`;
    bar.title = `${range}: ${count}`;
    return bar;
  }));
  const shown = Object.entries(percentiles).map(([name, value]) => `${name} ${ms(value)}`);
  $("percentiles").textContent = `${latencies.length} turns · ${shown.join(" · ")}`;
}

function showConversations({ conversations }) {
  $("conversations").replaceChildren(...conversations.map((one) => element("tr", {},
    ...[one.kind, one.key || "–", one.phase, (one.age_s / 60).toFixed(1)].map((text) => element("td", { text })))));
}

function waterfall(turn, stages) {
  const row = element("div", { className: "waterfall" });
  stages.forEach((stage, number) => {
    const length = turn.stages_ms[stage];
    if (length === undefined) return;
    const part = element("span", { className: `stage-${number}` });
    part.style.width = `${length / 20}%`; // 2 s are the whole width
    part.title = `${labels[stage] ?? stage}: ${ms(length)}`;
    row.append(part);
  });
  return row;
}

function showTurns({ turns, stages }) {
  $("legend").replaceChildren(...stages.map((stage, number) =>
    element("li", {}, element("span", { className: `stage-${number}` }), labels[stage] ?? stage)));
  $("turns").replaceChildren(...turns.map((turn) => element("tr", {},
    element("td", { text: new Date(turn.ended_at * 1000).toLocaleTimeString() }),
    element("td", { text: turn.status }),
    element("td", { text: turn.key || "–" }),
    element("td", { text: ms(turn.latency_ms) }),
    element("td", {}, waterfall(turn, stages)))));
}

function askForKey(message) {
  $("board").hidden = true;
  $("sign-in").hidden = false;
  $("state").textContent = "Not connected";
  $("notice").hidden = !message;
  $("notice").textContent = message;
}

async function refresh() {
  const response = await fetch("dashboard/data", { headers: keyHeaders() });
  if (KEY_REFUSED.includes(response.status)) {
    const { error } = await response.json();
    askForKey(storedKey() ? error.message : "");
    storeKey("");
    return false;
  }
  if (!response.ok) throw new Error(`HTTP status ${response.status}`); // it is starting, for example
  const data = await response.json();
  $("sign-in").hidden = $("notice").hidden = true;
  $("board").hidden = false;
  showFigures(data);
  showDistribution(data);
  showConversations(data);
  showTurns(data);
  return true;
}

async function keepRefreshing() {
  let delay = REFRESH_MS;
  try {
    if (!await refresh()) return;
  } catch {
    $("notice").hidden = false;
    $("notice").textContent = "The server cannot be reached, or is not ready. Trying again.";
    delay *= 2;
  }
  setTimeout(keepRefreshing, delay);
}

$("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  storeKey($("key").value.trim());
  $("key").value = "";
  keepRefreshing();
});

labels = await (await fetch("stage_labels.json")).json();
keepRefreshing();
