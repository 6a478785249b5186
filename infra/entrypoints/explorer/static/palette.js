// The palette: whatever there is, by a few letters. Opened by Ctrl K or ⌘ K.

import { ROOT } from "./feed.js";
import { ask, press } from "./frame.js";

const TYPING_MS = 80;
const MOST = 5;
const UNITS_MS = { min: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };
const GROUPS = ["Chats", "Threads", "Branches", "Messages", "Actions"];
const KEYS = { ArrowUp: "↑", ArrowDown: "↓", " ": "Space" };

/** @typedef {{title: string, detail: string, go: (isTab: boolean) => void}} Entry */

const dialog = document.createElement("dialog");
const restriction = document.createElement("span");
const field = document.createElement("input");
const list = document.createElement("ul");
/** The only group that is shown, or none. @type {string | null} */
let group = null;
/** @type {Entry[]} */
let entries = [];
let chosen = 0;
let typing = 0;
/** @type {AbortController | null} */
let asking = null;
/** What Enter is to do when what was typed is shown. @type {(() => void) | null} */
let entered = null;
/** What had the focus before. @type {Element | null} */
let before = null;

build();

/** Show the palette, with what was typed already. @param {string} typed */
export function open(typed) {
  if (dialog.open) return;
  before = document.activeElement;
  field.value = typed;
  restrict(null);
  dialog.showModal();
  show();
}

function build() {
  dialog.className = "palette";
  dialog.setAttribute("aria-label", "Palette");
  restriction.className = "chip";
  for (const [name, value] of Object.entries({
    role: "combobox", type: "text", "aria-expanded": "true", "aria-controls": "palette-list", "aria-autocomplete": "list",
    "aria-label": "Go to", placeholder: "Chats, messages, @14, > actions", autocomplete: "off", spellcheck: "false",
  })) field.setAttribute(name, value);
  list.id = "palette-list";
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "What there is");
  dialog.append(restriction, field, list);
  document.body.append(dialog);
  field.addEventListener("input", () => {
    entered = null;
    asking?.abort();
    clearTimeout(typing);
    typing = setTimeout(show, TYPING_MS);
  });
  field.addEventListener("keydown", pressed);
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
    const option = event.target instanceof Element && event.target.closest("[role=option]");
    if (option instanceof HTMLElement) take(Number(option.dataset.number), event.ctrlKey || event.metaKey);
  });
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  const { key } = event;
  const steps = { ArrowDown: 1, ArrowUp: -1 };
  if (key in steps) choose((chosen + steps[key] + entries.length) % Math.max(entries.length, 1));
  else if (key === "Enter") {
    // What was typed last counts: its answer may not be there yet.
    const isTab = event.ctrlKey || event.metaKey;
    if (typing || asking) entered = () => take(chosen, isTab);
    else take(chosen, isTab);
  } else if (key === "Tab" && !event.shiftKey) {
    const of = list.querySelector(`[data-number="${chosen}"]`)?.closest("[data-group]");
    if (of instanceof HTMLElement && group === null) {
      restrict(of.dataset.group ?? null);
      show();
    }
  } else if (key === "Backspace" && field.value === "" && group !== null) {
    restrict(null);
    show();
  } else return;
  event.preventDefault();
}

/** @param {string | null} name */
function restrict(name) {
  group = name;
  restriction.textContent = name;
  restriction.hidden = name === null;
}

/** @param {number} number @param {boolean} isTab */
function take(number, isTab) {
  const entry = entries[number];
  if (!entry) return;
  dialog.close();
  if (before instanceof HTMLElement) before.focus();
  entry.go(isTab);
}

/** @param {number} number */
function choose(number) {
  chosen = number;
  for (const option of list.querySelectorAll("[role=option]")) {
    const isChosen = option.getAttribute("data-number") === String(number);
    option.setAttribute("aria-selected", String(isChosen));
    if (isChosen) {
      field.setAttribute("aria-activedescendant", option.id);
      option.scrollIntoView({ block: "nearest" });
    }
  }
  if (!entries.length) field.removeAttribute("aria-activedescendant");
}

/** Show what fits to what is typed. */
async function show() {
  typing = 0;
  asking?.abort();
  const text = field.value.trim();
  /** @type {[string, Entry[]][]} */
  const groups = [];
  const moment = momentOf(text);
  if (moment) groups.push(["Moment", [moment]]);
  const isActions = text.startsWith(">") || group === "Actions";
  if (!isActions && !text.startsWith("@")) groups.push(...(await there(text)));
  if (isActions || group === null) {
    const fitting = actions(text.replace(/^>/, ""));
    if (isActions || text) groups.push(["Actions", isActions ? fitting : fitting.slice(0, MOST)]);
  }
  if (field.value.trim() !== text || typing) return;
  draw(groups.filter(([, items]) => items.length));
  entered?.();
  entered = null;
}

/** What the server has. @param {string} text @returns {Promise<[string, Entry[]][]>} */
async function there(text) {
  const here = new URL(location.href);
  const chat = document.querySelector("cl-graph")?.getAttribute("chat") ?? "";
  const query = new URLSearchParams({ q: text, chat, group: group?.toLowerCase() ?? "" });
  const at = here.searchParams.get("at");
  if (at !== null) query.set("at", at);
  const own = (asking = new AbortController());
  try {
    const answer = await ask(`${ROOT}/palette?${query}`, { signal: own.signal });
    const fitting = answer.ok ? await answer.json() : {};
    return GROUPS.map((name) => [name, (fitting[name.toLowerCase()] ?? []).map(({ title, detail, path }) => ({ title, detail, go: (isTab) => go(ROOT + path, isTab) }))]);
  } catch {
    return []; // something else was typed since, or the server is not there
  } finally {
    if (asking === own) asking = null;
  }
}

/** @param {string} address @param {boolean} isTab */
function go(address, isTab) {
  if (isTab) window.open(address, "_blank", "noopener");
  else location.assign(address);
}

const DAYS = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

/** The end of yesterday, or of the last day of this name before today. @param {string} text @returns {Date | null} */
function endOfDay(text) {
  const name = text.toLowerCase().replace(/^@?(last )?/, "");
  const end = new Date();
  const back = name === "yesterday" ? 1 : name.length > 2 ? DAYS.findIndex((day) => day.startsWith(name)) : -1;
  if (back < 0) return null;
  end.setDate(end.getDate() - (name === "yesterday" ? 1 : ((end.getDay() - back + 6) % 7) + 1));
  end.setHours(23, 59, 59, 999);
  return end;
}

/** The moment that a text names: `@14`, a date, `2 h ago`, `yesterday`, `tuesday`. @param {string} text @returns {Entry | null} */
function momentOf(text) {
  const position = /^@(\d+)$/.exec(text);
  const ago = /^(\d+) ?(min|h|d|w)[a-z]* ago$/.exec(text.replace(/^@/, ""));
  const day = /\d/.test(text) && /^@?(\d{4}-\d\d?-\d\d?|\d{1,2} [A-Za-z]{3,})/.test(text) ? text.replace(/^@/, "") : "";
  const dated = day && (/\d{4}/.test(day) ? day : `${day} ${new Date().getFullYear()}`);
  const time = endOfDay(text) ?? (ago ? new Date(Date.now() - Number(ago[1]) * UNITS_MS[ago[2]]) : dated ? new Date(/^\d{4}-\d\d-\d\d$/.test(dated) ? `${dated}T00:00` : dated) : null);
  if (!position && !(time && !Number.isNaN(time.getTime()))) return null;
  const at = position ? position[1] : time?.toISOString() ?? "";
  const url = new URL(location.href);
  if (/\/(agents|states|proof)\b/.test(url.pathname.slice(ROOT.length))) url.pathname = `${ROOT}/`;
  url.searchParams.set("at", at);
  return {
    title: position ? `As of position ${at}` : `As of ${time?.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" })}`,
    detail: "moment",
    go: (isTab) => go(url.href, isTab),
  };
}

/** What can be done here, each with its key. @param {string} text @returns {Entry[]} */
function actions(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  /** @type {Entry[]} */
  const all = [];
  for (const row of document.querySelectorAll("#keys [data-key]")) {
    const key = row.getAttribute("data-key") ?? "";
    all.push({ title: row.querySelector("dd")?.textContent ?? "", detail: KEYS[key] ?? key, go: () => press(key) });
  }
  for (const control of document.querySelectorAll(".head .menu-list > :is(a, form), .head .menu-list summary, .rail > a:not(.mark)")) {
    const pressed = control instanceof HTMLFormElement ? control.querySelector("button") : control;
    const title = control.getAttribute("aria-label") ?? pressed?.textContent?.trim() ?? "";
    if (pressed instanceof HTMLElement) all.push({ title, detail: "", go: () => pressed.click() });
  }
  const place = ({ title }) => (title.toLowerCase().startsWith(words[0] ?? "") ? 0 : 1);
  return all.filter(({ title }) => words.every((word) => title.toLowerCase().includes(word))).sort((one, other) => place(one) - place(other));
}

/** @param {[string, Entry[]][]} groups */
function draw(groups) {
  entries = groups.flatMap(([, items]) => items);
  let number = 0;
  list.replaceChildren(
    ...groups.map(([name, items]) => {
      const part = document.createElement("li");
      part.setAttribute("role", "presentation");
      const own = document.createElement("ul");
      own.setAttribute("role", "group");
      own.setAttribute("aria-label", name);
      const head = document.createElement("li");
      head.className = "label";
      head.setAttribute("role", "presentation");
      head.textContent = name;
      own.append(head, ...items.map((entry) => option(entry, number++)));
      part.dataset.group = name;
      part.append(own);
      return part;
    }),
  );
  if (!entries.length) list.append(Object.assign(document.createElement("li"), { className: "soft", textContent: "Nothing fits" }));
  choose(0);
}

/** @param {Entry} entry @param {number} number */
function option({ title, detail }, number) {
  const made = document.createElement("li");
  made.id = `palette-${number}`;
  made.dataset.number = String(number);
  made.setAttribute("role", "option");
  const words = document.createElement("span");
  words.textContent = title;
  words.dir = "auto";
  const beside = document.createElement(detail.length === 1 || detail === "Space" ? "kbd" : "span");
  beside.className = "soft";
  beside.textContent = detail;
  made.append(words, ...(detail ? [beside] : []));
  return made;
}
