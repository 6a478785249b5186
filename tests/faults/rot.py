"""
Damage to files: bits that flip, files that end too early, blocks of zeros, in the log or the index, closed or in use.

Each trial damages a copy of one ledger and then works with it. Everything may still be there, or a `ChatledgerError` may say
that it is not. There must be no wrong answer that `verify` does not find, no write that harms the log, and no crash.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final, Literal

import msgspec
from tests.faults.calls import content
from tests.faults.deaths import kill, server_pid
from tests.faults.nursery import ROOT
from tests.support.agent_threads import put
from tests.support.ledger_world import snapshot

import chatledger
from chatledger import (
    ChainIntegrityError,
    ConfigurationError,
    CorruptStateError,
    Ledger,
    LogUnavailableError,
    NewMessage,
)
from chatledger.infra.ledger.threads import Threads

CHATS: Final = [f"chat {number}" for number in range(8)]
TRIAL_S: Final = 90.0
Place = Literal["log block", "log metadata", "index", "running log", "running log, then kill -9", "running index"]
PLACES: Final[dict[Place, int]] = {
    "log block": 35,
    "log metadata": 10,
    "index": 30,
    "running log": 10,
    "running log, then kill -9": 15,
    "running index": 10,
}
CLEAR: Final = (ChainIntegrityError, CorruptStateError, ConfigurationError, LogUnavailableError)
"""The errors that say that something is wrong with what is stored. Any other is a wrong answer."""
LMDB_CRASHES: Final = (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS)
HOWS: Final = {"a bit": 60, "eight bits": 10, "cut short": 20, "zeros": 10}


class Trial(msgspec.Struct):
    """
    A damage: `place` says in which files, `template` whether the ledger was closed or killed.

    With `has_crashed` LMDB has ended the process, as it does on some damage; the log is to be looked at.
    """

    seed: str
    template: str
    folder: str
    place: Place
    how: str
    has_crashed: bool = False


class Result(msgspec.Struct):
    """
    The outcome of a trial.

    `outcome` is "intact", "detected", "crashed" (LMDB did, and the log is whole) or "FAILED"; `stage` says when it was detected, `has_lied` whether the index gave a
    wrong answer before.
    """

    trial: Trial
    outcome: str
    stage: str = ""
    error: str = ""
    has_lied: bool = False


class Reference(msgspec.Struct):
    """The content of a ledger before the damage."""

    events: list[tuple[int, str]]
    answers: str


# The ledger that is damaged


def make_template(folder: Path, *, is_killed: bool) -> Reference:
    """A ledger with branches, checkpoints, deletions and threads, closed or killed; returns what it holds."""
    with chatledger.open(folder, durability="fast") as ledger:
        _fill(ledger)
        reference = refer(ledger)
        if is_killed:
            shutil.rmtree(folder.with_name(folder.name + " alive"), ignore_errors=True)
            kill(server_pid(folder))
            _copy(folder, folder.with_name(folder.name + " alive"))
    if is_killed:
        shutil.rmtree(folder)
        folder.with_name(folder.name + " alive").rename(folder)
    return reference


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("lock", "*.ports", "endpoint.json"))


def _fill(ledger: Ledger) -> None:
    threads = Threads(ledger)
    for chat in [*CHATS, "gone"]:
        ledger.create_chat(chat, "u", title=chat)
    for number in range(60):
        for chat in CHATS:
            one = f"{chat} {number}"
            ledger.append(chat, [NewMessage("user", content(one), id=one)])
            if number % 20 == 10:
                ledger.fork(chat, f"{chat} {number - 5}")
                ledger.set_checkpoint(chat, f"mark {number}", one)
        if number % 10 == 0:
            ledger.append("gone", [NewMessage("user", "x" * 2000)])
            put(threads, "thread", f"{number:03}", {"messages": [content(str(number)), "shared"]})
    ledger.delete_chat("gone")
    for chat in CHATS:
        ledger.append(chat, [NewMessage("user", content(f"{chat} last"), id=f"{chat} last")])


def refer(ledger: Ledger) -> Reference:
    """Read the content of a ledger."""
    events = [(recorded.position, recorded.hash.hex()) for recorded in ledger.history()]
    return Reference(events, _answers(ledger))


def _answers(ledger: Ledger) -> str:
    threads = Threads(ledger)
    stored = [
        (one.record.id, sorted((digest.hex(), repr(piece)) for digest, piece in one.pieces.items()))
        for one in threads.checkpoints("thread")
    ]
    hits = [hit.message.id for chat in CHATS[:2] for hit in ledger.search(f"{chat} 7", chat_id=chat, limit=5)]
    listed = [chat.id for chat in ledger.list_chats()]
    return json.dumps(
        [msgspec.to_builtins(snapshot(ledger, CHATS)), stored, hits, sorted(listed)], default=str, sort_keys=True
    )


# One trial


def _files(data: Path, place: str) -> list[Path]:
    if place.endswith("index"):
        return sorted((data / "index").rglob("data.mdb"))
    stream = data / "log" / "jetstream" / "$G" / "streams" / "chatledger"
    files = [path for path in stream.rglob("*") if path.is_file() and path.stat().st_size]
    return sorted(path for path in files if (path.suffix == ".blk") == (place != "log metadata"))


def damage(path: Path, how: str, rng: Random) -> str:
    """Damage a file where it holds something; returns what was done."""
    raw = path.read_bytes().rstrip(b"\0") if path.suffix == ".mdb" else path.read_bytes()
    at = rng.randrange(len(raw))
    if how == "cut short":
        os.truncate(path, at)
        return f"{path.name} cut at {at}"
    with path.open("r+b") as file:
        if how == "zeros":
            file.seek(at // 512 * 512)
            file.write(bytes(min(512, len(raw) - at // 512 * 512)))
        for _ in range({"a bit": 1, "eight bits": 8}.get(how, 0)):
            file.seek(at)
            file.write(bytes([raw[at] ^ (1 << rng.randrange(8))]))
            at = rng.randrange(len(raw))
    return f"{path.name} {how} at {at}"


class Ordeal:
    """One trial in progress."""

    def __init__(self, trial: Trial, reference: Reference) -> None:
        self.result = Result(trial, "FAILED")
        self._trial, self._reference = trial, reference
        self._rng = Random(trial.seed)
        self._data = Path(trial.folder)
        self.stage = "open"
        self._written: list[str] = []

    def run(self) -> Result:
        """Damage the copy, and work with it."""
        trial, result = self._trial, self.result
        if trial.has_crashed:
            shutil.rmtree(self._data / "index")
            self._look()
            result.outcome = "crashed"
            return result
        if trial.place.startswith("running"):
            detected = self._attempt(self._use_and_damage)
        else:
            self._damage()
            detected = self._attempt(self._use)
        if trial.place.endswith("index"):
            # Whatever happened to it, the index is disposable: the log has everything, and what was acknowledged since.
            shutil.rmtree(self._data / "index", ignore_errors=True)
            self.stage = "after the removal of the index"
            if (harmed := self._attempt(self._look)) is not None:
                result.stage, result.error = harmed
                return result
        result.outcome = "intact" if detected is None else "detected"
        result.stage, result.error = detected or ("", "")
        if result.has_lied and detected is None:
            result.outcome, result.error = "FAILED", "a wrong answer, and verify found nothing"
        return result

    def _attempt(self, work: Callable[[], None]) -> tuple[str, str] | None:
        """Do it; returns the stage and the error when it was a clear one."""
        try:
            work()
        except CLEAR as error:
            return self.stage, f"{type(error).__name__}: {error}"[:300]
        return None

    def _damage(self) -> None:
        path = self._rng.choice(_files(self._data, self._trial.place))
        damage(path, self._trial.how, self._rng)

    def _use(self) -> None:
        with chatledger.open(self._data, durability="fast") as ledger:
            self._work(ledger)
        self._look()

    def _use_and_damage(self) -> None:
        with chatledger.open(self._data, durability="fast") as ledger:
            self.stage = "write"
            self._write(ledger, "before")
            self._damage()
            if self._trial.place.endswith("kill -9"):
                kill(server_pid(self._data))
            self._work(ledger)
        self._look()

    def _work(self, ledger: Ledger) -> None:
        self.stage = "read"
        if not self._written and _answers(ledger) != self._reference.answers:
            self.result.has_lied = True
        self.stage = "write"
        self._write(ledger, "after")
        self.stage = "verify"
        ledger.sync()
        ledger.verify()
        self._compare(ledger)

    def _write(self, ledger: Ledger, when: str) -> None:
        for chat in ["new " + when, *CHATS]:
            one = f"{chat} {when}"
            ledger.upsert_chat(chat, "u")
            ledger.append(chat, [NewMessage("user", content(one), id=one)])
            self._written.append(one)
            message = ledger.get_message(one)
            if message is None or message.text != content(one):
                msg = f"{one} was acknowledged, and is not there"
                raise AssertionError(msg)

    def _look(self) -> None:
        """Open it once more, and find everything."""
        self.stage = self.stage if self.stage.startswith("after") else "second open"
        with chatledger.open(self._data, durability="fast") as ledger:
            ledger.verify()
            self._compare(ledger)

    def _compare(self, ledger: Ledger) -> None:
        found = [(recorded.position, recorded.hash.hex()) for recorded in ledger.history()]
        assert found[: len(self._reference.events)] == self._reference.events, "SILENT: events are missing"
        for one in self._written:
            message = ledger.get_message(one)
            assert message is not None, f"SILENT: {one} is lost"
            assert message.text == content(one), f"SILENT: {one} is another"


def main(folder: str) -> None:
    """Take trials line by line; one that crashes the process is noticed by who sent it."""
    references = {
        name: msgspec.json.decode((Path(folder) / f"{name}.json").read_bytes(), type=Reference)
        for name in ("closed", "killed")
    }
    for line in sys.stdin:
        trial = msgspec.json.decode(line, type=Trial)
        if not trial.has_crashed:
            _copy(Path(folder) / trial.template, Path(trial.folder))
        ordeal = Ordeal(trial, references[trial.template])
        try:
            result = ordeal.run()
        except Exception as error:  # noqa: BLE001 - any other error is what is looked for
            result = ordeal.result
            result.stage, result.error = ordeal.stage, repr(error)
        print(msgspec.json.encode(result).decode(), flush=True)
        if result.outcome != "FAILED":
            shutil.rmtree(trial.folder, ignore_errors=True)


# Many trials


class Bench:
    """A process that does trials, started again when one kills it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def prepare(self) -> None:
        """Make the ledgers that are copied."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for name in ("closed", "killed"):
            reference = make_template(self._folder / name, is_killed=name == "killed")
            (self._folder / f"{name}.json").write_bytes(msgspec.json.encode(reference))

    def ask(self, trial: Trial) -> Result:
        """Do one trial."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(trial).decode() + "\n")
        process.stdin.flush()
        watchdog = threading.Timer(TRIAL_S, process.kill)
        watchdog.start()
        line = process.stdout.readline()
        watchdog.cancel()
        if line:
            return msgspec.json.decode(line, type=Result)
        self._process = None
        code = process.wait()
        if code in LMDB_CRASHES and trial.place.endswith("index") and not trial.has_crashed:
            return self.ask(msgspec.structs.replace(trial, has_crashed=True))
        return Result(trial, "FAILED", "crash", f"the process died with {code}")

    def _start(self) -> "subprocess.Popen[str]":
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.rot", str(self._folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self._process

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None and process.stdout is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.wait(60)
            process.stdout.close()


def trials(folder: Path, seed: str) -> Iterator[Trial]:
    """Trials without end; the seed says which."""
    rng = Random(seed)
    number = 0
    while True:
        place = rng.choices(list(PLACES), list(PLACES.values()))[0]
        how = rng.choices(list(HOWS), list(HOWS.values()))[0]
        template = rng.choice(["closed", "killed"])
        if place == "running index" and how == "cut short":
            how = "a bit"  # touching a map beyond the end of its file kills any process
        yield Trial(f"{seed}/{number}", template, str(folder / f"trial {number}"), place, how)
        number += 1


def tally(results: list[Result]) -> dict[str, Counter[str]]:
    """Count the outcomes of the trials, by what was damaged."""
    table: dict[str, Counter[str]] = {}
    for result in results:
        row = table.setdefault(result.trial.place, Counter())
        row[result.outcome] += 1
        row["wrong answers before"] += result.has_lied
    return table


if __name__ == "__main__":
    main(sys.argv[1])
