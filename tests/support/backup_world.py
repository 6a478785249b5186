"""The world of tests of backups and repairs: ledgers at every kind of place, and killing processes in the middle."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

import chatledger
from chatledger import Ledger, user

_PATIENCE_S = 120


def fill(ledger: Ledger, *, chats: str = "abc", messages: int = 4) -> None:
    """Some chats, with a branch, a checkpoint and words of their own."""
    for chat_id in chats:
        ledger.create_chat(chat_id, "ada", title=f"about {chat_id}", metadata={"n": 1})
        for number in range(messages):
            ledger.append(chat_id, [user(word(chat_id, number))])
        appended = ledger.get_messages(chat_id)
        ledger.set_checkpoint(chat_id, "here", appended[-1].id)
        ledger.fork(chat_id, appended[0].id, activate=False)


def word(chat_id: str, number: int) -> str:
    """A word that stands in one message only."""
    return f"word-{chat_id}-{number}-word"


def answers(ledger: Ledger) -> dict[str, Any]:
    """All answers of a ledger: history with positions and hashes, chats, graphs."""
    chats = ledger.list_chats()
    return {
        "position": ledger.position,
        "history": [recorded.to_dict() for recorded in ledger.history()],
        "chats": chats,
        "graphs": [ledger.graph(chat.id) for chat in chats],
        "search": [hit.message.id for chat in chats for hit in ledger.search("word", chat_id=chat.id)],
    }


def content(folder: Path) -> bytes:
    """All bytes of all files."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@contextlib.contextmanager
def changed(file: Path) -> Generator[bytearray]:
    """The bytes of a file, to be changed; they are written back."""
    raw = bytearray(file.read_bytes())
    yield raw
    file.write_bytes(raw)


def block(data: Path, number: int = 0) -> Path:
    """A block file of a data directory's log."""
    return sorted(data.glob("log/jetstream/$G/streams/chatledger/msgs/*.blk"))[number]


def rot(file: Path, raw: bytes) -> None:
    """Give a file another content as a disk does that rots: nobody has written to it, as far as the file system knows."""
    before = file.stat()
    file.write_bytes(raw)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


KILLED = """
import sys, chatledger
from chatledger import user
with chatledger.open(sys.argv[1]) as ledger:
    ledger.append("c", [user("written by one who was killed")])
    open(sys.argv[2], "w").close()
    sys.stdin.read()
"""


def kill_a_writer(data: Path) -> None:
    """Append to the chat `c` of a directory in a process that is killed when it has done so."""
    mark = data.with_name("written")
    run_and_kill(KILLED, data, mark, when=mark.exists)


def run_and_kill(code: str, *args: object, when: Callable[[], bool]) -> int:
    """
    Run Python code in a process of its own, and kill -9 it as soon as `when` says so. Returns the exit code.

    When it comes neither to the point nor to its end, it is ended, and what all of its threads were doing is told.
    """
    command = [sys.executable, "-X", "faulthandler", "-c", code, *map(str, args)]
    with tempfile.TemporaryFile("w+") as errors:
        # Its input is one that does not end: workers of pytest-xdist have none, and code that waits for it would close what it has.
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors)
        assert child.stdin is not None
        try:
            deadline = time.monotonic() + _PATIENCE_S
            while child.poll() is None and not when():
                if time.monotonic() > deadline:
                    child.send_signal(signal.SIGABRT)
                    child.wait(60)
                    errors.seek(0)
                    pytest.fail(f"it neither ended nor came to the point within {_PATIENCE_S} s:\n{errors.read()}")
                time.sleep(0.0005)
        finally:
            child.kill()
            child.stdin.close()
        exit_code = child.wait(60)
        errors.seek(0)
        print(errors.read())  # shown when the test fails
        return exit_code


def reopened(location: str | Path) -> dict[str, Any]:
    """All answers of a ledger after it was verified."""
    with chatledger.open(location) as ledger:
        ledger.verify()
        return answers(ledger)
