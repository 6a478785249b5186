"""The runner: all subjects, one after the other, in one folder."""

import time
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from .curves import CURVES, Curve, measure_curves
from .machine import Machine, describe_machine
from .measure import Row
from .subjects.adapters import adapters
from .subjects.appends import appends
from .subjects.catalogue import branches, chats, many_chats
from .subjects.chains import chains
from .subjects.depth import forking, long_chains
from .subjects.engine import engine
from .subjects.erasing import erasing
from .subjects.event_stores import event_stores
from .subjects.explorer import explorer
from .subjects.feed import feed
from .subjects.langgraph_saver import langgraph
from .subjects.langgraph_values import langgraph_values
from .subjects.live import live
from .subjects.meaning import meaning
from .subjects.nodes import nodes
from .subjects.processes import processes
from .subjects.proof import proof
from .subjects.publishing import publishing, writers
from .subjects.pulls import pulls
from .subjects.reading_log import reading_log
from .subjects.search import searches
from .subjects.serving import serving
from .subjects.sessions import sessions
from .subjects.shares import shares
from .subjects.small_chats import real_chats, small_chats
from .subjects.starting import starting
from .subjects.storing import imports, long_opening, opening, rebuilds
from .subjects.time_travel import time_travel
from .subjects.transcripts import transcripts
from .subjects.vouching import vouching
from .world import Sizes, World

Subject = Callable[[World], Iterator[Row]]
SUBJECTS: Final[dict[str, Subject]] = {
    "chains": chains,
    "long_chains": long_chains,
    "forking": forking,
    "engine": engine,
    "appends": appends,
    "processes": processes,
    "event_stores": event_stores,
    "nodes": nodes,
    "publishing": publishing,
    "writers": writers,
    "shares": shares,
    "feed": feed,
    "live": live,
    "search": searches,
    "meaning": meaning,
    "small_chats": small_chats,
    "real_chats": real_chats,
    "branches": branches,
    "chats": chats,
    "many_chats": many_chats,
    "time_travel": time_travel,
    "rebuilds": rebuilds,
    "reading_log": reading_log,
    "imports": imports,
    "transcripts": transcripts,
    "starting": starting,
    "opening": opening,
    "long_opening": long_opening,
    "vouching": vouching,
    "erasing": erasing,
    "proof": proof,
    "pulls": pulls,
    "langgraph": langgraph,
    "langgraph_values": langgraph_values,
    "sessions": sessions,
    "adapters": adapters,
    "serving": serving,
    "explorer": explorer,
}
"""In the order of the table."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a run, as they are kept in JSON."""

    at: str
    sizes: str
    machine: Machine
    rows: list[Row]
    curves: list[Curve] = []
    took_s: dict[str, float] = {}
    """How long each subject took, with storing what it is about."""


def run(
    root: Path,
    sizes: Sizes,
    *,
    only: Collection[str] = (),
    so_far: Result | None = None,
    keep: Callable[[Result], None] = lambda _: None,
    report: Callable[[str], None] = lambda _: None,
) -> Result:
    """
    Run subjects, all or those named, in an empty folder.

    Args:
        root: The folder.
        sizes: How much of everything.
        only: The names of the subjects; all when empty.
        so_far: The result of a run that was broken off: its subjects are not run again.
        keep: Is given what was found so far after each subject, as a whole run takes an hour.
        report: Is told what is being done.

    Raises:
        ResultsDifferError: Two answers that are compared are not equal.
    """
    world = World(root, sizes, report)
    found = so_far or Result(at=_now(), sizes=sizes.name, machine=describe_machine(root), rows=[])
    try:
        for name, subject in SUBJECTS.items():
            if name in found.took_s or (only and name not in only):
                continue
            begun = time.perf_counter()
            rows = [*found.rows, *subject(world)]
            found = msgspec.structs.replace(found, at=_now(), rows=rows, took_s=_took(found, name, begun))
            keep(found)
        if CURVES not in found.took_s and (not only or CURVES in only):
            begun = time.perf_counter()
            curves = list(measure_curves(world))
            found = msgspec.structs.replace(found, at=_now(), curves=curves, took_s=_took(found, CURVES, begun))
    finally:
        world.close()
    return found


def _took(found: Result, name: str, begun: float) -> dict[str, float]:
    return found.took_s | {name: round(time.perf_counter() - begun, 1)}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
