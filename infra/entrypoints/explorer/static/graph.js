// <cl-graph chat at branch selected hits>: a chat as a git graph, one message a row, each branch in a lane.

import { announce } from "./frame.js";
import { Folds } from "./graph-folds.js";
import { MapPainter } from "./graph-map.js";
import { Painter, coloursOf } from "./graph-paint.js";
import { Rows } from "./graph-rows.js";
import { Scroll } from "./graph-scroll.js";
import { Tree } from "./graph-tree.js";

const ROW_PX = 28;
const MAP_PX = 56;
const MOST_MAP_PX = 1000;
const TREE_MS = 120;
const LOOKAHEAD = 3;

/** @typedef {import("./graph-rows.js").Row} Row */

/**
 * Attributes: `chat`, its id. `at`, a position or a time; without it the present. `branch`, whose head is shown first.
 * `selected`, the id of a message. `hits`, ids of messages, as a JSON array or with blanks between them.
 *
 * Events, which bubble: `cl-select` when a row was chosen, `cl-open` when it is to be opened, `cl-fork` when `[` or `]` went
 * to a branch point; the detail is `{id, row}`. `cl-ready` after the first rows were drawn, and `cl-error` with an `Error`.
 */
export class ClGraph extends HTMLElement {
  static observedAttributes = ["chat", "at", "branch", "selected", "hits"];

  constructor() {
    super();
    this.rowPx = ROW_PX;
    this.folds = new Folds();
    /** @type {Rows | null} */
    this.rows = null;
    /** @type {number | null} */
    this.chosen = null;
    /** @type {number | null} */
    this.hover = null;
    /** @type {Map<string, number>} The rows of the hits. */
    this.found = new Map();
    this.hits = new Set();
    this.strip = null;
    this.frame = 0;
    this.treeTimer = 0;
    this.stripTimer = 0;
    this.isReady = false;
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
    this.#resize();
    this.#load();
  }

  disconnectedCallback() {
    this.sized?.disconnect();
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
    if (!this.isConnected || before === now || !this.scroll) return;
    if (name === "chat" || name === "at") this.#load();
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
      let point = await rows.fork(from, way);
      while (point && (point.row === null || this.folds.isHidden(point.row))) {
        point = point.row === null ? null : await rows.fork(point.row, way);
      }
      if (point === null) announce(way > 0 ? "no later fork" : "no earlier fork");
      else {
        this.#choose(point.row, { isSeen: true });
        this.#tell("cl-fork", point.row, point.id);
      }
    });
  }

  /** Fold the line of a row away, or show it again. @param {number} row */
  async toggle(row) {
    const data = this.rows?.get(row);
    if (!data) return;
    if (this.folds.lines.has(data.line)) this.folds.unfold(data.line);
    else {
      if (data.parents.length === 0 || !(await this.#fold(data.id))) return;
      if (this.folds.isHidden(this.chosen ?? -1)) this.#choose(data.line, { isSeen: false });
    }
    this.#resized();
  }

  /** @param {string} id @returns {Promise<boolean>} */
  async #fold(id) {
    return this.#try(async (rows) => {
      const line = await rows.line(id);
      if (line.line > 0) this.folds.fold(id, line);
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
      const made = document.createElement(tag);
      made.className = name;
      return made;
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
    pin.append(canvas, tree);
    scroller.append(pin, space);
    this.append(scroller, this.map);
    this.painter = new Painter(canvas, ROW_PX);
    this.mapPainter = new MapPainter(this.map);
    this.tree = new Tree(tree);
    this.scroll = new Scroll(scroller, space, () => this.#moved());
    canvas.addEventListener("pointermove", (event) => this.#hovered(this.#rowAt(event.offsetY)));
    canvas.addEventListener("pointerleave", () => this.#hovered(null));
    canvas.addEventListener("click", (event) => this.#clicked(event));
    canvas.addEventListener("dblclick", () => this.#open());
    tree.addEventListener("keydown", (event) => this.#key(event));
    tree.addEventListener("focusin", (event) => this.#focused(event));
    tree.addEventListener("focusout", () => this.#draw());
    tree.addEventListener("click", (event) => this.#item(event));
    const go = (/** @type {PointerEvent} */ event) => {
      const part = event.offsetY / Math.max(this.map.clientHeight, 1);
      this.scroll.to(this.folds.place(Math.floor(part * (this.rows?.total ?? 0))) * ROW_PX - this.scroll.view / 2);
    };
    this.map.addEventListener("pointerdown", (event) => {
      this.map.setPointerCapture(event.pointerId);
      go(event);
    });
    this.map.addEventListener("pointermove", (event) => event.buttons && go(event));
  }

  async #load() {
    this.rows?.stop();
    const chat = this.getAttribute("chat");
    this.folds = new Folds();
    this.chosen = null;
    this.strip = null;
    this.isReady = false;
    if (chat === null) {
      this.rows = null;
      return;
    }
    const rows = (this.rows = new Rows(chat, this.getAttribute("at")));
    rows.addEventListener("change", (event) => this.#came(/** @type {CustomEvent} */ (event).detail.isNew));
    rows.addEventListener("failure", (event) => this.#fail(/** @type {CustomEvent} */ (event).detail));
    await this.#try(async () => {
      await rows.refresh();
      const row = await this.#firstRow(rows);
      if (row !== null) this.scroll.to((row + 1) * ROW_PX - this.scroll.view * 0.75);
      if (this.getAttribute("selected") !== null && row !== null) this.chosen = row;
    });
    await this.#findHits();
  }

  /** Where it is opened: at the selected message, else at the head of the branch, else of the active one. @param {Rows} rows */
  async #firstRow(rows) {
    const selected = this.getAttribute("selected");
    if (selected) {
      const found = await rows.rowOf(selected);
      if (found !== null) return found;
      this.removeAttribute("selected");
    }
    const branch = this.getAttribute("branch");
    if (branch && branch !== rows.active) {
      const { head_message_id: head } = await rows.read(`branches/${encodeURIComponent(branch)}`, []);
      const found = head === null ? null : await rows.rowOf(head);
      if (found !== null) return found;
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
      for (const [line, { spans }] of this.folds.lines) {
        if (row !== line && spans.some(([first, last]) => first <= row && row <= last)) this.folds.unfold(line);
      }
      this.#resized();
      this.#choose(row, { isSeen: true, isTold: false });
    });
    return isThere;
  }

  async #findHits() {
    const given = this.getAttribute("hits")?.trim() ?? "";
    const ids = given.startsWith("[") ? JSON.parse(given) : given.split(/\s+/).filter(Boolean);
    this.found = new Map();
    this.hits = new Set();
    if (ids.length) {
      await this.#try(async (rows) => {
        this.found = await rows.rowsOf(ids);
        this.hits = new Set(this.found.values());
      });
    }
    this.#draw();
  }

  /** @param {boolean} isNew */
  #came(isNew) {
    const rows = this.rows;
    if (!rows) return;
    if (isNew) {
      for (const { id } of this.folds.lines.values()) this.#fold(id).then(() => this.#resized());
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
    this.painter.setLanes(rows.lanes);
    const height = (rows.total - this.folds.hidden) * ROW_PX;
    this.scroll.resize(height);
    // No empty space below a short chat; `min-height` still holds. Two more are the border's.
    this.style.maxHeight = rows.total ? `${height + 2}px` : "";
  }

  #resize() {
    const width = this.clientWidth - MAP_PX;
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
    const place = Math.floor((this.scroll.top + y) / ROW_PX);
    const last = (this.rows?.total ?? 0) - this.folds.hidden - 1;
    return this.folds.row(Math.max(Math.min(place, last), 0));
  }

  #paint() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const { rows, scroll, painter, folds } = this;
    if (!rows || !painter.width) return;
    const places = rows.total - folds.hidden;
    const first = Math.max(Math.floor(scroll.top / ROW_PX) - 1, 0);
    const last = Math.min(Math.ceil((scroll.top + scroll.view) / ROW_PX) + 1, places - 1);
    const shown = [];
    for (let place = first; place <= last; place++) {
      const row = folds.row(place);
      shown.push({ place, row, data: rows.get(row), folded: folds.lines.get(row)?.count ?? 0 });
    }
    if (shown.length) this.#want(shown[0].row, shown[shown.length - 1].row, shown);
    const y = (/** @type {number} */ row) => folds.place(row) * ROW_PX + ROW_PX / 2 - scroll.top;
    painter.paint({
      top: scroll.top,
      rows: shown,
      edges: this.#edges(shown),
      y,
      selected: this.chosen,
      hover: this.hover,
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

  /** Fetch what is seen, and some of what comes next. */
  #want(first, last, shown) {
    const rows = /** @type {Rows} */ (this.rows);
    for (const { row } of shown) if (!rows.get(row)) rows.want(row, row);
    const ahead = (last - first + 1) * LOOKAHEAD;
    if (last - first < 2 * shown.length) rows.want(first, last);
    if (this.way > 0) rows.want(last + 1, last + ahead);
    else rows.want(Math.max(first - ahead, 0), first);
  }

  /** The edges that are seen. */
  #edges(shown) {
    const rows = /** @type {Rows} */ (this.rows);
    if (!shown.length) return [];
    const [top, bottom] = [shown[0].row, shown[shown.length - 1].row];
    const edges = rows.between(top, bottom).flatMap((window) => window.edges);
    return edges.filter((edge) => edge.row <= bottom && edge.to_row >= top && !this.folds.isHidden(edge.to_row));
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
    const total = rows.total - this.folds.hidden;
    const current = this.chosen;
    const all = [...shown];
    const away = current !== null && !shown.some(({ row }) => row === current) ? rows.get(current) : undefined;
    if (current !== null && away) {
      const entry = { place: this.folds.place(current), row: current, data: away, folded: this.folds.lines.get(current)?.count ?? 0 };
      if (all.length && current < all[0].row) all.unshift(entry);
      else all.push(entry);
    }
    const first = all.find(({ data, row }) => data && (current === null || row === current)) ?? all.find(({ data }) => data);
    this.tree.show(all, { total, current: first?.row ?? -1, selected: this.chosen });
    if (this.toFocus && this.chosen !== null && rows.get(this.chosen)) {
      this.toFocus = false;
      this.tree.focus(this.chosen);
    }
  }

  /** @param {number} row @param {{isSeen: boolean, isTold?: boolean}} how */
  #choose(row, { isSeen, isTold = true }) {
    this.chosen = row;
    if (isSeen) {
      const y = this.folds.place(row) * ROW_PX;
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
    const known = id ?? this.rows?.get(row)?.id;
    if (known !== undefined) {
      if (name === "cl-select") this.setAttribute("selected", known);
      this.dispatchEvent(new CustomEvent(name, { bubbles: true, detail: { id: known, row } }));
      return;
    }
    // Its window is on the way.
    const told = () => {
      const found = this.rows?.get(row);
      if (!found) return;
      this.rows?.removeEventListener("change", told);
      if (this.chosen === row) this.#tell(name, row, found.id);
    };
    this.rows?.addEventListener("change", told);
  }

  #open() {
    if (this.chosen !== null) this.#tell("cl-open", this.chosen);
  }

  /** @param {number | null} row */
  #hovered(row) {
    if (row === this.hover) return;
    this.hover = row;
    this.#draw();
  }

  /** @param {MouseEvent} event */
  #clicked({ offsetX, offsetY }) {
    if (!this.rows?.total || offsetY + this.scroll.top >= this.scroll.height) return;
    const row = this.#rowAt(offsetY);
    const button = this.painter.buttons.find((one) => one.row === row && one.x <= offsetX && offsetX <= one.to_x);
    if (button) this.toggle(row);
    else {
      this.toFocus = true;
      this.#choose(row, { isSeen: true });
    }
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
    const { folds } = this;
    const total = (this.rows?.total ?? 0) - folds.hidden;
    const at = this.chosen ?? this.#rowAt(0);
    const place = this.chosen === null ? folds.place(at) - 1 : folds.place(at);
    const page = Math.max(Math.floor(this.scroll.view / ROW_PX) - 1, 1);
    const to = (/** @type {number} */ wanted) => {
      if (total) this.#choose(folds.row(Math.max(Math.min(wanted, total - 1), 0)), { isSeen: true });
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
      ArrowRight: () => folds.lines.has(at) && this.toggle(at),
      "-": () => this.toggle(at),
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
