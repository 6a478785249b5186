// Times as a reader says them: how long ago, or on the reader's clock; the exact one is told when one points at it.

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;

/** @param {Date} time @param {Date} now */
function day(time, now) {
  const isThisYear = time.getFullYear() === now.getFullYear();
  return time.toLocaleDateString("en-GB", { day: "numeric", month: "short", ...(isThisYear ? {} : { year: "numeric" }) });
}

/** `now`, `38 min`, `5 h`, `14 Mar`, `14 Mar 2025`. @param {Date} time @param {Date} now */
function ago(time, now) {
  const ms = now.getTime() - time.getTime();
  if (Math.abs(ms) < MINUTE_MS) return "now";
  if (ms > 0 && ms < HOUR_MS) return `${Math.floor(ms / MINUTE_MS)} min`;
  if (ms > 0 && ms < DAY_MS) return `${Math.floor(ms / HOUR_MS)} h`;
  return day(time, now);
}

/** `16:44:02`, or of another day `14 Mar, 16:44:02`. @param {Date} time @param {Date} now */
function clock(time, now) {
  const at = time.toLocaleTimeString("en-GB");
  return time.toDateString() === now.toDateString() ? at : `${day(time, now)}, ${at}`;
}

/** @param {Date} time */
function exact(time) {
  return time.toLocaleString("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" });
}

/** @param {Iterable<Element>} times */
function tell(times) {
  const now = new Date();
  for (const element of times) {
    if (!(element instanceof HTMLTimeElement)) continue;
    const time = new Date(element.dateTime);
    const words = element.dataset.relative === undefined ? clock(time, now) : ago(time, now);
    if (element.textContent !== words) element.textContent = words;
    element.title = exact(time);
  }
}

const EVERY = "time[data-relative], time[data-clock]";

tell(document.querySelectorAll(EVERY));
setInterval(() => tell(document.querySelectorAll(EVERY)), MINUTE_MS);
// Rows and messages come later too, from whatever part of the page: those that were told have a title.
new MutationObserver(() => tell(document.querySelectorAll(":is(time[data-relative], time[data-clock]):not([title])"))).observe(
  document.body,
  { childList: true, subtree: true },
);
