"""A rebuild in a process of its own, which may start others: how long it takes, and how much memory all of them take."""

import json
import subprocess
import sys
import threading
import time
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

import chatledger

_WATCH_S: Final = 0.01
_CHILD: Final = """
import sys
from benchmarks import rebuilding

rebuilding.print_rebuild(sys.argv[1])
"""


class Rebuild(NamedTuple):
    """
    Time and memory that a rebuild took.

    Args:
        seconds: Until the new index was in use.
        grown: How much memory at most beyond what was used before, in bytes, by the process and those that it starts; pages
            of files are not counted.
    """

    seconds: float
    grown: int


def rebuild_apart(folder: Path) -> Rebuild:
    """Rebuild the index of a ledger that is closed."""
    answer = subprocess.run(
        [sys.executable, "-c", _CHILD, str(folder)],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds, grown = json.loads(answer.stdout)
    return Rebuild(seconds, max(1, grown))


def print_rebuild(folder: str) -> None:
    """The seconds and the bytes, on stdout."""
    with chatledger.open(folder, durability="fast") as ledger:
        before, peak, ended = _anonymous_bytes(), [0], threading.Event()

        def watch() -> None:
            while not ended.wait(_WATCH_S):
                peak[0] = max(peak[0], _anonymous_bytes())

        watcher = threading.Thread(target=watch)
        watcher.start()
        begun = time.perf_counter()
        ledger.rebuild()
        seconds = time.perf_counter() - begun
        ended.set()
        watcher.join()
        print(json.dumps([seconds, max(peak[0], _anonymous_bytes()) - before]))


def _anonymous_bytes() -> int:
    """The memory of this process and its children that is no page of a file."""
    started = [children.read_text(encoding="ascii").split() for children in Path("/proc/self/task").glob("*/children")]
    return sum(_anonymous_bytes_of(process) for process in ["self", *chain.from_iterable(started)])


def _anonymous_bytes_of(process: str) -> int:
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)
