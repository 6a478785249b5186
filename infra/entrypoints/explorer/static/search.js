// Search: the hit that one stands at is shown in its place.

import { ask } from "./frame.js";
import "./lists.js";

const WAIT_MS = 60;
const list = document.querySelector(".hit-list");
const place = document.getElementById("place");
let waiting = 0;
let asked = 0;

/** Mark in the pane what the passage of a hit has marked. @param {Element} item */
function mark(item) {
  const words = new Set([...item.querySelectorAll(".passage mark")].map(({ textContent }) => textContent?.toLowerCase()));
  const body = place?.querySelector(".chosen .body");
  if (!body || !("highlights" in CSS)) return;
  const ranges = [];
  const walker = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode())
    for (const match of (node.textContent ?? "").matchAll(/[\p{L}\p{N}]+/gu))
      if (words.has(match[0].toLowerCase())) {
        const range = new Range();
        range.setStart(node, match.index);
        range.setEnd(node, match.index + match[0].length);
        ranges.push(range);
      }
  CSS.highlights.set("hit", new Highlight(...ranges));
}

/** @param {HTMLElement} item */
async function show(item) {
  if (!place) return;
  const number = ++asked;
  const kept = item.querySelector("template");
  if (kept) place.replaceChildren(kept.content.cloneNode(true));
  else {
    const answer = await ask(item.dataset.place ?? "", { headers: { Accept: "text/html" } }).catch(() => null);
    if (!answer?.ok || number !== asked) return;
    place.replaceChildren(...new DOMParser().parseFromString(await answer.text(), "text/html").body.childNodes);
  }
  const title = document.getElementById("place-of");
  if (title) title.textContent = item.querySelector("[data-row]")?.textContent ?? "";
  place.scrollTop = 0;
  place.querySelector(".chosen")?.scrollIntoView({ block: "nearest" });
  mark(item);
}

list?.addEventListener("focusin", ({ target }) => {
  const item = target instanceof Element ? target.closest("li") : null;
  if (!item || item.classList.contains("shown")) return;
  for (const other of list.querySelectorAll(".shown")) other.classList.remove("shown");
  item.classList.add("shown");
  clearTimeout(waiting);
  waiting = setTimeout(show, WAIT_MS, item);
});

// Where hits would not be seen for filters they are folded; without scripts they stay open.
if (matchMedia("(max-width: 899px)").matches) document.querySelector(".facets details")?.removeAttribute("open");

const first = list?.querySelector("li");
if (first) mark(first);
