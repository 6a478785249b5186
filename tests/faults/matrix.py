"""
Every damage to the blocks of a log, crossed with everything that could vouch for them.

{a bit of a text, of a length, of a position, a zeroed sector, a cut, a cut between two records, a dropped block} x {index kept,
deleted, of another run of the machine} x {closed, writer killed, writer and server killed} x {plain, zstd, encrypted, large data}.
Each trial damages a copy of one ledger and opens it. Either it is refused, and no byte of the log was changed; or it opens, and has
all that it had, or `verify` says what it lacks and nothing more is lost. What is refused is then repaired.
"""

import base64
import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from struct import Struct
from typing import Final

import msgspec
from tests.faults.deaths import kill, server_pid
from tests.faults.nursery import ROOT

import chatledger
from chatledger import ChainIntegrityError, CorruptStateError, Encryption, Ledger, NewMessage, admin
from chatledger.infra.log.nats_server.blocks import block_files, read_frames
from chatledger.infra.log.nats_server.directory import DataDirectory
from chatledger.infra.log.nats_server.seals import Seals
from chatledger.infra.store.temp_folders import memory_folder

STOPS: Final = ("closed", "writer killed", "both killed")
KINDS: Final = ("plain", "zstd", "encrypted", "large data")
INDEXES: Final = ("kept", "deleted", "another boot")
DAMAGES: Final = ("text bit", "length bit", "position bit", "zeroed sector", "cut", "cut at a record", "block dropped")
KEY: Final = "matrix:" + base64.b64encode(sha256(b"of the damage matrix").digest()).decode()
_CHATS: Final = 6
_FILLING_BYTES: Final = 200_000
_LARGE_BYTES: Final = 300_000
_WRITTEN_S: Final = 120.0
_HEAD: Final = Struct("<IQQH")
_HALF_BYTES, _CHECKED_BYTES = 128, 96
_BOOT, _INODE = slice(56, 72), slice(72, 80)
ANOTHER_BOOT: Final = b"another boot id "


class Trial(msgspec.Struct, frozen=True):
    """One cell of the matrix. With `is_rot` the file does not show that it was changed, as when a disk does it."""

    seed: str
    stop: str
    kind: str
    index: str
    damage: str
    is_rot: bool

    def __str__(self) -> str:
        rot = ", time of the file kept" if self.is_rot else ""
        return f"{self.kind}, {self.stop}, index {self.index}, {self.damage}{rot} (seed {self.seed})"


class Truth(msgspec.Struct):
    """The content of a ledger before the damage: (position, hash) of each event."""

    events: list[tuple[int, str]]


def encryption_of(kind: str) -> Encryption | None:
    """The keys of a kind of ledger."""
    return Encryption(KEY) if kind == "encrypted" else None


def open_as(data: Path, kind: str) -> Ledger:
    """The ledger in a directory."""
    return chatledger.open(data, encryption=encryption_of(kind), compression="zstd" if kind == "zstd" else "none")


# The ledgers that are damaged


def write(data: Path, kind: str, seed: str) -> None:
    """Fill a block, and some of a second one where that is quick; with a deletion among it."""
    rng = Random(seed)
    with open_as(data, kind) as ledger:
        for number in range(_CHATS):
            ledger.create_chat(f"chat {number}", "u")
        ledger.create_chat("gone", "u")
        for turn in range(25):
            for number in range(_CHATS):
                ledger.append(
                    f"chat {number}", [NewMessage("user", f"turn {turn} of {number} {rng.randbytes(40).hex()}")]
                )
            if kind in {"plain", "zstd"}:
                for number in (0, 1):
                    filling = rng.randbytes(_FILLING_BYTES // 2).hex()
                    ledger.append(f"chat {number}", [NewMessage("assistant", filling)])
            if turn < 5:
                ledger.append("gone", [NewMessage("user", "what is deleted")])
            if kind == "large data" and turn % 5 == 0:
                ledger.append("chat 2", [NewMessage("tool", rng.randbytes(_LARGE_BYTES // 2).hex())])
            if turn == 7:
                ledger.delete_chat("gone")
        (data.with_name(f"{data.name}.json")).write_bytes(msgspec.json.encode(refer(ledger)))
        if kind == "encrypted":
            data.with_name(f"{data.name}.log").write_text(ledger._store.log.identity)  # pyright: ignore[reportPrivateUsage]
        Path(f"{data}.written").touch()
        if not data.name.startswith("closed"):
            signal.pause()


def refer(ledger: Ledger) -> Truth:
    """Read the content of a ledger."""
    return Truth([(recorded.position, recorded.hash.hex()) for recorded in ledger.history()])


def make_template(folder: Path, stop: str, kind: str, seed: str) -> Path:
    """A ledger of that kind, stopped in that way."""
    data = folder / f"{stop} {kind}"
    command = [sys.executable, "-m", "tests.faults.matrix", str(data), kind, seed]
    with subprocess.Popen(command, cwd=ROOT) as writer:
        ends_at = time.monotonic() + _WRITTEN_S
        while not Path(f"{data}.written").exists() and writer.poll() is None:
            assert time.monotonic() < ends_at, f"{data} was not written"
            time.sleep(0.02)
        if stop != "closed":
            server = server_pid(data)
            if stop == "both killed":
                kill(server)
            writer.kill()
            while server is not None and _is_alive(server):
                time.sleep(0.01)
        code = writer.wait()
    assert code == (0 if stop == "closed" else -signal.SIGKILL), f"the writer of {data} ended with {code}"
    return data


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def adopt(data: Path, *, boot: bytes | None = None) -> None:
    """Let a copy be taken for the original, which was moved; with `boot`, as one of another run of the machine."""
    for file in (data / "witness").iterdir():
        raw = bytearray(file.read_bytes())
        for start in range(0, len(raw), _HALF_BYTES):
            half = raw[start : start + _CHECKED_BYTES]
            if any(half):
                half[_INODE] = file.stat().st_ino.to_bytes(8, "little")
                half[_BOOT] = boot or half[_BOOT]
                raw[start : start + _CHECKED_BYTES + 4] = half + zlib.crc32(half).to_bytes(4, "little")
        file.write_bytes(raw)
    seals = msgspec.msgpack.decode((data / "seals").read_bytes(), type=Seals)
    seals.log_inode, seals.boot = (data / "log").stat().st_ino, boot or seals.boot
    (data / "seals").write_bytes(msgspec.msgpack.encode(seals))


# Damage


def damage(data: Path, trial: Trial, rng: Random) -> str:
    """Damage one file of the log, or of its large data; returns what was done."""
    folders = [folder for folder in DataDirectory(data).stream_folders() if block_files(folder)]
    weights = [3 if folder.name == "chatledger" else 1 for folder in folders]
    (folder,) = rng.choices(folders, weights)
    file = rng.choice(block_files(folder))
    before = file.stat()
    done = _damage(file, trial.damage, rng)
    if trial.is_rot and file.exists():
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    return f"{folder.name}/{file.name}: {done}"


def _damage(file: Path, how: str, rng: Random) -> str:
    if how == "block dropped":
        file.unlink()
        return how
    raw = bytearray(file.read_bytes())
    spans, _ = read_frames(bytes(raw))
    span = rng.choice(spans)
    place = {"length bit": (0, 4), "position bit": (4, 8)}.get(how)
    if how == "cut":
        os.truncate(file, span.offset + rng.randrange(1, span.length))
    elif how == "cut at a record":
        os.truncate(file, span.offset)
    elif how == "zeroed sector":
        at = (span.offset + rng.randrange(span.length)) // 512 * 512
        raw[at : at + 512] = bytes(len(raw[at : at + 512]))
        file.write_bytes(raw)
    else:
        first, length = place or (22, span.length - 22)
        at = span.offset + first + rng.randrange(length)
        raw[at] ^= 1 << rng.randrange(8)
        file.write_bytes(raw)
    return f"{how} in the record at {span.offset}, {span.length} bytes, position {span.position}"


def bytes_of_log(data: Path) -> dict[str, bytes]:
    """The bytes of the blocks of the log, and of what is beside it."""
    return {str(path.relative_to(data)): path.read_bytes() for path in (data / "log").rglob("*.blk")}


# A trial


class Cell:
    """One trial in progress, on a copy of a template that is its own."""

    def __init__(self, trial: Trial, template: Path, folder: Path) -> None:
        self._trial, self._template = trial, template
        self._data = folder / "data"
        self._rng = Random(trial.seed)
        self._truth = msgspec.json.decode(Path(f"{template}.json").read_bytes(), type=Truth)
        self.done = ""

    def run(self) -> str:
        """Damage it and open it; returns the outcome. Raises `AssertionError` for what must not be."""
        trial = self._trial
        shutil.copytree(self._template, self._data, ignore=shutil.ignore_patterns("lock", "*.ports", "endpoint.json"))
        self._prepare_index()
        self.done = damage(self._data, trial, self._rng)
        before = bytes_of_log(self._data)
        try:
            with open_as(self._data, trial.kind) as ledger:
                return self._use(ledger)
        except (ChainIntegrityError, CorruptStateError) as error:
            refusal = str(error)
        after = bytes_of_log(self._data)
        # Half a record at the end of a file whose server was killed is a write that was interrupted: that server removes it.
        if self._trial.damage == "cut":
            before = {name: raw[: read_frames(raw)[1]] for name, raw in before.items()}
        is_whole = all(after.get(name, b"").startswith(raw) for name, raw in before.items())
        assert is_whole, f"refused, and yet the log was changed: {refusal}"
        return self._repair()

    def _prepare_index(self) -> None:
        trial = self._trial
        if trial.kind == "encrypted":
            # Its index lies in memory, and belongs to all copies of the log: each trial builds its own.
            digest = sha256(Path(f"{self._template}.log").read_text().encode()).hexdigest()[:32]
            shutil.rmtree(memory_folder() / digest, ignore_errors=True)
        if trial.index == "deleted":
            shutil.rmtree(self._data / "index", ignore_errors=True)
        adopt(self._data, boot=ANOTHER_BOOT if trial.index == "another boot" else None)
        if trial.index == "another boot":
            for note in (self._data / "index").rglob("in-use"):
                note.write_bytes(b"clean" if trial.stop == "closed" else ANOTHER_BOOT)

    def _use(self, ledger: Ledger) -> str:
        """It opened: nothing is missing, or `verify` says that it is and the rest is all there."""
        found: list[tuple[int, str]] = []
        noticed = None
        try:
            found = refer(ledger).events
            ledger.verify()
        except (ChainIntegrityError, CorruptStateError) as error:
            noticed = error
        if noticed is None:
            assert found == self._truth.events, (
                f"SILENT: {len(found)} of {len(self._truth.events)} events, and verify is content"
            )
            return "harmless"
        return "noticed by verify"

    def _repair(self) -> str:
        done = admin.repair(self._data, encryption=encryption_of(self._trial.kind))
        with open_as(self._data, self._trial.kind) as ledger:
            ledger.verify()
            there = dict(refer(ledger).events)
        kept = sum(there.get(position) == digest for position, digest in self._truth.events)
        missing = len(self._truth.events) - kept
        assert missing == 0 or done.kept_as is not None, (
            f"{missing} events are missing, and the repair says that nothing was"
        )
        return "refused, repaired whole" if missing == 0 else "refused, repaired with losses"


def trials(seed: str, count: int) -> Iterator[Trial]:
    """So many cells of the matrix, each as often as the others."""
    rng = Random(seed)
    cells = list(itertools.product(STOPS, KINDS, INDEXES, DAMAGES))
    order: list[tuple[str, str, str, str]] = []
    while len(order) < count:
        rng.shuffle(cells)
        order += cells
    for number, (stop, kind, index, how) in enumerate(order[:count]):
        yield Trial(f"{seed}/{number}", stop, kind, index, how, is_rot=rng.random() < 0.5)


def run(folder: Path, seed: str, count: int, say: Callable[[str], None]) -> tuple[dict[str, Counter[str]], list[str]]:
    """Run trials; returns what came of them by damage, and what must not be."""
    folder.mkdir(parents=True, exist_ok=True)
    templates: dict[tuple[str, str], Path] = {}
    table: dict[str, Counter[str]] = {}
    findings: list[str] = []
    for number, trial in enumerate(trials(seed, count)):
        key = (trial.stop, trial.kind)
        if key not in templates:
            templates[key] = make_template(folder, *key, seed)
        place = folder / f"trial {number}"
        place.mkdir()
        cell = Cell(trial, templates[key], place)
        try:
            outcome = cell.run()
        except Exception as error:  # noqa: BLE001 - any other error is what is looked for
            outcome = "FAILED"
            findings.append(f"damage: {trial}: {cell.done}: {type(error).__name__}: {error}")
        table.setdefault(trial.damage, Counter())[outcome] += 1
        if outcome != "FAILED":
            with contextlib.suppress(OSError):
                shutil.rmtree(place)
        if number % 25 == 24:
            say(f"damage: {number + 1} trials, {len(findings)} found")
    return table, findings


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
