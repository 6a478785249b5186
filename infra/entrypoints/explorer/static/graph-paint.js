// Painting rows on a canvas: lanes, messages, chips. It draws what is given and knows where it put what can be clicked.

const PITCH_PX = 16;
const LEAST_PITCH_PX = 4;
const EDGE_PX = 14;
const LANE_COLOURS = 8;
const NAMES = ["ground", "ink", "ink-soft", "line", "accent", "accent-soft", "mark", "warn", "sunken"];
const MOST_WIDTHS = 4000;

/** @typedef {import("./graph-rows.js").Row} Row */
/** @typedef {{place: number, row: number, data: Row | undefined, folded: number}} Shown */
/** @typedef {{x: number, to_x: number, row: number}} Button */

/** The colours of an element, from its custom properties. @param {Element} element */
export function coloursOf(element) {
  const style = getComputedStyle(element);
  const lanes = Array.from({ length: LANE_COLOURS }, (_, at) => style.getPropertyValue(`--lane-${at + 1}`).trim());
  const found = Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  return { ...found, lanes, font: style.getPropertyValue("--font").trim() || "sans-serif" };
}

export class Painter {
  /** @param {HTMLCanvasElement} canvas @param {number} rowPx */
  constructor(canvas, rowPx) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    this.rowPx = rowPx;
    this.width = 0;
    this.height = 0;
    this.lanesPx = 0;
    this.pitch = PITCH_PX;
    this.isTight = false;
    /** @type {Map<number, number> | null} The places of the lanes that are seen, where not all have room. */
    this.places = null;
    /** @type {any} */
    this.colours = { lanes: [] };
    /** @type {Map<string, number>} */
    this.widths = new Map();
    /** @type {Button[]} */
    this.buttons = [];
  }

  /** @param {number} width @param {number} height @param {number} ratio */
  resize(width, height, ratio) {
    this.width = width;
    this.height = height;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.textBaseline = "middle";
  }

  /** @param {any} colours */
  setColours(colours) {
    this.colours = colours;
    this.widths.clear();
  }

  /** @param {number} lanes */
  setLanes(lanes) {
    const room = this.#room();
    this.isTight = lanes * LEAST_PITCH_PX > room;
    this.pitch = this.#pitchOf(lanes);
    this.lanesPx = Math.min(lanes * this.pitch, room) + EDGE_PX;
    this.places = null;
  }

  #room() {
    return Math.max(this.width * 0.4, 40);
  }

  /** @param {number} lanes */
  #pitchOf(lanes) {
    return Math.max(Math.min(PITCH_PX, this.#room() / Math.max(lanes, 1)), LEAST_PITCH_PX);
  }

  /** Where not all lanes of the chat have room, give it to those that are seen, in their order. */
  #place({ rows, edges }) {
    if (!this.isTight) return;
    const seen = new Set();
    for (const { data } of rows) if (data) seen.add(data.lane);
    for (const { lane, to_lane: to } of edges) seen.add(lane).add(to);
    const ordered = [...seen].sort((one, other) => one - other);
    this.places = new Map(ordered.map((lane, at) => [lane, at]));
    this.pitch = this.#pitchOf(ordered.length);
  }

  /** Where a lane is; where even those that are seen have no room, the last ones lie upon each other. @param {number} lane */
  x(lane) {
    return Math.min(EDGE_PX + (this.places?.get(lane) ?? lane) * this.pitch, this.lanesPx - EDGE_PX / 2);
  }

  /** @param {number} lane */
  colour(lane) {
    return this.colours.lanes[lane % LANE_COLOURS];
  }

  /**
   * @param {{top: number, rows: Shown[], edges: import("./graph-rows.js").Edge[], y: (row: number) => number,
   *   selected: number | null, hover: number | null, hasFocus: boolean, hits: Set<number>, branch: string}} view
   */
  paint(view) {
    const { context, colours } = this;
    this.buttons = [];
    this.#place(view);
    context.fillStyle = colours.ground;
    context.fillRect(0, 0, this.width, this.height);
    for (const shown of view.rows) this.#ground(shown, view);
    context.lineWidth = 1.75;
    for (const edge of view.edges) this.#edge(edge, view.y);
    for (const shown of view.rows) this.#row(shown, view);
  }

  #ground({ row }, view) {
    const y = view.y(row) - this.rowPx / 2;
    const { context, colours } = this;
    const fill = row === view.selected ? colours["accent-soft"] : view.hits.has(row) ? colours.mark : row === view.hover ? colours.sunken : null;
    if (fill) {
      context.fillStyle = fill;
      context.fillRect(0, y, this.width, this.rowPx);
    }
    if (row === view.selected) {
      context.fillStyle = colours.accent;
      context.fillRect(0, y, 3, this.rowPx);
      if (view.hasFocus) {
        context.strokeStyle = colours.accent;
        context.lineWidth = 2;
        context.strokeRect(1, y + 1, this.width - 2, this.rowPx - 2);
      }
    }
  }

  #edge({ row, lane, to_row, to_lane }, yOf) {
    const { context, rowPx } = this;
    const top = Math.max(yOf(row), -2 * rowPx);
    const bottom = Math.min(yOf(to_row), this.height + 2 * rowPx);
    const x = this.x(lane);
    const to = this.x(to_lane);
    context.strokeStyle = this.colour(lane > to_lane ? lane : to_lane);
    context.beginPath();
    context.moveTo(x, top);
    if (lane === to_lane) context.lineTo(to, bottom);
    else if (yOf(row) > -2 * rowPx) {
      const bend = Math.min(top + rowPx, bottom);
      context.bezierCurveTo(x, top + rowPx * 0.6, to, bend - rowPx * 0.6, to, bend);
      context.lineTo(to, bottom);
    } else {
      context.moveTo(to, top);
      context.lineTo(to, bottom);
    }
    context.stroke();
  }

  #row({ row, data, folded }, view) {
    const { context, colours } = this;
    const y = view.y(row);
    if (!data) {
      context.fillStyle = colours.line;
      context.fillRect(this.lanesPx + EDGE_PX, y - 4, this.width * 0.3, 8);
      return;
    }
    this.#dot(data, this.x(data.lane), y);
    let x = this.lanesPx + EDGE_PX;
    const end = this.width - 8;
    for (const name of data.checkpoints) x = this.#flag(name, x, y);
    for (const name of data.branches.slice(0, 3)) x = this.#chip(name, x, y, name === view.branch ? "accent" : "ink-soft", name === view.branch);
    if (data.branches.length > 3) x = this.#chip(`+${data.branches.length - 3}`, x, y, "ink-soft", false);
    if (folded) x = this.#button(`+${folded - 1}`, x, y, row);
    else if (data.line === row && data.parents.length && (row === view.hover || row === view.selected)) x = this.#button("−", x, y, row);
    if (data.children > 1) x = this.#fork(data.children, x, y);
    if (data.stale || data.replaced_by) x = this.#words(data.replaced_by ? "replaced" : "stale", x, y, colours.warn, `italic 12px ${colours.font}`) + 6;
    if (data.hidden) x = this.#words("hidden", x, y, colours["ink-soft"], `italic 12px ${colours.font}`) + 6;
    if (x >= end) return;
    context.save();
    context.beginPath();
    context.rect(x, y - this.rowPx / 2, end - x, this.rowPx);
    context.clip();
    x = this.#words(data.role, x, y, colours["ink-soft"], `600 12px ${colours.font}`) + 8;
    context.font = `13px ${colours.font}`;
    context.fillStyle = data.stale || data.hidden ? colours["ink-soft"] : colours.ink;
    context.fillText(this.#fitting(data.preview.replaceAll("\n", " "), end - x), x, y);
    context.restore();
  }

  /** A message, in a form for its role. */
  #dot({ role, lane, hidden, stale }, x, y) {
    const { context } = this;
    const r = this.pitch < 8 ? 2.5 : 4.5;
    context.beginPath();
    if (role === "user") context.rect(x - r, y - r, 2 * r, 2 * r);
    else if (role === "system" || role === "developer") {
      context.moveTo(x, y - r - 1);
      context.lineTo(x + r + 1, y);
      context.lineTo(x, y + r + 1);
      context.lineTo(x - r - 1, y);
      context.closePath();
    } else if (role === "tool") {
      context.moveTo(x, y - r);
      context.lineTo(x + r, y + r);
      context.lineTo(x - r, y + r);
      context.closePath();
    } else context.arc(x, y, r, 0, 2 * Math.PI);
    context.fillStyle = hidden || stale ? this.colours.ground : this.colour(lane);
    context.strokeStyle = this.colour(lane);
    context.lineWidth = 1.5;
    context.fill();
    context.stroke();
  }

  #widthOf(text, font) {
    const key = font + text;
    let found = this.widths.get(key);
    if (found === undefined) {
      if (this.widths.size >= MOST_WIDTHS) this.widths.clear();
      this.context.font = font;
      found = this.context.measureText(text).width;
      this.widths.set(key, found);
    }
    return found;
  }

  /** As much of a text as there is room for. The font must be set. */
  #fitting(text, room) {
    const { font } = this.context;
    const width = this.#widthOf(text, font);
    if (width <= room) return text;
    for (let count = Math.floor((text.length * room) / width); count > 0; count -= 2) {
      const shown = `${text.slice(0, count).trimEnd()}…`;
      if (this.#widthOf(shown, font) <= room) return shown;
    }
    return "";
  }

  #words(text, x, y, colour, font) {
    const width = this.#widthOf(text, font);
    this.context.font = font;
    this.context.fillStyle = colour;
    this.context.fillText(text, x, y);
    return x + width;
  }

  #box(text, x, y, colour, isFull, ink) {
    const { context, colours } = this;
    const font = `12px ${colours.font}`;
    const shown = text.length > 28 ? `${text.slice(0, 27)}…` : text;
    const width = this.#widthOf(shown, font) + 12;
    context.beginPath();
    context.roundRect(x, y - 9, width, 18, 9);
    context.lineWidth = 1;
    context.strokeStyle = colours[colour];
    context.fillStyle = isFull ? colours["accent-soft"] : colours.ground;
    context.fill();
    context.stroke();
    this.#words(shown, x + 6, y, colours[ink], font);
    return x + width + 6;
  }

  #chip(text, x, y, colour, isFull) {
    return this.#box(text, x, y, colour, isFull, isFull ? "accent" : "ink");
  }

  #button(text, x, y, row) {
    const to = this.#box(text, x, y, "accent", false, "accent");
    this.buttons.push({ x, to_x: to - 6, row });
    return to;
  }

  /** How many answers there are, beside a small fork: fonts have no sign for it. */
  #fork(count, x, y) {
    const { context, colours } = this;
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x + 2, y - 6);
    context.lineTo(x + 2, y + 6);
    context.moveTo(x + 2, y - 2);
    context.bezierCurveTo(x + 2, y + 2, x + 9, y - 1, x + 9, y + 5);
    context.stroke();
    return this.#words(String(count), x + 13, y, colours.accent, `600 12px ${colours.font}`) + 8;
  }

  #flag(name, x, y) {
    const { context, colours } = this;
    context.fillStyle = colours.warn;
    context.fillRect(x, y - 8, 1.5, 16);
    context.beginPath();
    context.moveTo(x + 1.5, y - 8);
    context.lineTo(x + 11, y - 4.5);
    context.lineTo(x + 1.5, y - 1);
    context.fill();
    const shown = name.length > 28 ? `${name.slice(0, 27)}…` : name;
    return this.#words(shown, x + 14, y, colours.warn, `600 12px ${colours.font}`) + 8;
  }
}
