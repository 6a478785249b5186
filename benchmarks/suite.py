"""The runner: all subjects, one after the other, in one folder."""

from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from .machine import Machine, describe_machine
from .measure import Row
from .subjects.appends import appends
from .subjects.catalogue import branches, chats
from .subjects.chains import chains
from .subjects.engine import engine
from .subjects.feed import feed
from .subjects.proof import proof
from .subjects.search import searches
from .subjects.storing import imports, opening, rebuilds
from .subjects.time_travel import time_travel
from .world import Sizes, World

Subject = Callable[[World], Iterator[Row]]
SUBJECTS: Final[dict[str, Subject]] = {
    "chains": chains,
    "engine": engine,
    "appends": appends,
    "feed": feed,
    "search": searches,
    "branches": branches,
    "chats": chats,
    "time_travel": time_travel,
    "rebuilds": rebuilds,
    "imports": imports,
    "opening": opening,
    "proof": proof,
}
"""In the order of the table."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a run found, as it is kept in JSON."""

    at: str
    sizes: str
    machine: Machine
    rows: list[Row]


def run(
    root: Path,
    sizes: Sizes,
    *,
    only: Collection[str] = (),
    report: Callable[[str], None] = lambda _: None,
) -> Result:
    """
    Run subjects, all or those named, in an empty folder.

    Raises:
        ResultsDifferError: Two answers that are compared are not equal.
    """
    world = World(root, sizes, report)
    try:
        rows = [row for name, subject in SUBJECTS.items() if not only or name in only for row in subject(world)]
    finally:
        world.close()
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return Result(at=at, sizes=sizes.name, machine=describe_machine(root), rows=rows)
