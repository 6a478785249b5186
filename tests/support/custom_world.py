"""
The world of tests of custom projections: a projection, what it must say, and other processes that write, build and die.

As a program it forks a child for each line it is told, so that a process that dies costs no start of an interpreter.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import chatledger
from chatledger import Ledger, NewMessage, Projection, ProjectionRows, Recorded
from chatledger.events import ChatCreated, ChatDeleted, MessagesAppended
from chatledger.infra.store.reading import CheckedReading
from chatledger.projections import index as index_module
from chatledger.projections.custom import catching_up
from chatledger.projections.generations import Generation, Generations
from chatledger.projections.lmdb.environment import Environment
from chatledger.projections.projector import Projector

ROOT: Final = Path(__file__).resolve().parents[2]


def say(content: str, **rest: Any) -> NewMessage:
    return NewMessage("user", content, **rest)


class Words(Projection):
    """Number of words that each user has written, and that each chat has."""

    name = "words"

    def __init__(self, version: int = 1) -> None:
        self.version = version

    def apply(self, rows: ProjectionRows, recorded: Recorded) -> None:
        chat, body = rows.of(recorded.chat_id), recorded.body
        if isinstance(body, ChatCreated):
            chat.put("owner", body.user_id)
        elif isinstance(body, MessagesAppended):
            words = sum(len(message.text.split()) for message in body.messages)
            chat.add("words", words)
            rows.add(chat.get("owner"), words)
        elif isinstance(body, ChatDeleted) and chat.get("owner") is not None:
            rows.add(chat.get("owner"), -chat.get("words", 0))


def counted(ledger: Ledger, name: str = "words") -> dict[Any, int]:
    """The counts of the projection, by user."""
    with ledger.projection(name) as rows:
        return dict(rows.range())


def expected(ledger: Ledger) -> dict[Any, int]:
    """The counts that it must have, worked out from the messages."""
    found: dict[Any, int] = {}
    for chat in ledger.list_chats():
        words = sum(len(message.text.split()) for message in ledger.get_messages(chat.id))
        found[chat.user_id] = found.get(chat.user_id, 0) + words
    return {user: words for user, words in sorted(found.items()) if words}


def generations(location: str) -> list[str]:
    """The folders of the index of an SQLite ledger."""
    folder = Path(location.removeprefix("sqlite:///") + "-index")
    return sorted(entry.name for entry in folder.iterdir() if entry.name.isdigit())


# Other processes

STEPS: Final[tuple[tuple[Any, str], ...]] = (
    (Environment, "update"),
    (Environment, "close"),
    (Generation, "describe"),
    (index_module, "apply_events"),
    (Generation, "retire"),
    (Generations, "publish"),
    (Generations, "remove_unused"),
    (catching_up, "apply_events"),
    (catching_up, "drop_record"),
    (catching_up, "forget_record"),
    (catching_up, "save_record"),
)
"""Before and after each of these a process may die."""


def _die_at(step: int) -> None:
    """Kill this process, as `kill -9` does, when it comes to its n-th step."""
    left = [step]

    def count() -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(original: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*args: Any, **kwargs: Any) -> Any:
            count()
            answer = original(*args, **kwargs)
            count()
            return answer

        return stepped

    for owner, name in STEPS:
        setattr(owner, name, around(getattr(owner, name)))


def _rebuild(location: str, step: int, only: str | None = None) -> None:
    with chatledger.open(location, projections=[Words()]) as ledger:
        _die_at(step)
        ledger.rebuild(only=only)


def _build(location: str, step: int) -> None:
    _die_at(step)
    with chatledger.open(location, projections=[Words()]):
        pass


def _renew(location: str, step: int) -> None:
    _die_at(step)
    with chatledger.open(location, projections=[Words(version=step + 1)]):
        pass


def _write(location: str, chat_id: str, count: int, *, with_projection: bool) -> None:
    with chatledger.open(location, projections=[Words()] if with_projection else []) as ledger:
        for number in range(count):
            ledger.append(chat_id, [say(f"word {number} more")])


def _delete(location: str, chat_id: str) -> None:
    with chatledger.open(location) as ledger:
        ledger.delete_chat(chat_id)


_ACTIONS: Final[dict[str, Callable[..., None]]] = {
    "rebuild": _rebuild,
    "rebuild_one": partial(_rebuild, only="words"),
    "build": _build,
    "renew": _renew,
    "write": _write,
    "delete": _delete,
}


class Forks:
    """Does things in processes of their own, one after another."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.custom_world"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, action: str, *args: Any, **options: Any) -> None:
        """Begin something; `end` tells how it ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([action, args, options]) + "\n")
        self._process.stdin.flush()

    def end(self) -> bool:
        """Wait; returns whether it came to its end, and was not killed."""
        assert self._process.stdout is not None
        code = int(self._process.stdout.readline())
        assert code in {0, -signal.SIGKILL}, code
        return code == 0

    def run(self, action: str, *args: Any, **options: Any) -> bool:
        """Do something in a process of its own, and wait."""
        self.begin(action, *args, **options)
        return self.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


def _main() -> None:
    for read in (Projector.read_commits, CheckedReading.page):
        read.__defaults__ = (10,)  # small pages, so that there are many steps
    for line in sys.stdin:
        action, args, options = json.loads(line)
        child = os.fork()
        if not child:
            code = 1
            try:
                _ACTIONS[action](*args, **options)
                code = 0
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    _main()
