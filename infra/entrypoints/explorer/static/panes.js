// Panes as wide as the reader wants them: the edge between two is dragged, or moved by arrows, and stays there.

const STEP_PX = 16;

for (const edge of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[role=separator][data-width]"))) {
  const name = edge.dataset.width ?? "";
  const key = `chatledger-width-${name}`;
  const pane = /** @type {HTMLElement} */ (edge.closest(".pane"));
  const [least, most] = ["aria-valuemin", "aria-valuemax"].map((limit) => Number(edge.getAttribute(limit)));
  /** Whether the pane stands left of its edge, and grows to the right. */
  const isLeft = edge.getBoundingClientRect().x > pane.getBoundingClientRect().x + 8;

  /** @param {number} width */
  const set = (width) => {
    const px = Math.round(Math.max(least, Math.min(most, width)));
    document.documentElement.style.setProperty(`--${name}-width`, `${px}px`);
    edge.setAttribute("aria-valuenow", String(px));
    localStorage.setItem(key, String(px));
  };

  const kept = Number(localStorage.getItem(key));
  if (kept) set(kept);
  edge.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -STEP_PX, ArrowRight: STEP_PX }[event.key];
    if (!by) return;
    event.preventDefault();
    set(pane.offsetWidth + (isLeft ? by : -by));
  });
  edge.addEventListener("pointerdown", (event) => {
    const [from, width] = [event.clientX, pane.offsetWidth];
    const move = (/** @type {PointerEvent} */ { clientX }) => set(width + (isLeft ? clientX - from : from - clientX));
    event.preventDefault();
    edge.setPointerCapture(event.pointerId);
    edge.addEventListener("pointermove", move);
    edge.addEventListener("lostpointercapture", () => edge.removeEventListener("pointermove", move), { once: true });
  });
}
