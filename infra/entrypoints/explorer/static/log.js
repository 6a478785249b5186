// The log as it grows: the feed says that there is something new, and the server renders it.

import { follow as onEvent } from "./feed.js";
import { announce, ask, onKey } from "./frame.js";

const MOST_ROWS = 500;

const body = document.querySelector("tbody[data-live]");
const button = document.querySelector('[data-action="pause"]');

if (body instanceof HTMLElement && button instanceof HTMLElement) follow(body, button);

/**
 * @param {HTMLElement} body The rows, the newest first.
 * @param {HTMLElement} button Pauses.
 */
function follow(body, button) {
  const filters = new URLSearchParams(location.search);
  let position = Number(body.dataset.position);
  let isPaused = false;
  let isAsking = false;
  let isMore = false;

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
        const query = new URLSearchParams(filters);
        query.set("after", String(position));
        const answer = await ask(`${body.dataset.live}?${query}`);
        if (!answer.ok) return;
        const html = await answer.text();
        if (isPaused) return; // it was asked for before
        isMore = show(html) || isMore;
      } while (isMore && !isPaused);
    } finally {
      isAsking = false;
    }
  }

  /** @param {string} html Rows, rendered and escaped by the server. @returns {boolean} Whether there were some. */
  function show(html) {
    const parsed = new DOMParser().parseFromString(`<table><tbody>${html}</tbody></table>`, "text/html");
    const rows = [...parsed.querySelectorAll("tbody > tr")];
    if (rows.length === 0) return false;
    position = Math.max(position, ...rows.map((row) => Number(row.getAttribute("data-position"))));
    body.prepend(...rows);
    while (body.children.length > MOST_ROWS) body.lastElementChild?.remove();
    announce(rows.length === 1 ? "1 new event" : `${rows.length} new events`);
    return true;
  }

  function pause() {
    isPaused = !isPaused;
    button.setAttribute("aria-pressed", String(isPaused));
    button.textContent = isPaused ? "Go on" : "Pause";
    if (!isPaused) fetchNew();
  }

  button.hidden = false;
  button.addEventListener("click", pause);
  onKey("p", pause);

  onEvent(position, fetchNew);
}
