// Scrolling over more pixels than a browser's element can be high.

const MOST_PX = 4_000_000;
const NEAR_PX = 3000;
const SETTLED_MS = 150;

/**
 * Maps the position of a scrolled element to one in a higher list. Small movements are taken as they are, large ones (of the
 * bar, Home, End) in proportion; when it settles, the bar is put where it belongs.
 */
export class Scroll {
  /**
   * @param {HTMLElement} element What scrolls.
   * @param {HTMLElement} space What makes it so high.
   * @param {() => void} moved
   */
  constructor(element, space, moved) {
    this.element = element;
    this.space = space;
    this.moved = moved;
    this.height = 0;
    this.top = 0;
    this.seen = 0;
    this.timer = 0;
    element.addEventListener("scroll", () => this.#scrolled(), { passive: true });
  }

  get view() {
    return this.element.clientHeight;
  }

  get most() {
    return Math.max(this.height - this.view, 0);
  }

  get isMapped() {
    return this.height > MOST_PX;
  }

  /** @param {number} height Of the whole list, in pixels. */
  resize(height) {
    this.height = height;
    this.space.style.height = `${Math.min(height, MOST_PX)}px`;
    this.to(this.top);
  }

  /** @param {number} top */
  to(top) {
    this.top = Math.min(Math.max(top, 0), this.most);
    this.#settle();
    this.moved();
  }

  #settle() {
    const bar = this.element.scrollHeight - this.view;
    const wanted = this.isMapped ? (this.most ? (this.top / this.most) * bar : 0) : this.top;
    if (Math.abs(this.element.scrollTop - wanted) >= 1) this.element.scrollTop = wanted;
    this.seen = this.element.scrollTop;
  }

  #scrolled() {
    const now = this.element.scrollTop;
    const by = now - this.seen;
    if (by === 0) return;
    const bar = this.element.scrollHeight - this.view;
    this.seen = now;
    if (!this.isMapped) this.top = now;
    else if (now <= 0) this.top = 0;
    else if (now >= bar - 1) this.top = this.most;
    else this.top = Math.abs(by) < NEAR_PX ? this.top + by : (now / bar) * this.most;
    this.top = Math.min(Math.max(this.top, 0), this.most);
    if (this.isMapped) {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.#settle(), SETTLED_MS);
    }
    this.moved();
  }
}
