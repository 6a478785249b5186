// Lists: one goes through their rows by keys, and more rows come when the end is near.

import { announce, ask, onEscape, onKey } from "./frame.js";

const TYPING_MS = 150;
const NEAR_PX = 800;
const SOON_MS = 150;
const PLACES = 6;

/** Whether what was typed last is not shown yet. */
let isFiltering = false;
/** What keys ask for meanwhile, of the rows that come. @type {"row" | "page" | null} */
let wanted = null;

const links = () => [...document.querySelectorAll("[data-row]")].filter((link) => link instanceof HTMLElement);

/** The row that has the focus, or none. */
function chosen() {
  return document.activeElement?.closest("tr, li");
}

/** @param {1 | -1} step */
function move(step) {
  const all = links();
  const at = all.findIndex((link) => chosen()?.contains(link));
  const next = at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step;
  all[Math.max(0, Math.min(all.length - 1, next))]?.focus();
}

for (const key of ["j", "ArrowDown"]) onKey(key, () => move(1));
for (const key of ["k", "ArrowUp"]) onKey(key, () => move(-1));
onKey("Home", () => links()[0]?.focus());
onKey("End", () => links().pop()?.focus());
onKey("o", () => {
  const owner = chosen()?.querySelector("[data-owner]");
  if (owner instanceof HTMLElement) owner.click();
});

onEscape(() => {
  const focused = document.activeElement;
  if (!(focused instanceof HTMLElement) || !(focused === words || links().includes(focused))) return false;
  focused.blur();
  return true;
});

const words = document.querySelector('form[data-filter] input[type="search"]');
if (words instanceof HTMLInputElement) {
  onKey("/", () => words.focus());
  words.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && !(event.key === "Enter" && wanted)) return;
    event.preventDefault();
    if (!isFiltering) move(1);
    else wanted = event.key === "Enter" ? "page" : "row";
  });
}

/**
 * Show that rows are asked for: nothing at once, then in their places.
 * @param {Element | null} body Of a table.
 * @param {boolean} isAnew Whether they come in the place of those that are there.
 * @returns {() => void} Call it when they are there.
 */
export function waiting(body, isAnew) {
  /** @type {Element[]} */
  let places = [];
  const timer = setTimeout(() => {
    if (isAnew) body?.classList.add("waiting");
    else {
      const width = body?.querySelector("tr")?.children.length ?? 1;
      places = Array.from({ length: PLACES }, () => {
        const row = document.createElement("tr");
        row.className = "waiting";
        row.append(...Array.from({ length: width }, () => document.createElement("td")));
        return row;
      });
      body?.append(...places);
    }
  }, SOON_MS);
  return () => {
    clearTimeout(timer);
    body?.classList.remove("waiting");
    for (const row of places) row.remove();
  };
}

let asked = 0;

/**
 * Read a page with a list; null where the server is not there, or another one was asked for since: then what is shown stays.
 * @param {string} path
 * @param {boolean} [isSame] Whether it is the same list as it is by now.
 */
export async function readList(path, isSame = false) {
  const number = ++asked;
  const end = isSame ? () => {} : waiting(document.querySelector("#results tbody"), true);
  const answer = await ask(path, { headers: { Accept: "text/html" } }).catch(() => null);
  const text = answer?.ok ? await answer.text() : null;
  end();
  return text === null || number !== asked ? null : new DOMParser().parseFromString(text, "text/html");
}

/** Put the list of a page in the place of the one that is there. @param {Document} page */
export function showList(page) {
  const [old, fresh] = [document.getElementById("results"), page.getElementById("results")];
  if (!old || !fresh) return;
  old.replaceWith(document.adoptNode(fresh));
  watchEnd();
}

/**
 * Let a form filter the list as one types.
 * @param {HTMLFormElement} form
 * @param {() => string} address The page with what is in the form.
 * @param {(path: string) => Promise<void>} show Shows it.
 */
export function filterBy(form, address, show) {
  let typing = 0;
  form.addEventListener("input", () => {
    isFiltering = true;
    wanted = null;
    clearTimeout(typing);
    const own = setTimeout(async () => {
      const path = address();
      history.replaceState(null, "", path);
      await show(path);
      if (own !== typing) return;
      isFiltering = false;
      if (wanted) move(1);
      if (wanted === "page") chosen()?.querySelector("[data-row]")?.click();
      wanted = null;
      const count = document.querySelectorAll("#results tbody > tr").length;
      announce(count === 1 ? "1 row" : `${count} rows`);
    }, TYPING_MS);
    typing = own;
  });
}

/** @type {IntersectionObserver | undefined} */
let ends;

/** Bring more rows when the end of the list is near; to be called for a list that was put in the place of another. */
export function watchEnd() {
  ends?.disconnect();
  const list = document.querySelector("[data-list]");
  const link = list?.querySelector(".more a[rel=next]");
  if (!list || !(link instanceof HTMLAnchorElement)) return;
  ends = new IntersectionObserver((entries) => entries.some(({ isIntersecting }) => isIntersecting) && more(list, link), {
    root: list,
    rootMargin: `${NEAR_PX}px`,
  });
  ends.observe(link);
}

/** @param {Element} list @param {HTMLAnchorElement} link */
async function more(list, link) {
  ends?.disconnect();
  const body = list.querySelector("tbody");
  const end = waiting(body, false);
  const answer = await ask(link.href, { headers: { Accept: "text/html" } }).catch(() => null);
  const text = answer?.ok ? await answer.text() : null;
  end();
  if (text === null || !link.isConnected || !body) return;
  const page = new DOMParser().parseFromString(text, "text/html");
  const rows = [...page.querySelectorAll("[data-list] tbody > tr")];
  const there = new Set([...body.children].map((row) => row.getAttribute("data-chat") ?? row));
  // What changed since the page before came stands in both.
  body.append(...rows.filter((row) => !there.has(row.getAttribute("data-chat") ?? row)));
  const next = page.querySelector("[data-list] .more");
  if (next) link.closest(".more")?.replaceWith(document.adoptNode(next));
  else link.closest(".more")?.remove();
  watchEnd();
}

watchEnd();
