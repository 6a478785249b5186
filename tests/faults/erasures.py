"""Erasures whose process, server or both are killed: after the next open and close no byte of them may be left."""

import itertools
import multiprocessing
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from random import Random
from typing import Final, Literal, NamedTuple, Self

import msgspec
from tests.faults import deleting
from tests.faults.deaths import kill, server_pid
from tests.faults.deleting import Act, Kind, Reopened, Setting
from tests.faults.remains import Pieces, found_in, pieces_of

from chatledger import Encryption

Victim = Literal["server", "process", "both"]
Index = Literal["kept", "deleted", "rebooted"]
KINDS: Final[tuple[Kind, ...]] = ("plain", "zstd", "encrypted")
VICTIMS: Final[tuple[Victim, ...]] = ("both", "server", "process")
_ACTS: Final[tuple[Act, ...]] = ("chat", "thread", "chat", "sweep", "chat", "state", "chat", "backup", "chat")
_INDEXES: Final[tuple[Index, ...]] = ("kept", "kept", "deleted", "rebooted")
MEMORY: Final = Path("/dev/shm")
_WHILE_ERASING: Final = 0.8
_END_S: Final = 120.0


class Trial(msgspec.Struct, frozen=True):
    """One erasure: how records are stored, what erases them, who dies, and what becomes of the index meanwhile."""

    seed: str
    kind: Kind
    act: Act
    victim: Victim
    index: Index

    def __str__(self) -> str:
        return f"seed {self.seed!r} ({self.kind}, {self.act}, {self.victim} killed, index {self.index})"


class Result(msgspec.Struct):
    """
    The outcome of a trial.

    Args:
        is_cut: Whether the signal came before the erasure had ended.
        left: Files in which something was left after the kill.
        findings: What must not be.
    """

    trial: Trial
    is_cut: bool = False
    left: list[str] = []
    findings: list[str] = []


def trials(seed: str) -> Iterator[Trial]:
    """
    Without end; chats in every second trial.

    Nine of ten are directories, with each combination of a kind and a victim once in them; the tenth is an SQLite file.
    """
    rng = Random(seed)
    acts = itertools.cycle(_ACTS)
    pairs: list[tuple[Kind, Victim]] = [(kind, victim) for kind in KINDS for victim in VICTIMS]
    both = itertools.cycle(pairs)
    sqlite: tuple[Kind, Victim] = ("sqlite", "process")
    for number in itertools.count():
        kind, victim = sqlite if number % 10 == 9 else next(both)
        yield Trial(f"{seed}/{number}", kind, next(acts), victim, rng.choice(_INDEXES))


class Template(NamedTuple):
    """A ledger before an erasure, the pieces of what is to be erased, and how long it takes until the log is erased, and from then on."""

    setting: Setting
    pieces: Pieces
    others: list[str]
    seconds: tuple[float, float]


class Reports:
    """Reports of a process on how far it is."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._heard = pipe, set[str]()

    def wait(self, what: str) -> float:
        """When it was said; at once when the process is done, or ended."""
        while not self._heard & {what, "done"}:
            self._hear()
        return time.monotonic()

    def is_done(self) -> bool:
        """Whether the erasure has ended."""
        while self._pipe.poll() and "done" not in self._heard:
            self._hear()
        return "done" in self._heard

    def _hear(self) -> None:
        try:
            self._heard.add(self._pipe.recv())
        except EOFError:
            self._heard.add("done")


class Bench:
    """
    Kills erasures.

    Args:
        base: A folder of its own.
    """

    def __init__(self, base: Path) -> None:
        self._base, self._sources, self._templates = base, dict[Kind, Setting](), dict[tuple[Kind, Act], Template]()
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.faults.deleting"])
        self._memory = Path(tempfile.mkdtemp(prefix="chatledger-soak-", dir=MEMORY if MEMORY.is_dir() else None))
        self._key = Encryption.new_key("k1")
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._memory, ignore_errors=True)

    def run(self, trial: Trial) -> Result:
        """One trial; its folder is removed when nothing was found."""
        template, result, rng = self._template(trial.kind, trial.act), Result(trial), Random(trial.seed)
        setting = self._copy(template.setting)
        result.is_cut = self._kill(setting, trial, template.seconds, rng)
        result.left = found_in(setting, template.pieces)
        self._sabotage(setting, trial.index)
        seen = self._reopen(setting, trial.act)
        result.findings = list(self._judge(setting, template, result, seen))
        if not result.findings:
            shutil.rmtree(setting.memory, ignore_errors=True)
            shutil.rmtree(setting.folder)
        return result

    def _judge(self, setting: Setting, template: Template, result: Result, seen: Reopened) -> Iterator[str]:
        trial, left = result.trial, result.left
        if seen.error:
            yield f"the next open failed: {seen.error}"
            return
        if seen.others != template.others:
            yield "what nobody deleted is not as it was"
        if seen.is_undone:
            return  # it died before the tombstone: there is nothing to be finished
        for name in found_in(setting, template.pieces):
            yield f"left in {name}"
        is_told = any(kind.startswith("erasure-") for kind in seen.kinds)
        # What only an index that is gone knew of, nobody can tell.
        places = "data/" if trial.index == "kept" else "data/log"
        if not is_told and any(name.startswith(places) for name in left):
            yield f"doctor told nothing of what was left in {', '.join(left)}: {', '.join(seen.kinds)}"
        if any(kind.startswith("erasure-") for kind in seen.after):
            yield f"doctor says afterwards: {', '.join(seen.after)}"

    # Ledgers

    def _new_setting(self, kind: Kind) -> Setting:
        self._count += 1
        folder, memory = self._base / str(self._count), self._memory / str(self._count)
        memory.mkdir()
        folder.mkdir(parents=True)
        (folder / "memory").symlink_to(memory)
        return Setting(str(folder), kind, self._key)

    def _copy(self, source: Setting) -> Setting:
        target = self._new_setting(source.kind)
        for name in ("data", "backup"):
            if (Path(source.folder) / name).exists():
                shutil.copytree(Path(source.folder) / name, Path(target.folder) / name)
        return target

    def _filled(self, kind: Kind) -> Setting:
        setting = self._sources.get(kind)
        if setting is None:
            setting = self._sources[kind] = self._new_setting(kind)
            self._do(deleting.fill, setting, kind)
        return setting

    def _template(self, kind: Kind, act: Act) -> Template:
        made = self._templates.get((kind, act))
        if made is None:
            setting = self._filled(kind)
            pieces = pieces_of(setting, act)
            if act == "backup":
                setting = self._copy(setting)
                self._do(deleting.back_up_and_delete, setting)
            assert found_in(setting, pieces), "what is to be erased can be found"
            control = self._copy(setting)
            seconds = self._delete(control, act)
            seen = self._reopen(control, act)
            assert not seen.error, seen.error
            assert not (left := found_in(control, pieces)), f"an erasure that nobody interrupts leaves some in {left}"
            shutil.rmtree(control.folder)
            made = self._templates[kind, act] = Template(setting, pieces, seen.others, seconds)
        return made

    # Processes

    def _do(self, work: Callable[..., None], *arguments: object) -> None:
        process = self._context.Process(target=work, args=arguments)
        process.start()
        process.join(_END_S)
        assert process.exitcode == 0, f"{work.__name__} ended with {process.exitcode}"

    def _start(self, setting: Setting, act: Act) -> tuple[ForkServerProcess, Reports]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=deleting.delete, args=(setting, act, theirs))
        process.start()
        theirs.close()
        reports = Reports(ours)
        reports.wait("open")
        return process, reports

    def _delete(self, setting: Setting, act: Act) -> tuple[float, float]:
        """Erase without a death; how long that took, until it began with the log, and from then on."""
        process, reports = self._start(setting, act)
        began = time.monotonic()
        erasing = reports.wait("erasing")
        done = reports.wait("done")
        process.join(_END_S)
        return erasing - began, done - erasing

    def _kill(self, setting: Setting, trial: Trial, seconds: tuple[float, float], rng: Random) -> bool:
        """Begin the erasure, kill the victims, and wait for the end of the rest; whether it was cut short."""
        process, reports = self._start(setting, trial.act)
        server = server_pid(setting.data)
        # Most die while messages leave the log, the others before or after that.
        if rng.random() < _WHILE_ERASING:
            reports.wait("erasing")
            time.sleep(rng.uniform(0, seconds[1]))
        else:
            time.sleep(rng.uniform(0, 1.1 * sum(seconds)))
        is_cut = not reports.is_done()
        victims = {"server": [server], "process": [process.pid], "both": [server, process.pid]}[trial.victim]
        rng.shuffle(victims)
        for pid in victims:
            kill(pid)
        process.join(_END_S)
        is_stuck = process.exitcode is None
        if is_stuck:
            process.kill()
        assert not is_stuck, "a process whose server was killed goes on with another one"
        _wait_for_end(server)
        return is_cut

    def _reopen(self, setting: Setting, act: Act) -> Reopened:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=deleting.reopen, args=(setting, act, theirs))
        process.start()
        theirs.close()
        try:
            seen: Reopened = ours.recv()
        except EOFError:
            seen = Reopened(error="it died")
        process.join(_END_S)
        return seen

    @staticmethod
    def _sabotage(setting: Setting, how: Index) -> None:
        for root in (setting.index, setting.memory):
            if how == "rebooted" and root == setting.memory:
                shutil.rmtree(root)
                root.mkdir()
            elif how == "rebooted":
                for note in root.glob("*/in-use"):
                    note.write_bytes(b"another-boot")
            elif how == "deleted":
                for one in root.glob("*"):
                    shutil.rmtree(one) if one.is_dir() else one.unlink()


def _wait_for_end(pid: int | None) -> None:
    until = time.monotonic() + _END_S
    while pid is not None and time.monotonic() < until:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except (ProcessLookupError, FileNotFoundError):
            return
        time.sleep(0.01)
    assert pid is None, "the server ended"


def tally(results: list[Result]) -> Counter[str]:
    """Count the trials of each sort, and the erasures that were cut short."""
    counts = Counter[str]()
    for one in results:
        counts[f"{one.trial.act}, {one.trial.victim} killed"] += 1
        counts["cut short"] += one.is_cut
        counts["something was left until the next open"] += bool(one.left)
        counts["FAILED"] += bool(one.findings)
    return counts
