// Painting rows on a canvas: lanes, messages, chips. It draws what it is given and knows where it put what can be clicked.

const PITCH_PX = 12;
const EDGE_PX = 14;
const BUNDLE_LANE = 8;
const BUNDLE_PX = 34;
const NAMES = ["panel", "sunken", "hover", "line-2", "ink", "ink-2", "ink-3", "accent", "accent-bg", "thread", "l2", "mark", "warn"];
const CHIPS_APART_PX = 120;
const MOST_WIDTHS = 4000;
const FORK_PX = 11;
const MINUTE_MS = 60_000;

/** @typedef {import("./graph-rows.js").Row} Row */
/** @typedef {import("./graph-rows.js").Edge} Edge */
/** @typedef {{row: number, data: Row | undefined}} Shown */
/** @typedef {{x: number, to_x: number, y: number, row: number}} Chip */

/** The colours of an element, from its custom properties. @param {Element} element */
export function coloursOf(element) {
  const style = getComputedStyle(element);
  const colours = Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  return { ...colours, font: style.getPropertyValue("--font").trim() || "sans-serif" };
}

/** How long ago, in few characters. @param {number} at @param {number} now */
export function ago(at, now) {
  const minutes = Math.floor((now - at) / MINUTE_MS);
  if (minutes < 1) return "now";
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h`;
  const then = new Date(at);
  const day = `${then.getDate()} ${then.toLocaleString("en", { month: "short" })}`;
  return then.getFullYear() === new Date(now).getFullYear() ? day : `${day} ${then.getFullYear()}`;
}

export class Painter {
  /** @param {HTMLCanvasElement} canvas @param {number} rowPx */
  constructor(canvas, rowPx) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    this.rowPx = rowPx;
    this.width = 0;
    this.height = 0;
    this.gutter = EDGE_PX + PITCH_PX;
    /** @type {any} */
    this.colours = {};
    /** @type {Map<string, number>} */
    this.widths = new Map();
    /** @type {Chip[]} The chips of bundles, which open. */
    this.bundles = [];
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

  /** Where a lane is. The bundle stands right of those that are used. @param {number} lane */
  x(lane) {
    return lane >= BUNDLE_LANE ? this.bundleX : EDGE_PX + lane * PITCH_PX;
  }

  /**
   * @param {{top: number, now: number, lanes: number, rows: Shown[], edges: Edge[],
   *   bundle: import("./graph-rows.js").Cut[], isCut: boolean, selected: number | null, hover: number | null,
   *   hoverLine: number | null, head: number, hasFocus: boolean, hits: Set<number>, branch: string}} view
   */
  paint(view) {
    const { context, colours } = this;
    this.bundles = [];
    const lanes = Math.min(view.lanes, BUNDLE_LANE);
    this.bundleX = EDGE_PX + lanes * PITCH_PX;
    this.gutter = this.bundleX + (view.isCut || view.lanes > BUNDLE_LANE ? BUNDLE_PX : 0);
    context.fillStyle = colours.panel;
    context.fillRect(0, 0, this.width, this.height);
    for (const shown of view.rows) this.#ground(shown, view);
    for (const cut of view.bundle) this.#bundle(cut, view);
    for (const edge of view.edges) this.#edge(edge, view);
    for (const shown of view.rows) this.#row(shown, view);
  }

  /** @param {number} row @param {{top: number}} view */
  #y(row, view) {
    return row * this.rowPx + this.rowPx / 2 - view.top;
  }

  #ground({ row }, view) {
    const y = this.#y(row, view) - this.rowPx / 2;
    const { context, colours } = this;
    const isChosen = row === view.selected;
    if (isChosen || row === view.hover) {
      context.fillStyle = isChosen ? colours["accent-bg"] : colours.hover;
      context.fillRect(0, y, this.width, this.rowPx);
    }
    if (view.hits.has(row)) {
      context.globalAlpha = 0.45;
      context.fillStyle = colours.mark;
      context.fillRect(0, y, this.width, this.rowPx);
      context.globalAlpha = 1;
    }
    if (!isChosen) return;
    context.fillStyle = colours.accent;
    context.fillRect(0, y, 2, this.rowPx);
    if (view.hasFocus) {
      context.strokeStyle = colours.accent;
      context.lineWidth = 2;
      context.strokeRect(1, y + 1, this.width - 2, this.rowPx - 2);
    }
  }

  /** Lines that are cut over rows: one dotted line, with their number. */
  #bundle({ row, to_row: to, count }, view) {
    const { context, colours } = this;
    const top = Math.max(this.#y(row, view) - this.rowPx / 2, 0);
    const bottom = Math.min(this.#y(to, view) + this.rowPx / 2, this.height);
    if (bottom <= top) return;
    const x = this.bundleX + 3;
    context.strokeStyle = colours.thread;
    context.lineWidth = 2;
    context.setLineDash([1, 4]);
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, bottom);
    context.stroke();
    context.setLineDash([]);
    const y = Math.min(Math.max((top + bottom) / 2, top + this.rowPx / 2), bottom - this.rowPx / 2);
    // Where lines begin one after another each row has another number: some of them say it.
    if (bottom - top < this.rowPx || this.bundles.some((chip) => Math.abs(chip.y - y) < CHIPS_APART_PX)) return;
    const text = `+${count.toLocaleString("en")}`;
    const font = `500 11px ${colours.font}`;
    const width = this.#widthOf(text, font) + 8;
    context.fillStyle = colours.sunken;
    context.beginPath();
    context.roundRect(x - 4, y - 9, width, 18, 5);
    context.fill();
    this.#words(text, x, y, colours["ink-2"], font);
    const middle = Math.floor((y + view.top) / this.rowPx);
    this.bundles.push({ x: x - 4, to_x: x - 4 + width, y, row: Math.min(Math.max(middle, row), to) });
  }

  /** @param {Edge} edge */
  #edge({ row, lane, to_row, to_lane, cut, line, is_merge: isMerge }, view) {
    const { context, colours, rowPx } = this;
    const from = this.#y(row, view);
    const top = Math.max(from, -2 * rowPx);
    const bottom = Math.min(this.#y(to_row, view), this.height + 2 * rowPx);
    const x = this.x(lane);
    const to = this.x(to_lane);
    // Lane 0 has one line: what of it lies below the head of the path belongs to others.
    const isRead = lane === 0 && to_lane === 0 && to_row <= view.head;
    const isHovered = line === view.hoverLine && !isRead;
    context.strokeStyle = isRead ? colours.accent : isHovered ? colours.l2 : colours.thread;
    context.lineWidth = isRead && !isMerge ? 2.75 : 1.25;
    context.setLineDash(isMerge ? [3, 3] : []);
    context.beginPath();
    context.moveTo(x, top);
    if (lane === to_lane) context.lineTo(to, bottom);
    else if (isMerge) {
      // It stays below what is merged, and turns where the merge is.
      const bend = Math.max(bottom - rowPx, top);
      context.lineTo(x, bend);
      context.bezierCurveTo(x, bend + rowPx * 0.6, to, bottom - rowPx * 0.6, to, bottom);
    } else if (from > -2 * rowPx) {
      const bend = Math.min(top + rowPx, bottom);
      context.bezierCurveTo(x, top + rowPx * 0.6, to, bend - rowPx * 0.6, to, bend);
      context.lineTo(to, bottom);
    } else {
      context.moveTo(to, top);
      context.lineTo(to, bottom);
    }
    if (cut) {
      const tip = cut === "down" ? bottom : top;
      const way = cut === "down" ? -4 : 4;
      context.moveTo(to - 3, tip + way);
      context.lineTo(to, tip);
      context.lineTo(to + 3, tip + way);
    }
    context.stroke();
    context.setLineDash([]);
  }

  #row({ row, data }, view) {
    const { context, colours } = this;
    const y = this.#y(row, view);
    if (!data) {
      context.fillStyle = colours.sunken;
      context.fillRect(this.gutter + 4, y - 4, this.width * 0.4, 8);
      return;
    }
    const isLine = view.hoverLine === data.line && !data.on_path;
    this.#node(data, this.x(data.lane), y, isLine);
    let end = this.width - 8;
    if (view.now && this.width >= 300) {
      const font = `11px ${colours.font}`;
      const text = ago(data.created_at, view.now);
      end -= this.#widthOf(text, font);
      this.#words(text, end, y, view.hits.has(row) || row === view.selected || row === view.hover ? colours["ink-2"] : colours["ink-3"], font);
      end -= 8;
    }
    const start = this.gutter + 4;
    end = this.#chips(data, start, end, y, view) - 4;
    if (end <= start) return;
    const words = data.hidden ? "hidden" : data.preview.replaceAll("\n", " ");
    const isUser = data.role === "user";
    context.font = `${isUser ? "500 " : data.hidden || data.stale ? "italic " : ""}12.5px ${colours.font}`;
    context.fillStyle = !data.on_path && row !== view.selected ? colours["ink-3"] : isUser ? colours.ink : colours["ink-2"];
    if (view.hits.has(row) && !data.on_path) context.fillStyle = colours["ink-2"];
    context.fillText(this.#fitting(words, end - start), start, y);
  }

  /** Whole chips, as many as have room in half of the row, from its end; returns where they begin. */
  #chips(data, start, end, y, view) {
    const least = start + (end - start) / 2;
    const all = [
      ...data.checkpoints.map((/** @type {string} */ name) => ({ text: `⚑ ${name}`, kind: "flag" })),
      ...data.branches.map((/** @type {string} */ name) => ({ text: name, kind: name === view.branch ? "on" : "off" })),
    ];
    // The mark of a fork is narrow, and leads on: names give way to it.
    if (data.children > 1) all.unshift({ text: String(data.children), kind: "fork" });
    if (data.parents.length > 1) all.push({ text: "merge", kind: "flag" });
    if (data.replaced_by || data.stale) all.push({ text: data.replaced_by ? "replaced" : "stale", kind: "flag" });
    let left = all.length;
    for (const { text, kind } of all) {
      const shown = text.length > 24 ? `${text.slice(0, 23)}…` : text;
      const width = this.#widthOf(shown, `11px ${this.colours.font}`) + (kind === "fork" ? FORK_PX : 0) + 10;
      if (end - width - 4 < least) break;
      end -= width + 4;
      left -= 1;
      this.#chip(shown, end, y, width, kind);
    }
    if (left > 0) {
      const text = `+${left}`;
      const width = this.#widthOf(text, `11px ${this.colours.font}`) + 10;
      end -= width + 4;
      this.#chip(text, end, y, width, "off");
    }
    return end;
  }

  #chip(text, x, y, width, kind) {
    const { context, colours } = this;
    context.beginPath();
    context.roundRect(x, y - 9, width, 18, 5);
    context.lineWidth = 1;
    context.fillStyle = kind === "on" ? colours["accent-bg"] : colours.panel;
    context.strokeStyle = kind === "on" ? colours.accent : colours["line-2"];
    context.fill();
    context.stroke();
    const ink = kind === "on" ? colours.accent : kind === "flag" ? colours.warn : colours["ink-2"];
    this.#words(text, x + 5 + (kind === "fork" ? FORK_PX : 0), y, ink, `11px ${colours.font}`);
    if (kind !== "fork") return;
    // Fonts have no sign for it.
    context.strokeStyle = ink;
    context.beginPath();
    context.moveTo(x + 7, y - 5);
    context.lineTo(x + 7, y + 5);
    context.moveTo(x + 7, y - 2);
    context.bezierCurveTo(x + 7, y + 2, x + 12, y - 1, x + 12, y + 5);
    context.stroke();
  }

  /** A message, in a form for its role; filled where it is on the path that is read. */
  #node({ role, on_path, hidden, stale }, x, y, isLine) {
    const { context, colours } = this;
    const r = 4;
    context.beginPath();
    if (role === "user") context.rect(x - r, y - r, 2 * r, 2 * r);
    else if (role === "tool") {
      context.moveTo(x, y - r - 1);
      context.lineTo(x + r + 1, y);
      context.lineTo(x, y + r + 1);
      context.lineTo(x - r - 1, y);
      context.closePath();
    } else if (role === "system" || role === "developer") {
      context.moveTo(x, y - r);
      context.lineTo(x + r, y + r);
      context.lineTo(x - r, y + r);
      context.closePath();
    } else context.arc(x, y, r, 0, 2 * Math.PI);
    const colour = on_path ? colours.accent : isLine ? colours.l2 : colours.thread;
    context.fillStyle = on_path && !hidden && !stale ? colour : colours.panel;
    context.strokeStyle = colour;
    context.lineWidth = 1.25;
    context.fill();
    context.stroke();
  }

  #widthOf(text, font) {
    const key = font + text;
    let width = this.widths.get(key);
    if (width === undefined) {
      if (this.widths.size >= MOST_WIDTHS) this.widths.clear();
      this.context.font = font;
      width = this.context.measureText(text).width;
      this.widths.set(key, width);
    }
    return width;
  }

  /** As much of a text as there is room for. The font must be set. */
  #fitting(text, room) {
    const { font } = this.context;
    const width = this.#widthOf(text, font);
    this.context.font = font;
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
}
