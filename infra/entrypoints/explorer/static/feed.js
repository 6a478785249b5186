// The log as it grows. However many tabs show it, one of them asks the server and tells the others.

/** What the paths of this server begin with, as a proxy shows them: scripts lie at `<root>/static/<version>/`. */
export const ROOT = new URL("../..", import.meta.url).pathname.replace(/\/$/, "");

const CHANNEL = `chatledger-feed${ROOT}`;
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15000;

/** @typedef {{position: number, type: string, chat_id: string, payload: object, occurred_at: number}} LogEvent */

/** @type {Set<(event: LogEvent) => void>} */
const listeners = new Set();
const channel = new BroadcastChannel(CHANNEL);
let position = 0;
let isBegun = false;

/** @type {(again: number | null) => void} */
let tellLost = () => {};

/**
 * Call a function when the connection is lost, with when it is tried again, in ms since 1970; with null when it is there again.
 * @param {(again: number | null) => void} listener
 */
export function onLost(listener) {
  tellLost = listener;
}

/** @param {LogEvent | {again: number | null}} event */
function tell(event) {
  if ("again" in event) return tellLost(event.again);
  if (event.position <= position) return;
  position = event.position;
  for (const listener of listeners) listener(event);
}

/** Tell this tab and the others. @param {LogEvent | {again: number | null}} event */
function tellAll(event) {
  channel.postMessage(event);
  tell(event);
}

/** Ask the server until this tab is closed; where the connection fails, again after a while. */
function lead() {
  let wait_ms = FIRST_WAIT_MS;
  const connect = () => {
    const source = new EventSource(`${ROOT}/api/v1/feed?after=${position}`);
    source.onopen = () => {
      wait_ms = FIRST_WAIT_MS;
      tellAll({ again: null });
    };
    source.onmessage = (message) => {
      tellAll(JSON.parse(message.data));
    };
    source.onerror = () => {
      // The browser tries again by itself and too late; also it gives up where it got an answer.
      source.close();
      setTimeout(connect, wait_ms);
      tellAll({ again: Date.now() + wait_ms });
      wait_ms = Math.min(wait_ms * 2, LONGEST_WAIT_MS);
    };
  };
  connect();
  return new Promise(() => {});
}

/**
 * Call a function with each event after a position, in order and once.
 * @param {number} after The position that the page shows; see `shownPosition`.
 * @param {(event: LogEvent) => void} listener
 * @returns {() => void} Ends it.
 */
export function follow(after, listener) {
  listeners.add(listener);
  if (!isBegun) {
    isBegun = true;
    position = after;
    channel.onmessage = (message) => tell(message.data);
    navigator.locks.request(CHANNEL, lead);
  }
  return () => listeners.delete(listener);
}

/** The position up to which this page heard of events; 0 before it follows them. */
export function heardPosition() {
  return position;
}

/** The position on the log that this page shows; null where it shows the past. */
export function shownPosition() {
  const meta = document.querySelector('meta[name="position"]');
  return meta instanceof HTMLMetaElement ? Number(meta.content) : null;
}
