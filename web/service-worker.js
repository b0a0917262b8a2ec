// Keeps a copy of the page's own files, so that the installed page opens, and says what is wrong, when the server does not
// answer. The server's files come first; nothing else is kept, nor looked at.

const CACHE = "rejoinder";
const FILES = [
  "./", "app.js", "alarms.js", "caption_text.js", "captions.css", "captions.html", "captions.js", "capture-worklet.js",
  "dictation.html", "dictation.js", "drawing.js", "face.js", "icon.png", "icon.svg", "installed.js", "key.js",
  "manifest.json", "playback-worklet.js", "realtime.js", "recording.js", "rich_text.js", "server_status.js",
  "sound.js", "stage_labels.json", "style.css", "subtitles.js", "tools.js", "transcript.js",
];
const ADDRESSES = new Set(FILES.map((file) => new URL(file, self.registration.scope).href));

self.addEventListener("install", (event) => {
  self.skipWaiting();
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(FILES)));
});

self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("fetch", (event) => {
  const address = event.request.url.split(/[?#]/)[0];
  if (event.request.method === "GET" && ADDRESSES.has(address)) event.respondWith(fresh(event.request, address));
});

/** The server's file, or its copy when the server does not answer. Copies are kept without what follows the address. */
async function fresh(request, address) {
  const cache = await caches.open(CACHE);
  try {
    const response = await fetch(request);
    if (response.ok) await cache.put(address, response.clone());
    return response;
  } catch (error) {
    const copy = await cache.match(address);
    if (copy) return copy;
    throw error;
  }
}
