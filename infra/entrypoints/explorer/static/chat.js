// The page of a chat: its graph, the chosen path and the time slider show the same branch, message and moment.

import "./graph.js";
import "./live.js";
import "./slider.js";
import { ROOT, follow, shownPosition } from "./feed.js";
import { isWritten } from "./actions.js";
import { announce, ask, onKey } from "./frame.js";

const LEAST_MS = 300;
const LIVE_MS = 1500;
const CHOOSE_MS = 150;

const graph = /** @type {import("./graph.js").ClGraph} */ (document.querySelector("cl-graph"));
const slider = /** @type {import("./slider.js").ClSlider} */ (document.querySelector("cl-slider"));
const chat = graph.getAttribute("chat") ?? "";
let asked = 0;
let choosing = 0;

/** @param {string} id @returns {HTMLElement | null} The message of the path. */
function article(id) {
  return document.querySelector(`[data-message="${CSS.escape(id)}"]`);
}

/** The address of this page with other values; null takes one away. @param {Record<string, string | null>} changes */
function address(changes) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) url.searchParams.delete(name);
    else url.searchParams.set(name, value);
  }
  return url.pathname + url.search;
}

/**
 * Show what the server has at an address in the place of the path.
 * @param {string} path
 * @param {{isKept?: boolean, isQuiet?: boolean}} [how] Whether the address goes into the history, and where one reads stays.
 */
async function show(path, { isKept = true, isQuiet = false } = {}) {
  const number = ++asked;
  let text;
  try {
    const answer = await ask(path, { headers: { Accept: "text/html" } });
    if (!answer.ok) {
      announce(answer.status === 404 ? "It is not there at this moment" : "The server could not answer");
      return;
    }
    text = await answer.text();
  } catch {
    announce("The server does not answer");
    return;
  }
  if (number !== asked) return;
  const fresh = new DOMParser().parseFromString(text, "text/html");
  // Nobody loses what they write in a form because something else comes.
  if (isQuiet && isWritten(document.getElementById("path"))) return;
  const isAtEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 40;
  swap(fresh, isQuiet);
  if (isKept && path !== location.pathname + location.search) history.pushState(null, "", path);
  const at = new URLSearchParams(location.search).get("at");
  set("at", at);
  set("branch", document.getElementById("path")?.dataset.branch || null);
  const chosen = document.querySelector("#entries .chosen");
  if (chosen instanceof HTMLElement) set("selected", chosen.dataset.message ?? null);
  if (!isQuiet) see();
  else if (isAtEnd) scrollTo({ top: document.documentElement.scrollHeight });
}

/** @param {string} name @param {string | null} value */
function set(name, value) {
  if (value === graph.getAttribute(name)) return;
  if (value === null) graph.removeAttribute(name);
  else graph.setAttribute(name, value);
}

/** @param {Document} fresh @param {boolean} isQuiet */
function swap(fresh, isQuiet) {
  for (const id of ["path"]) {
    const [old, now] = [document.getElementById(id), fresh.getElementById(id)];
    if (!old || !now) continue;
    if (isQuiet) keepOpen(old, now);
    old.replaceWith(document.adoptNode(now));
  }
  for (const selector of [".band", ".chat-head > p"]) {
    const [old, now] = [document.querySelector(selector), fresh.querySelector(selector)];
    if (old && now) old.replaceWith(document.adoptNode(now));
    else if (old) old.remove();
    else if (now) document.querySelector(".bar")?.after(document.adoptNode(now));
  }
}

/** What was folded open stays so, and an answer that grows goes on. @param {Element} old @param {Element} now */
function keepOpen(old, now) {
  for (const one of old.querySelectorAll("article details[open]")) {
    const id = one.closest("article")?.id;
    const number = [...(one.closest("article")?.querySelectorAll("details") ?? [])].indexOf(/** @type {HTMLDetailsElement} */ (one));
    const same = id && now.querySelector(`#${CSS.escape(id)}`)?.querySelectorAll("details")[number];
    if (same) same.open = true;
  }
  for (const one of old.querySelectorAll("cl-live")) {
    const same = now.querySelector(`cl-live[stream="${CSS.escape(one.getAttribute("stream") ?? "")}"]`);
    if (same) same.replaceWith(one);
  }
}

/** Bring the chosen message into view, or the end of the path. */
function see() {
  const chosen = document.querySelector("#entries .chosen");
  if (chosen) chosen.scrollIntoView({ block: "nearest" });
  else if (new URLSearchParams(location.search).get("before") === null) scrollTo({ top: document.documentElement.scrollHeight });
  observe();
}

/** Choose a message: in the path, where it is there, else on the path through it. @param {string} id */
function choose(id) {
  const there = article(id);
  if (!there) return show(address({ m: id, before: null }));
  document.querySelector("#entries .chosen")?.classList.remove("chosen");
  there.classList.add("chosen");
  there.scrollIntoView({ block: "nearest" });
  history.replaceState(null, "", address({ m: id, before: null }));
  set("selected", id);
  clearTimeout(choosing);
  choosing = setTimeout(showChosen, CHOOSE_MS);
}

/** Put what belongs to the chosen message below it: its details, and what can be done with it. */
async function showChosen() {
  const article = document.querySelector("#entries .chosen");
  const old = document.getElementById("chosen");
  if (!(article instanceof HTMLElement) || isWritten(old)) return;
  const path = location.pathname + location.search;
  const answer = await ask(path, { headers: { Accept: "text/html" } }).catch(() => null);
  if (!answer?.ok) return;
  const now = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("chosen");
  if (!now || !article.isConnected || now.dataset.of !== article.dataset.message || isWritten(document.getElementById("chosen"))) return;
  document.getElementById("chosen")?.remove();
  article.append(document.adoptNode(now));
}

graph.addEventListener("cl-select", (event) => choose(/** @type {CustomEvent} */ (event).detail.id));
graph.addEventListener("cl-fork", (event) => choose(/** @type {CustomEvent} */ (event).detail.id));
graph.addEventListener("cl-open", (event) => article(/** @type {CustomEvent} */ (event).detail.id)?.focus());
slider.addEventListener("cl-at", (event) => show(address({ at: /** @type {CustomEvent} */ (event).detail.at, before: null }), { isQuiet: true }));
addEventListener("popstate", () => {
  show(location.pathname + location.search, { isKept: false });
  slider.goTo(new URLSearchParams(location.search).get("at"));
});

document.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  const link = event.target instanceof Element && event.target.closest("#path a[href], .band a");
  if (!(link instanceof HTMLAnchorElement) || link.hasAttribute("download")) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || url.pathname !== location.pathname) return;
  event.preventDefault();
  if (link.closest("#earlier")) earlier(link);
  else if (link.hasAttribute("data-choose")) choose(link.closest("article")?.dataset.message ?? "");
  else if (link.closest(".band")) slider.goTo(null);
  else show(url.pathname + url.search);
});

/** Put the part before into the page, and leave what one reads where it is. @param {HTMLAnchorElement} link */
async function earlier(link) {
  if (link.dataset.asked) return;
  link.dataset.asked = "yes";
  const answer = await ask(link.href).catch(() => null);
  if (!answer?.ok) {
    delete link.dataset.asked;
    return;
  }
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const part = document.createDocumentFragment();
  const again = fresh.getElementById("earlier");
  if (again) part.append(document.adoptNode(again));
  for (const one of fresh.querySelectorAll("#entries > article")) part.append(document.adoptNode(one));
  const height = document.documentElement.scrollHeight;
  link.closest("#earlier")?.replaceWith(part);
  scrollBy({ top: document.documentElement.scrollHeight - height, behavior: "instant" });
  observe();
}

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const link = entry.isIntersecting && entry.target.querySelector("a");
    if (link instanceof HTMLAnchorElement) earlier(link);
  }
});

/** Read the part before when one scrolls to where it begins. */
function observe() {
  seen.disconnect();
  const link = document.getElementById("earlier");
  if (link) seen.observe(link);
}

// Keys

/** @param {1 | -1} step */
function move(step) {
  const all = [...document.querySelectorAll("#entries > article")];
  const at = all.findIndex((one) => one.classList.contains("chosen"));
  const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, at + step))];
  if (next instanceof HTMLElement) choose(next.dataset.message ?? "");
}

/** @param {"prev" | "next"} rel */
function version(rel) {
  const all = [...document.querySelectorAll("#entries .versions")];
  const chosen = document.querySelector("#entries .chosen .versions") ?? all[all.length - 1];
  const link = chosen?.querySelector(`a[rel="${rel}"]`);
  if (link instanceof HTMLAnchorElement) link.click();
}

onKey("[", () => graph.toFork(-1));
onKey("]", () => graph.toFork(1));
onKey("j", () => move(1));
onKey("k", () => move(-1));
for (const key of [",", "‹"]) onKey(key, () => version("prev"));
for (const key of [".", "›"]) onKey(key, () => version("next"));
onKey("g", () => graph.querySelector('[role="tree"] [tabindex="0"]')?.focus());
onKey("t", () => slider.querySelector("input")?.focus());
onKey(" ", () => slider.play());
onKey("n", () => slider.goTo(null));

// What comes while one looks

let shownAt = 0;
let showing = 0;

/** Show what is there now, at once, and then at most a few times a second. */
function refresh() {
  if (showing) return;
  showing = setTimeout(() => {
    showing = 0;
    shownAt = Date.now();
    if (!new URLSearchParams(location.search).has("at")) {
      show(location.pathname + location.search, { isKept: false, isQuiet: true }); // first: it is what one reads
      graph.refresh();
    }
    slider.refresh();
  }, Math.max(0, shownAt + LEAST_MS - Date.now()));
}

const position = shownPosition();
if (position !== null) follow(position, (event) => event.chat_id === chat && refresh());

/** Answers that were begun since the page was made: they are not on the log before they end. */
async function findLive() {
  if (document.hidden || new URLSearchParams(location.search).has("at")) return;
  const answer = await ask(`${ROOT}/api/v1/chats/${encodeURIComponent(chat)}/live`).catch(() => null);
  const growing = document.getElementById("growing");
  if (!answer?.ok || !growing) return;
  for (const { id, name, status } of await answer.json()) {
    if (status !== "writing" || growing.querySelector(`cl-live[stream="${CSS.escape(id)}"]`)) continue;
    const made = document.createElement("cl-live");
    for (const [key, value] of Object.entries({ chat, stream: id, name })) made.setAttribute(key, value);
    growing.append(made);
  }
}
setInterval(findLive, LIVE_MS);

see();
