// Draws what changed, some times a second. Every frame takes processor time, which on the server's own machine the
// language model would have.

const INTERVAL_MS = 120;

const waiting = new Map(); // what changed → how to draw it
let drawnAt = -INTERVAL_MS;
let scheduled = false;

/** Call `draw` soon, once for all calls with the same `key` until then. Nothing is drawn while the page is hidden. */
export function drawSoon(key, draw) {
  waiting.set(key, draw);
  if (scheduled) return;
  scheduled = true;
  setTimeout(() => requestAnimationFrame(drawAll), drawnAt + INTERVAL_MS - performance.now());
}

function drawAll() {
  scheduled = false;
  drawnAt = performance.now();
  const draws = [...waiting.values()];
  waiting.clear();
  for (const draw of draws) draw();
}
