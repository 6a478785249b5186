"""Writers on one ledger, and somebody who kills them, their server and their index, over and over."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, Self

import msgspec
from tests.faults.calls import WEIGHTS
from tests.faults.checking import Verdict
from tests.faults.deaths import POINTS, kill, owner_pid, server_pid
from tests.faults.nursery import ROOT, Child, Nursery
from tests.faults.writing import Order

END_S: Final = 90.0
STALLED_S: Final = 4.0
_KINDS: Final[list[tuple[str, dict[str, int]]]] = [
    ("writer", WEIGHTS),
    ("writer", WEIGHTS),
    ("rebuilder", {**WEIGHTS, "rebuild": 12}),
    ("eraser", {**WEIGHTS, "append": 60, "delete": 25}),
]


@dataclass
class Report:
    """The acts of a campaign, and their outcome."""

    kills: Counter[str] = field(default_factory=Counter[str])
    pauses: int = 0
    sabotages: Counter[str] = field(default_factory=Counter[str])
    verdict: Verdict = field(default_factory=Verdict)
    faults: list[str] = field(default_factory=list[str])

    @property
    def kill_count(self) -> int:
        """All deaths by signal 9, of whatever process."""
        return sum(self.kills.values())


class Campaign:
    """
    Some writers, started again whenever they die, on a directory or at a server.

    Args:
        base: A folder of its own.
        seed: What all choices follow from. When a signal meets a process is up to the machine.
        location: Of the ledger; a directory in `base` by default.
        indexes: Whether each writer has an index of its own, as if on another machine.
        kill_server: For a server that is no child of a ledger: kills it and starts it again.
    """

    def __init__(
        self,
        base: Path,
        seed: str,
        *,
        location: str | None = None,
        indexes: bool = False,
        durability: str = "always",
        writers: int = 4,
        kill_server: Callable[[], None] | None = None,
        weights: dict[str, int] | None = None,
        timeout_s: float = 15.0,
        pace_s: float = 0.0,
    ) -> None:
        self.base, self.seed = base, seed
        self.data = base / "data"
        self.location = location or str(self.data)
        self.report = Report()
        self._rng = Random(seed)
        self._has_indexes, self._durability, self._kill_server = indexes, durability, kill_server
        self._weights, self._timeout_s, self._pace_s = weights, timeout_s, pace_s
        self._names = [f"{_KINDS[number % 4][0]}{number}" for number in range(writers)]
        self._lives: dict[str, Child] = {}
        self._nursery = Nursery()
        self._counts: Counter[str] = Counter()
        self._stop = base / "stop"
        self._is_killing, self._is_full = True, False
        base.mkdir(parents=True, exist_ok=True)

    @property
    def is_embedded(self) -> bool:
        """Whether the server is a child of a writer."""
        return self._kill_server is None

    # Processes

    def _spawn(self, name: str) -> None:
        number = self._names.index(name)
        life = self._counts[name]
        self._counts[name] += 1
        rng = Random(f"{self.seed}/{name}/{life}")
        death = None
        if self.is_embedded and self._is_killing and rng.random() < 0.7:
            role = _KINDS[number % 4][0]
            mine = {
                "writer": ("append", "group", "project", "close"),
                "rebuilder": ("rebuild", "switch"),
                "eraser": ("erase",),
            }
            points = [point for point in POINTS if point.startswith(mine[role])]
            # Those of a rebuild and a deletion are passed now and then, those of an append all the time.
            passage = rng.randrange(1, 60) if role == "writer" else rng.randrange(1, 4)
            point = rng.choice(points)
            death = (point, 1 if point.startswith("close") else passage, rng.choice(["self", "self", "server"]))
        order = Order(
            location=self.location,
            index=str(self.base / f"index-{name}") if self._has_indexes else None,
            folder=str(self.base),
            name=name,
            life=life,
            seed=f"{self.seed}/{name}/{life}",
            stop=str(self._stop),
            chats=[f"chat {number}" for number in range(10)],
            mortal=[f"mortal {number}" for number in range(3)],
            durability=self._durability,
            weights=dict(self._weights or _KINDS[number % 4][1]),
            death=death,
            timeout_s=self._timeout_s,
            pace_s=self._pace_s,
            is_full=self._is_full,
            threads=3 if _KINDS[number % 4][0] == "writer" else 1,
        )
        self._lives[name] = self._nursery.start(order, self.base / f"{name}.log")

    def _reap(self) -> None:
        self._nursery.reap()
        for name, life in list(self._lives.items()):
            code = life.code
            if code is None:
                continue
            del self._lives[name]
            if code == -signal.SIGKILL:
                self.report.kills["a writer from outside" if life.is_doomed else "a process at a chosen point"] += 1
            elif code and not self._is_full:
                self.report.faults.append(f"{name} ended with {code}: {_tail(self.base / f'{name}.log')}")

    # The nemesis

    def phase(
        self,
        seconds: float,
        *,
        calm: bool = False,
        is_full: bool = False,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Let them write and die for so long, or until it `is_over`; then everybody ends in peace.

        With `calm` nobody is killed. With `is_full` the disk is: writers may say so and give up, and are started again.
        """
        self._stop.unlink(missing_ok=True)
        self._is_killing, self._is_full = not calm, is_full
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.report.faults and not is_over():
            for name in self._names:
                if name not in self._lives:
                    self._spawn(name)
            self._await_progress(min(end, time.monotonic() + STALLED_S))
            if not calm:
                self._strike()
            self._reap()
        self.end()

    def _await_progress(self, until: float) -> None:
        """Let them get on before the next strike, however slow the machine is: a random number of lines in their journals."""
        wanted = self._written() + self._rng.randrange(1, 6000)
        while self._written() < wanted and time.monotonic() < until:
            time.sleep(0.01)
            self._reap()

    def _written(self) -> int:
        return sum(path.stat().st_size for path in self.base.glob("*.journal"))

    def _strike(self) -> None:
        action = self._rng.choices(["server", "owner", "writer", "pause server", "pause writer"], [4, 2, 3, 1, 1])[0]
        name = self._rng.choice(self._names)
        pause_s = self._rng.choice([0.05, 0.3, 1.0, 2.5])
        if action == "server":
            self._strike_server()
        elif action == "owner" and self.is_embedded:
            self._doom(owner_pid(self.data))
        elif action == "pause server" and self.is_embedded:
            self._pause(server_pid(self.data), pause_s)
        elif (life := self._lives.get(name)) is not None:
            if action == "writer":
                self._doom(life.pid)
            elif action == "pause writer":
                self._pause(life.pid, pause_s)

    def _strike_server(self) -> None:
        if self._kill_server is not None:
            self._kill_server()
            self.report.kills["the server from outside"] += 1
        elif kill(server_pid(self.data)):
            self.report.kills["the server from outside"] += 1

    def _doom(self, pid: int | None) -> None:
        for life in self._lives.values():
            if life.pid == pid and kill(pid):
                life.is_doomed = True

    def _pause(self, pid: int | None, seconds: float) -> None:
        if pid is None:
            return
        try:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            return
        self.report.pauses += 1

    def end(self) -> None:
        """Tell everybody to end, and wait for it."""
        self._stop.touch()
        deadline = time.monotonic() + END_S
        while self._lives and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.02)
        for name, life in self._lives.items():
            os.kill(life.pid, signal.SIGUSR1)  # it prints where its threads are
            time.sleep(0.5)
            kill(life.pid)
            self.report.faults.append(f"{name} hung: {_tail(self.base / f'{name}.log', 6000)}")
        if self._lives:
            time.sleep(0.5)
            self._nursery.reap()
        self._lives.clear()

    # Between phases

    def sabotage_index(self) -> None:
        """Remove the index, or make it unreadable, while nobody has it open."""
        how = self._rng.choice(["removed", "no CURRENT", "garbage", "cut short", "an old generation"])
        index = self.data / "index"
        files = sorted(index.rglob("data.mdb"))
        if how == "removed" or not files:
            shutil.rmtree(index, ignore_errors=True)
        elif how == "no CURRENT":
            (index / "CURRENT").unlink(missing_ok=True)
        elif how == "garbage":
            files[-1].write_bytes(self._rng.randbytes(1 << 16))
        elif how == "cut short":
            os.truncate(files[-1], self._rng.randrange(files[-1].stat().st_size))
        else:
            (index / "CURRENT").write_text("1\n")
        self.report.sabotages[how] += 1

    def check(self, **options: Any) -> Verdict:
        """Let the judge look, in a process of its own."""
        given = {
            "durability": self._durability,
            **({"index": str(self.base / "index-judge")} if self._has_indexes else {}),
        }
        verdict = judge(self.location, self.base, **given, **options)
        self.report.verdict = verdict
        deaths = Counter(verdict.deaths)
        for point, count in deaths.items():
            if point.endswith("(server)"):
                self.report.kills[f"the server at: {point.removesuffix(' (server)')}"] = count
        return verdict

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._nursery.close()


def judge(location: str, folder: Path, **options: Any) -> Verdict:
    """Judge a ledger by the journals in a folder."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.checking", location, str(folder), json.dumps(options)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        return Verdict(findings=[f"the judge ended with {done.returncode}: {done.stderr[-2000:]}"])
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Verdict)


def _tail(path: Path, size: int = 2000) -> str:
    return path.read_text(errors="replace")[-size:]
