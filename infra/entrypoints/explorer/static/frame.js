// What all pages share: keys, the theme, and asking the server.

import { heardPosition } from "./feed.js";

const YEAR_S = 365 * 24 * 3600;
const SOON_MS = 1000;

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

/** The theme that is seen. */
export function theme() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function switchTheme() {
  const next = theme() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  remember("theme", next);
  document.dispatchEvent(new CustomEvent("cl-theme", { detail: next }));
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

const ACTIONS = { theme: switchTheme, keys: showKeys, rail: openRail };

for (const [name, act] of Object.entries(ACTIONS)) {
  for (const button of document.querySelectorAll(`[data-action="${name}"]`)) {
    button.addEventListener("click", act);
    button.removeAttribute("hidden");
  }
}

onKey("?", showKeys);

// A menu goes when somebody presses elsewhere, or Escape.
addEventListener("pointerdown", ({ target }) => closeMenu((menu) => !(target instanceof Node && menu.contains(target))));
addEventListener("keydown", ({ key }) => key === "Escape" && !document.querySelector("dialog[open]") && closeMenu(() => true));

/** @param {(menu: Element) => boolean} isToClose */
function closeMenu(isToClose) {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (isToClose(menu)) menu.removeAttribute("open");
}

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
