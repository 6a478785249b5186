// What all pages share: keys, the theme, and asking the server.

import { ROOT, follow, heardPosition, onLost, shownPosition } from "./feed.js";

const YEAR_S = 365 * 24 * 3600;
const SOON_MS = 1000;
const TOLD_MS = 2500;

/** The keys of this page: what is pressed, to what it does. */
const bound = new Map();

/**
 * Let a key do something while nobody types. Describe it in the template's block `keys`.
 * @param {string} key As `KeyboardEvent.key` has it.
 * @param {(event: KeyboardEvent) => void} act
 */
export function onKey(key, act) {
  bound.set(key, act);
}

/** Do what a key does on this page. @param {string} key @returns {boolean} Whether it does something. */
export function press(key) {
  const act = bound.get(key);
  act?.(new KeyboardEvent("keydown", { key }));
  return act !== undefined;
}

/** Inputs that take no text: a slider swallows no keys but those that move it. */
const PRESSED = new Set(["range", "checkbox", "radio", "button", "submit", "reset", "file", "color"]);
const MOVING = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"]);

/**
 * Whether text goes into what has the focus.
 * @param {EventTarget | null} target
 */
export function isTyping(target) {
  const field = target instanceof Element ? target.closest("input, textarea, select, [contenteditable]") : null;
  return field !== null && !(field instanceof HTMLInputElement && PRESSED.has(field.type));
}

/** Whether a key is for what has the focus. @param {KeyboardEvent} event */
function isTaken({ key, target }) {
  if (isTyping(target)) return true;
  if (!(target instanceof Element)) return false;
  if (key === " " || key === "Enter") return target.closest("button, a, summary, input:not([type=range])") !== null;
  return MOVING.has(key) && target.closest('input[type="range"], [role="tree"]') !== null;
}

/**
 * Keep a choice of the reader for the next pages. A cookie, so that the server draws them so at once.
 * @param {string} name @param {string} value
 */
export function remember(name, value) {
  document.cookie = `chatledger-${name}=${value}; path=/; max-age=${YEAR_S}; samesite=strict`;
}

/**
 * Ask the server, with what proves that the page itself asks. The answer knows every event that the page heard of: the feed
 * reads the log, which is ahead of what the server reads from.
 * @param {string} path
 * @param {RequestInit} [options]
 * @returns {Promise<Response>} Of any status.
 */
export function ask(path, options = {}) {
  const headers = new Headers(options.headers);
  const proof = document.querySelector('meta[name="csrf"]');
  if (proof instanceof HTMLMetaElement) headers.set("X-Chatledger-CSRF", proof.content);
  const heard = heardPosition();
  if (heard > 0) headers.set("Chatledger-Wait-For", String(heard));
  return fetch(path, { ...options, headers, credentials: "same-origin" });
}

let pending = "";
let isWaiting = false;

/**
 * Tell screen readers, at most once a second; of what comes sooner the last.
 * @param {string} text
 */
export function announce(text) {
  pending = text;
  if (isWaiting) return;
  isWaiting = true;
  const region = document.getElementById("live");
  if (region) region.textContent = pending;
  const told = pending;
  setTimeout(() => {
    isWaiting = false;
    if (pending !== told) announce(pending);
  }, SOON_MS);
}

/** Tell whoever pressed something what came of it, on the screen too. @param {string} text */
export function notify(text) {
  announce(text);
  document.querySelector(".toast")?.remove();
  const toast = Object.assign(document.createElement("p"), { className: "toast", textContent: text });
  toast.setAttribute("aria-hidden", "true"); // it was announced
  document.body.append(toast);
  setTimeout(() => toast.remove(), TOLD_MS);
}

/** The theme that is seen. */
export function theme() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

/** To go on with, the one after the other; the first changes what is seen for most. */
const THEMES = ["system", "dark", "light"];

function switchTheme() {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "system") + 1) % THEMES.length];
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  remember("theme", next);
  nameTheme();
  document.dispatchEvent(new CustomEvent("cl-theme", { detail: theme() }));
}

/** Let the button say which theme it is. */
function nameTheme() {
  const words = `Theme: ${document.documentElement.dataset.theme ?? "system"}`;
  for (const button of document.querySelectorAll('[data-action="theme"]')) {
    button.setAttribute("title", words);
    button.querySelector(".unseen")?.replaceChildren(words);
  }
}

function showKeys() {
  const dialog = document.getElementById("keys");
  if (dialog instanceof HTMLDialogElement && !dialog.open) dialog.showModal();
}

/** @param {Event} event */
function openRail({ currentTarget }) {
  const isOpen = document.getElementById("rail")?.classList.toggle("open") ?? false;
  if (currentTarget instanceof Element) currentTarget.setAttribute("aria-expanded", String(isOpen));
}

function openPalette() {
  // What is typed until its script is there is for the palette: the page would take the letters for its own keys, and Enter would
  // press what has the focus.
  let typed = "";
  /** @param {KeyboardEvent} event */
  const hold = (event) => {
    const isLetter = event.key.length === 1;
    if (!(isLetter || event.key === "Enter") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (isLetter) typed += event.key;
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  addEventListener("keydown", hold, { capture: true });
  return import("./palette.js").then(({ open }) => open(typed)).finally(() => removeEventListener("keydown", hold, { capture: true }));
}

const ACTIONS = { theme: switchTheme, keys: showKeys, rail: openRail, palette: openPalette };

for (const [name, act] of Object.entries(ACTIONS)) {
  for (const button of document.querySelectorAll(`[data-action="${name}"]`)) {
    button.addEventListener("click", act);
    button.removeAttribute("hidden");
  }
}

nameTheme();
onKey("?", showKeys);
document.querySelectorAll(".rail > a:not(.mark)").forEach((link, number) => onKey(String(number + 1), () => link instanceof HTMLElement && link.click()));

// How many threads of agents wait for somebody: at the rail, and in the title of a window that is hidden.

const badge = document.getElementById("waiting");
const title = document.title;
let counting = 0;

function showWaiting() {
  const count = Number(badge?.textContent);
  badge?.toggleAttribute("hidden", !count);
  document.title = count && document.hidden ? `(${count}) ${title}` : title;
}

if (badge && shownPosition() !== null) {
  document.addEventListener("visibilitychange", showWaiting);
  follow(shownPosition() ?? 0, ({ chat_id: stream, type }) => {
    if (counting || !(stream.startsWith("chatledger:v:t:") || type.startsWith("run_"))) return;
    counting = setTimeout(async () => {
      counting = 0;
      const answer = await ask(`${ROOT}/waiting`).catch(() => null);
      if (!answer?.ok) return;
      badge.textContent = await answer.text();
      showWaiting();
    }, SOON_MS);
  });
}

// Where the connection is lost, the header says as of when the page is, and when it is tried again.

const lost = document.createElement("span");
lost.className = "chip lost";
lost.setAttribute("role", "status");
let [lostAt, againAt, ticking] = [0, 0, 0];

onLost((again) => {
  againAt = again ?? 0;
  if (again === null) lostAt = 0;
  else lostAt ||= Date.now();
  if (again === null) lost.remove();
  else ticking ||= setInterval(tick, SOON_MS);
});

/** A stream that ends is begun anew at once: only what lasts is said. */
function tick() {
  if (!lostAt) {
    clearInterval(ticking);
    ticking = 0;
    return;
  }
  const left = Math.max(Math.ceil((againAt - Date.now()) / 1000), 0);
  lost.textContent = `as of ${new Date(lostAt).toLocaleTimeString("en-GB")}, again in ${left} s`;
  if (!lost.isConnected && Date.now() - lostAt > SOON_MS) document.querySelector(".head-end")?.prepend(lost);
}

/** What Escape closes, the topmost first. @type {(() => boolean)[]} */
const escapes = [() => closeMenu(() => true), closeSheet];

/**
 * Let Escape close something of this page, where nothing that was named before is open.
 * @param {() => boolean} close Returns whether there was something to close.
 */
export function onEscape(close) {
  escapes.push(close);
}

/** @returns {boolean} Whether the inspector lay over the page. */
function closeSheet() {
  const sheet = matchMedia("(width > 640px) and (width < 1200px)").matches && document.querySelector(".side-pane.open");
  if (sheet) sheet.classList.remove("open");
  return Boolean(sheet);
}

// A menu goes when somebody presses elsewhere.
addEventListener("pointerdown", ({ target }) => closeMenu((menu) => !(target instanceof Node && menu.contains(target))));

/** @param {(menu: Element) => boolean} isToClose @returns {boolean} Whether one was open. */
function closeMenu(isToClose) {
  const open = [...document.querySelectorAll("details.menu[open]")].filter(isToClose);
  for (const menu of open) {
    if (menu.contains(document.activeElement)) menu.querySelector("summary")?.focus();
    menu.removeAttribute("open");
  }
  return open.length > 0;
}

/** To the next of the panes that are seen, or the one before. @param {1 | -1} step */
function goRound(step) {
  const panes = [...document.querySelectorAll("nav.rail, form.filters, [role=region], #scroller")].filter((pane) => pane.getClientRects().length && !pane.querySelector("[role=region], #scroller"));
  const at = panes.findIndex((pane) => pane.contains(document.activeElement));
  const pane = panes[(at + step + panes.length) % panes.length];
  const part = pane?.matches("[tabindex]") ? pane : pane?.querySelector('[tabindex="0"]:not([role=separator])') ?? pane?.querySelector("a[href], button, input, summary");
  if (part instanceof HTMLElement) part.focus();
}

// These act wherever one is, also where one types.
addEventListener("keydown", (event) => {
  const isCommand = event.ctrlKey || event.metaKey;
  if (event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "F6" && !isCommand) goRound(event.shiftKey ? -1 : 1);
  else if (event.key.toLowerCase() === "k" && isCommand && !event.shiftKey) openPalette();
  else if (event.key !== "Escape" || event.defaultPrevented || !escapes.some((close) => close())) return;
  event.preventDefault();
});

// Capturing, before the parts of a page: what has the focus gets its own keys only.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
  if (isTaken(event) || document.querySelector("dialog[open]")) return;
  const act = bound.get(event.key);
  if (act) {
    event.preventDefault();
    act(event);
  }
}, { capture: true });
