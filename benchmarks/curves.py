"""How the cost of an operation grows with the size of a chat."""

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import msgspec

import chatledger
from chatledger import Ledger

from .data import START_MS
from .measure import take_turns
from .prose import RARE, Prose
from .world import World

CURVES: Final = "curves"
"""Their name among the subjects."""
_TAIL: Final = 50
_FEW: Final = 3
_PROPORTIONAL: Final = ("chain", "chain, lazy data", "rebuild")


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """
    The cost of an operation for several sizes of the chat.

    Args:
        name: The operation.
        is_flat: Whether the same cost for all sizes is promised; else it is in proportion to the size.
        points: (messages in the chat, seconds).
    """

    name: str
    is_flat: bool
    points: list[tuple[int, float]]


def measure_curves(world: World) -> Iterator[Curve]:
    """The curves of append, chain, tail, search and rebuild; one ledger for each size. The last subject: it changes what is stored."""
    found: dict[str, list[tuple[int, float]]] = {}
    for size in world.sizes.scaling:
        with chatledger.open(world.stored(size), durability="fast") as ledger:
            for name, seconds in _costs(world, ledger, size).items():
                found.setdefault(name, []).append((size, seconds))
            found.setdefault("rebuild", []).append((size, _rebuild(world, ledger, size)))
    for name, points in found.items():
        yield Curve(name=name, is_flat=name not in _PROPORTIONAL, points=points)


def _costs(world: World, ledger: Ledger, size: int) -> dict[str, float]:
    sizes, talk = world.sizes, Prose(size + 1)

    def append() -> None:
        for message in list(talk.messages(sizes.appends_per_sample)):
            ledger.append("chat", [msgspec.structs.replace(message, created_at=START_MS + size)])

    def median(call: Callable[[], object], *, few: bool = False) -> float:
        repeats = min(_FEW, sizes.repeats) if few else sizes.repeats
        samples = take_turns({"ours": call}, repeats=repeats, sample_s=0 if few else sizes.sample_s)
        return statistics.median(samples["ours"])

    return {
        "chain": median(partial(ledger.get_messages, "chat"), few=True),
        "chain, lazy data": median(partial(ledger.get_messages, "chat", lazy_data=True), few=True),
        f"last {_TAIL}": median(partial(ledger.get_messages, "chat", limit=_TAIL)),
        "search, 10 hits": median(partial(ledger.search, RARE, chat_id="chat", limit=10)),
        "append": median(append, few=True) / sizes.appends_per_sample,
    }


def _rebuild(world: World, ledger: Ledger, size: int) -> float:
    if size * 10 >= world.sizes.longest:
        return world.rebuilt(size).seconds  # of which the table has the memory
    start = time.perf_counter()
    ledger.rebuild()
    return time.perf_counter() - start
