// Verifying with progress; without scripts the same form asks for a page that comes when it is over.

import { ROOT } from "./feed.js";

/** What this browser was told last, for it is nowhere else: `{verdict, words, at}` and `{position, at}`. */
const [VERDICT, ANCHOR] = [`chatledger-verdict${ROOT}`, `chatledger-anchor${ROOT}`];
const card = document.querySelector(".verdict-card");

/** @param {string} key */
function kept(key) {
  try {
    return JSON.parse(localStorage.getItem(key) ?? "null");
  } catch {
    return null;
  }
}

function showCard() {
  const [verdict, anchor] = [kept(VERDICT), kept(ANCHOR)];
  if (!card) return;
  const when = (/** @type {number} */ at) => {
    const time = document.createElement("time");
    time.dataset.relative = "";
    time.dateTime = new Date(at).toISOString();
    return time;
  };
  if (verdict) {
    card.querySelector("h2")?.replaceChildren(verdict.verdict);
    card.classList.toggle("good", verdict.verdict === "Sound");
    card.classList.toggle("bad", verdict.verdict !== "Sound");
    card.querySelector("#verdict-words")?.replaceChildren(`${verdict.words} · `, when(verdict.at));
  }
  const words = card.querySelector("#anchor-words");
  if (anchor && words instanceof HTMLElement) {
    words.hidden = false;
    words.replaceChildren(`Last anchor at position ${anchor.position.toLocaleString("en")} · `, when(anchor.at));
  }
}

document.querySelector("[data-anchor]")?.addEventListener("click", () => {
  localStorage.setItem(ANCHOR, JSON.stringify({ position: Number(card?.getAttribute("data-position")), at: Date.now() }));
  showCard();
});
showCard();

const form = document.querySelector("form[data-verify]");
if (form instanceof HTMLFormElement) form.addEventListener("submit", verify);

/** @param {SubmitEvent} event */
function verify(event) {
  event.preventDefault();
  const form = /** @type {HTMLFormElement} */ (event.currentTarget);
  const [button, bar, output] = ["button", "progress", "output"].map((name) => form.querySelector(name));
  if (!(button instanceof HTMLButtonElement && bar instanceof HTMLProgressElement && output)) return;
  button.disabled = true;
  bar.hidden = false;
  output.textContent = "Reading the log";

  const source = new EventSource(form.dataset.verify ?? "");
  const end = (text, verdict) => {
    source.close();
    button.disabled = false;
    bar.hidden = true;
    output.textContent = text;
    output.className = verdict;
  };
  const keep = (/** @type {string} */ verdict, /** @type {string} */ words) => {
    localStorage.setItem(VERDICT, JSON.stringify({ verdict, words, at: Date.now() }));
    showCard();
  };
  source.addEventListener("progress", (message) => {
    const { done, of } = JSON.parse(message.data);
    bar.max = of;
    bar.value = done;
    output.textContent = `${done.toLocaleString("en")} of ${of.toLocaleString("en")}`;
  });
  source.addEventListener("result", (message) => {
    const found = JSON.parse(message.data);
    const [events, chats] = [found.event_count, found.chat_count].map((count) => count.toLocaleString("en"));
    end(`Sound. ${events} events were read, and the index equals them: ${chats} chats.`, "verdict good");
    keep("Sound", `${events} events, ${chats} chats`);
  });
  source.addEventListener("error", (message) => {
    const said = message instanceof MessageEvent ? JSON.parse(message.data).detail : "The connection was lost; try again.";
    end(message instanceof MessageEvent ? `Not sound. ${said}` : said, "verdict bad");
    if (message instanceof MessageEvent) keep("Not sound", said);
  });
}
