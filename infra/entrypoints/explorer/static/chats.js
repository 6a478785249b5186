// The list of chats: filtered as one types, kept up to date, moved through by keys; as it was, where the time slider stands.

import "./time.js";
import { follow, shownPosition } from "./feed.js";
import { announce, ask, onKey } from "./frame.js";

const TYPING_MS = 120;
const CHANGED_MS = 10000;
const LEAST_MS = 1000;

const form = document.querySelector("form[data-filter]");
/** @type {import("./time.js").ClTime | null} */
const slider = document.querySelector("cl-time");
let moment = new URLSearchParams(location.search).get("at");
const changed = new Map();
let asked = 0;

function address() {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) {
    if (value !== "" && name !== "at") query.set(name, String(value));
  }
  if (moment !== null) query.set("at", moment);
  const text = query.toString();
  return text === "" ? "/" : `/?${text}`;
}

/** Show what the server has at an address in the place of the results. */
async function show(path) {
  const number = ++asked;
  let text;
  try {
    const answer = await ask(path, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    text = await answer.text();
  } catch {
    return; // the server is not there; what is shown stays
  }
  if (number !== asked) return;
  const page = new DOMParser().parseFromString(text, "text/html");
  document.querySelector(".as-of")?.remove();
  const pill = page.querySelector(".as-of");
  if (pill) document.querySelector(".crumbs")?.after(document.adoptNode(pill));
  document.body.classList.toggle("past", pill !== null);
  const fresh = page.getElementById("results");
  const old = document.getElementById("results");
  if (!fresh || !old) return;
  const focused = old.contains(document.activeElement) ? document.activeElement.closest("[data-chat]") : null;
  old.replaceWith(document.adoptNode(fresh));
  const again = focused && rowOf(focused.dataset.chat);
  if (again) again.querySelector("[data-row]").focus();
  mark();
}

/** @param {string} chat */
function rowOf(chat) {
  return [...document.querySelectorAll("tr[data-chat]")].find((row) => row.dataset.chat === chat);
}

/** Mark the rows of chats that changed a moment ago. */
function mark() {
  for (const row of document.querySelectorAll("tr[data-chat]")) {
    row.classList.toggle("changed", changed.has(row.dataset.chat));
  }
}

let typing = 0;
form.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(async () => {
    const path = address();
    history.replaceState(null, "", path);
    await show(path);
    const count = document.getElementById("results").dataset.count;
    announce(count === "1" ? "1 chat" : `${count} chats`);
  }, TYPING_MS);
});
form.querySelector("button").hidden = true;

function move(step) {
  const links = [...document.querySelectorAll("[data-row]")];
  const at = links.findIndex((link) => link.closest("tr").contains(document.activeElement));
  const next = at < 0 ? (step > 0 ? 0 : links.length - 1) : at + step;
  links[Math.max(0, Math.min(links.length - 1, next))]?.focus();
}

form.addEventListener("keydown", (event) => {
  if (event.key !== "ArrowDown") return;
  event.preventDefault();
  move(1);
});

onKey("j", () => move(1));
onKey("k", () => move(-1));
onKey("/", () => form.elements.q.focus());
if (slider) {
  onKey("t", () => slider.querySelector("input")?.focus());
  onKey(" ", () => slider.play());
  onKey("n", () => slider.goTo(null));
  slider.addEventListener("cl-at", (event) => {
    moment = /** @type {CustomEvent} */ (event).detail.at;
    const path = address();
    history.replaceState(null, "", path);
    show(path);
  });
  document.addEventListener("click", (event) => {
    if (!(event.target instanceof Element) || !event.target.closest(".as-of a")) return;
    event.preventDefault();
    slider.goTo(null);
  });
}

let shownAt = 0;
let showing = 0;
const position = shownPosition();
if (position !== null) {
  follow(position, (event) => {
    changed.set(event.chat_id, (changed.get(event.chat_id) ?? 0) + 1);
    setTimeout(() => {
      const left = changed.get(event.chat_id) - 1;
      if (left > 0) changed.set(event.chat_id, left);
      else changed.delete(event.chat_id);
      mark();
    }, CHANGED_MS);
    if (showing) return;
    // The first change at once, many at most once a second.
    showing = setTimeout(() => {
      showing = 0;
      shownAt = Date.now();
      slider?.refresh();
      if (moment === null) show(location.pathname + location.search);
    }, Math.max(0, shownAt + LEAST_MS - Date.now()));
  });
}
