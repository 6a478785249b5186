"""
Walks: how much of chatledger's own code one call goes through.

`python -m benchmarks.walks` prints a Markdown table. For each call it has the number of calls of our functions, the number of
different functions, and the number of files that these are in. Only the calling thread is counted, and only the second call:
the first one imports modules and fills caches. Comprehensions are no functions here, and a generator counts when it begins.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from langgraph.checkpoint.base import empty_checkpoint

import chatledger
from chatledger import ContextEngine, Ledger, user
from chatledger.fragments import hint, role
from chatledger.langgraph import LedgerSaver

_PACKAGE: Final = Path(chatledger.__file__).parent
_INNER: Final = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
_LAYERS: Final = ("domain", "projections", "infra")
_MESSAGES: Final = 7
_CHAT: Final = "trip"


class Function(NamedTuple):
    """One of our functions, by its place."""

    file: str
    line: int
    name: str


class Walk(NamedTuple):
    """The calls of our functions in one operation: how often each was called."""

    name: str
    calls: Counter[Function]

    @property
    def files(self) -> set[str]:
        return {function.file for function in self.calls}

    def calls_in(self, layer: str) -> int:
        return sum(count for function, count in self.calls.items() if function.file.startswith(f"{layer}/"))


def count_calls(name: str, call: Callable[[], object]) -> Walk:
    """Count the calls of our functions while `call` runs, in this thread."""
    calls: Counter[Function] = Counter()
    prefix = f"{_PACKAGE}/"

    def note(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        is_ours = event == "call" and code.co_filename.startswith(prefix) and code.co_name not in _INNER
        if is_ours and frame.f_lineno == code.co_firstlineno:  # else a generator goes on
            calls[Function(code.co_filename.removeprefix(prefix), code.co_firstlineno, code.co_qualname)] += 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return Walk(name, calls)


def walks() -> Iterator[Walk]:
    """Walk each call on a ledger in memory, and `append` on a directory too."""
    with chatledger.open("memory:") as ledger:
        _fill(ledger)
        yield _second("`append`, one message", lambda: _append(ledger))
        yield _save(ledger)
        engine = _engine(ledger)
        yield _second("`ContextEngine.resolve`", engine.resolve)
        yield _second("`get_messages`", lambda: ledger.get_messages(_CHAT))
        yield _second("`search`, one word in one chat", lambda: ledger.search("rains", chat_id=_CHAT))
        yield _second("`as_of` and `get_messages`, changed since", lambda: _messages_then(ledger))
        yield from _saver(ledger)
    with tempfile.TemporaryDirectory() as folder, chatledger.open(Path(folder) / "ledger") as ledger:
        _fill(ledger)
        yield _second("`append`, one message, to a directory", lambda: _append(ledger))


def _second(name: str, call: Callable[[], object]) -> Walk:
    call()
    return count_calls(name, call)


def _fill(ledger: Ledger) -> None:
    ledger.create_chat(_CHAT, "ada", title="A weekend in Riga")
    for _ in range(_MESSAGES):
        _append(ledger)


def _append(ledger: Ledger) -> None:
    ledger.append(_CHAT, [user("And if it rains?")])


def _engine(ledger: Ledger) -> ContextEngine:
    return ContextEngine(ledger, _CHAT, "ada").set(role("You plan weekend trips."), hint("Name prices in euros."))


def _save(ledger: Ledger) -> Walk:
    engine = _engine(ledger)
    engine.set(user("And if it snows?")).save()
    engine.set(user("And if it thaws?"))
    return count_calls("`ContextEngine.save`, one message", engine.save)


def _messages_then(ledger: Ledger) -> None:
    with ledger.as_of(_MESSAGES) as view:
        view.get_messages(_CHAT)


def _saver(ledger: Ledger) -> Iterator[Walk]:
    saver = LedgerSaver(ledger)
    thread: Any = {"configurable": {"thread_id": "agent", "checkpoint_ns": ""}}
    configs = [thread]

    def put() -> None:
        new: dict[str, str | int | float] = {"messages": f"{len(configs):032}.1"}
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": ["And if it rains?"] * len(configs)}
        checkpoint["channel_versions"] = new
        configs.append(saver.put(configs[-1], checkpoint, {"source": "loop", "step": len(configs), "parents": {}}, new))

    yield _second("`LedgerSaver.put`", put)
    yield _second("`LedgerSaver.get_tuple`", lambda: saver.get_tuple(thread))


def make_table(found: Iterable[Walk]) -> str:
    """Make the Markdown table."""
    lines = [
        "| call | calls | functions | files | calls in domain, projections, infra |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for walk in found:
        layers = ", ".join(str(walk.calls_in(layer)) for layer in _LAYERS)
        lines.append(f"| {walk.name} | {walk.calls.total()} | {len(walk.calls)} | {len(walk.files)} | {layers} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(make_table(walks()))
