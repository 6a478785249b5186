// <cl-slider chat at>: the history of a chat by its own events, one a step; without a chat that of the ledger.

import { ROOT } from "./feed.js";
import { ask } from "./frame.js";

const SVG = "http://www.w3.org/2000/svg";
const BUCKETS = 120;
const WINDOW = 200;
const MOVING_MS = 90;
const PLAY_MS = 700;
const HEIGHT = 28;

/** @typedef {{number: number, position: number, at: number, type: string}} Step */

/**
 * Attributes: `chat`, its id; without it the whole ledger. `at`, the position or time that is shown; without it the present.
 *
 * Event `cl-at`, which bubbles, with `{at}`: the position to be shown, or null for the present.
 */
export class ClSlider extends HTMLElement {
  constructor() {
    super();
    /** @type {Map<number, Step>} */
    this.steps = new Map();
    this.total = 0;
    this.timer = 0;
    this.playing = 0;
    this.told = null;
  }

  connectedCallback() {
    if (!this.firstElementChild) this.#build();
    this.told = this.getAttribute("at");
    this.#read();
  }

  disconnectedCallback() {
    clearTimeout(this.timer);
    this.#stop();
  }

  /** Look for steps that were made since. */
  async refresh() {
    const isNow = this.told === null;
    await this.#read();
    if (isNow) this.range.value = this.range.max;
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
    this.playing = setInterval(() => this.#step(1), PLAY_MS);
    this.button.textContent = "Stop";
    this.button.setAttribute("aria-pressed", "true");
  }

  #stop() {
    clearInterval(this.playing);
    this.playing = 0;
    if (!this.button) return;
    this.button.textContent = "Play";
    this.button.setAttribute("aria-pressed", "false");
  }

  #build() {
    const button = (text, label, act) => {
      const made = document.createElement("button");
      made.type = "button";
      made.textContent = text;
      if (label) made.setAttribute("aria-label", label);
      made.addEventListener("click", act);
      return made;
    };
    this.density = document.createElementNS(SVG, "svg");
    this.density.setAttribute("aria-hidden", "true");
    this.density.setAttribute("preserveAspectRatio", "none");
    this.range = document.createElement("input");
    this.range.type = "range";
    this.range.min = "0";
    this.range.max = "0";
    this.range.setAttribute("aria-label", `Moment of the ${this.hasAttribute("chat") ? "chat" : "ledger"}, by its events`);
    this.range.addEventListener("input", () => {
      this.#stop();
      this.#move();
    });
    this.button = button("Play", "", () => this.play());
    this.button.setAttribute("aria-pressed", "false");
    this.now = button("Now", "", () => this.goTo(null));
    this.text = document.createElement("span");
    this.text.className = "soft slider-text";
    const track = document.createElement("div");
    track.className = "slider-track";
    track.append(this.density, this.range);
    this.append(
      button("‹", "Step back", () => this.#step(-1)),
      this.button,
      button("›", "Step forward", () => this.#step(1)),
      track,
      this.now,
      this.text,
    );
  }

  /** @param {number} by */
  #step(by) {
    const next = Math.max(0, Math.min(this.total - 1, Number(this.range.value) + by));
    if (this.playing && next >= this.total - 1) this.#stop();
    this.range.value = String(next);
    this.#move();
  }

  /** The thumb was moved: say at once where it is, and show it when it rests. */
  #move() {
    this.#say(true);
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      const number = Number(this.range.value);
      const step = this.steps.get(number) ?? (await this.#window(number));
      if (step === undefined || number !== Number(this.range.value)) return;
      this.#tell(number >= this.total - 1 ? null : String(step.position));
      this.#say();
    }, MOVING_MS);
  }

  /** @param {string | null} at */
  #tell(at) {
    this.told = at;
    this.dispatchEvent(new CustomEvent("cl-at", { bubbles: true, detail: { at } }));
  }

  /** @param {boolean} [isMoved] Whether the thumb is ahead of what is shown. */
  #say(isMoved = false) {
    const number = Number(this.range.value);
    const step = this.steps.get(number);
    const isNow = number >= this.total - 1 && (isMoved || this.told === null);
    const when = step ? new Date(step.at).toISOString().slice(0, 19).replace("T", " ") : "";
    const which = `step ${(number + 1).toLocaleString("en")} of ${this.total.toLocaleString("en")}`;
    this.text.textContent = isNow ? `now, ${which}` : [when, which, step?.type].filter(Boolean).join(", ");
    this.range.setAttribute("aria-valuetext", this.text.textContent);
    this.now.disabled = isNow;
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
    const found = await this.#ask({ first: Math.max(number - WINDOW / 2, 0), limit: WINDOW });
    for (const step of found?.steps ?? []) this.steps.set(step.number, step);
    return this.steps.get(number);
  }

  async #read() {
    let found = null;
    do {
      found = await this.#ask({ limit: WINDOW, buckets: BUCKETS, around: this.told ?? Number.MAX_SAFE_INTEGER });
      if (!found) return;
      this.total = found.total;
      for (const step of found.steps) this.steps.set(step.number, step);
      this.range.max = String(Math.max(found.total - 1, 0));
      this.#draw(found.density);
    } while (!found.is_complete && this.isConnected);
    this.hidden = this.total < 2;
    this.range.value = this.told === null ? this.range.max : String(found.index);
    this.#say();
  }

  /** How fast events came, as bars; a thin one where nothing came for long. */
  #draw(density) {
    const pace = density.map(({ count, busy_ms: busy }) => count / Math.max(busy, 1000));
    const most = Math.max(...pace, Number.MIN_VALUE);
    const width = Math.max(density.length, 1);
    this.density.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.density.replaceChildren(
      ...density.map(({ idle_ms: idle }, number) => {
        const bar = document.createElementNS(SVG, "rect");
        const height = Math.max(Math.sqrt(pace[number] / most) * (HEIGHT - 4), 1);
        for (const [name, value] of Object.entries({ x: number + 0.1, y: HEIGHT - height, width: 0.8, height })) {
          bar.setAttribute(name, String(value));
        }
        if (idle > 0) bar.setAttribute("class", "idle");
        return bar;
      }),
    );
  }
}

customElements.define("cl-slider", ClSlider);
