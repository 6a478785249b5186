// Folded lines: which rows are not shown, and at which place of the list the others are.

/** @typedef {{line: number, lane: number, count: number, spans: [number, number][]}} Line */

export class Folds {
  constructor() {
    /** @type {Map<number, Line & {id: string}>} By the row of the first message, which stays to be seen. */
    this.lines = new Map();
    /** @type {[number, number, number][]} Rows that are not shown: first, last, and how many before the first. */
    this.gaps = [];
  }

  /** How many rows are not shown. */
  get hidden() {
    const last = this.gaps.at(-1);
    return last ? last[2] + last[1] - last[0] + 1 : 0;
  }

  /** @param {string} id The first message of the line. @param {Line} line */
  fold(id, line) {
    this.lines.set(line.line, { ...line, id });
    this.#join();
  }

  /** @param {number} line */
  unfold(line) {
    this.lines.delete(line);
    this.#join();
  }

  #join() {
    /** @type {[number, number][]} */
    const spans = [];
    for (const { line, spans: own } of this.lines.values()) {
      for (const [first, last] of own) {
        const from = first === line ? first + 1 : first;
        if (from <= last) spans.push([from, last]);
      }
    }
    spans.sort((a, b) => a[0] - b[0]);
    this.gaps = [];
    let before = 0;
    for (const [first, last] of spans) {
      const above = this.gaps.at(-1);
      if (above && first <= above[1] + 1) {
        if (last > above[1]) {
          before += last - above[1];
          above[1] = last;
        }
        continue;
      }
      this.gaps.push([first, last, before]);
      before += last - first + 1;
    }
  }

  /** The last gap whose `key` is not above a number; -1 for none. @param {number} value @param {(gap: [number, number, number]) => number} key */
  #last(value, key) {
    let low = 0;
    let high = this.gaps.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (key(this.gaps[middle]) <= value) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  /** @param {number} row */
  isHidden(row) {
    const at = this.#last(row, (gap) => gap[0]);
    return at >= 0 && row <= this.gaps[at][1];
  }

  /** The place of a row among those shown; of a hidden one that of the next. @param {number} row */
  place(row) {
    const at = this.#last(row, (gap) => gap[0]);
    if (at < 0) return row;
    const [first, last, before] = this.gaps[at];
    return row <= last ? first - before : row - before - (last - first + 1);
  }

  /** The row at a place. @param {number} place */
  row(place) {
    const at = this.#last(place, ([first, , before]) => first - before);
    if (at < 0) return place;
    const [first, last, before] = this.gaps[at];
    return place + before + (last - first + 1);
  }
}
