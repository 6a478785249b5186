// The list of chats: filtered as one types, and kept up to date; as it was, where the strip of time stands.

import { ClTime } from "./time.js";
import { ROOT, follow, shownPosition } from "./feed.js";
import { ask, onKey } from "./frame.js";
import { filterBy, readList, showList } from "./lists.js";

const CHANGED_MS = 10000;
const LEAST_MS = 1000;
const WRITING_MS = 1500;

const form = /** @type {HTMLFormElement} */ (document.querySelector("form[data-filter]"));
const timeButton = document.querySelector('[data-action="time"]');
let moment = new URLSearchParams(location.search).get("at");
/** @type {Map<string, number>} */
const changed = new Map();
/** @type {Set<string>} */
const gone = new Set();

function address() {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) {
    if (value !== "" && name !== "at") query.set(name, String(value));
  }
  if (moment !== null) query.set("at", moment);
  const text = query.toString();
  return text === "" ? `${ROOT}/` : `${ROOT}/?${text}`;
}

/**
 * Show what the server has at an address.
 * @param {string} path
 * @param {boolean} [isSame] Whether it is the same list as it is by now: then the rows after its first page stay.
 */
async function show(path, isSame = false) {
  const page = await readList(path, isSame);
  if (!page) return;
  document.querySelector(".as-of")?.remove();
  const pill = page.querySelector(".as-of");
  if (pill) document.querySelector(".crumbs")?.after(document.adoptNode(pill));
  document.body.classList.toggle("past", pill !== null);
  const [old, fresh] = [document.getElementById("results"), page.getElementById("results")];
  if (!old || !fresh) return;
  const focused = document.activeElement?.closest("tr[data-chat]")?.getAttribute("data-chat");
  if (!isSame || !merge(old, fresh)) showList(page);
  if (focused) rowOf(focused)?.querySelector("a")?.focus({ preventScroll: true });
  mark();
}

/**
 * Put the first page of a list above the rows that are there, without those that it has; what is read stays where it is.
 * @param {Element} old @param {Element} fresh @returns {boolean} Whether both are such lists.
 */
function merge(old, fresh) {
  const [body, rows] = [old.querySelector("tbody"), fresh.querySelectorAll("tbody > tr")];
  if (!body || !rows.length) return false;
  const isAll = !fresh.querySelector(".more");
  const inFresh = new Set([...rows].map((row) => row.getAttribute("data-chat")));
  const rest = [...body.children].filter((row) => {
    const chat = row.getAttribute("data-chat") ?? "";
    return !isAll && !inFresh.has(chat) && !gone.has(chat);
  });
  body.replaceChildren(...[...rows].map((row) => document.adoptNode(row)), ...rest);
  return true;
}

/** @param {string} chat */
function rowOf(chat) {
  return document.querySelector(`tr[data-chat="${CSS.escape(chat)}"]`);
}

/** Mark the rows of chats that changed a moment ago. */
function mark() {
  for (const row of document.querySelectorAll("tr[data-chat]")) row.classList.toggle("changed", changed.has(row.getAttribute("data-chat") ?? ""));
}

filterBy(form, address, show);

// The strip of time is closed until it is asked for.

/** @returns {ClTime | null} */
const strip = () => document.querySelector("cl-time");

/** The strip, which is made when it is not there. */
function openStrip() {
  if (!timeButton) return null;
  const open = strip() ?? new ClTime();
  if (!open.isConnected) {
    open.setAttribute("role", "region");
    open.setAttribute("aria-label", "Time");
    document.getElementById("main")?.after(open);
  }
  return open;
}

/** Put what opens the strip to work, for those who may look at the past of all chats. */
if (timeButton) {
  timeButton.removeAttribute("hidden");
  const focus = () => openStrip()?.querySelector("input")?.focus();
  timeButton.addEventListener("click", focus);
  onKey("t", focus);
  onKey(" ", () => (strip() ? strip()?.play() : focus()));
  onKey("n", () => strip()?.goTo(null));
  document.addEventListener("cl-at", (event) => {
    moment = /** @type {CustomEvent} */ (event).detail.at;
    const path = address();
    history.replaceState(null, "", path);
    show(path);
  });
  document.addEventListener("click", (event) => {
    if (!(event.target instanceof Element) || !event.target.closest(".as-of a")) return;
    event.preventDefault();
    openStrip()?.goTo(null);
  });
}

let shownAt = 0;
let showing = 0;
const position = shownPosition();
if (position !== null) {
  follow(position, ({ chat_id: chat, type }) => {
    if (type === "chat_deleted") gone.add(chat);
    else gone.delete(chat);
    changed.set(chat, (changed.get(chat) ?? 0) + 1);
    setTimeout(() => {
      const left = (changed.get(chat) ?? 0) - 1;
      if (left > 0) changed.set(chat, left);
      else changed.delete(chat);
      mark();
    }, CHANGED_MS);
    if (showing) return;
    // The first change at once, many at most once a second.
    showing = setTimeout(() => {
      showing = 0;
      shownAt = Date.now();
      strip()?.refresh();
      if (moment === null) show(location.pathname + location.search, true);
    }, Math.max(0, shownAt + LEAST_MS - Date.now()));
  });
}

/** Mark the chats in which an answer is being written: that is not on the log before it ends. */
async function markWritten() {
  if (document.hidden || moment !== null) return;
  const answer = await ask(`${ROOT}/writing`).catch(() => null);
  if (!answer?.ok) return;
  const chats = new Set(await answer.json());
  for (const row of document.querySelectorAll("tr[data-chat]")) row.querySelector(".chip.live")?.toggleAttribute("hidden", !chats.has(row.getAttribute("data-chat")));
}
setInterval(markWritten, WRITING_MS);
