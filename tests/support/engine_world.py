"""The world of tests of context engines: both kinds of engine behind one face, chats to look at, and logs that fail."""

import contextlib
import inspect
import uuid
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final, Self, cast

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from tests.support.ledger_world import check_chat, internals, length

import chatledger
from chatledger import AsyncContextEngine, AsyncLedger, ContextEngine, Fragment, Ledger, LogUnavailableError, Message

KINDS: Final = ("sync", "async")
USER: Final = "ada"


class Driven:
    """An `AsyncContextEngine` for callers that wait: the calls of a test run in an event loop of another thread."""

    def __init__(self, engine: AsyncContextEngine, portal: BlockingPortal) -> None:
        self.engine, self.portal = engine, portal

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.engine, name)
        if not callable(found):
            return found

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            answer = found(*args, **kwargs)
            return await answer if inspect.isawaitable(answer) else answer

        def call(*args: Any, **kwargs: Any) -> Any:
            answer = self.portal.call(lambda: awaited(*args, **kwargs))
            if answer is self.engine:
                return self
            return Driven(answer, self.portal) if isinstance(answer, AsyncContextEngine) else answer

        return call

    def __enter__(self) -> Self:
        self.portal.call(self.engine.__aenter__)
        return self

    def __exit__(self, *error: object) -> None:
        self.portal.call(self.engine.close)

    def __repr__(self) -> str:
        return repr(self.engine)


class EngineWorld:
    """
    A ledger, engines on it, and ways to look at what they did.

    Args:
        kind: `sync` for `ContextEngine`, `async` for `AsyncContextEngine`.
        location: Where the log is.
    """

    def __init__(self, kind: str, location: str | Path = "memory:") -> None:
        self.kind = kind
        self._stack = contextlib.ExitStack()
        options: dict[str, Any] = {} if location == "memory:" else {"durability": "fast"}
        self.portal: BlockingPortal | None = None
        self.beneath: Ledger | AsyncLedger
        self.ledger: Ledger
        if kind == "sync":
            self.ledger = self.beneath = self._stack.enter_context(chatledger.open(location, **options))
        else:
            self.portal = self._stack.enter_context(start_blocking_portal())
            beneath = chatledger.open_async(location, **options)
            self._stack.callback(self.portal.call, beneath.close)
            self.beneath = beneath
            self.ledger = self.portal.call(beneath.run, _itself)
        self.chat = f"chat {uuid.uuid4().hex}"

    def engine(self, chat_id: Any = None, user_id: Any = USER, **options: Any) -> ContextEngine:
        """A new engine, on the chat of the test unless another is named."""
        chat_id = self.chat if chat_id is None else chat_id
        if isinstance(self.beneath, Ledger):
            return ContextEngine(self.beneath, chat_id, user_id, **options)
        assert self.portal is not None
        driven = Driven(AsyncContextEngine(self.beneath, chat_id, user_id, **options), self.portal)
        return cast("ContextEngine", driven)

    def saved(self, *fragments: Any) -> ContextEngine:
        """A new engine that has saved these."""
        engine = self.engine().set(*fragments)
        engine.save()
        return engine

    def chain(self, branch: str = "main", chat_id: str | None = None) -> list[str]:
        """The ids on a branch, root first."""
        chat_id = self.chat if chat_id is None else chat_id
        return [message.id for message in self.ledger.get_messages(chat_id, branch=branch)]

    def branches(self) -> dict[str, list[str]]:
        """The chains of all branches by name."""
        return {branch.name: self.chain(branch.name) for branch in self.ledger.list_branches(self.chat)}

    def active(self) -> str:
        """The name of the one active branch."""
        (active,) = [branch.name for branch in self.ledger.list_branches(self.chat) if branch.is_active]
        return active

    def message(self, message_id: str) -> Message:
        """A stored message."""
        found = self.ledger.get_message(message_id)
        assert found is not None
        return found

    def events(self) -> list[str]:
        """The kinds of events that the chat has, in order."""
        return [recorded.type for recorded in self.ledger.history(self.chat)]

    def content(self) -> list[Any]:
        """All that is stored of the chat, to be compared with what is stored later."""
        branches = self.ledger.list_branches(self.chat)
        return [
            self.ledger.get_chat(self.chat),
            branches,
            self.ledger.list_checkpoints(self.chat),
            [self.ledger.get_messages(self.chat, branch=branch.name) for branch in branches],
            length(self.ledger),
        ]

    @contextlib.contextmanager
    def nothing_happens(self, *engines: ContextEngine) -> Generator[None]:
        """Neither the store nor what the engines hold is another one afterwards."""

        def held(engine: ContextEngine) -> list[Any]:
            return [engine.branch, engine.head_message_id, engine.pending, engine.fragments]

        before = self.content(), list(map(held, engines))
        yield

        assert self.content() == before[0]
        assert list(map(held, engines)) == before[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Check that all promises of the ledger hold, whatever a test did."""
        with self._stack:
            if error is None:
                self.ledger.sync()
                for chat in self.ledger.list_chats():
                    check_chat(self.ledger, chat.id)
                if self.kind == "sync":  # both kinds write the same events
                    self.ledger.rebuild()
                    for chat in self.ledger.list_chats():
                        check_chat(self.ledger, chat.id)


def _itself(ledger: Ledger) -> Ledger:
    return ledger


class FailingLog:
    """
    Lets appends to the log of a ledger fail: `before` writing, or `after` it, as when the acknowledgement is lost.

    `failures` is how many of the next appends fail so.
    """

    def __init__(self, ledger: Ledger, patch: pytest.MonkeyPatch) -> None:
        log = internals(ledger).log
        self.failures = 0
        self.when = "before"
        append: Callable[..., list[int]] = log.append

        def faulty(*args: Any, **kwargs: Any) -> list[int]:
            if not self.failures:
                return append(*args, **kwargs)
            self.failures -= 1
            if self.when == "after":
                append(*args, **kwargs)
            msg = "the log did not answer"
            raise LogUnavailableError(msg)

        patch.setattr(log, "append", faulty)

    def fail(self, when: str, *, failures: int = 1) -> None:
        self.when, self.failures = when, failures


def data(text: str, message_id: str, role: str = "user") -> dict[str, Any]:
    """The UIMessage that `user(text, id=message_id)` stores."""
    return {"id": message_id, "role": role, "parts": [{"type": "text", "text": text}]}


def texts(messages: list[Any]) -> list[str]:
    """The texts of UIMessages."""
    return ["".join(part["text"] for part in message["parts"] if part["type"] == "text") for message in messages]


def shown(engine: ContextEngine) -> list[str]:
    """The texts of the conversation as the engine resolves it."""
    return texts(engine.resolve().messages)


def as_set(fragments: list[Fragment]) -> list[tuple[str | None, str]]:
    """Ids and names of fragments, in order."""
    return [(fragment.id, fragment.name) for fragment in fragments]
