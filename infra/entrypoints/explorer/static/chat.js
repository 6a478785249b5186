// The page of a chat: its graph, the path that is read, the inspector and the time show the same branch, message and moment.

import "./graph.js";
import "./live.js";
import "./panes.js";
import "./time.js";
import { copy, isWritten } from "./actions.js";
import { ROOT, follow, shownPosition } from "./feed.js";
import { ask, notify, onEscape, onKey, remember } from "./frame.js";
import { PathWindow } from "./window.js";

const LEAST_MS = 300;
const LIVE_MS = 1500;
const CHOOSE_MS = 150;

const graph = /** @type {import("./graph.js").ClGraph} */ (document.querySelector("cl-graph"));
const time = /** @type {import("./time.js").ClTime} */ (document.querySelector("cl-time"));
const scroller = /** @type {HTMLElement} */ (document.getElementById("scroller"));
const pathList = /** @type {HTMLElement} */ (document.getElementById("path"));
const pill = /** @type {HTMLElement} */ (document.getElementById("newer"));
const form = /** @type {HTMLFormElement} */ (document.querySelector(".header-form"));
const chat = graph.getAttribute("chat") ?? "";
const path = new PathWindow(scroller, pathList, chat);
/** What was asked for last: to be shown in the place of the page, or beside what it shows. */
const asked = { page: 0, aside: 0 };
const hand = /** @type {HTMLElement} */ (document.getElementById("hand"));
/** What of the inspector the reader wants to see, where it has that. */
let side = new URLSearchParams(location.search).get("q") ? "find" : "";
let choosing = 0;
let unseen = 0;

/** @param {string} id @returns {HTMLElement | null} The message of the path. */
function article(id) {
  return pathList.querySelector(`[data-message="${CSS.escape(id)}"]`);
}

/** @returns {HTMLElement | null} */
function chosen() {
  return pathList.querySelector(".chosen");
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
 * What is at an address, as a document; null where something else was asked for since, or it is not there, which is said.
 * @param {string} where @param {"page" | "aside"} use
 */
async function fetched(where, use) {
  const number = ++asked[use];
  const answer = await ask(where, { headers: { Accept: "text/html" } }).catch(() => null);
  const text = answer?.ok ? await answer.text() : null;
  if (number !== asked[use]) return null;
  if (text === null) {
    notify(!answer ? "The server does not answer" : answer.status === 404 ? "It is not there at this moment" : "The server could not answer");
    return null;
  }
  return new DOMParser().parseFromString(text, "text/html");
}

/**
 * Show what the server has at an address.
 * @param {string} where
 * @param {{isKept?: boolean, keeps?: "message" | "fork" | null}} [how] Whether the address goes into the history; what stays
 *   where it is on the screen.
 */
async function show(where, { isKept = true, keeps = null } = {}) {
  clearTimeout(choosing);
  const fresh = await fetched(where, "page");
  if (!fresh) return;
  // Nobody loses what they write in a form because something else comes.
  const isBusy = isWritten(document.getElementById("inspector"));
  const anchor = keeps === "fork" ? forkAnchor() : keeps === "message" ? messageAnchor() : null;
  if (isKept && where !== location.pathname + location.search) history.pushState(null, "", where);
  swap(fresh, ["as-of", ...(isBusy ? [] : ["inspector"])]);
  const now = fresh.getElementById("path");
  if (now) {
    path.at = new URLSearchParams(location.search).get("at");
    pathList.dataset.branch = now.dataset.branch;
    path.take(now);
  }
  for (const [name, value] of Object.entries({ at: path.at, along: path.along, branch: pathList.dataset.branch || null })) set(name, value);
  const id = chosen()?.dataset.message ?? null;
  if (id !== null) set("selected", id);
  if (keeps === "fork") chosen()?.querySelector("details.fork")?.setAttribute("open", "");
  const compare = fresh.getElementById("compare")?.getAttribute("href");
  if (compare) document.getElementById("compare")?.setAttribute("href", compare);
  if (anchor) anchor();
  else see();
  said();
}

/** @param {string} name @param {string | null} value */
function set(name, value) {
  if (value === graph.getAttribute(name)) return;
  if (value === null) graph.removeAttribute(name);
  else graph.setAttribute(name, value);
}

/** Put parts of a fresh page into this one. @param {Document} fresh @param {string[]} parts */
function swap(fresh, parts) {
  const put = (/** @type {string} */ selector) => {
    const [old, now] = [document.querySelector(selector), fresh.querySelector(selector)];
    if (old && now) old.replaceWith(document.adoptNode(now));
    else old?.remove();
    if (!old && now) document.querySelector(".crumbs")?.after(document.adoptNode(now));
  };
  if (parts.includes("as-of")) put(".as-of");
  document.body.classList.toggle("past", fresh.body.classList.contains("past"));
  for (const id of ["counts", "read"]) {
    const [old, now] = [document.getElementById(id), fresh.getElementById(id)];
    if (old && now) old.textContent = now.textContent;
  }
  const [field, wanted] = [form.elements.namedItem("branch"), fresh.querySelector('.header-form [name="branch"]')];
  if (field instanceof HTMLSelectElement && wanted instanceof HTMLSelectElement) {
    field.replaceChildren(...[...wanted.options].map((option) => option.cloneNode(true)));
    field.value = wanted.value;
  } else if (field instanceof HTMLInputElement && wanted instanceof HTMLInputElement && field !== document.activeElement) field.value = wanted.value;
  if (parts.includes("inspector")) {
    const [old, now] = [document.getElementById("inspector"), fresh.getElementById("inspector")];
    if (old && now) {
      const open = new Set([...old.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent));
      if (old.dataset.of === now.dataset.of) {
        for (const summary of now.querySelectorAll("summary")) if (open.has(summary.textContent)) summary.parentElement?.setAttribute("open", "");
      }
      const isFocused = old.contains(document.activeElement);
      old.replaceWith(document.adoptNode(now));
      if (isFocused) now.focus({ preventScroll: true });
      showSide();
    }
  }
  const [menu, entries] = [document.querySelector(".menu-list"), fresh.querySelector(".menu-list")];
  if (menu && entries && !isWritten(menu)) menu.replaceWith(document.adoptNode(entries));
}

/** What leads back to the message at the top edge, or to the nearest before it, at the same height. */
function messageAnchor() {
  const depth = path.shownDepth;
  const message = pathList.querySelector(`[aria-posinset="${depth + 1}"]`);
  const y = message?.getBoundingClientRect().top ?? 0;
  const wasAtEnd = path.isAtEnd && path.count <= depth + 2;
  return async () => {
    const place = Math.min(depth, path.count - 1);
    if (place < path.first || place >= path.end) await path.goTo(Math.max(place, 0));
    const again = pathList.querySelector(`[aria-posinset="${place + 1}"]`);
    if (wasAtEnd) path.toEnd();
    else if (again) scroller.scrollTop += again.getBoundingClientRect().top - y;
  };
}

/** What keeps the fork that was pressed at its height. */
function forkAnchor() {
  const fork = document.activeElement?.closest(".fork-bar") ?? chosen();
  const y = fork?.getBoundingClientRect().top ?? null;
  return () => {
    const message = chosen();
    const again = message?.querySelector(".fork-bar") ?? message;
    if (again && y !== null) scroller.scrollTop += again.getBoundingClientRect().top - y;
  };
}

/** Bring the chosen message into view, or the end of the path. */
function see() {
  const message = chosen();
  if (message) message.scrollIntoView({ block: "nearest" });
  else if (!new URLSearchParams(location.search).has("first")) path.toEnd();
  else scroller.scrollTop = pathList.offsetTop;
}

/** Say where one is. */
function said() {
  const place = document.getElementById("place");
  if (!place) return;
  const depth = Math.min(path.shownDepth + 1, path.count);
  place.textContent = path.count ? `message ${depth.toLocaleString("en")} of ${path.count.toLocaleString("en")}` : "no message";
  if (path.isAtEnd) {
    unseen = 0;
    pill.hidden = true;
  }
}
path.addEventListener("scroll", said);
path.addEventListener("change", said);
path.addEventListener("failure", () => notify("The server does not answer"));

/** Choose a message: in the path, where it is there, else on the path through it. @param {string} id */
function choose(id) {
  const there = article(id);
  if (!there) return show(address({ m: id, first: null, branch: pathList.dataset.branch || null }));
  chosen()?.classList.remove("chosen");
  there.classList.add("chosen");
  there.scrollIntoView({ block: "nearest" });
  history.replaceState(null, "", address({ m: id, first: null }));
  set("selected", id);
  clearTimeout(choosing);
  choosing = setTimeout(showChosen, CHOOSE_MS);
}

/** Put what belongs to the chosen message into the inspector. */
async function showChosen() {
  if (isWritten(document.getElementById("inspector"))) return;
  const where = location.pathname + location.search;
  const fresh = await fetched(where, "aside");
  const inspector = fresh?.getElementById("inspector");
  if (fresh && where === location.pathname + location.search && inspector?.dataset.of === chosen()?.dataset.message && !isWritten(document.getElementById("inspector"))) swap(fresh, ["inspector"]);
}

graph.addEventListener("cl-select", (event) => choose(/** @type {CustomEvent} */ (event).detail.id));
graph.addEventListener("cl-fork", (event) => choose(/** @type {CustomEvent} */ (event).detail.id));
graph.addEventListener("cl-open", (event) => article(/** @type {CustomEvent} */ (event).detail.id)?.focus());
time.addEventListener("cl-at", (event) => show(address({ at: /** @type {CustomEvent} */ (event).detail.at, first: null }), { keeps: "message" }));
addEventListener("popstate", () => {
  show(location.pathname + location.search, { isKept: false });
  time.goTo(new URLSearchParams(location.search).get("at"));
});

document.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  const link = event.target instanceof Element && event.target.closest("#path-pane a[href], #inspector a[href], .as-of a");
  if (!(link instanceof HTMLAnchorElement) || link.hasAttribute("download")) return;
  if (link.hasAttribute("data-edited")) {
    event.preventDefault();
    changes(link);
    return;
  }
  if (link.dataset.beside) {
    if (!HAS_ROOM.matches) return;
    event.preventDefault();
    showBeside(link.dataset.beside, Number(link.closest("article")?.getAttribute("aria-posinset")) - 1);
    return;
  }
  if (link.hasAttribute("data-picture")) {
    event.preventDefault();
    enlarge(/** @type {HTMLImageElement} */ (link.querySelector("img")));
    return;
  }
  const url = new URL(link.href);
  if (url.origin !== location.origin || url.pathname !== location.pathname) return;
  event.preventDefault();
  if (link.hasAttribute("data-choose")) {
    choose(link.closest("article")?.dataset.message ?? "");
    if (link.classList.contains("dots")) pane("side");
  }
  else if (link.closest(".as-of")) time.goTo(null);
  else show(url.pathname + url.search, { keeps: link.closest(".fork-bar") ? "fork" : null });
});

// A message is chosen by a click on it, not by the selection of its words.
pathList.addEventListener("click", (event) => {
  const target = /** @type {Element} */ (event.target);
  const message = target.closest("article");
  if (!message?.dataset.message || target.closest("a, button, summary, img") || String(getSelection() ?? "")) return;
  if (!message.classList.contains("chosen")) choose(message.dataset.message);
});

/** @param {HTMLImageElement} image */
function enlarge(image) {
  const dialog = Object.assign(document.createElement("dialog"), { className: "picture" });
  dialog.setAttribute("aria-label", image.alt);
  dialog.append(Object.assign(new Image(), { src: image.src, alt: image.alt }));
  dialog.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

// What can be done with a message stands at it, while the pointer or the focus is in it.
for (const comes of ["pointerover", "focusin"]) {
  pathList.addEventListener(comes, ({ target }) => {
    const message = target instanceof Element && target.closest("article");
    if (message && hand.closest("article") !== message) message.querySelector(":scope > header")?.append(hand);
    hand.hidden = !message;
  });
}
pathList.addEventListener("pointerleave", () => {
  hand.hidden = true;
});
hand.addEventListener("click", async (event) => {
  const wanted = event.target instanceof Element ? event.target.closest("button")?.dataset.do : undefined;
  const message = hand.closest("article");
  if (!wanted || !message?.dataset.message) return;
  if (wanted === "copy") {
    const answer = await ask(`${ROOT}/api/v1/messages/${encodeURIComponent(message.dataset.message)}`).catch(() => null);
    if (answer?.ok) copy((await answer.json()).text, /** @type {Element} */ (message.querySelector(".body")));
    else notify("The server could not answer");
  } else if (wanted === "link") copyLink(message);
  else {
    if (!message.classList.contains("chosen")) choose(message.dataset.message);
    if (wanted === "more") {
      pane("side");
      document.getElementById("inspector")?.focus();
    } else open(wanted);
  }
});

/** @param {HTMLElement} message */
function copyLink(message) {
  copy(location.origin + address({ m: message.dataset.message ?? "", first: null }), message);
}

document.addEventListener("click", ({ target }) => {
  const unfold = target instanceof Element && target.closest("[data-unfold]");
  if (!unfold) return;
  unfold.previousElementSibling?.classList.remove("long");
  unfold.remove();
});

// The inspector: one of its parts at a time

/** Show what the reader chose, or what comes first. */
function showSide() {
  const panels = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("#inspector [data-panel]")]);
  const shown = panels.find((panel) => panel.dataset.panel === side) ?? panels[0];
  for (const panel of panels) panel.hidden = panel !== shown;
  for (const button of document.querySelectorAll("[data-side]")) {
    button.setAttribute("aria-pressed", String(button.getAttribute("data-side") === shown?.dataset.panel));
    button.parentElement?.toggleAttribute("hidden", panels.length < 2);
  }
}
showSide();

document.addEventListener("click", ({ target }) => {
  const button = target instanceof Element && target.closest("[data-side]");
  if (!button) return;
  side = button.getAttribute("data-side") ?? "";
  showSide();
});

/** Bring the ways on at a fork. @param {HTMLDetailsElement} fork */
async function bringWays(fork) {
  if (!fork.dataset.ways || fork.dataset.asked) return;
  fork.dataset.asked = "yes";
  const query = new URLSearchParams({ m: fork.dataset.ways, ...(path.at === null ? {} : { at: path.at }) });
  const answer = await ask(`${ROOT}/c/${encodeURIComponent(chat)}/ways?${query}`, { headers: { Accept: "text/html" } }).catch(() => null);
  const list = answer?.ok && new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("ul");
  if (list) fork.querySelector("div.ways")?.replaceWith(document.adoptNode(list));
  else delete fork.dataset.asked;
}
pathList.addEventListener("toggle", ({ target }) => target instanceof HTMLDetailsElement && target.open && bringWays(target), { capture: true });
// Whoever was faster than this script finds what they opened.
for (const fork of pathList.querySelectorAll("details.fork[open]")) bringWays(/** @type {HTMLDetailsElement} */ (fork));

// Two paths beside each other, where there is room for them; else a link leads to the comparison

const beside = /** @type {HTMLElement} */ (document.getElementById("beside"));
const HAS_ROOM = matchMedia("(min-width: 1800px)");

/** Show another path from a fork on. @param {string} along @param {number} depth How many messages both have in common. */
async function showBeside(along, depth) {
  const before = /** @type {HTMLElement} */ (beside.querySelector(".scroller"));
  const fresh = /** @type {HTMLElement} */ (before.cloneNode(true)); // without what listened to the path that was shown before
  const list = /** @type {HTMLElement} */ (fresh.querySelector(".path"));
  list.replaceChildren();
  before.replaceWith(fresh);
  const other = new PathWindow(fresh, list, chat, depth);
  [other.at, other.along] = [path.at, along];
  const [title, common] = [beside.querySelector("h2"), beside.querySelector(".soft")];
  if (title) title.textContent = along;
  if (common) common.textContent = `after ${depth.toLocaleString("en")} message${depth === 1 ? "" : "s"} in common`;
  beside.hidden = false;
  other.count = depth + 1;
  await other.goTo(depth);
}
beside.querySelector("[data-close]")?.addEventListener("click", () => {
  beside.hidden = true;
});
HAS_ROOM.addEventListener("change", ({ matches }) => {
  if (!matches) beside.hidden = true;
});

/** The way on beside the one that is read, at the chosen fork or the last one. */
async function toBeside() {
  const forks = /** @type {NodeListOf<HTMLDetailsElement>} */ (pathList.querySelectorAll("details.fork"));
  const fork = chosen()?.querySelector("details.fork") ?? forks[forks.length - 1];
  if (!(fork instanceof HTMLDetailsElement)) return notify("There is no fork here");
  await bringWays(fork);
  /** @type {HTMLElement | null} */ (fork.querySelector("[data-beside]"))?.click();
  return undefined;
}


/** Show what an edit changed in the message itself, or the message again. @param {HTMLAnchorElement} link */
async function changes(link) {
  const body = link.closest("article")?.querySelector(":scope > .body");
  if (!(body instanceof HTMLElement)) return;
  const shown = body.parentElement?.querySelector(":scope > .edited");
  if (shown) {
    shown.remove();
    body.hidden = false;
    link.removeAttribute("aria-pressed");
    return;
  }
  const answer = await ask(link.href, { headers: { Accept: "text/html" } }).catch(() => null);
  const words = answer?.ok && new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".edited");
  if (!words) return;
  words.classList.add("body");
  body.hidden = true;
  body.after(document.adoptNode(words));
  link.setAttribute("aria-pressed", "true");
}

// The header: a branch is shown when it is chosen

form.addEventListener("change", (event) => {
  if (event.target instanceof HTMLSelectElement) show(address({ branch: event.target.value, m: null, first: null }));
});

// Keys

/** @param {1 | -1} step */
function move(step) {
  const all = [...pathList.querySelectorAll("article")];
  const at = all.findIndex((message) => message.classList.contains("chosen"));
  const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, at + step))];
  if (next instanceof HTMLElement) choose(next.dataset.message ?? "");
}

/** @param {"prev" | "next"} rel */
function version(rel) {
  const all = [...pathList.querySelectorAll(".fork-steps")];
  const steps = chosen()?.querySelector(".fork-steps") ?? all[all.length - 1];
  const link = steps?.querySelector(`a[rel="${rel}"]`);
  if (link instanceof HTMLAnchorElement) link.click();
}

/** Open the form of an action on the chosen message. @param {string} title */
async function open(title) {
  const id = chosen()?.dataset.message;
  if (!id) return notify("Choose a message first");
  pane("side");
  side = "message";
  if (document.getElementById("inspector")?.dataset.of !== id) {
    clearTimeout(choosing);
    await showChosen();
  }
  showSide();
  const action = [...document.querySelectorAll("#chosen .action > summary")].find((summary) => summary.textContent === title);
  if (!(action instanceof HTMLElement)) return notify(path.at === null ? `${title} is not for readers` : "This is the past: go back to now first");
  if (!action.parentElement?.hasAttribute("open")) action.click();
  action.parentElement?.querySelector(/** @type {any} */ ("textarea, input:not([type=hidden])"))?.focus();
  return undefined;
}

/** Show a pane where not all have room. @param {string} name */
function pane(name) {
  for (const section of document.querySelectorAll(".pane")) section.classList.toggle("open", section.id === `${name}-pane`);
  for (const tab of document.querySelectorAll("[data-pane]")) tab.setAttribute("aria-pressed", String(tab.getAttribute("data-pane") === name));
}

onKey("[", () => graph.toFork(-1));
onKey("]", () => graph.toFork(1));
onKey("j", () => move(1));
onKey("k", () => move(-1));
for (const key of [",", "‹"]) onKey(key, () => version("prev"));
for (const key of [".", "›"]) onKey(key, () => version("next"));
onKey("g", () => {
  pane("graph");
  graph.querySelector('[role="tree"] [tabindex="0"]')?.focus();
});
onKey("m", () => {
  pane("path");
  (chosen() ?? scroller).focus();
});
onKey("i", () => {
  const isOpen = document.getElementById("side-pane")?.classList.contains("open");
  pane(isOpen ? "path" : "side");
  if (!isOpen) document.getElementById("inspector")?.focus();
});
onKey("f", () => open("Fork"));
onKey("b", toBeside);
onKey("y", () => {
  const message = chosen();
  if (message) copyLink(message);
  else notify("Choose a message first");
});
onKey("e", () => open("Edit"));
onKey("c", () => document.getElementById("compare")?.click());
onKey("/", () => document.getElementById("find")?.focus());
onKey("t", () => time.querySelector("input")?.focus());
onKey(" ", () => time.play());
onKey("n", () => time.goTo(null));
// Escape closes what was found, then the choice.
for (const [name, change] of [["q", { q: null }], ["m", { m: null }]]) {
  onEscape(() => {
    const isThere = new URLSearchParams(location.search).has(/** @type {string} */ (name)) && document.activeElement?.closest("form[method=post]") === null;
    if (isThere) show(address(/** @type {Record<string, null>} */ (change)), { keeps: "message" });
    return isThere;
  });
}
onKey("Home", () => path.goTo(0));
onKey("End", () => path.goTo(path.count - 1, "end"));

/** @param {string} name @param {string} value */
function press(name, value) {
  for (const button of document.querySelectorAll(`button[data-${name}]`)) button.setAttribute("aria-pressed", String(button.getAttribute(`data-${name}`) === value));
}

/** @param {string} name @returns {string} What is chosen of a switch. */
function pressed(name) {
  return document.querySelector(`button[data-${name}][aria-pressed="true"]`)?.getAttribute(`data-${name}`) ?? "";
}

/** @type {Record<string, (value: string) => void>} */
const SWITCHES = {
  rows: (value) => set("only", value === "path" ? "path" : null),
  raw: (value) => {
    remember("raw", value);
    path.refresh();
  },
  compact: (value) => {
    remember("compact", value);
    document.getElementById("path-pane")?.classList.toggle("compact", value === "1");
  },
  pane: (value) => pane(value),
};

for (const [name, act] of Object.entries(SWITCHES)) {
  for (const button of document.querySelectorAll(`button[data-${name}]`)) {
    button.parentElement?.removeAttribute("hidden");
    button.addEventListener("click", () => {
      press(name, button.getAttribute(`data-${name}`) ?? "");
      act(button.getAttribute(`data-${name}`) ?? "");
    });
  }
}
for (const [key, name] of [["r", "raw"], ["v", "compact"]]) {
  onKey(key, () => document.querySelector(`button[data-${name}="${pressed(name) === "1" ? "0" : "1"}"]`)?.dispatchEvent(new MouseEvent("click")));
}

pill.addEventListener("click", () => path.goTo(path.count - 1, "end"));

// What comes while one looks

let shownAt = 0;
let showing = 0;

/** Show what is there now, at once, and then at most a few times a second. */
function refresh() {
  if (showing) return;
  showing = setTimeout(async () => {
    showing = 0;
    shownAt = Date.now();
    if (!new URLSearchParams(location.search).has("at")) {
      graph.refresh();
      await newer();
    }
    time.refresh();
  }, Math.max(0, shownAt + LEAST_MS - Date.now()));
}

/** Bring the path up to now: who is at its end goes along, others are told. */
async function newer() {
  const wasAtEnd = path.isAtEnd;
  const [came, fresh] = await Promise.all([path.grow(), fetched(location.pathname + location.search, "aside")]);
  const now = fresh?.getElementById("path");
  if (fresh) swap(fresh, isWritten(document.getElementById("inspector")) ? [] : ["inspector"]);
  // Where no branch is named, another one may be the active one by now.
  if (now && now.querySelector(".block")?.getAttribute("data-along") !== path.along) {
    pathList.dataset.branch = now.dataset.branch;
    path.take(now);
    set("along", path.along);
    set("branch", pathList.dataset.branch || null);
    see();
    return;
  }
  document.getElementById("nothing")?.remove();
  document.querySelector("#scroller > .snippet-code")?.remove();
  if (wasAtEnd) path.toEnd();
  else if (came > 0) {
    unseen += came;
    pill.textContent = `${unseen} new`;
    pill.hidden = false;
  }
  if (came === 0) await path.refresh();
  said();
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
    const wasAtEnd = path.isAtEnd;
    const stream = document.createElement("cl-live");
    for (const [key, value] of Object.entries({ chat, stream: id, name })) stream.setAttribute(key, value);
    growing.append(stream);
    if (wasAtEnd) path.toEnd();
  }
}
setInterval(findLive, LIVE_MS);

path.at = new URLSearchParams(location.search).get("at");
see();
said();
