// The rows that are seen as a tree, for screen readers and for the focus: the canvas shows nothing to them.

/** @typedef {import("./graph-rows.js").Row} Row */

/** What is read of a row. @param {Row} row @param {number} folded */
export function spoken(row, folded) {
  const said = [`${row.role}: ${row.hidden ? "hidden" : row.preview}`];
  if (row.branches.length) said.push(`head of ${row.branches.join(", ")}`);
  if (row.checkpoints.length) said.push(`checkpoint ${row.checkpoints.join(", ")}`);
  if (row.children > 1) said.push(`${row.children} answers`);
  if (row.replaced_by) said.push("replaced");
  else if (row.stale) said.push("stale");
  if (folded) said.push(`${folded - 1} folded`);
  return said.join("; ");
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
    for (const { row, place, data, folded } of rows) {
      if (!data) continue;
      seen.add(row);
      const item = this.items.get(row) ?? this.#made(row);
      const after = last ? last.nextSibling : this.element.firstChild;
      if (item !== after && !(item.contains(document.activeElement) && item.isConnected)) this.element.insertBefore(item, after);
      const text = spoken(data, folded);
      if (item.textContent !== text) item.textContent = text;
      item.tabIndex = row === current ? 0 : -1;
      item.setAttribute("aria-level", String(data.lane + 1));
      item.setAttribute("aria-setsize", String(total));
      item.setAttribute("aria-posinset", String(place + 1));
      item.setAttribute("aria-selected", String(row === selected));
      if (data.line === row && data.parents.length) item.setAttribute("aria-expanded", String(!folded));
      else item.removeAttribute("aria-expanded");
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
