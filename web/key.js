// The API key, kept for this tab only. `rejoinder serve` may print a link that brings one after a #, which browsers send
// to no server.

const STORED = "rejoinder-key";

const linked = new URLSearchParams(location.hash.slice(1)).get("key");
if (linked) {
  storeKey(linked);
  history.replaceState(null, "", location.pathname + location.search);
}

export function storedKey() {
  return sessionStorage.getItem(STORED) ?? "";
}

export function storeKey(key) {
  if (key) sessionStorage.setItem(STORED, key);
  else sessionStorage.removeItem(STORED);
}

/** Headers of a request that may need the key. */
export function keyHeaders() {
  return storedKey() ? { Authorization: `Bearer ${storedKey()}` } : {};
}
