// The pages of agents, kept up to date: what is shown is read again when something of it was written.

import { isWritten } from "./actions.js";
import { follow, shownPosition } from "./feed.js";
import { announce, ask, isTyping } from "./frame.js";

const LEAST_MS = 1000;

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const { shows = "", id = "" } = /** @type {HTMLElement} */ (document.querySelector("[data-shows]")).dataset;
let shownAt = 0;
let showing = 0;

/** Whether an event may change what is shown. @param {import("./feed.js").LogEvent} event */
function isOurs({ chat_id: stream, type }) {
  if (shows === "thread") return stream === `chatledger:v:t:${id}` || /^(run|regeneration)_/.test(type);
  return stream.startsWith(shows === "state" ? "chatledger:v:s:" : "chatledger:");
}

/** Put what the server has now in the place of what is shown; not while somebody writes there. */
async function show() {
  const answer = await ask(location.pathname + location.search, { headers: { Accept: "text/html" } }).catch(() => null);
  const fresh = answer?.ok && new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
  if (!fresh || isWritten(main) || isTyping(document.activeElement)) return;
  const open = new Set([...main.querySelectorAll("details[open] > summary")].map((one) => one.textContent));
  for (const one of fresh.querySelectorAll("summary")) if (open.has(one.textContent)) one.parentElement?.setAttribute("open", "");
  if (fresh.innerHTML === main.innerHTML) return;
  for (const field of main.querySelectorAll("form:not([method=post]) :is(input, select)[name]")) {
    const same = fresh.querySelector(`form:not([method=post]) [name="${CSS.escape(field.name)}"]`);
    if (same) same.value = field.value; // not asked for yet
  }
  const focused = main.contains(document.activeElement) ? document.activeElement?.getAttribute("href") : null;
  main.replaceChildren(...[...fresh.childNodes].map((node) => document.adoptNode(node)));
  if (focused) /** @type {HTMLElement | null} */ (main.querySelector(`a[href="${CSS.escape(focused)}"]`))?.focus();
  announce("Updated");
}

const position = shownPosition();
if (position !== null) {
  follow(position, (event) => {
    if (showing || !isOurs(event)) return;
    // The first change at once, many at most once a second.
    showing = setTimeout(async () => {
      showing = 0;
      shownAt = Date.now();
      await show();
    }, Math.max(0, shownAt + LEAST_MS - Date.now()));
  });
}
