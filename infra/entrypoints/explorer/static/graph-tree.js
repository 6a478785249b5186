// The rows that are seen as a tree, for screen readers and for the focus: the canvas shows nothing to them.

/** @typedef {import("./graph-rows.js").Row} Row */

/** What is read aloud of a row. @param {Row} row */
function spoken(row) {
  const words = [`${row.role}: ${row.hidden ? "hidden" : row.preview}`];
  if (row.on_path) words.push("on the read path");
  if (row.branches.length) words.push(`head of ${row.branches.join(", ")}`);
  if (row.checkpoints.length) words.push(`checkpoint ${row.checkpoints.join(", ")}`);
  if (row.children > 1) words.push(`${row.children} answers`);
  if (row.parents.length > 1) words.push("a merge");
  if (row.replaced_by) words.push("replaced");
  else if (row.stale) words.push("stale");
  return words.join("; ");
}

export class Tree {
  /** @param {HTMLElement} element With the role `tree`. */
  constructor(element) {
    this.element = element;
    /** @type {Map<number, HTMLElement>} */
    this.items = new Map();
  }

  /**
   * @param {import("./graph-paint.js").Shown[]} rows
   * @param {{total: number, current: number, selected: number | null}} state `current` is the row that the focus is on.
   */
  show(rows, { total, current, selected }) {
    const seen = new Set();
    /** @type {HTMLElement | null} */
    let last = null;
    for (const { row, data } of rows) {
      if (!data) continue;
      seen.add(row);
      const item = this.items.get(row) ?? this.#made(row);
      const after = last ? last.nextSibling : this.element.firstChild;
      if (item !== after && !(item.contains(document.activeElement) && item.isConnected)) this.element.insertBefore(item, after);
      const text = spoken(data);
      if (item.textContent !== text) item.textContent = text;
      item.tabIndex = row === current ? 0 : -1;
      item.setAttribute("aria-level", String(data.lane + 1));
      item.setAttribute("aria-setsize", String(total));
      item.setAttribute("aria-posinset", String(row + 1));
      item.setAttribute("aria-selected", String(row === selected));
      last = item;
    }
    for (const [row, item] of this.items) {
      if (!seen.has(row)) {
        item.remove();
        this.items.delete(row);
      }
    }
  }

  /** @param {number} row */
  #made(row) {
    const item = document.createElement("div");
    item.setAttribute("role", "treeitem");
    this.items.set(row, item);
    return item;
  }

  get hasFocus() {
    return this.element.contains(document.activeElement);
  }

  /** @param {number} row */
  focus(row) {
    this.items.get(row)?.focus({ preventScroll: true });
  }
}
