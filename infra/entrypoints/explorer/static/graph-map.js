// The map beside the rows: the lanes of the whole chat in a strip, the hits, and what is seen of it.

const PATH_PX = 7;
const DOT_PX = 3;
const MARK_PX = 7;

export class MapPainter {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    /** The strip, painted once. */
    this.base = document.createElement("canvas");
    this.painted = null;
    this.colours = null;
    this.width = this.height = 0;
  }

  /** @param {number} width @param {number} height @param {number} ratio */
  resize(width, height, ratio) {
    this.width = width;
    this.height = height;
    for (const canvas of [this.canvas, this.base]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.getContext("2d")?.setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    this.painted = null;
  }

  /**
   * @param {any} strip As the server answers it; null where it is not here yet.
   * @param {any} colours
   * @param {Iterable<number>} hits Rows.
   * @param {number} from Where what is seen begins, as a part of the whole.
   * @param {number} to Where it ends.
   */
  paint(strip, colours, hits, from, to) {
    const { context, width, height } = this;
    if (this.painted !== strip || this.colours !== colours) this.#paintStrip(strip, colours);
    context.drawImage(this.base, 0, 0, width, height);
    if (!strip?.total) return;
    context.fillStyle = colours.warn;
    for (const row of hits) context.fillRect(width - MARK_PX, (row / strip.total) * height - 1, MARK_PX, 3);
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.5;
    context.strokeRect(0.75, from * height + 0.75, width - 1.5, Math.max((to - from) * height, 6) - 1.5);
  }

  #paintStrip(strip, colours) {
    const context = /** @type {CanvasRenderingContext2D} */ (this.base.getContext("2d"));
    const { width, height } = this;
    this.painted = strip;
    this.colours = colours;
    context.fillStyle = colours.sunken;
    context.fillRect(0, 0, width, height);
    if (!strip?.total) return;
    const high = height / strip.height;
    strip.pixels.forEach((/** @type {number[]} */ lanes, /** @type {number} */ y) => {
      for (const lane of lanes) {
        // The path that is read is a strip, what forks off it dots at its right.
        context.fillStyle = lane ? colours.thread : colours.accent;
        const x = lane ? 3 + PATH_PX + 2 + (lane - 1) * DOT_PX : 3;
        context.fillRect(x, y * high, lane ? DOT_PX - 1 : PATH_PX, Math.max(high, 1));
      }
    });
  }
}
