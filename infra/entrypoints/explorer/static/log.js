// The log as it grows: the feed says that there is something new, and the server renders it. Filtered as one types.

import { ROOT, follow } from "./feed.js";
import { announce, ask, onKey } from "./frame.js";
import { filterBy, readList, showList } from "./lists.js";

const MOST_ROWS = 500;

const form = /** @type {HTMLFormElement} */ (document.querySelector("form[data-filter]"));
const button = document.querySelector('[data-action="pause"]');
const live = document.getElementById("following");
let isPaused = false;
let isAsking = false;
let isMore = false;

const body = () => /** @type {HTMLElement | null} */ (document.querySelector("tbody[data-live]"));

filterBy(
  form,
  () => {
    const query = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value !== "") query.set(name, String(value));
    return `${ROOT}/log?${query}`;
  },
  async (path) => {
    const page = await readList(path);
    if (page) showList(page);
    fetchNew(); // what came since that page was made
  },
);

async function fetchNew() {
  if (isPaused) return;
  if (isAsking) {
    isMore = true;
    return;
  }
  isAsking = true;
  try {
    do {
      isMore = false;
      const rows = body();
      if (!rows) return;
      const query = new URLSearchParams(location.search);
      query.set("after", rows.dataset.position ?? "0");
      const answer = await ask(`${rows.dataset.live}?${query}`);
      if (!answer.ok) return;
      const html = await answer.text();
      if (isPaused) return; // it was asked for before
      isMore = (rows === body() ? show(rows, html) : true) || isMore;
    } while (isMore && !isPaused);
  } finally {
    isAsking = false;
  }
}

/** @param {HTMLElement} rows @param {string} html Rows, rendered and escaped by the server. @returns {boolean} Whether there were some. */
function show(rows, html) {
  const parsed = new DOMParser().parseFromString(`<table><tbody>${html}</tbody></table>`, "text/html");
  const fresh = [...parsed.querySelectorAll("tbody > tr")];
  if (fresh.length === 0) return false;
  rows.dataset.position = String(Math.max(...fresh.map((row) => Number(row.getAttribute("data-position")))));
  rows.prepend(...fresh);
  rows.closest("table")?.removeAttribute("hidden");
  document.querySelector("#results > .nothing")?.remove();
  // Who reads further below keeps what is there; else the log of a day would fill the memory.
  const older = document.querySelector("#results .more a");
  if (rows.closest("#results")?.scrollTop === 0 && rows.children.length > MOST_ROWS && older instanceof HTMLAnchorElement) {
    while (rows.children.length > MOST_ROWS) rows.lastElementChild?.remove();
    const url = new URL(older.href);
    url.searchParams.set("before", rows.lastElementChild?.getAttribute("data-position") ?? "");
    older.href = url.href;
  }
  announce(fresh.length === 1 ? "1 new event" : `${fresh.length} new events`);
  return true;
}

if (button instanceof HTMLElement && live && body()) {
  button.hidden = false;
  live.hidden = false;
  const pause = () => {
    isPaused = !isPaused;
    live.hidden = isPaused;
    button.setAttribute("aria-pressed", String(isPaused));
    button.firstElementChild?.replaceChildren(isPaused ? "Go on" : "Pause");
    if (!isPaused) fetchNew();
  };
  button.addEventListener("click", pause);
  onKey("p", pause);
  follow(Number(body()?.dataset.position), fetchNew);
}
