"""
Time and memory of a ledger of many chats, stage by stage: made once in a folder that is kept, then opened, read, searched, rebuilt, verified.

    python -m benchmarks.scale FOLDER fill --messages 10000000       200,000 chats of 50, two events of 25 each; about an hour
    python -m benchmarks.scale FOLDER read                           opening, lists, chains, searches, appends
    python -m benchmarks.scale FOLDER rebuild
    python -m benchmarks.scale FOLDER verify

Each line is JSON. Seconds are of the wall, `cpu_s` of this process, without the server's.
"""

import argparse
import json
import resource
import statistics
import time
from bisect import bisect_left
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import chatledger
from chatledger import Ledger, NewMessage

from .measure import bytes_on_disk
from .prose import COMMON, PHRASE, Prose
from .rebuilding import rebuild_apart

_PER_CHAT: Final = 50
_PER_EVENT: Final = 25
_PER_USER: Final = 20
_TALKS: Final = 97
"""Different talks; each chat takes one of them up at a place of its own."""
_CALLS: Final = 2_000
_QUERIES: Final = {
    "a word none has": "zyzzyva",
    "two words": "window morning",
    "a phrase": f'"{PHRASE}"',
    "a frequent word": COMMON,
}


def main() -> None:
    """Run one stage."""
    parser = argparse.ArgumentParser(description="What a ledger of many chats takes.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("stage", choices=["fill", "read", "rebuild", "verify"])
    parser.add_argument("--messages", type=int, default=1_000_000)
    given = parser.parse_args()
    if given.stage == "fill":
        _fill(given.folder, given.messages)
    elif given.stage == "read":
        _read(given.folder)
    elif given.stage == "rebuild":
        built = rebuild_apart(given.folder)
        _tell("rebuild", seconds=built.seconds, memory_grew=built.grown)
    else:
        with chatledger.open(given.folder, durability="fast") as ledger, _timed("verify") as told:
            found = ledger.verify()
            told |= {"events": found.event_count, "messages": found.message_count}


def _fill(folder: Path, messages: int) -> None:
    """Write the chats, from the first one on that is not there."""
    talks = [Prose(number, length=max(messages // _TALKS, _PER_CHAT)) for number in range(_TALKS)]
    chats = range(messages // _PER_CHAT)
    with chatledger.open(folder, durability="fast") as ledger, _timed("fill") as told:
        first = bisect_left(chats, True, key=lambda number: ledger.get_chat(f"chat-{number}") is None)  # noqa: FBT003
        for number in chats[first:]:
            chat_id = f"chat-{number}"
            ledger.create_chat(chat_id, f"user-{number // _PER_USER}")
            turn, talk = divmod(number, _TALKS)
            for at in range(turn * _PER_CHAT, (turn + 1) * _PER_CHAT, _PER_EVENT):
                texts = [talks[talk].text(at + place) for place in range(_PER_EVENT)]
                ledger.append(chat_id, [NewMessage("user", text) for text in texts])
            if number % 2_000 == 0:
                _tell("filling", chats=number, log=bytes_on_disk(folder / "log"), index=bytes_on_disk(folder / "index"))
        told |= {"messages": messages, "first": first * _PER_CHAT}
    _tell("bytes", log=bytes_on_disk(folder / "log"), index=bytes_on_disk(folder / "index"))


def _read(folder: Path) -> None:
    with _timed("open"):
        ledger = chatledger.open(folder, durability="fast")
    with ledger:
        _times("50 chats", partial(ledger.list_chats, limit=50), calls=200)
        _times("50 chats of a user", partial(ledger.list_chats, user_id="user-7", limit=50), calls=200)
        _times("last 20 messages", lambda: ledger.get_messages("chat-77", limit=20), calls=_CALLS)
        _times("chain of 50", lambda: ledger.get_messages("chat-78"), calls=_CALLS)
        scopes: dict[str, Callable[..., object]] = {
            "all": ledger.search,
            "a user's": partial(ledger.search, user_id="user-7"),
            "a chat": partial(ledger.search, chat_id="chat-77"),
        }
        for where, search in scopes.items():
            for name, query in _QUERIES.items():
                _times(f"search {where} for {name}", partial(search, query, limit=20), calls=20)
        _appends(ledger)
        with _timed("close"):
            ledger.close()


def _appends(ledger: Ledger) -> None:
    talk = Prose(1_000, length=_CALLS)
    texts = iter([talk.text(at) for at in range(_CALLS)])
    _times(
        "append", lambda: ledger.append("chat-79", [NewMessage("user", next(texts))]), calls=_CALLS - 1, is_warm=False
    )


def _times(name: str, call: Callable[[], object], *, calls: int, is_warm: bool = True) -> None:
    if is_warm:
        call()
    spent: list[float] = []
    for _ in range(calls):
        started = time.perf_counter()
        call()
        spent.append(1e3 * (time.perf_counter() - started))
    spent.sort()
    _tell(name, median_ms=statistics.median(spent), p99_ms=spent[int(0.99 * (calls - 1))], most_ms=spent[-1])


@contextmanager
def _timed(name: str) -> Generator[dict[str, object]]:
    told: dict[str, object] = {}
    started, used = time.perf_counter(), time.process_time()
    yield told
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    _tell(name, seconds=time.perf_counter() - started, cpu_s=time.process_time() - used, peak_memory=peak, **told)


def _tell(name: str, **figures: object) -> None:
    rounded = {key: round(value, 3) if isinstance(value, float) else value for key, value in figures.items()}
    print(json.dumps({"what": name} | rounded), flush=True)


if __name__ == "__main__":
    main()
