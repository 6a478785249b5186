// A path of any length in a scroller: a few blocks of messages are in the document, and spacers stand for the rest.

import { ROOT } from "./feed.js";
import { ask } from "./frame.js";

const BLOCK_ROWS = 50;
const MOST_BLOCKS = 5;
const NEAR_PX = 1200;
const FIRST_GUESS_PX = 90;
const SETTLED_MS = 60;
/** Above about 17 million pixels Firefox gives up; then only the spacers are scaled, so that in the blocks a pixel is a pixel. */
const MOST_PX = 8_000_000;

/** @typedef {{first: number, rows: number, element: HTMLElement}} Block */

/** Dispatches `change` when other messages are in the document, and `failure` where the server did not answer. */
export class PathWindow extends EventTarget {
  /**
   * @param {HTMLElement} scroller
   * @param {HTMLElement} list What holds the blocks.
   * @param {string} chat
   * @param {number} [floor] The depth with which it begins: what is before that is never shown.
   */
  constructor(scroller, list, chat, floor = 0) {
    super();
    this.floor = floor;
    this.scroller = scroller;
    this.list = list;
    this.above = /** @type {HTMLElement} */ (scroller.querySelector(".above"));
    this.below = /** @type {HTMLElement} */ (scroller.querySelector(".below"));
    this.path = `${ROOT}/c/${encodeURIComponent(chat)}/path`;
    /** @type {string | null} */
    this.at = null;
    this.along = "";
    this.count = 0;
    /** Heights of blocks that were measured, by their first message. @type {Map<number, number>} */
    this.heights = new Map();
    this.number = 0;
    this.isAsking = false;
    this.scale = 1;
    this.settling = 0;
    scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.sized = new ResizeObserver(() => this.#keeping(() => this.#measure()));
    this.take(list);
  }

  /** Begin with the blocks that are in a part of the document. @param {ParentNode} part */
  take(part) {
    const block = part.querySelector(".block");
    if (!(block instanceof HTMLElement)) return;
    this.number += 1;
    this.along = block.dataset.along ?? "";
    this.count = Number(block.dataset.count);
    this.heights = new Map();
    clearTimeout(this.settling);
    this.settling = 0;
    this.list.replaceChildren(block);
    this.sized.disconnect();
    this.sized.observe(block);
    this.#measure();
  }

  /** @returns {Block[]} */
  get blocks() {
    return [...this.list.querySelectorAll(":scope > .block")].map((element) => ({
      first: Number(/** @type {HTMLElement} */ (element).dataset.first),
      rows: Number(/** @type {HTMLElement} */ (element).dataset.rows),
      element: /** @type {HTMLElement} */ (element),
    }));
  }

  get first() {
    return this.blocks[0]?.first ?? 0;
  }

  get end() {
    const last = this.blocks.at(-1);
    return last ? last.first + last.rows : 0;
  }

  get isAtEnd() {
    const { scroller } = this;
    return this.end >= this.count && scroller.scrollTop + scroller.clientHeight >= scroller.scrollHeight - 40;
  }

  /** The depth of the message at the top edge, counted from 0. */
  get shownDepth() {
    const anchor = this.#anchor();
    return anchor ? Number(anchor.element.getAttribute("aria-posinset")) - 1 : this.first;
  }

  /** @param {number} first @param {number} [rows] @returns {Promise<HTMLElement | null>} */
  async #fetch(first, rows = BLOCK_ROWS) {
    const query = new URLSearchParams({ along: this.along, first: String(first), rows: String(rows) });
    if (this.at !== null) query.set("at", this.at);
    const raw = new URLSearchParams(location.search).get("raw");
    if (raw !== null) query.set("raw", raw);
    const answer = await ask(`${this.path}?${query}`, { headers: { Accept: "text/html" } }).catch(() => null);
    if (!answer?.ok) {
      this.dispatchEvent(new CustomEvent("failure"));
      return null;
    }
    const block = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".block");
    return block instanceof HTMLElement ? document.adoptNode(block) : null;
  }

  /** Show the part around a message of the path. @param {number} depth @param {"start" | "end"} [edge] */
  async goTo(depth, edge = "start") {
    const first = Math.max(Math.min(depth - BLOCK_ROWS / 2, this.count - BLOCK_ROWS), this.floor);
    const number = ++this.number;
    clearTimeout(this.settling);
    this.settling = 0;
    const block = await this.#fetch(first);
    if (!block || number !== this.number) return;
    this.count = Number(block.dataset.count);
    this.list.replaceChildren(block);
    this.sized.disconnect();
    this.sized.observe(block);
    this.#measure();
    if (edge === "end") this.toEnd();
    else {
      const message = block.querySelector(`[aria-posinset="${depth + 1}"]`) ?? block;
      this.scroller.scrollTop += message.getBoundingClientRect().top - this.scroller.getBoundingClientRect().top - 8;
    }
    this.dispatchEvent(new CustomEvent("change"));
    this.#scrolled();
  }

  toEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  /** Read the end of the path again: what was added to it. @returns {Promise<number>} How many messages came. */
  async grow() {
    const last = this.blocks.at(-1);
    const number = this.number;
    const from = last && this.end >= this.count ? last.first : Math.max(this.count - 1, 0);
    const block = await this.#fetch(from, Math.min(last ? last.rows + BLOCK_ROWS : BLOCK_ROWS, 200));
    if (!block || number !== this.number) return 0;
    const came = Number(block.dataset.count) - this.count;
    this.count = Number(block.dataset.count);
    if (!last || from !== last.first) {
      if (!last) this.list.replaceChildren(block);
    } else {
      this.#keeping(() => {
        keepOpen(last.element, block);
        last.element.replaceWith(block);
        this.sized.observe(block);
        this.#measure();
      });
    }
    this.dispatchEvent(new CustomEvent("change"));
    return came;
  }

  /** Read again what is shown, as it may be another by now. */
  async refresh() {
    const number = this.number;
    this.list.querySelector(".hand")?.remove(); // it is no part of a block
    for (const { first, rows, element } of this.blocks) {
      const block = await this.#fetch(first, Math.max(rows, 1));
      if (!block || number !== this.number || !element.isConnected) return;
      if (block.innerHTML === element.innerHTML) continue;
      this.count = Number(block.dataset.count);
      this.#keeping(() => {
        keepOpen(element, block);
        element.replaceWith(block);
        this.sized.observe(block);
        this.#measure();
      });
    }
    this.dispatchEvent(new CustomEvent("change"));
  }

  /** The first message that is seen, and where. */
  #anchor() {
    const top = this.scroller.getBoundingClientRect().top;
    for (const { element } of this.blocks) {
      if (element.getBoundingClientRect().bottom <= top) continue;
      for (const message of element.querySelectorAll(":scope > article")) {
        const box = message.getBoundingClientRect();
        if (box.bottom > top) return { element: message, y: box.top };
      }
    }
    return null;
  }

  /** Change the document, and leave what one reads where it is: browsers do so too, but for one. @param {() => void} change */
  #keeping(change) {
    const anchor = this.#anchor();
    const id = anchor?.element.id;
    change();
    const again = anchor?.element.isConnected ? anchor.element : id ? document.getElementById(id) : null;
    if (anchor && again) {
      const by = again.getBoundingClientRect().top - anchor.y;
      if (Math.abs(by) >= 0.5) this.scroller.scrollTop += by;
    }
  }

  #measure() {
    for (const { first, rows, element } of this.blocks) if (rows) this.heights.set(first, element.offsetHeight / rows);
    const all = [...this.heights.values()];
    this.mean = all.length ? all.reduce((sum, height) => sum + height, 0) / all.length : FIRST_GUESS_PX;
    const [above, below] = [(this.first - this.floor) * this.mean, Math.max(this.count - this.end, 0) * this.mean];
    this.scale = Math.min(1, MOST_PX / Math.max(above + below, 1));
    this.above.style.height = `${above * this.scale}px`;
    this.below.style.height = `${below * this.scale}px`;
  }

  #scrolled() {
    this.dispatchEvent(new CustomEvent("scroll"));
    const { scroller } = this;
    const [top, bottom] = [scroller.scrollTop, scroller.scrollTop + scroller.clientHeight];
    const start = this.list.offsetTop;
    const end = start + this.list.offsetHeight;
    const coming = this.isAsking ? BLOCK_ROWS * this.mean * this.scale : 0;
    if ((bottom < start - coming && this.first > this.floor) || (top > end + coming && this.end < this.count)) this.#jump();
    else if (this.isAsking) return;
    else if (top - start < NEAR_PX && this.first > this.floor) this.#extend(Math.max(this.first - BLOCK_ROWS, this.floor), this.first);
    else if (end - bottom < NEAR_PX && this.end < this.count) this.#extend(this.end, Math.min(this.end + BLOCK_ROWS, this.count));
  }

  /** The bar was dropped beyond what is here: the message there, in proportion, when it rests. */
  #jump() {
    // Taken now: what comes meanwhile changes the heights, and half the bar would be another message then.
    const height = this.scroller.scrollHeight - this.scroller.clientHeight;
    const depth = this.floor + Math.round((this.scroller.scrollTop / Math.max(height, 1)) * (this.count - this.floor - 1));
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.goTo(depth), SETTLED_MS);
  }

  /** @param {number} first @param {number} end */
  async #extend(first, end) {
    this.isAsking = true;
    const number = this.number;
    const isBefore = first < this.first;
    const block = await this.#fetch(first, end - first);
    this.isAsking = false;
    if (!block || number !== this.number || this.settling) return;
    this.#keeping(() => {
      if (isBefore) this.list.prepend(block);
      else this.list.append(block);
      this.sized.observe(block);
      const { blocks } = this;
      for (const extra of isBefore ? blocks.slice(MOST_BLOCKS) : blocks.slice(0, Math.max(blocks.length - MOST_BLOCKS, 0))) {
        this.heights.set(extra.first, extra.element.offsetHeight / Math.max(extra.rows, 1));
        this.sized.unobserve(extra.element);
        extra.element.remove();
      }
      this.#measure();
    });
    this.dispatchEvent(new CustomEvent("change"));
    this.#scrolled();
  }
}

/** What was folded open stays so. @param {Element} old @param {Element} now */
function keepOpen(old, now) {
  for (const fold of old.querySelectorAll("article details[open]")) {
    const article = fold.closest("article");
    const number = [...(article?.querySelectorAll("details") ?? [])].indexOf(/** @type {HTMLDetailsElement} */ (fold));
    const same = article?.id && now.querySelector(`#${CSS.escape(article.id)}`)?.querySelectorAll("details")[number];
    if (same) same.open = true;
  }
}
