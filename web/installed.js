// Registers the service worker. Browsers have none on pages that are not secure, or whose certificate they do not trust.

navigator.serviceWorker?.register(new URL("service-worker.js", import.meta.url)).catch(() => {});
