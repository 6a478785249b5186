"""Processes in trials of an interrupted erasure: fill a ledger, delete, and open it again."""

import contextlib
import os
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

import msgspec
from tests.support.agent_threads import tree_of

import chatledger
from chatledger import Encryption, Ledger, NewMessage
from chatledger.domain.versioned.keys import STATE, thread_stream
from chatledger.domain.versioned.record import PutVersion
from chatledger.graph_state import StateStore, state_id
from chatledger.infra.admin.doctor.diagnosing import diagnose
from chatledger.infra.ledger.threads import Threads
from chatledger.infra.log.nats.event_log import JetStreamLog
from chatledger.infra.log.sql import SqliteLog
from chatledger.infra.store.temp_folders import RUNTIME_DIR_ENV

Kind = Literal["plain", "zstd", "encrypted", "sqlite"]
Act = Literal["chat", "sweep", "thread", "state", "backup"]
MARKS: Final[dict[Act, str]] = {
    "chat": "xyzzy",
    "sweep": "xyzzy",
    "backup": "xyzzy",
    "thread": "plugh",
    "state": "plover",
}
"""A word in all that an act is to erase, and in nothing else."""
CHAT_ACTS: Final = frozenset({"chat", "sweep", "backup"})
LOOSE: Final = state_id("ada", "loose")
_OF_CHAT: Final = ("doomed", thread_stream("doomed"), STATE.stream_of(state_id("ada", "doomed")))
STREAMS: Final[dict[Act, tuple[str, ...]]] = {
    "chat": _OF_CHAT,
    "sweep": _OF_CHAT,
    "backup": _OF_CHAT,
    "thread": (thread_stream("loose"),),
    "state": (STATE.stream_of(LOOSE),),
}
"""The streams whose records an act erases."""
MESSAGES: Final = 24
LARGE_BYTES: Final = 300_000
EXPIRY_MS: Final = 1_000


class Setting(msgspec.Struct, frozen=True):
    """
    A ledger in a folder.

    Args:
        folder: What all of it lies in: `data`, `backup`, and `memory`, a link to a folder in memory.
        kind: How records are stored.
        key: Of an encrypted one.
    """

    folder: str
    kind: Kind
    key: str

    @property
    def data(self) -> Path:
        """Where the ledger is."""
        return Path(self.folder) / "data"

    @property
    def database(self) -> Path:
        """The file of one in SQLite."""
        return self.data / "ledger.db"

    @property
    def location(self) -> str:
        """The location, for `open`."""
        return f"sqlite:///{self.database}" if self.kind == "sqlite" else str(self.data)

    @property
    def index(self) -> Path:
        """Where the index is, or its note."""
        return self.data / ("ledger.db-index" if self.kind == "sqlite" else "index")

    @property
    def backup(self) -> Path:
        """Where its backup is."""
        return Path(self.folder) / "backup"

    @property
    def memory(self) -> Path:
        """Where the index of an encrypted ledger is."""
        return (Path(self.folder) / "memory").resolve()

    @property
    def encryption(self) -> Encryption | None:
        """The key, where one is needed."""
        return Encryption(self.key) if self.kind == "encrypted" else None

    def open(self) -> Ledger:
        """Open it."""
        os.environ[RUNTIME_DIR_ENV] = str(self.memory)
        compression: Literal["zstd", "none"] = "zstd" if self.kind == "zstd" else "none"
        return chatledger.open(self.location, encryption=self.encryption, compression=compression)


class Reopened(msgspec.Struct):
    """The state of a ledger that somebody opened after a death."""

    kinds: list[str] = []
    """The words of `doctor` before."""
    is_undone: bool = False
    """Whether what was to be deleted is still there: it died before the tombstone."""
    others: list[str] = []
    """The content of the chats and states that nobody deleted."""
    after: list[str] = []
    """The words of `doctor` afterwards."""
    error: str = ""


def words(mark: str, rng: Random, count: int) -> str:
    """A text with a mark in each of its words, different in each record."""
    return " ".join(f"{mark}{rng.getrandbits(48):012x}" for _ in range(count))


def fill(setting: Setting, seed: str) -> None:
    """Write what is to be erased and, between it, what is to stay."""
    rng = Random(seed)
    setting.data.mkdir(mode=0o700)
    with setting.open() as ledger:
        threads, states = Threads(ledger), StateStore(ledger)
        ledger.create_chat("doomed", "ada", title=words("xyzzy", rng, 2), expires_at=EXPIRY_MS)
        ledger.create_chat("other", "ada")
        for number in range(MESSAGES):
            ledger.append("doomed", [NewMessage("user", words("xyzzy", rng, rng.choice([3, 60, 400])))])
            ledger.append("other", [NewMessage("user", words("kept", rng, 40))])
            if number in {5, 15}:
                ledger.append("doomed", [NewMessage("user", words("xyzzy", rng, LARGE_BYTES // 17))])
                ledger.append("other", [NewMessage("user", words("kept", rng, LARGE_BYTES // 17))])
            if number % 5 == 0:
                for name, mark in (("doomed", "xyzzy"), ("loose", "plugh"), ("stays", "kept")):
                    _put(threads, name, number, words(mark, rng, 50))
                for name, mark in (("doomed", "xyzzy"), ("loose", "plover"), ("stays", "kept")):
                    states.put(state_id("ada", name), {"text": words(mark, rng, 50)})


def back_up_and_delete(setting: Setting) -> None:
    """Take a backup, and delete what it has."""
    with setting.open() as ledger:
        ledger.backup(setting.backup)
        ledger.delete_chat("doomed")


def _put(threads: Threads, thread_id: str, number: int, text: str) -> None:
    put = PutVersion(
        id=f"{number:03}",
        parent=None,
        frames=(("text", text.encode()), ("text", b"")),
        values={"messages": tree_of([text, "shared"])},
    )
    threads.put_checkpoint(thread_id, put)


def delete(setting: Setting, act: Act, pipe: Connection) -> None:
    """Say when it is open, when it begins to erase from the log, and when it is done."""
    _be_quiet()
    _say_when(SqliteLog if setting.kind == "sqlite" else JetStreamLog, "erase", pipe)
    with setting.open() as ledger:
        pipe.send("open")
        _delete(ledger, setting, act)
        ledger.wait_erased()
        pipe.send("done")


def _say_when(owner: type, name: str, pipe: Connection) -> None:
    """Say so at the first passage of a method."""
    original = getattr(owner, name)

    def passed(*arguments: Any, **named: Any) -> Any:
        setattr(owner, name, original)
        pipe.send("erasing")
        return original(*arguments, **named)

    setattr(owner, name, passed)


def _delete(ledger: Ledger, setting: Setting, act: Act) -> None:
    match act:
        case "chat":
            ledger.delete_chat("doomed")
        case "sweep":
            ledger.sweep()
        case "thread":
            Threads(ledger).delete("loose")
        case "state":
            StateStore(ledger).delete(LOOSE)
        case "backup":
            ledger.backup(setting.backup)


def reopen(setting: Setting, act: Act, pipe: Connection) -> None:
    """Look from outside, open, close, and look again."""
    _be_quiet()
    os.environ[RUNTIME_DIR_ENV] = str(setting.memory)
    found = Reopened()
    try:
        found.kinds = _kinds(setting)
        with setting.open() as ledger:
            found.is_undone = act != "backup" and _is_there(ledger, act)
            if act == "backup":
                ledger.backup(setting.backup)
            found.others = _others(ledger, act)
            ledger.verify()
        found.after = _kinds(setting)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        found.error = repr(error)
    pipe.send(found)


def _kinds(setting: Setting) -> list[str]:
    found = diagnose(setting.location, encryption=setting.encryption)
    return sorted({finding.kind for finding in found.findings})


def _is_there(ledger: Ledger, act: Act) -> bool:
    match act:
        case "thread":
            return "loose" in Threads(ledger).thread_ids()
        case "state":
            return StateStore(ledger).get(LOOSE) is not None
        case _:
            return ledger.get_chat("doomed") is not None


def _others(ledger: Ledger, act: Act) -> list[str]:
    texts = [message.text for message in ledger.get_messages("other")]
    states: list[dict[str, Any] | None] = [StateStore(ledger).get(state_id("ada", "stays"))]
    threads = ["stays"] if act == "thread" else ["loose", "stays"]
    if act != "state":
        states.append(StateStore(ledger).get(LOOSE))
    stored = [repr(one.pieces) for name in threads for one in Threads(ledger).checkpoints(name)]
    return [*texts, repr(states), *stored]


def _be_quiet() -> None:
    with contextlib.suppress(OSError):
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (1, 2):
            os.dup2(nothing, number)
