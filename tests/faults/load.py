"""
Many writers, feeds and readers in one process for a while: nothing may grow or slow down.

Run as a process of its own; it prints what it measured as JSON.
"""

import json
import os
import sys
import threading
import time
from array import array
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
from tests.faults.calls import content
from tests.faults.deaths import server_pid
from tests.support.ledger_world import internals

import chatledger
from chatledger import ChatledgerError, Ledger, NewMessage

CHATS_EACH: Final = 4
PAUSE_S: Final = 0.02
TIMED_S: Final = 240


class Sample(msgspec.Struct):
    """The resources that the processes hold at one moment."""

    at_s: float
    memory_kb: int
    server_memory_kb: int
    threads: int
    tasks: int
    descriptors: int
    server_descriptors: int
    consumers: int


class LoadReport(msgspec.Struct):
    """The measurements. Latencies in ms; the thirds are those of the time."""

    seconds: float
    writes: int
    reads: int
    fed: int
    errors: list[str]
    append_p50_ms: list[float]
    append_p99_ms: list[float]
    read_p50_ms: list[float]
    samples: list[Sample]
    findings: list[str] = []


class Load:
    """
    The load on an open ledger.

    Args:
        writers, feeds, readers: How many threads of each.
    """

    def __init__(self, ledger: Ledger, data: Path, *, writers: int, feeds: int, readers: int) -> None:
        self._ledger, self._data = ledger, data
        self._counts = (writers, feeds, readers)
        self._stop = threading.Event()
        self._began = time.monotonic()
        # When and how long, one after the other: sixteen bytes each, as what this notes is to be no memory that grows.
        self._latencies, self._reads = array("d"), array("d")
        self._fed: Counter[int] = Counter()
        self._errors: list[str] = []
        self._samples: list[Sample] = []

    def run(self, seconds: float) -> LoadReport:
        """Put it on for so long."""
        writers, feeds, readers = self._counts
        for number in range(writers):
            for chat in self._chats(number):
                self._ledger.create_chat(chat, "u")
        threads = [
            *(self._thread(self._write, number) for number in range(writers)),
            *(self._thread(self._read, number) for number in range(readers)),
        ]
        # Half of the feeds have names, whose positions are kept on the server.
        open_feeds = [self._ledger.feed(0, name=f"f{number}" if number % 2 else None) for number in range(feeds)]
        followers = [self._thread(self._follow, number, feed) for number, feed in enumerate(open_feeds)]
        end = self._began + seconds
        while time.monotonic() < end:
            time.sleep(min(max(0.0, end - time.monotonic()), max(seconds / 60, 0.5)))
            self._samples.append(self._sample())
        self._stop.set()
        for thread in threads:
            thread.join(60)
        last = self._ledger.last_position()
        deadline = time.monotonic() + 60
        while min(self._fed.values(), default=0) < last and time.monotonic() < deadline:
            time.sleep(0.05)
        behind = [number for number in range(feeds) if self._fed[number] != last]
        for feed in open_feeds:
            feed.close()
        for thread in followers:
            thread.join(60)
        if behind:
            self._errors.append(f"the feeds {behind} did not give all {last} events once")
        return self._report(seconds)

    def _thread(self, work: Any, *args: Any) -> threading.Thread:
        def guarded() -> None:
            try:
                work(*args)
            except Exception as error:  # noqa: BLE001 - reported
                self._errors.append(f"{work.__name__}: {error!r}")

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    @staticmethod
    def _chats(number: int) -> list[str]:
        return [f"chat {number} {part}" for part in range(CHATS_EACH)]

    def _write(self, number: int) -> None:
        rng, count, chats = Random(number), 0, self._chats(number)
        while not self._stop.is_set():
            count += 1
            one = f"{number}.{count}"
            began = time.monotonic()
            self._ledger.append(rng.choice(chats), [NewMessage("user", content(one), id=one)])
            self._latencies.extend((began - self._began, time.monotonic() - began))
            time.sleep(rng.uniform(0, 2 * PAUSE_S * self._counts[0] / 16))

    def _read(self, number: int) -> None:
        rng = Random(-number - 1)
        while not self._stop.is_set():
            chat = rng.choice(self._chats(rng.randrange(self._counts[0])))
            began = time.monotonic()
            messages = self._ledger.get_messages(chat, limit=20)
            self._reads.extend((began - self._began, time.monotonic() - began))
            if any(not message.text.startswith(content(message.id)) for message in messages):
                self._errors.append(f"a wrong message in {chat}")
            time.sleep(rng.uniform(0, 2 * PAUSE_S))

    def _follow(self, number: int, feed: Any) -> None:
        position = 0
        for recorded in feed:
            if recorded.position != position + 1:
                self._errors.append(f"feed {number}: {recorded.position} came after {position}")
            position = recorded.position
            self._fed[number] = position

    def _sample(self) -> Sample:
        server = server_pid(self._data)
        client = internals(self._ledger).log._recorder._client
        info = client.api("CONSUMER.LIST.chatledger", None, dict[str, Any], client.deadline())
        return Sample(
            at_s=time.monotonic() - self._began,
            memory_kb=_anonymous_kb(os.getpid()),
            server_memory_kb=_anonymous_kb(server),
            threads=threading.active_count(),
            tasks=_tasks(),
            descriptors=_descriptors(os.getpid()),
            server_descriptors=_descriptors(server),
            consumers=int(info["total"]),
        )

    def _report(self, seconds: float) -> LoadReport:
        appends, reads = _thirds(self._latencies, seconds), _thirds(self._reads, seconds)
        report = LoadReport(
            seconds=seconds,
            writes=len(self._latencies) // 2,
            reads=len(self._reads) // 2,
            fed=sum(self._fed.values()),
            errors=self._errors,
            append_p50_ms=[_quantile(third, 0.5) for third in appends],
            append_p99_ms=[_quantile(third, 0.99) for third in appends],
            read_p50_ms=[_quantile(third, 0.5) for third in reads],
            samples=self._samples,
        )
        report.findings = judge_load(report, is_timed=seconds > TIMED_S)
        return report


def judge_load(report: LoadReport, *, is_timed: bool) -> list[str]:
    """Name what grew, slowed down or went wrong; nothing when all is flat. Times mean something only after some minutes."""
    found = list(report.errors)
    size = max(len(report.samples) // 3, 1)
    first, last = report.samples[:size], report.samples[-size:]
    # At any moment some calls are under way, each with a task. A consumer whose answers came too late is the server's for a minute.
    for name, slack in {"threads": 2, "tasks": 70, "descriptors": 4, "server_descriptors": 4, "consumers": 8}.items():
        before, after = (max(getattr(sample, name) for sample in part) for part in (first, last))
        if after > before + slack:
            found.append(f"{name}: at most {before} in the first third, {after} in the last")
    for name in ("memory_kb", "server_memory_kb"):
        before, after = (_quantile([getattr(s, name) / 1000 for s in part], 0.5) / 1000 for part in (first, last))
        if after > before * 1.2 + 24:
            found.append(f"{name}: {before:.0f} MB in the first third, {after:.0f} MB in the last")
    for name, most in () if not is_timed else (("append_p50_ms", 1.6), ("append_p99_ms", 3.0), ("read_p50_ms", 1.6)):
        before, _, after = getattr(report, name)
        if after > before * most + 1:
            found.append(f"{name}: {before:.1f} in the first third, {after:.1f} in the last")
    return found


def _thirds(timed: "array[float]", seconds: float) -> list[list[float]]:
    parts: list[list[float]] = [[], [], []]
    for at, took in zip(timed[::2], timed[1::2], strict=True):
        parts[min(int(at * 3 / seconds), 2)].append(took)
    return parts


def _quantile(values: list[float], share: float) -> float:
    """In thousandths of the unit of the values: ms for seconds."""
    return round(sorted(values)[int(len(values) * share)] * 1000, 3) if values else 0.0


def _anonymous_kb(pid: int | None) -> int:
    """The memory of a process that is not a file's: the map of the index grows with the index, and is no leak."""
    if pid is None:
        return 0
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Anonymous:")), 0)


def _descriptors(pid: int | None) -> int:
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return 0


def _tasks() -> int:
    """The tasks of all event loops of this process."""
    import asyncio.tasks as module

    scheduled: Any = getattr(module, "_scheduled_tasks", None) or getattr(module, "_all_tasks", ())
    return sum(not task.done() for task in list(scheduled))


def main(order: dict[str, Any]) -> None:
    """Open a ledger in a new directory, and put the load on it."""
    data, seconds = Path(order.pop("data")), float(order.pop("seconds"))
    with chatledger.open(data, durability=order.pop("durability", "always")) as ledger:
        report = Load(ledger, data, **order).run(seconds)
        try:
            ledger.verify()
        except ChatledgerError as error:
            report.findings.append(repr(error))
    print(msgspec.json.encode(report).decode())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
