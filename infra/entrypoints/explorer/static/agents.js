// The pages of agents: steps are chosen without a reload, and what is shown is read again when something of it was written.

import { isWritten } from "./actions.js";
import { follow, shownPosition } from "./feed.js";
import { announce, ask, isTyping, onKey } from "./frame.js";
import { watchEnd } from "./lists.js";
import "./panes.js";

const LEAST_MS = 1000;
const TYPING_MS = 150;

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const { shows = "", id = "" } = /** @type {HTMLElement} */ (document.querySelector("[data-shows]")).dataset;
let shownAt = 0;
let showing = 0;
let asked = 0;

/** Whether an event may change what is shown. @param {import("./feed.js").LogEvent} event */
function isOurs({ chat_id: stream, type }) {
  if (shows === "thread") return stream === `chatledger:v:t:${id}` || /^(run|regeneration)_/.test(type);
  return stream.startsWith(shows === "state" ? "chatledger:v:s:" : "chatledger:") || /^run_/.test(type);
}

/**
 * Put what the server has now in the place of what is shown; not while somebody writes there.
 * @param {boolean} isNews Whether something was written, and nobody asked for it.
 */
async function show(isNews) {
  const number = ++asked;
  const answer = await ask(location.pathname + location.search, { headers: { Accept: "text/html" } }).catch(() => null);
  const fresh = answer?.ok && new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
  if (!fresh || number !== asked || (isNews && (isWritten(main) || isTyping(document.activeElement)))) return;
  const open = new Set([...main.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent));
  if (isNews) for (const summary of fresh.querySelectorAll("summary")) if (open.has(summary.textContent)) summary.parentElement?.setAttribute("open", "");
  if (fresh.innerHTML === main.innerHTML) return;
  for (const field of main.querySelectorAll("form:not([method=post]) :is(input, select)[name]")) {
    const same = isNews && fresh.querySelector(`form:not([method=post]) [name="${CSS.escape(field.name)}"]`);
    if (same) same.value = field.value; // not asked for yet
  }
  const active = main.contains(document.activeElement) ? document.activeElement : null;
  const focused = active?.id ? `#${CSS.escape(active.id)}` : active?.hasAttribute("href") ? `a[href="${CSS.escape(active.getAttribute("href") ?? "")}"]` : null;
  const scrolled = new Map([...main.querySelectorAll(".scroller[id], .results")].map((part) => [part.id, part.scrollTop]));
  const pane = main.querySelector(".pane.open")?.id;
  main.replaceChildren(...[...fresh.childNodes].map((node) => document.adoptNode(node)));
  for (const [part, top] of scrolled) {
    const same = document.getElementById(part);
    if (same && (isNews || part === "steps")) same.scrollTop = top;
  }
  openPane(pane?.replace("-pane", ""));
  if (focused) /** @type {HTMLElement | null} */ (main.querySelector(focused))?.focus({ preventScroll: true });
  if (shows === "agents") watchEnd();
  if (isNews) announce("Updated");
}

/** @param {string} path */
function go(path) {
  history.pushState(null, "", path);
  show(false);
}
addEventListener("popstate", () => show(false));

// Steps and views of a thread

/** Show one pane, where there is room for one only. @param {string | undefined} name */
function openPane(name) {
  const tabs = main.querySelector(".tabs-narrow");
  tabs?.removeAttribute("hidden");
  if (!name) return;
  for (const pane of main.querySelectorAll(".pane")) pane.classList.toggle("open", pane.id === `${name}-pane`);
  for (const tab of tabs?.querySelectorAll("[data-pane]") ?? []) tab.setAttribute("aria-pressed", String(tab.getAttribute("data-pane") === name));
}

/** Show or hide the inspector, where it lies over the edge. */
function openSide() {
  document.getElementById("side-pane")?.classList.toggle("open");
}

if (shows === "thread") {
  openPane(undefined);
  main.addEventListener("click", (event) => {
    const target = /** @type {Element} */ (event.target);
    const tab = target.closest("[data-pane]")?.getAttribute("data-pane");
    if (tab) return openPane(tab);
    if (target.closest("[data-side-open]")) return openSide();
    const link = target.closest(".trace a[href], .views a, #inspector .facts a, .pane .more a, .other-line a");
    if (!(link instanceof HTMLAnchorElement) || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    go(link.href);
    if (link.closest(".trace") && matchMedia("(max-width: 640px)").matches) openPane("state");
  });
  main.addEventListener("change", ({ target }) => {
    if (target instanceof HTMLSelectElement && target.id === "against" && target.form) go(`?${new URLSearchParams(/** @type {any} */ (new FormData(target.form)))}`);
  });
  const step = (/** @type {1 | -1} */ by) => {
    const rows = [...main.querySelectorAll(".trace > li:not(.task) > a[href]")];
    const at = rows.findIndex((row) => row.hasAttribute("aria-current"));
    const next = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
    next?.scrollIntoView({ block: "nearest" });
    if (next instanceof HTMLAnchorElement) go(next.href);
  };
  onKey("j", () => step(1));
  onKey("k", () => step(-1));
  for (const [key, view] of [["s", "state"], ["m", "messages"]]) onKey(key, () => /** @type {HTMLElement | null} */ (main.querySelector(`[data-view=${view}]`))?.click());
  onKey("w", () => {
    if (innerWidth < 1200) document.getElementById("side-pane")?.classList.add("open");
    document.getElementById("asks")?.focus();
  });
  onKey("c", () => document.getElementById("against")?.focus());
  onKey("i", openSide);
}

// A question of an agent that this server runs is answered by LangGraph's API, as the signed-in reader

/** @param {HTMLFormElement} form @param {unknown} answer */
async function answer(form, answer) {
  const body = JSON.stringify({ assistant_id: form.dataset.assistant, command: { resume: answer } });
  const reply = await ask(form.dataset.answer ?? "", { method: "POST", headers: { "Content-Type": "application/json" }, body }).catch(() => null);
  const problem = reply?.ok ? "" : (await reply?.json().catch(() => null))?.detail ?? "the server cannot be reached";
  const note = /** @type {HTMLElement} */ (form.querySelector("[role=status]"));
  note.textContent = problem ? `Nothing was answered: ${problem}` : "Answered: it goes on";
  if (problem) return;
  form.reset();
  // What it brings about comes by the feed, and is shown where nobody writes.
  if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
}
main.addEventListener("click", ({ target }) => {
  const choice = target instanceof HTMLElement && target.dataset.value;
  const form = target instanceof HTMLElement && target.closest("form");
  if (choice && form) answer(form, JSON.parse(choice));
});
main.addEventListener("submit", (event) => {
  const form = event.target;
  if (!(form instanceof HTMLFormElement) || !form.dataset.answer) return;
  event.preventDefault();
  const { value } = form.elements.answer;
  try {
    answer(form, JSON.parse(value));
  } catch {
    answer(form, value);
  }
});

// The list, filtered as one types

let typing = 0;
const words = main.querySelector("form[data-filter]");
if (words) {
  main.addEventListener("input", ({ target }) => {
    const form = target instanceof HTMLInputElement && target.form;
    if (!form || !form.matches("[data-filter]")) return;
    clearTimeout(typing);
    typing = setTimeout(async () => {
      const query = new URLSearchParams(/** @type {any} */ (new FormData(form)));
      for (const [name, value] of [...query]) if (value === "") query.delete(name);
      history.replaceState(null, "", `${location.pathname}?${query}`);
      const answer = await ask(location.pathname + location.search, { headers: { Accept: "text/html" } }).catch(() => null);
      const fresh = answer?.ok && new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("results");
      if (fresh) document.getElementById("results")?.replaceWith(document.adoptNode(fresh));
      watchEnd();
    }, TYPING_MS);
  });
}

const position = shownPosition();
if (position !== null) {
  follow(position, (event) => {
    if (showing || !isOurs(event)) return;
    // The first change at once, many at most once a second.
    showing = setTimeout(async () => {
      showing = 0;
      shownAt = Date.now();
      await show(true);
    }, Math.max(0, shownAt + LEAST_MS - Date.now()));
  });
}
