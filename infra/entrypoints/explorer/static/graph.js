// <cl-graph chat at along branch selected hits only>: a chat as a git graph, one message a row, each branch in a lane.

import { announce, notify } from "./frame.js";
import { MapPainter } from "./graph-map.js";
import { Painter, coloursOf } from "./graph-paint.js";
import { Rows } from "./graph-rows.js";
import { Scroll } from "./graph-scroll.js";
import { Tree } from "./graph-tree.js";

const ROW_PX = 26;
const MAP_PX = 40;
const MOST_MAP_PX = 1000;
const TREE_MS = 120;
const LOOKAHEAD = 3;
const TIP_MS = 400;
const MINUTE_MS = 60_000;

/** @typedef {import("./graph-rows.js").Row} Row */

/**
 * Attributes: `chat`, its id. `at`, a position or a time; without it the present. `along`, the branch or message whose path is
 * read, and has lane 0. `branch`, whose chip is lit. `only`, with `path` the rows are that path alone, by depth.
 * `selected`, the id of a message. `row`, where it opens first, if that is known. `hits`, ids of messages, as a JSON array or with blanks between them.
 *
 * Events, which bubble: `cl-select` when a row was chosen, `cl-open` when it is to be opened, `cl-fork` when `[` or `]` went
 * to a branch point; the detail is `{id, row}`. `cl-ready` after the first rows were drawn, and `cl-error` with an `Error`.
 */
export class ClGraph extends HTMLElement {
  static observedAttributes = ["chat", "at", "along", "branch", "selected", "hits", "only"];

  constructor() {
    super();
    this.rowPx = ROW_PX;
    /** @type {Rows | null} */
    this.rows = null;
    /** @type {number | null} */
    this.chosen = null;
    /** @type {number | null} */
    this.hover = null;
    /** The rows of the hits. @type {Set<number>} */
    this.hits = new Set();
    this.tipTimer = 0;
    this.strip = null;
    this.frame = 0;
    this.treeTimer = 0;
    this.stripTimer = 0;
    this.isReady = false;
    this.isPlaced = false;
    this.toFocus = false;
    this.way = 1;
    this.before = 0;
  }

  connectedCallback() {
    if (!this.firstElementChild) this.#build();
    this.sized = new ResizeObserver(() => this.#resize());
    this.sized.observe(this);
    this.recolour = () => {
      this.painter.setColours(coloursOf(this));
      this.#draw();
    };
    this.media = ["(prefers-color-scheme: dark)", "(forced-colors: active)"].map((query) => matchMedia(query));
    for (const media of this.media) media.addEventListener("change", this.recolour);
    document.addEventListener("cl-theme", this.recolour);
    this.minutes = setInterval(() => this.#draw(), MINUTE_MS);
    this.#resize();
    this.#load({ isMoved: true });
  }

  disconnectedCallback() {
    this.sized?.disconnect();
    clearInterval(this.minutes);
    clearTimeout(this.tipTimer);
    for (const media of this.media ?? []) media.removeEventListener("change", this.recolour);
    document.removeEventListener("cl-theme", this.recolour);
    this.rows?.stop();
    this.rows = null;
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    clearTimeout(this.treeTimer);
    clearTimeout(this.stripTimer);
  }

  /** @param {string} name @param {string | null} before @param {string | null} now */
  attributeChangedCallback(name, before, now) {
    // An element that is upgraded is told of its attributes before it is connected, which loads them all at once.
    if (!this.isConnected || before === now || !this.painter) return;
    if (name === "chat" || name === "only") this.#load({ isMoved: true });
    else if (name === "at" || name === "along") this.#load({ isMoved: false });
    else if (name === "selected") this.#show(now);
    else if (name === "hits") this.#findHits();
    else this.#draw();
  }

  /** Look for what was written since: for who follows the chat. */
  async refresh() {
    const isAtEnd = this.scroll.top >= this.scroll.most - 1;
    await this.#try(async (rows) => {
      const before = rows.total;
      await rows.refresh();
      if (rows.total > before) {
        if (isAtEnd) this.scroll.to(this.scroll.most);
        announce(rows.total === before + 1 ? "1 new message" : `${rows.total - before} new messages`);
      }
    });
  }

  /** Go to a message. @param {string} id @returns {Promise<boolean>} Whether the chat has it. */
  async show(id) {
    return this.#show(id);
  }

  /** Go to the next branch point, or with -1 to the one before. @param {1 | -1} way */
  async toFork(way) {
    await this.#try(async (rows) => {
      const from = this.chosen ?? this.#rowAt(way > 0 ? 0 : this.scroll.view);
      const point = await rows.fork(from, way);
      if (point === null || point.row === null) notify(way > 0 ? "no later fork" : "no earlier fork");
      else {
        this.#choose(point.row, { isSeen: true });
        this.#tell("cl-fork", point.row, point.id);
      }
    });
  }

  /** @param {(rows: Rows) => Promise<void>} act @returns {Promise<boolean>} Whether it went well. */
  async #try(act) {
    const rows = this.rows;
    if (!rows) return false;
    try {
      await act(rows);
      return rows === this.rows;
    } catch (error) {
      if (!rows.stopped.signal.aborted) this.#fail(error);
      return false;
    }
  }

  /** @param {unknown} error */
  #fail(error) {
    this.dispatchEvent(new CustomEvent("cl-error", { bubbles: true, detail: error }));
  }

  #build() {
    const make = (/** @type {string} */ tag, /** @type {string} */ name) => {
      const element = document.createElement(tag);
      element.className = name;
      return element;
    };
    const scroller = make("div", "cl-graph-scroll");
    const pin = make("div", "cl-graph-pin");
    const canvas = /** @type {HTMLCanvasElement} */ (make("canvas", "cl-graph-rows"));
    canvas.setAttribute("aria-hidden", "true");
    const tree = make("div", "unseen");
    tree.setAttribute("role", "tree");
    tree.setAttribute("aria-label", this.getAttribute("aria-label") ?? "Messages of all branches");
    const space = make("div", "cl-graph-space");
    this.map = /** @type {HTMLCanvasElement} */ (make("canvas", "cl-graph-map"));
    this.map.setAttribute("aria-hidden", "true");
    this.tip = make("div", "cl-graph-tip");
    this.tip.hidden = true;
    this.tip.setAttribute("aria-hidden", "true");
    this.list = make("ul", "bundled");
    this.list.hidden = true;
    pin.append(canvas, tree);
    scroller.append(pin, space);
    this.append(scroller, this.map, this.tip, this.list);
    this.painter = new Painter(canvas, ROW_PX);
    this.mapPainter = new MapPainter(this.map);
    this.tree = new Tree(tree);
    this.scroll = new Scroll(scroller, space, () => this.#moved());
    canvas.addEventListener("pointermove", (event) => this.#hovered(this.#rowAt(event.offsetY), event));
    canvas.addEventListener("pointerleave", () => this.#hovered(null));
    canvas.addEventListener("click", (event) => this.#clicked(event));
    canvas.addEventListener("dblclick", () => this.#open());
    tree.addEventListener("keydown", (event) => this.#key(event));
    tree.addEventListener("focusin", (event) => this.#focused(event));
    tree.addEventListener("focusout", () => this.#draw());
    tree.addEventListener("click", (event) => this.#item(event));
    const go = (/** @type {PointerEvent} */ event) => {
      const part = event.offsetY / Math.max(this.map.clientHeight, 1);
      this.scroll.to(Math.floor(part * (this.rows?.total ?? 0)) * ROW_PX - this.scroll.view / 2);
    };
    this.map.addEventListener("pointerdown", (event) => {
      this.map.setPointerCapture(event.pointerId);
      go(event);
    });
    this.map.addEventListener("pointermove", (event) => event.buttons && go(event));
  }

  /** @param {{isMoved: boolean}} how Whether it is opened anew, and not just drawn along another path or at another moment. */
  async #load({ isMoved }) {
    this.rows?.stop();
    const chat = this.getAttribute("chat");
    if (isMoved) {
      this.chosen = null;
      this.isReady = false;
      this.isPlaced = false;
      this.strip = null;
    }
    if (chat === null) {
      this.rows = null;
      return;
    }
    const isPath = this.getAttribute("only") === "path";
    const rows = new Rows(chat, this.getAttribute("at"), this.getAttribute("along"), isPath);
    if (!isMoved && this.rows) rows.standIn(this.rows);
    this.rows = rows;
    rows.addEventListener("change", (event) => this.#came(/** @type {CustomEvent} */ (event).detail.isNew));
    rows.addEventListener("failure", (event) => this.#fail(/** @type {CustomEvent} */ (event).detail));
    const opensAt = isMoved && !isPath ? this.getAttribute("row") : null;
    this.removeAttribute("row");
    await this.#try(async () => {
      if (opensAt === null) await rows.refresh();
      else await rows.open(Number(opensAt) - Math.ceil(this.scroll.view / ROW_PX), Number(opensAt));
      if (!isMoved) {
        await this.#choosePresent(rows);
        return;
      }
      const row = opensAt === null ? await this.#firstRow(rows) : Number(opensAt);
      if (row !== null) this.scroll.to((row + 1) * ROW_PX - this.scroll.view * 0.75);
      if (this.getAttribute("selected") !== null && row !== null) this.chosen = row;
    });
    this.isPlaced = true;
    await this.#findHits();
  }

  /** The chosen message at another moment or on another path: its row, where it is there. @param {Rows} rows */
  async #choosePresent(rows) {
    const selected = this.getAttribute("selected");
    if (selected === null) return;
    const row = await rows.rowOf(selected);
    if (rows === this.rows) this.chosen = row;
  }

  /** Where it is opened: at the selected message, else at the end of the path that is read. @param {Rows} rows */
  async #firstRow(rows) {
    const selected = this.getAttribute("selected");
    if (selected) {
      const row = await rows.rowOf(selected);
      if (row !== null) return row;
      this.removeAttribute("selected");
    }
    return rows.head?.row ?? null;
  }

  /** @param {string | null} id */
  async #show(id) {
    if (id === null) {
      this.chosen = null;
      this.#draw();
      return true;
    }
    const known = this.chosen === null ? null : this.rows?.get(this.chosen);
    if (known?.id === id) return true;
    let isThere = false;
    await this.#try(async (rows) => {
      const row = await rows.rowOf(id);
      if (row === null) return;
      isThere = true;
      this.#resized();
      this.#choose(row, { isSeen: true, isTold: false });
    });
    return isThere;
  }

  async #findHits() {
    const text = this.getAttribute("hits")?.trim() ?? "";
    const ids = text.startsWith("[") ? JSON.parse(text) : text.split(/\s+/).filter(Boolean);
    this.hits = new Set();
    if (ids.length) {
      await this.#try(async (rows) => {
        this.hits = new Set((await rows.rowsOf(ids)).values());
      });
    }
    this.#draw();
  }

  /** @param {boolean} isNew */
  #came(isNew) {
    const rows = this.rows;
    if (!rows) return;
    if (isNew) {
      clearTimeout(this.stripTimer);
      this.stripTimer = setTimeout(() => this.#readStrip(), this.strip ? 500 : 0);
      this.#resized();
    }
    this.#draw();
  }

  async #readStrip() {
    const height = Math.min(Math.floor(this.clientHeight), MOST_MAP_PX);
    if (height < 1) return;
    await this.#try(async (rows) => {
      this.strip = await rows.strip(height);
    });
    this.#draw();
  }

  #resized() {
    const rows = this.rows;
    if (!rows) return;
    const height = rows.total * ROW_PX;
    // The map is for what does not fit.
    const isMapped = height > this.clientHeight;
    if (this.map.hidden === isMapped) {
      this.map.hidden = !isMapped;
      this.#resize();
    }
    this.scroll.resize(height);
  }

  #resize() {
    const width = this.clientWidth - (this.map.hidden ? 0 : MAP_PX);
    const height = this.clientHeight;
    if (width <= 0 || height <= 0) return;
    this.painter.resize(width, height, devicePixelRatio || 1);
    this.mapPainter.resize(MAP_PX, height, devicePixelRatio || 1);
    this.painter.setColours(coloursOf(this));
    this.#resized();
    // What a resize clears is painted in the same frame.
    this.#paint();
  }

  #moved() {
    this.way = this.scroll.top >= this.before ? 1 : -1;
    this.before = this.scroll.top;
    this.#draw();
  }

  #draw() {
    if (!this.frame && this.isConnected) this.frame = requestAnimationFrame(() => this.#paint());
  }

  /** The row at a height of the canvas. @param {number} y */
  #rowAt(y) {
    const row = Math.floor((this.scroll.top + y) / ROW_PX);
    return Math.max(Math.min(row, (this.rows?.total ?? 0) - 1), 0);
  }

  #paint() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const { rows, scroll, painter } = this;
    if (!rows || !painter.width || !this.isPlaced) return; // else it would read rows at which it does not open
    const first = Math.max(Math.floor(scroll.top / ROW_PX) - 1, 0);
    const hovered = this.hover === null ? undefined : rows.get(this.hover);
    const last = Math.min(Math.ceil((scroll.top + scroll.view) / ROW_PX) + 1, rows.total - 1);
    const shown = [];
    for (let row = first; row <= last; row++) shown.push({ row, data: rows.get(row) });
    if (shown.length) this.#want(first, last);
    const windows = shown.length ? rows.between(first, last) : [];
    const near = (/** @type {{row: number, to_row: number}} */ part) => part.row <= last && part.to_row >= first;
    painter.paint({
      top: scroll.top,
      now: Date.now(),
      lanes: rows.lanes,
      rows: shown,
      edges: windows.flatMap(({ edges }) => edges).filter(near),
      bundle: windows.flatMap(({ bundle }) => bundle).filter(near),
      isCut: rows.isCut,
      selected: this.chosen,
      hover: this.hover,
      hoverLine: hovered && !hovered.on_path ? hovered.line : null,
      head: rows.head?.row ?? -1,
      hasFocus: this.tree.hasFocus,
      hits: this.hits,
      branch: this.getAttribute("branch") ?? rows.active,
    });
    this.#paintMap(shown);
    this.#later(shown);
    if (!this.isReady && shown.length && shown.every(({ data }) => data)) {
      this.isReady = true;
      this.dispatchEvent(new CustomEvent("cl-ready", { bubbles: true }));
    }
  }

  /** Fetch what is seen, and some of what comes next. @param {number} first @param {number} last */
  #want(first, last) {
    const rows = /** @type {Rows} */ (this.rows);
    const ahead = (last - first + 1) * LOOKAHEAD;
    rows.want(first, last);
    if (this.way > 0) rows.want(last + 1, last + ahead);
    else rows.want(Math.max(first - ahead, 0), first);
  }

  #paintMap(shown) {
    const total = this.rows?.total ?? 0;
    const from = shown.length ? shown[0].row / total : 0;
    const to = shown.length ? (shown[shown.length - 1].row + 1) / total : 0;
    this.mapPainter.paint(this.strip, this.painter.colours, this.hits, from, to);
  }

  /** Bring the tree up to what is seen, when it has not moved for a moment. */
  #later(shown) {
    clearTimeout(this.treeTimer);
    if (this.toFocus) this.#showTree(shown);
    else this.treeTimer = setTimeout(() => this.#showTree(shown), TREE_MS);
  }

  #showTree(shown) {
    const rows = this.rows;
    if (!rows) return;
    const current = this.chosen;
    const all = [...shown];
    const away = current !== null && !shown.some(({ row }) => row === current) ? rows.get(current) : undefined;
    if (current !== null && away) {
      const entry = { row: current, data: away };
      if (all.length && current < all[0].row) all.unshift(entry);
      else all.push(entry);
    }
    const first = all.find(({ data, row }) => data && (current === null || row === current)) ?? all.find(({ data }) => data);
    this.tree.show(all, { total: rows.total, current: first?.row ?? -1, selected: this.chosen });
    if (this.toFocus && this.chosen !== null && rows.get(this.chosen)) {
      this.toFocus = false;
      this.tree.focus(this.chosen);
    }
  }

  /** @param {number} row @param {{isSeen: boolean, isTold?: boolean}} how */
  #choose(row, { isSeen, isTold = true }) {
    this.chosen = row;
    if (isSeen) {
      const y = row * ROW_PX;
      const { top, view } = this.scroll;
      if (y < top || y + ROW_PX > top + view) {
        const isNear = y > top - 2 * view && y < top + 3 * view;
        this.scroll.to(!isNear ? y - view / 2 : y < top ? y : y + ROW_PX - view);
      }
    }
    if (this.tree.hasFocus) this.toFocus = true;
    this.#draw();
    if (isTold) this.#tell("cl-select", row);
  }

  /** @param {string} name @param {number} row @param {string} [id] */
  #tell(name, row, id) {
    const message = id ?? this.rows?.get(row)?.id;
    if (message !== undefined) {
      if (name === "cl-select") this.setAttribute("selected", message);
      this.dispatchEvent(new CustomEvent(name, { bubbles: true, detail: { id: message, row } }));
      return;
    }
    // Its window is on the way.
    const told = () => {
      const come = this.rows?.get(row);
      if (!come) return;
      this.rows?.removeEventListener("change", told);
      if (this.chosen === row) this.#tell(name, row, come.id);
    };
    this.rows?.addEventListener("change", told);
  }

  #open() {
    if (this.chosen !== null) this.#tell("cl-open", this.chosen);
  }

  /** @param {number | null} row @param {PointerEvent} [event] */
  #hovered(row, event) {
    if (row === this.hover) return;
    this.hover = row;
    this.tip.hidden = true;
    clearTimeout(this.tipTimer);
    if (row !== null && event) this.tipTimer = setTimeout(() => this.#showTip(row, event), TIP_MS);
    this.#draw();
  }

  /** @param {number} row @param {PointerEvent} event */
  #showTip(row, event) {
    const data = this.rows?.get(row);
    if (!data || row !== this.hover) return;
    const answers = data.children > 1 ? ` · ${data.children} answers` : "";
    const when = new Date(data.created_at).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
    // What branch a line belongs to is not seen of it, but at its end, which may be far below.
    const branches = data.branches.length ? data.branches.join(", ") : (data.branch ?? "on no branch");
    this.tip.textContent = `${branches} · ${data.role} · ${when}${answers}`;
    this.tip.hidden = false;
    this.tip.style.left = `${Math.max(Math.min(event.offsetX + 12, this.clientWidth - this.tip.offsetWidth - 4), 0)}px`;
    this.tip.style.top = `${Math.max(Math.min(event.offsetY + 16, this.clientHeight - this.tip.offsetHeight - 4), 0)}px`;
  }

  /** @param {MouseEvent} event */
  #clicked({ offsetX, offsetY }) {
    this.list.hidden = true;
    if (!this.rows?.total) return;
    const chip = this.painter.bundles.find(({ x, to_x, y }) => x <= offsetX && offsetX <= to_x && Math.abs(offsetY - y) <= 12);
    if (chip) {
      this.#openBundle(chip);
      return;
    }
    if (offsetY + this.scroll.top >= this.scroll.height) return;
    this.toFocus = true;
    this.#choose(this.#rowAt(offsetY), { isSeen: true });
  }

  /** The lines that are cut there, to be chosen. @param {import("./graph-paint.js").Chip} chip */
  async #openBundle(chip) {
    await this.#try(async (rows) => {
      const lines = await rows.bundled(chip.row);
      this.list.replaceChildren(
        ...lines.map(({ id, row, preview, branches }) => {
          const button = document.createElement("button");
          button.type = "button";
          button.textContent = [branches[0], preview].filter(Boolean).join(" · ");
          button.addEventListener("click", () => {
            this.list.hidden = true;
            this.#choose(row, { isSeen: true, isTold: false });
            this.#tell("cl-select", row, id);
          });
          const item = document.createElement("li");
          item.append(button);
          return item;
        }),
      );
      this.list.hidden = false;
      this.list.style.left = `${chip.x}px`;
      this.list.style.top = `${Math.max(Math.min(chip.y, this.clientHeight - this.list.offsetHeight - 8), 0)}px`;
      this.list.querySelector("button")?.focus();
    });
  }

  /** @param {FocusEvent} event */
  #focused(event) {
    for (const [row, item] of this.tree.items) {
      if (item === event.target && this.chosen === null) this.#choose(row, { isSeen: false });
    }
    this.#draw();
  }

  /** A screen reader clicks on an item. @param {MouseEvent} event */
  #item(event) {
    for (const [row, item] of this.tree.items) if (item === event.target) this.#choose(row, { isSeen: true });
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const total = this.rows?.total ?? 0;
    const at = this.chosen ?? this.#rowAt(0);
    const place = this.chosen === null ? at - 1 : at;
    const page = Math.max(Math.floor(this.scroll.view / ROW_PX) - 1, 1);
    const to = (/** @type {number} */ wanted) => {
      if (total) this.#choose(Math.max(Math.min(wanted, total - 1), 0), { isSeen: true });
    };
    /** @type {Record<string, () => unknown>} */
    const keys = {
      ArrowDown: () => to(place + 1),
      ArrowUp: () => to(place - 1),
      PageDown: () => to(place + page),
      PageUp: () => to(place - page),
      Home: () => to(0),
      End: () => to(total - 1),
      ArrowLeft: () => this.#toParent(at),
      "[": () => this.toFork(-1),
      "]": () => this.toFork(1),
      Enter: () => this.#open(),
    };
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  /** @param {number} row */
  #toParent(row) {
    const parent = this.rows?.get(row)?.parents[0];
    if (parent) this.#choose(parent.row, { isSeen: true });
  }
}

customElements.define("cl-graph", ClGraph);
