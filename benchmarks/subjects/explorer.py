"""The graph of the explorer in Chromium: how soon it is drawn, how smoothly it scrolls, how much memory it takes."""

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urljoin

import msgspec

import chatledger
from chatledger import Ledger
from chatledger.importers import ImportedBranch, ImportedChat, ImportedMessage

from ..data import START_MS
from ..measure import Row
from ..world import World
from .serving import serve_folder

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

_FORK_EVERY: Final = 100
_SIDE: Final = 20
_FRAMES: Final = 300
_SCROLL_PX: Final = 240
_PAINT_S: Final = 1.0
_FRAME_S: Final = 0.016
_HEAP_BYTES: Final = 150 * 1000 * 1000
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ARGUMENTS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--enable-precise-memory-info"),
)
_PUT: Final = """async chat => {
  const at = name => document.querySelector('script[src*="/static/"]').src.replace("frame.js", name);
  const style = Object.assign(document.createElement("link"), { rel: "stylesheet", href: at("graph.css") });
  document.head.append(style);
  const start = performance.now();
  const graph = document.createElement("cl-graph");
  graph.setAttribute("chat", chat);
  const painted = new Promise(done => graph.addEventListener("cl-ready", () => requestAnimationFrame(() => done(performance.now()))));
  document.querySelector("main").replaceChildren(graph);
  await import(at("graph.js"));
  return (await painted - start) / 1000;
}"""
_SCROLL: Final = """async ([frames, step]) => {
  const graph = document.querySelector("cl-graph");
  const scroller = graph.querySelector(".cl-graph-scroll");
  const channel = new MessageChannel();
  graph.scroll.to(0);
  await new Promise(requestAnimationFrame);
  const work = [];
  for (let frame = 0; frame < frames; frame++) {
    scroller.scrollTop += step;
    // In the next frame this comes before what the graph asked for; the message comes when the frame is painted.
    await new Promise(done => requestAnimationFrame(() => {
      const start = performance.now();
      channel.port1.onmessage = () => done(work.push((performance.now() - start) / 1000));
      channel.port2.postMessage(null);
    }));
  }
  work.sort((a, b) => a - b);
  return work[Math.ceil(0.95 * frames) - 1];
}"""


class Seen(NamedTuple):
    """Measurements of a browser that drew the graph of a chat: seconds until it was painted, of each scrolled frame, and bytes."""

    paint_s: float
    frame_s: float
    heap: float


def explorer(world: World) -> Iterator[Row]:
    """Chats of the longest chain that others read, and of the longest of all; next to what the explorer has to keep to."""
    path = os.environ.get("CHATLEDGER_CHROMIUM") or next(
        (found for name in _NAMES if (found := shutil.which(name))), None
    )
    if path is None or find_spec("playwright") is None or find_spec("jinja2") is None:
        return
    from playwright.sync_api import sync_playwright

    folder = world.folder() / "ledger"
    lengths = {"chat": world.sizes.long, "longest": world.sizes.longest}
    with chatledger.open(folder, durability="fast") as ledger:
        for chat_id, length in lengths.items():
            world.report(f"storing {length:,} messages with forks")
            make_forked(ledger, chat_id, length)
    with serve_folder(folder, "explore ") as link, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        context = browser.new_context(viewport={"width": 1200, "height": 800})
        context.new_page().goto(link)
        for chat_id, length in lengths.items():
            world.report(f"graph of {length:,} messages")
            yield from _rows(length, [_seen(context, link, chat_id) for _ in range(world.sizes.repeats)])
        browser.close()


def _rows(length: int, seen: list[Seen]) -> Iterator[Row]:
    forks = f"{length:,} messages and {length // _FORK_EVERY:,} forks"
    limits = [
        (
            "graph painted",
            "the limit, 1 s",
            _PAINT_S,
            [one.paint_s for one in seen],
            "from the element to the first rows",
        ),
        (
            "scrolled frame, p95",
            "the limit, 16 ms",
            _FRAME_S,
            [one.frame_s for one in seen],
            f"of {_FRAMES} frames, without a GPU",
        ),
        (
            "heap after scrolling",
            "the limit, 150 MB",
            _HEAP_BYTES,
            [one.heap for one in seen],
            "of JavaScript, by Chromium",
        ),
    ]
    for name, peer, limit, ours, note in limits:
        yield Row(
            subject="explorer",
            name=f"{name}, {forks}",
            peer=peer,
            show="bytes" if limit == _HEAP_BYTES else "time",
            ours=ours,
            theirs=[limit] * len(ours),
            note=note,
        )


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
    page = context.new_page()
    page.goto(urljoin(link, "/"))
    paint_s: float = page.evaluate(_PUT, chat_id)
    frame_s: float = page.evaluate(_SCROLL, [_FRAMES, _SCROLL_PX])
    heap: float = page.evaluate("performance.memory.usedJSHeapSize")
    page.close()
    return Seen(paint_s, frame_s, heap)
