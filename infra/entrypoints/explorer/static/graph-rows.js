// The rows of a chat that the graph holds: windows fetched as they are needed, a few dozen of them at most.

import { ROOT } from "./feed.js";
import { ask } from "./frame.js";

const WINDOW_ROWS = 256;
const MOST_WINDOWS = 24;
const MOST_IDS = 100;

/**
 * @typedef {{row: number, lane: number}} Point
 * @typedef {{row: number, id: string, lane: number, on_path: boolean, line: number, parents: Point[], role: string, preview: string,
 *   created_at: number, branches: string[], checkpoints: string[], stale: boolean, hidden: boolean,
 *   replaced_by: string | null, children: number}} Row
 * @typedef {{row: number, lane: number, to_row: number, to_lane: number, cut: "down" | "up" | null}} Edge
 * @typedef {{row: number, to_row: number, count: number}} Cut
 * @typedef {{version: number, first: number, rows: Row[], edges: Edge[], bundle: Cut[]}} Window
 */

/** The server refused, or did not answer. */
export class RowsError extends Error {}

/** Windows of one chat at one moment. It dispatches `change` when something came. */
export class Rows extends EventTarget {
  /**
   * @param {string} chat
   * @param {string | null} at A position or a time; null for now.
   */
  constructor(chat, at) {
    super();
    this.path = `${ROOT}/api/v1/chats/${encodeURIComponent(chat)}`;
    this.at = at;
    this.total = 0;
    this.lanes = 0;
    this.version = -1;
    this.active = "";
    /** @type {Point | null} */
    this.head = null;
    /** @type {Map<number, Window>} By number, the one used last at the end. */
    this.windows = new Map();
    /** @type {Set<number>} */
    this.underway = new Set();
    this.stopped = new AbortController();
  }

  /** Ask for nothing more, and forget what is underway. */
  stop() {
    this.stopped.abort();
  }

  /**
   * @param {string} path Below the chat.
   * @param {[string, string | number][]} query
   */
  async read(path, query) {
    const given = new URLSearchParams(query.map(([name, value]) => [name, String(value)]));
    if (this.at !== null) given.set("as_of", this.at);
    const answer = await ask(`${this.path}/${path}?${given}`, { signal: this.stopped.signal });
    if (!answer.ok) throw new RowsError(`${path}: ${answer.status}`);
    return answer.json();
  }

  /** The row, if it is here. @param {number} row @returns {Row | undefined} */
  get(row) {
    const found = this.windows.get(Math.floor(row / WINDOW_ROWS));
    return found?.rows[row - found.first];
  }

  /** Read how large the chat is now; windows of an earlier version are read again when they are seen. */
  async refresh() {
    this.#take(await this.read("rows", [["rows", 1]]));
  }

  /** @param {number} first @param {number} last @returns {Window[]} Those here that have some of these rows. */
  between(first, last) {
    const found = [];
    for (let number = Math.floor(first / WINDOW_ROWS); number <= Math.floor(last / WINDOW_ROWS); number++) {
      const one = this.windows.get(number);
      if (one) found.push(one);
    }
    return found;
  }

  /** Fetch what is missing of these rows. @param {number} first @param {number} last */
  want(first, last) {
    const from = Math.max(Math.floor(first / WINDOW_ROWS), 0);
    const to = Math.floor(Math.min(last, this.total - 1) / WINDOW_ROWS);
    for (let number = from; number <= to; number++) {
      const found = this.windows.get(number);
      if (found) {
        this.windows.delete(number);
        this.windows.set(number, found);
      }
      if (found?.version !== this.version && !this.underway.has(number)) this.#fetch(number);
    }
  }

  /** @param {number} number */
  async #fetch(number) {
    this.underway.add(number);
    let answer;
    try {
      answer = await this.read("rows", [["first", number * WINDOW_ROWS], ["rows", WINDOW_ROWS]]);
    } catch (error) {
      if (!this.stopped.signal.aborted) this.dispatchEvent(new CustomEvent("failure", { detail: error }));
      return;
    } finally {
      this.underway.delete(number);
    }
    const { version, first, rows, edges, bundle } = answer;
    this.windows.set(number, { version, first, rows, edges, bundle });
    for (const oldest of this.windows.keys()) {
      if (this.windows.size <= MOST_WINDOWS) break;
      this.windows.delete(oldest);
    }
    this.#take(answer);
  }

  /** @param {{version: number, total: number, lanes: number, active: string, head: Point | null}} answer */
  #take(answer) {
    const isNew = answer.version > this.version;
    if (isNew) {
      ({ version: this.version, total: this.total, lanes: this.lanes, active: this.active, head: this.head } = answer);
    }
    this.dispatchEvent(new CustomEvent("change", { detail: { isNew } }));
  }

  /** The row of a message; null where the chat does not have it. @param {string} id @returns {Promise<number | null>} */
  async rowOf(id) {
    return (await this.rowsOf([id])).get(id) ?? null;
  }

  /** @param {string[]} ids @returns {Promise<Map<string, number>>} */
  async rowsOf(ids) {
    /** @type {Map<string, number>} */
    const found = new Map();
    for (let start = 0; start < ids.length; start += MOST_IDS) {
      const part = ids.slice(start, start + MOST_IDS);
      const answer = await this.read("rows/numbers", part.map((id) => ["id", id]));
      for (const [id, row] of Object.entries(answer.rows)) found.set(id, row);
    }
    return found;
  }

  /** The next branch point, or the one before; null at the end. @param {number} row @param {1 | -1} way */
  async fork(row, way) {
    const { points } = await this.read("branch-points", [[way > 0 ? "after" : "above", row], ["limit", 1]]);
    return points[0] ?? null;
  }

  /** @param {number} height */
  strip(height) {
    return this.read("rows/strip", [["height", height]]);
  }

  /** @param {string} id @returns {Promise<{line: number, lane: number, count: number, spans: [number, number][]}>} */
  line(id) {
    return this.read(`rows/lines/${encodeURIComponent(id)}`, []);
  }
}
