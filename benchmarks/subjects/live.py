"""How long a chunk of a growing answer takes to a reader in another process, next to a table in SQLite that is polled."""

import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import chatledger

from ..measure import Row, check_equal
from ..world import World

_PER_EVENT: Final = 100
_PACE_S: Final = 0.001
_PER_PACE: Final = 20
"""20,000 chunks a second."""
_POLL_S: Final = 0.002
_SERIES: Final = 5
_CHILD: Final = """
import sys
from benchmarks.subjects import live

getattr(live, "read_" + sys.argv[1])(sys.argv[2], sys.argv[3], int(sys.argv[4]))
"""


def live(world: World) -> Iterator[Row]:
    """One writer at 20,000 chunks a second, and as fast as it can; one reader."""
    count = world.sizes.feed_events * _PER_EVENT
    folder = world.folder()
    late: dict[str, list[float]] = {"ours": [], "theirs": []}
    took: dict[str, list[float]] = {"ours": [], "theirs": []}
    with chatledger.open(folder / "ledger", durability="fast") as ledger:
        ledger.create_chat("chat", "ada")
        writers: dict[str, _Writer] = {"ours": _Ours(ledger, folder / "ledger"), "theirs": _Theirs(folder / "peer.db")}
        for turn in range(min(_SERIES, world.sizes.repeats)):
            for name in writers if turn % 2 == 0 else reversed(list(writers)):
                world.report(f"live streams, {name}")
                late[name].append(_paced(writers[name], f"{turn} paced", count))
                took[name].append(_unpaced(writers[name], f"{turn} fast", count))
    note = (
        "text chunks, durability='fast', the reader in another process; the peer commits what gathered each 2 ms "
        "(synchronous=NORMAL), and its reader polls each 2 ms; a sample is one series"
    )
    paced = "chunk to reader at 20,000 chunks/s, p95"
    yield Row(subject="live", name=paced, peer="SQLite table", ours=late["ours"], theirs=late["theirs"], note=note)
    yield Row(
        subject="live",
        name="chunks of one writer",
        peer="SQLite table",
        show="rate",
        ours=took["ours"],
        theirs=took["theirs"],
        note=note,
    )


class _Ours:
    def __init__(self, ledger: chatledger.Ledger, folder: Path) -> None:
        self._ledger, self.place = ledger, str(folder)
        self.kind = "ours"

    @contextmanager
    def writing(self, name: str) -> Generator[tuple[Callable[[str], object], Callable[[], object]]]:
        with self._ledger.live("chat", id=name) as answer:
            yield answer.write, answer.flush
            answer.commit()


class _Theirs:
    def __init__(self, path: Path) -> None:
        self.place = str(path)
        self.kind = "theirs"
        with closing(sqlite3.connect(path)) as db:
            db.execute("pragma journal_mode = wal")
            db.execute("create table chunks (name text, number integer, data text, primary key (name, number))")

    @contextmanager
    def writing(self, name: str) -> Generator[tuple[Callable[[str], object], Callable[[], object]]]:
        with closing(sqlite3.connect(self.place, isolation_level=None)) as db:
            db.execute("pragma synchronous = normal")
            gathered: list[tuple[str, int, str]] = []
            count, sent_s = 0, time.perf_counter()

            def flush() -> None:
                nonlocal sent_s
                db.execute("begin immediate")
                db.executemany("insert into chunks values (?, ?, ?)", gathered)
                db.execute("commit")
                gathered.clear()
                sent_s = time.perf_counter()

            def write(data: str) -> None:
                nonlocal count
                count += 1
                gathered.append((name, count, data))
                if time.perf_counter() - sent_s > _POLL_S:
                    flush()

            yield write, flush
            flush()


_Writer = _Ours | _Theirs


def _paced(writer: _Writer, name: str, count: int) -> float:
    """The 95th percentile of the time from writing a chunk to its arrival."""
    with writer.writing(name) as (write, flush):
        flush()
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD, writer.kind, writer.place, name, str(count)],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        with child.stdout as lines:
            check_equal("the reader begins", lines.readline(), "begun\n")
            begun = time.perf_counter()
            for number in range(count):
                if number % _PER_PACE == 0:
                    time.sleep(max(0.0, begun + number // _PER_PACE * _PACE_S - time.perf_counter()))
                write(repr(time.perf_counter()))
            flush()
            found = float(lines.readline())
        child.wait(60)
    return found


def _unpaced(writer: _Writer, name: str, count: int) -> float:
    """Seconds for a chunk, stored."""
    with writer.writing(name) as (write, flush):
        begun = time.perf_counter()
        for _ in range(count):
            write("a token ")
        flush()
        return (time.perf_counter() - begun) / count


def _print_late(late: list[float]) -> None:
    print(sorted(late)[min(len(late) - 1, int(len(late) * 0.95))], flush=True)


def read_ours(place: str, name: str, count: int) -> None:
    """Print the 95th percentile of the delays of so many chunks of a live stream."""
    with chatledger.open(place, durability="fast") as ledger, ledger.read_live("chat", name) as reader:
        print("begun", flush=True)
        late = [time.perf_counter() - float(next(reader).data) for _ in range(count)]
    _print_late(late)


def read_theirs(place: str, name: str, count: int) -> None:
    """Print the 95th percentile of the delays of so many rows of the table."""
    late: list[float] = []
    with closing(sqlite3.connect(place, isolation_level=None)) as db:
        print("begun", flush=True)
        while len(late) < count:
            sql = "select data from chunks where name = ? and number > ? order by number"
            rows = db.execute(sql, (name, len(late))).fetchall()
            arrived = time.perf_counter()
            late += [arrived - float(data) for (data,) in rows]
            if not rows:
                time.sleep(_POLL_S)
    _print_late(late)
