// The rows of a chat that the graph holds: windows fetched as they are needed, a few dozen of them at most.

import { ROOT } from "./feed.js";
import { ask } from "./frame.js";

const WINDOW_ROWS = 256;
const MOST_WINDOWS = 24;
const MOST_IDS = 100;
const MOST_ON_PATH = 20;
const NO_VERSION = -2;

/**
 * @typedef {{row: number, lane: number}} Point
 * @typedef {{row: number, id: string, lane: number, on_path: boolean, line: number, parents: Point[], role: string, preview: string,
 *   created_at: number, branch: string | null, branches: string[], checkpoints: string[], stale: boolean, hidden: boolean,
 *   replaced_by: string | null, children: number}} Row
 * @typedef {{row: number, lane: number, to_row: number, to_lane: number, cut: "down" | "up" | null, line: number,
 *   is_merge: boolean}} Edge
 * @typedef {{row: number, to_row: number, count: number}} Cut
 * @typedef {{version: number, first: number, rows: Row[], edges: Edge[], bundle: Cut[]}} Window
 */

/** The server refused, or did not answer. */
class RowsError extends Error {}

/** Windows of one chat at one moment. It dispatches `change` when something came. */
export class Rows extends EventTarget {
  /**
   * @param {string} chat
   * @param {string | null} at A position or a time; null for now.
   * @param {string | null} along What is read: a branch, or a message.
   * @param {boolean} isPath Whether the rows are those of that path alone.
   */
  constructor(chat, at, along, isPath) {
    super();
    this.along = along;
    this.isPath = isPath;
    this.path = `${ROOT}/api/v1/chats/${encodeURIComponent(chat)}`;
    this.at = at;
    this.total = 0;
    this.lanes = 0;
    this.version = -1;
    this.active = "";
    this.isCut = false;
    /** @type {Point | null} */
    this.head = null;
    /** @type {Map<number, Window>} By number, the one used last at the end. */
    this.windows = new Map();
    /** @type {Set<number>} */
    this.underway = new Set();
    this.stopped = new AbortController();
  }

  /** Show what was read along another path, or at another moment, until the same rows are here. @param {Rows} other */
  standIn(other) {
    ({ total: this.total, lanes: this.lanes, head: this.head, isCut: this.isCut } = other);
    for (const [number, window] of other.windows) this.windows.set(number, { ...window, version: NO_VERSION });
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
    const values = new URLSearchParams(query.map(([name, value]) => [name, String(value)]));
    if (this.at !== null) values.set("as_of", this.at);
    const answer = await ask(`${this.path}/${path}?${values}`, { signal: this.stopped.signal });
    if (!answer.ok) throw new RowsError(`${path}: ${answer.status}`);
    return answer.json();
  }

  /** The same, where what is read decides about lanes. @param {string} path @param {[string, string | number][]} query */
  #drawn(path, query) {
    const along = /** @type {[string, string][]} */ (this.along === null ? [] : [["along", this.along]]);
    return this.read(path, [...query, ...along]);
  }

  /** @param {[string, string | number][]} query */
  #window(query) {
    return this.#drawn("rows", this.isPath ? [...query, ["only", "path"]] : query);
  }

  /** The row, if it is here. @param {number} row @returns {Row | undefined} */
  get(row) {
    const window = this.windows.get(Math.floor(row / WINDOW_ROWS));
    return window?.rows[row - window.first];
  }

  /** Read how large the chat is now; windows of an earlier version are read again when they are seen. */
  async refresh() {
    this.#take(await this.#window([["rows", 1]]));
  }

  /**
   * Read that, and the windows of some rows: where it is known at which one the graph opens, nobody waits for two answers in turn.
   * @param {number} first
   * @param {number} last
   */
  async open(first, last) {
    const [from, to] = [first, last].map((row) => Math.floor(Math.max(row, 0) / WINDOW_ROWS));
    await Promise.all(Array.from({ length: to - from + 1 }, (_, number) => this.#read(from + number)));
  }

  /** @param {number} first @param {number} last @returns {Window[]} Those here that have some of these rows. */
  between(first, last) {
    const windows = [];
    for (let number = Math.floor(first / WINDOW_ROWS); number <= Math.floor(last / WINDOW_ROWS); number++) {
      const window = this.windows.get(number);
      if (window) windows.push(window);
    }
    return windows;
  }

  /** Fetch what is missing of these rows. @param {number} first @param {number} last */
  want(first, last) {
    const from = Math.max(Math.floor(first / WINDOW_ROWS), 0);
    const to = Math.floor(Math.min(last, this.total - 1) / WINDOW_ROWS);
    for (let number = from; number <= to; number++) {
      const window = this.windows.get(number);
      if (window) {
        this.windows.delete(number);
        this.windows.set(number, window);
      }
      if (window?.version !== this.version && !this.underway.has(number)) this.#fetch(number);
    }
  }

  /** @param {number} number */
  async #fetch(number) {
    try {
      await this.#read(number);
    } catch (error) {
      if (!this.stopped.signal.aborted) this.dispatchEvent(new CustomEvent("failure", { detail: error }));
    }
  }

  /** @param {number} number */
  async #read(number) {
    this.underway.add(number);
    const answer = await this.#window([["first", number * WINDOW_ROWS], ["rows", WINDOW_ROWS]]).finally(() => this.underway.delete(number));
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
      ({ version: this.version, total: this.total, lanes: this.lanes, active: this.active, head: this.head, is_cut: this.isCut } = answer);
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
    const rows = new Map();
    if (this.isPath) {
      // By depth: of each the window that has it in its middle says where it is; those that are not on the path have no row.
      for (const id of ids.slice(0, MOST_ON_PATH)) {
        const near = await this.#window([["rows", 1], ["around", id]]).catch(() => null);
        if (near?.rows[0]?.id === id) rows.set(id, near.rows[0].row);
      }
      return rows;
    }
    for (let start = 0; start < ids.length; start += MOST_IDS) {
      const part = ids.slice(start, start + MOST_IDS);
      const answer = await this.read("rows/numbers", part.map((id) => ["id", id]));
      for (const [id, row] of Object.entries(answer.rows)) rows.set(id, row);
    }
    return rows;
  }

  /** The next branch point, or the one before; null at the end. @param {number} row @param {1 | -1} way */
  async fork(row, way) {
    const { points } = await this.#drawn("branch-points", [[way > 0 ? "after" : "above", row], ["limit", 1]]);
    return points[0] ?? null;
  }

  /** @param {number} height */
  strip(height) {
    return this.#drawn("rows/strip", [["height", height]]);
  }

  /** The lines that are cut over a row. @param {number} row @returns {Promise<{row: number, id: string, preview: string, branches: string[]}[]>} */
  bundled(row) {
    return this.#drawn(`rows/bundles/${row}`, []);
  }
}
