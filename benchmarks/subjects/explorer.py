"""The explorer in Chromium: how soon a page is seen, how smoothly it scrolls, how much memory it takes."""

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urljoin

import msgspec

import chatledger
from chatledger import Ledger, user
from chatledger.importers import ImportedBranch, ImportedChat, ImportedMessage

from ..data import START_MS
from ..measure import Row
from ..world import World
from .serving import serve_folder

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

_FORK_EVERY: Final = 100
_SIDE: Final = 20
_FRAMES: Final = 300
_SCROLL_PX: Final = 240
_SHORT: Final = 10_000
"""Messages of a chat that is to be seen in 300 ms; a longer one in a second."""

_STEPS: Final = 20
"""Commits after the import, to go back over."""

_MOST_LISTED: Final = 1000
_TYPED: Final = "weekend%20rig"
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ARGUMENTS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--enable-precise-memory-info"),
)
_TOLD: Final = (
    """addEventListener("cl-ready", () => requestAnimationFrame(() => { window.drawnAt ??= performance.now(); }));"""
)
_DRAWN: Final = """async () => {
  while (!window.drawnAt) await new Promise(requestAnimationFrame);
  return window.drawnAt / 1000;
}"""
_FIRST_PAINT: Final = """async () => {
  let paint;
  while (!(paint = performance.getEntriesByName("first-contentful-paint")[0])) await new Promise(requestAnimationFrame);
  return paint.startTime / 1000;
}"""
_SCROLL: Final = """async ([selector, frames, step]) => {
  const scroller = document.querySelector(selector);
  const channel = new MessageChannel();
  const work = [];
  for (let frame = 0; frame < frames; frame++) {
    scroller.scrollTop += step;
    // In the next frame this comes before what the page asked for; the message comes when the frame is painted.
    await new Promise(done => requestAnimationFrame(() => {
      const start = performance.now();
      channel.port1.onmessage = () => done(work.push((performance.now() - start) / 1000));
      channel.port2.postMessage(null);
    }));
  }
  work.sort((a, b) => a - b);
  return work[Math.ceil(0.95 * frames) - 1];
}"""
_UNTIL: Final = """async ([key, seen]) => {
  const start = performance.now();
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  while (!document.querySelector(seen)) await new Promise(requestAnimationFrame);
  return (performance.now() - start) / 1000;
}"""
_HALF: Final = """async count => {
  const start = performance.now();
  const scroller = document.getElementById("scroller");
  scroller.scrollTop = (scroller.scrollHeight - scroller.clientHeight) / 2;
  // The message at the top edge is said, and there.
  const isThere = () => {
    const number = Number(document.getElementById("place").textContent.replaceAll(",", "").match(/\\d+/)?.[0]);
    return Math.abs(number - count / 2) <= 500 && document.querySelector(`article[aria-posinset="${number}"]`);
  };
  while (!isThere()) await new Promise(requestAnimationFrame);
  return (performance.now() - start) / 1000;
}"""
_STEP: Final = """async () => {
  const start = performance.now();
  const slider = document.querySelector("cl-time input");
  slider.stepDown();
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  slider.dispatchEvent(new Event("change", { bubbles: true }));
  while (!document.querySelector(".as-of")) await new Promise(requestAnimationFrame);
  return (performance.now() - start) / 1000;
}"""
_ANSWER: Final = """async path => {
  const start = performance.now();
  const answer = await fetch(path, { headers: { Accept: "text/html" } });
  await answer.text();
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return (performance.now() - start) / 1000;
}"""


class Seen(NamedTuple):
    """Measurements of the page of a chat: seconds, of the frames the 95th of a hundred; bytes of JavaScript."""

    painted_s: float
    drawn_s: float
    graph_frame_s: float
    path_frame_s: float
    first_s: float
    last_s: float
    half_s: float
    step_s: float
    heap: float


def explorer(world: World) -> Iterator[Row]:
    """Chats of the longest chain that others read, and of the longest of all; and lists; next to what the design asks for."""
    path = os.environ.get("CHATLEDGER_CHROMIUM") or next(
        (found for name in _NAMES if (found := shutil.which(name))), None
    )
    if path is None or find_spec("playwright") is None or find_spec("jinja2") is None:
        return
    from playwright.sync_api import sync_playwright

    folder = world.folder() / "ledger"
    listed = min(world.sizes.chats * 5, _MOST_LISTED)
    lengths = {"chat": world.sizes.long, "longest": world.sizes.longest}
    with chatledger.open(folder, durability="fast") as ledger:
        for chat_id, length in lengths.items():
            world.report(f"storing {length:,} messages with forks")
            make_forked(ledger, chat_id, length)
            for number in range(_STEPS):
                ledger.append(chat_id, [user(f"one more, {number}")])
        for number in range(listed):
            ledger.create_chat(f"listed-{number}", "local", title=f"A weekend in Riga, {number}")
            ledger.append(f"listed-{number}", [user("Plan me a weekend in Riga, two days, mid May.")])
        _make_threads(ledger, listed // 2)
    with serve_folder(folder, "explore ") as link, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        context.add_init_script(_TOLD)
        context.new_page().goto(link)
        for chat_id, length in lengths.items():
            world.report(f"page of {length:,} messages")
            _seen(context, link, chat_id)  # The first one of a process lays out the lanes.
            yield from _rows(length, [_seen(context, link, chat_id) for _ in range(world.sizes.repeats)])
        page = context.new_page()
        page.goto(urljoin(link, "/proof"))
        lists = (
            (f"list of {listed:,} chats", "/", 0.15),
            (f"list of {listed // 2:,} threads", "/agents", 0.15),
            (f"palette, {listed:,} chats", f"/palette?q={_TYPED}", 0.03),
        )
        for name, where, limit in lists:
            page.evaluate(_ANSWER, where)
            ours = [page.evaluate(_ANSWER, where) for _ in range(world.sizes.repeats)]
            yield _row(name, limit, ours, "until the answer is read")
        browser.close()


def _rows(length: int, seen: list[Seen]) -> Iterator[Row]:
    forks = f"{length:,} messages, {length // _FORK_EVERY:,} forks"
    limits = (
        ("chat seen", 0.3 if length <= _SHORT else 1.0, "from the request until the first paint, with messages"),
        ("chat and graph drawn", 1.0, "from the request until rows of the graph are drawn too"),
        ("frame, graph scrolls, p95", 0.02, f"of {_FRAMES}, without a GPU"),
        ("frame, path scrolls, p95", 0.02, f"of {_FRAMES}, without a GPU"),
        ("first message, from the last", 1.0, "from the key until it is in the document"),
        ("last message, from the first", 1.0, "from the key until it is in the document"),
        ("half of the messages, by the bar", 1.0, "until one within 500 of it is at the top edge"),
        ("step into the past", 0.25, "the chat replayed once before"),
    )
    for (name, limit, note), ours in zip(limits, zip(*seen, strict=True), strict=False):
        yield _row(f"{name}; {forks}", limit, list(ours), note)
    heap, limit = [each.heap for each in seen], 150 * 1000 * 1000
    yield Row(
        subject="explorer",
        name=f"heap after scrolling; {forks}",
        peer="the limit, 150 MB",
        show="bytes",
        ours=heap,
        theirs=[limit] * len(heap),
        note="of JavaScript, by Chromium",
    )


def _row(name: str, limit_s: float, ours: list[float], note: str) -> Row:
    return Row(
        subject="explorer",
        name=name,
        peer=f"the limit, {limit_s * 1000:.0f} ms",
        show="time",
        ours=ours,
        theirs=[limit_s] * len(ours),
        note=note,
    )


def _make_threads(ledger: Ledger, count: int) -> None:
    """Store threads of LangGraph, where that is installed."""
    if find_spec("langgraph") is None:
        return
    from langchain_core.messages import HumanMessage
    from langgraph.checkpoint.base import empty_checkpoint

    from chatledger.langgraph import LedgerSaver

    saver = LedgerSaver(ledger)
    for number in range(count):
        config: Any = {"configurable": {"thread_id": f"thread-{number}", "checkpoint_ns": ""}}
        state: Any = {
            **empty_checkpoint(),
            "channel_values": {"messages": [HumanMessage("Plan me a weekend in Riga.")]},
        }
        saver.put(config, state, {"source": "loop", "step": 0, "parents": {}}, {"messages": 1})


def make_forked(ledger: Ledger, chat_id: str, length: int) -> None:
    """Store a chat in which every hundred messages some are left for another answer further up."""
    messages: list[ImportedMessage] = []
    branches: list[ImportedBranch] = []
    head: str | None = None
    while len(messages) < length:
        for _ in range(min(_FORK_EVERY, length - len(messages))):
            number = len(messages)
            messages.append(
                ImportedMessage(
                    id=f"{chat_id}-{number}",
                    parent_id=head,
                    name="assistant" if number % 2 else "user",
                    data=f"message {number:,}: a weekend in Riga, with boats, markets and rain",
                    created_at=START_MS + number,
                )
            )
            head = messages[-1].id
        name = f"try {len(branches):,}"
        branches.append(ImportedBranch(name=name, head_message_id=head, created_at=START_MS + len(messages)))
        if len(messages) < length:
            head = messages[-1 - _SIDE].id
    chat = ImportedChat(
        id=chat_id,
        user_id="local",
        title=None,
        metadata=None,
        messages=tuple(messages),
        branches=(*branches[:-1], msgspec.structs.replace(branches[-1], is_active=True)),
    )
    ledger.import_chat(chat)


def _seen(context: "BrowserContext", link: str, chat_id: str) -> Seen:
    page: Page = context.new_page()
    page.goto(urljoin(link, f"/c/{chat_id}"))
    drawn_s: float = page.evaluate(_DRAWN)
    painted_s: float = page.evaluate(_FIRST_PAINT)
    first_s: float = page.evaluate(_UNTIL, ["Home", 'article[aria-posinset="1"]'])
    count: int = page.evaluate("Number(document.querySelector('article').getAttribute('aria-setsize'))")
    last_s: float = page.evaluate(_UNTIL, ["End", f'article[aria-posinset="{count}"]'])
    half_s: float = page.evaluate(_HALF, count)
    page.evaluate(_UNTIL, ["Home", 'article[aria-posinset="1"]'])
    path_s: float = page.evaluate(_SCROLL, ["#scroller", _FRAMES, _SCROLL_PX])
    graph_s: float = page.evaluate(_SCROLL, [".cl-graph-scroll", _FRAMES, -_SCROLL_PX])
    heap: float = page.evaluate("performance.memory.usedJSHeapSize")
    page.wait_for_selector("cl-time input", state="attached")
    step_s: float = page.evaluate(_STEP)
    page.close()
    return Seen(painted_s, drawn_s, graph_s, path_s, first_s, last_s, half_s, step_s, heap)
