// <cl-time chat at>: the history of a chat by its own steps on an axis of time; without a chat that of the ledger.

import { ROOT } from "./feed.js";
import { ask } from "./frame.js";

const SVG = "http://www.w3.org/2000/svg";
const WINDOW = 200;
const MOVING_MS = 90;
const PLAY_MS = 700;
const HEIGHT = 44;
const BASE = 28;
const BAR_APART_PX = 8;
const BAR_PX = 5;
const PAUSE_PX = 14;
const SIDE_PX = 6;
const PAUSE_TEXT_PX = 28;
const LABEL_PX = 64;
const DAY_MS = 86_400_000;

/** @typedef {{number: number, position: number, at: number, type: string}} Step */
/** @typedef {{first: number, count: number, size: number, at: number, x: number, to_x: number}} Bar */

/** A time in few words. @param {number} ms */
function lasting(ms) {
  const steps = /** @type {const} */ ([["day", DAY_MS], ["hour", 3_600_000], ["min", 60_000], ["s", 1000], ["ms", 1]]);
  const days = ms / DAY_MS;
  if (days >= 60) return `${Math.round(days / 30.4)} months`;
  const [name, length] = steps.find(([, length]) => ms >= length) ?? ["ms", 1];
  const count = Math.round(ms / length);
  return `${count} ${name}${count !== 1 && length >= 3_600_000 ? "s" : ""}`;
}

/**
 * Attributes: `chat`, its id; without it the whole ledger. `at`, the position or time that is shown; without it the present.
 *
 * Event `cl-at`, which bubbles, with `{at}`: the position to be shown, or null for the present.
 */
export class ClTime extends HTMLElement {
  constructor() {
    super();
    /** @type {Map<number, Step>} */
    this.steps = new Map();
    this.total = 0;
    this.timer = 0;
    this.playing = 0;
    this.movedAt = -MOVING_MS;
    this.told = null;
    /** @type {{density: Bar[], pauses: {x: number, before: number, ms: number}[], is_by_number: boolean}} */
    this.axis = { density: [], pauses: [], is_by_number: true };
  }

  connectedCallback() {
    if (!this.firstElementChild) this.#build();
    this.told = this.getAttribute("at");
    this.sized = new ResizeObserver(() => this.#draw());
    this.sized.observe(this.track);
    this.#read();
  }

  disconnectedCallback() {
    this.sized?.disconnect();
    clearTimeout(this.timer);
    this.#stop();
  }

  /** Look for steps that were made since. */
  async refresh() {
    const isNow = this.told === null;
    await this.#read();
    if (isNow && !this.timer) this.range.value = this.range.max;
  }

  /** Go to a moment, null for the present. @param {string | null} at */
  async goTo(at) {
    this.#stop();
    this.told = at;
    if (at === null) {
      this.range.value = this.range.max;
      this.#tell(null);
    } else await this.#read();
    this.#say();
  }

  /** Play from the step that is shown, or from the first one; or stop. */
  play() {
    if (this.playing) {
      this.#stop();
      return;
    }
    if (Number(this.range.value) >= this.total - 1) this.range.value = "0";
    this.#move();
    this.playing = setInterval(() => this.step(1), PLAY_MS);
    this.#press(true);
  }

  #stop() {
    clearInterval(this.playing);
    this.playing = 0;
    if (this.button) this.#press(false);
  }

  /** @param {boolean} isPlaying */
  #press(isPlaying) {
    this.button.setAttribute("aria-pressed", String(isPlaying));
    this.button.setAttribute("aria-label", isPlaying ? "Stop" : "Play");
    this.button.querySelector("use")?.setAttribute("href", isPlaying ? "#i-stop" : "#i-play");
  }

  #build() {
    const button = (icon, label, act) => {
      const made = document.createElement("button");
      made.type = "button";
      made.setAttribute("aria-label", label);
      made.title = label;
      const svg = document.createElementNS(SVG, "svg");
      svg.setAttribute("class", "icon");
      svg.append(document.createElementNS(SVG, "use"));
      svg.firstElementChild?.setAttribute("href", `#i-${icon}`);
      made.append(svg);
      made.addEventListener("click", act);
      return made;
    };
    const buttons = document.createElement("span");
    buttons.className = "time-buttons";
    this.button = button("play", "Play", () => this.play());
    this.button.setAttribute("aria-pressed", "false");
    buttons.append(button("back", "Step back", () => this.step(-1)), this.button, button("on", "Step forward", () => this.step(1)));
    this.track = document.createElement("div");
    this.track.className = "time-axis";
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("aria-hidden", "true");
    this.range = document.createElement("input");
    this.range.type = "range";
    this.range.min = "0";
    this.range.max = "0";
    this.range.setAttribute("aria-label", `Moment of the ${this.hasAttribute("chat") ? "chat" : "ledger"}, by its events`);
    this.range.addEventListener("input", () => {
      this.#stop();
      this.#move();
    });
    // The axis goes by time, the range by steps: where one presses is the step whose place is nearest.
    this.track.addEventListener("pointerdown", (event) => this.#pointed(event), { capture: true });
    this.track.addEventListener("pointermove", (event) => event.buttons && this.#pointed(event), { capture: true });
    this.track.append(this.svg, this.range);
    this.text = document.createElement("span");
    this.text.className = "time-text";
    this.append(buttons, this.track, this.text);
  }

  /** @param {PointerEvent} event */
  #pointed(event) {
    event.preventDefault();
    if (event.type === "pointerdown") this.track.setPointerCapture(event.pointerId);
    const x = event.clientX - this.track.getBoundingClientRect().left;
    let [low, high] = [0, Math.max(this.total - 1, 0)];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#x(middle) < x) low = middle + 1;
      else high = middle;
    }
    const nearest = low > 0 && x - this.#x(low - 1) < this.#x(low) - x ? low - 1 : low;
    this.range.focus({ preventScroll: true });
    if (Number(this.range.value) === nearest) return;
    this.#stop();
    this.range.value = String(nearest);
    this.#move();
  }

  /** @param {number} by */
  step(by) {
    const next = Math.max(0, Math.min(this.total - 1, Number(this.range.value) + by));
    if (this.playing && next >= this.total - 1) this.#stop();
    this.range.value = String(next);
    this.#move();
  }

  /** The thumb was moved: say at once where it is, and show it; where it is moved on and on, when it rests. */
  #move() {
    this.#say(true);
    clearTimeout(this.timer);
    const isMovedOn = performance.now() - this.movedAt < MOVING_MS;
    this.movedAt = performance.now();
    this.timer = setTimeout(async () => {
      const number = Number(this.range.value);
      const step = this.steps.get(number) ?? (await this.#window(number));
      if (number !== Number(this.range.value)) return; // it was moved on
      this.timer = 0;
      if (step === undefined) return;
      this.#tell(number >= this.total - 1 ? null : String(step.position));
      this.#say();
    }, isMovedOn ? MOVING_MS : 0);
  }

  /** @param {string | null} at */
  #tell(at) {
    this.told = at;
    this.dispatchEvent(new CustomEvent("cl-at", { bubbles: true, detail: { at } }));
  }

  /** When the step was that is shown, in the words of the reader's clock; empty while it is not known. */
  get moment() {
    const step = this.steps.get(Number(this.range.value));
    return step ? new Date(step.at).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false }) : "";
  }

  /** @param {boolean} [isMoved] Whether the thumb is ahead of what is shown. */
  #say(isMoved = false) {
    const number = Number(this.range.value);
    const isNow = number >= this.total - 1 && (isMoved || this.told === null);
    const which = `step ${(number + 1).toLocaleString("en")} of ${this.total.toLocaleString("en")}`;
    const text = isNow ? `now, ${which}` : [this.moment, which].filter(Boolean).join(", ");
    this.range.setAttribute("aria-valuetext", text);
    this.text.textContent = isNow ? `now · ${this.total.toLocaleString("en")} step${this.total === 1 ? "" : "s"}` : text;
    this.#drawThumb();
  }

  /** @param {Record<string, string | number>} query */
  async #ask(query) {
    const chat = this.getAttribute("chat");
    const path = chat === null ? `${ROOT}/steps` : `${ROOT}/c/${encodeURIComponent(chat)}/steps`;
    const values = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)]));
    const answer = await ask(`${path}?${values}`).catch(() => null);
    return answer?.ok ? answer.json() : null;
  }

  /** @param {number} number @returns {Promise<Step | undefined>} */
  async #window(number) {
    const window = await this.#ask({ first: Math.max(number - WINDOW / 2, 0), limit: WINDOW });
    const steps = window?.steps ?? [];
    for (const step of steps) this.steps.set(step.number, step);
    // Where the event of a step was erased since, the one before it tells the same.
    return this.steps.get(number) ?? steps.filter((step) => step.number < number).pop();
  }

  async #read() {
    let window = null;
    do {
      const buckets = Math.max(Math.min(Math.floor(this.track.clientWidth / BAR_APART_PX), 400), 1);
      window = await this.#ask({ limit: WINDOW, buckets, around: this.told ?? Number.MAX_SAFE_INTEGER });
      if (!window) return;
      this.total = window.total;
      for (const step of window.steps) this.steps.set(step.number, step);
      this.range.max = String(Math.max(window.total - 1, 0));
      this.axis = window;
      this.#draw();
    } while (!window.is_complete && this.isConnected);
    this.hidden = this.total < 2;
    // Who moves the thumb meanwhile has it where it is.
    if (!this.timer) this.range.value = this.told === null ? this.range.max : String(window.index);
    this.#say();
  }

  /** The place of a part of the axis, from 0 to 1, with the breaks before a step. */
  #px(x, number) {
    const { pauses } = this.axis;
    const width = this.track.clientWidth - 2 * SIDE_PX - pauses.length * PAUSE_PX;
    return SIDE_PX + x * width + pauses.filter(({ before }) => before <= number).length * PAUSE_PX;
  }

  /** The place of a step: those of a bar are at equal distances. @param {number} number */
  #x(number) {
    const { density } = this.axis;
    let [low, high] = [0, density.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (density[middle].first <= number) low = middle;
      else high = middle - 1;
    }
    const bar = density[low];
    if (!bar) return SIDE_PX;
    const part = bar.count > 1 ? Math.min((number - bar.first) / (bar.count - 1), 1) : 0;
    return this.#px(bar.x + part * (bar.to_x - bar.x), number);
  }

  #draw() {
    const { density, pauses, is_by_number: isByNumber } = this.axis;
    const width = this.track.clientWidth;
    if (!width || !density.length) return;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const most = Math.log2(1 + Math.max(...density.map(({ size }) => size)));
    const make = (name, values, text = "") => {
      const element = document.createElementNS(SVG, name);
      for (const [key, value] of Object.entries(values)) element.setAttribute(key, String(value));
      element.textContent = text;
      return element;
    };
    const bars = density.map(({ first, size, x }) => {
      const height = 3 + (15 * Math.log2(1 + size)) / most;
      const left = Math.min(this.#px(x, first), width - BAR_PX);
      return make("rect", { class: "bar", "data-first": first, x: left, y: BASE - height, width: BAR_PX, height });
    });
    const breaks = pauses.flatMap(({ before, ms }) => {
      const x = this.#x(before) - PAUSE_PX / 2;
      const line = make("path", { class: "break", d: `M${x - 3} ${BASE}l3-7M${x + 1} ${BASE}l3-7` });
      return [line, make("text", { x: Math.max(Math.min(x, width - PAUSE_TEXT_PX), PAUSE_TEXT_PX), y: 12, "text-anchor": "middle" }, lasting(ms))];
    });
    this.thumb = make("circle", { class: "thumb", r: 5, cy: BASE, cx: 0 });
    const axis = make("path", { class: "break", d: `M${SIDE_PX} ${BASE + 0.5}H${width - SIDE_PX}` });
    this.svg.replaceChildren(axis, ...bars, ...breaks, ...this.#labels(make, isByNumber), this.thumb);
    this.#drawThumb();
  }

  /** First and last, and where a day, an hour or a month begins. */
  #labels(make, isByNumber) {
    const { density } = this.axis;
    const width = this.track.clientWidth;
    const [from, to] = [density[0].at, density[density.length - 1].at];
    const date = (at, form) => new Date(at).toLocaleString("en-GB", form);
    const y = HEIGHT - 4;
    if (isByNumber) {
      const when = date(from, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hour12: false });
      return [make("text", { x: SIDE_PX, y }, `${when}, all within ${lasting(Math.max(to - from, 1))}`)];
    }
    const span = to - from;
    const form = span < DAY_MS
      ? { hour: "2-digit", minute: "2-digit", hour12: false }
      : span > 300 * DAY_MS ? { month: "short", year: "numeric" } : { day: "numeric", month: "short" };
    const labels = [];
    let [last, end] = ["", -Infinity];
    density.forEach(({ first, at, x }, number) => {
      const text = date(at, form);
      const left = Math.min(this.#px(x, first), width - LABEL_PX);
      const isLast = number === density.length - 1;
      if (text === last || (left - end < LABEL_PX && !isLast)) return;
      if (isLast && left - end < LABEL_PX) labels.pop();
      labels.push(make("text", { x: left, y }, text));
      [last, end] = [text, left];
    });
    return labels;
  }

  #drawThumb() {
    if (!this.thumb) return;
    const number = Number(this.range.value);
    this.thumb.setAttribute("cx", String(this.#x(number)));
    for (const bar of this.svg.querySelectorAll(".bar")) bar.classList.toggle("later", Number(bar.getAttribute("data-first")) > number);
  }
}

customElements.define("cl-time", ClTime);
