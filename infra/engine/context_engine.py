"""`ContextEngine` and `AsyncContextEngine`: the same engine on a `Ledger` and on an `AsyncLedger`."""

import functools
import weakref
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from chatledger.domain.context.fragment import Fragment
from chatledger.domain.engine.engine import Engine
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.values import Chat

from ..async_ledger import AsyncLedger
from ..ledger import Ledger
from ..messages import new_id
from ..opening import open_async_ledger, open_ledger
from .port import LedgerPort

P = ParamSpec("P")
T = TypeVar("T")


def _at_once(
    method: Callable[Concatenate[Engine, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["ContextEngine", P], T]:
    """The same method for a caller that waits for it."""

    def call(self: "ContextEngine", /, *args: P.args, **kwargs: P.kwargs) -> T:
        coroutine = method(self._engine, *args, **kwargs)  # pyright: ignore[reportPrivateUsage]  # a method of that class
        try:
            coroutine.send(None)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]  # what the coroutine returns
        coroutine.close()
        msg = f"{method.__name__} waited, though its port answers at once"
        raise AssertionError(msg)

    functools.update_wrapper(call, method)
    del call.__wrapped__  # type: ignore[attr-defined]  # it is a coroutine function, which this is not
    return call


class ContextEngine:
    """
    The context of a conversation as an agent's author holds it: what goes into the prompt, what is said, what is saved.

    Nothing is written before the first operation, which creates the chat, or opens it if it is this user's. Messages that
    are set wait until `save`. An engine works on its own branch: that which was active when it began, until it moves
    itself by `rewind`, `restore`, `switch_branch`, `refresh`, or by saving an edit.

    Made for one thread at a time, as a file is; several engines may work on one chat.

    Args:
        ledger: Where the conversation is kept.
        chat_id: The chat.
        user_id: Its owner; not empty.
        metadata: Merged over the metadata of the chat on first use; given keys win.
        sandbox: What computed values get that ask for one.

    Raises:
        InvalidValueError: An id or the metadata break a rule.

    Example:
        engine = ContextEngine(ledger, "trip", "ada").set(role("You plan trips."), user("Riga in May?"))
        context = engine.resolve()
        engine.set(assistant(answer(context.system_prompt, context.messages))).save()
    """

    def __init__(
        self,
        ledger: Ledger,
        chat_id: str,
        user_id: str,
        *,
        metadata: dict[str, Any] | None = None,
        sandbox: Any = None,
    ) -> None:
        if not isinstance(ledger, Ledger):
            hint = "; use AsyncContextEngine" if isinstance(ledger, AsyncLedger) else ""
            msg = f"a context engine works on a Ledger, which chatledger.open returns, not on {type(ledger).__name__}{hint}"
            raise InvalidValueError(msg)

        async def run(call: Callable[[Ledger], T]) -> T:
            return call(ledger)

        self._engine = Engine(LedgerPort(run, is_blocking=True), chat_id, user_id, metadata=metadata, sandbox=sandbox)
        self._ledger, self._is_scratch = ledger, False

    @property
    def chat_id(self) -> str:
        """The chat."""
        return self._engine.chat_id

    @property
    def user_id(self) -> str:
        """Its owner."""
        return self._engine.user_id

    @property
    def branch(self) -> str | None:
        """The name of the branch that the engine is on; None before first use."""
        return self._engine.branch

    @property
    def head_message_id(self) -> str | None:
        """The present head of that branch; None while it is empty, and before first use."""
        if self.branch is None:
            return None
        branch = self._ledger.get_branch(self.chat_id, self.branch)
        return None if branch is None else branch.head_message_id

    @property
    def chat(self) -> Chat | None:
        """The chat as the engine last read it; None before first use."""
        return self._engine.chat

    @property
    def fragments(self) -> list[Fragment]:
        """The context fragments, which make up the system prompt."""
        return self._engine.fragments

    @property
    def pending(self) -> list[Fragment]:
        """The messages that the next save stores, as they were set."""
        return self._engine.pending

    def set(self, *fragments: Fragment | Any) -> Self:
        """
        Add context fragments to the system prompt, and messages to what the next save stores; both keep their order.

        Context fragments are copied. One with the id of another takes its place. Among the messages to be saved the last
        one of an id counts. Nothing is written.

        Args:
            *fragments: Fragments, objects of their shape, `NewMessage` or `Message` values.

        Raises:
            InvalidValueError: Something is no fragment; then none of them is set.
        """
        self._engine.set(*fragments)
        return self

    def unset(self, fragment_id: str) -> bool:
        """Remove the context fragment of that id; returns whether there was one."""
        return self._engine.unset(fragment_id)

    resolve = _at_once(Engine.resolve)
    get_messages = _at_once(Engine.get_messages)
    head_message = _at_once(Engine.head_message)
    first_user_message = _at_once(Engine.first_user_message)
    turn_count = _at_once(Engine.turn_count)
    save = _at_once(Engine.save)
    continue_turn = _at_once(Engine.continue_turn)
    rewind = _at_once(Engine.rewind)
    btw = _at_once(Engine.btw)
    switch_branch = _at_once(Engine.switch_branch)
    refresh = _at_once(Engine.refresh)
    checkpoint = _at_once(Engine.checkpoint)
    restore = _at_once(Engine.restore)
    update_chat = _at_once(Engine.update_chat)
    track_usage = _at_once(Engine.track_usage)
    estimate = _at_once(Engine.estimate)
    inspect = _at_once(Engine.inspect)

    def fork(self) -> "ContextEngine":
        """
        Return a scratch copy: the context fragments in a new chat of the same user, without messages, in memory.

        What it saves is gone when it is closed, at the latest with the process. Use it as a context manager, or close it.
        """
        ledger = open_ledger("memory:")
        scratch = ContextEngine(ledger, new_id(), self.user_id, sandbox=self._engine.sandbox)
        scratch._is_scratch = True
        weakref.finalize(scratch, ledger.close)
        return scratch.set(*self.fragments)

    def close(self) -> None:
        """Close a scratch copy. The ledger of any other engine stays open: whoever opened it closes it."""
        if self._is_scratch:
            self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ContextEngine {self.chat_id!r} on {self.branch or 'no branch yet'}>"


class AsyncContextEngine(Engine):
    """
    A context engine on an `AsyncLedger`: the methods of `ContextEngine`, awaited; `set` and `unset` are not, for they only
    note what to do.

    Args:
        ledger: Where the conversation is kept.
        chat_id, user_id, metadata, sandbox: As for `ContextEngine`.
    """

    def __init__(
        self,
        ledger: AsyncLedger,
        chat_id: str,
        user_id: str,
        *,
        metadata: dict[str, Any] | None = None,
        sandbox: Any = None,
    ) -> None:
        if not isinstance(ledger, AsyncLedger):
            hint = "; use ContextEngine" if isinstance(ledger, Ledger) else ""
            msg = (
                "an asynchronous context engine works on an AsyncLedger, which chatledger.open_async returns, "
                f"not on {type(ledger).__name__}{hint}"
            )
            raise InvalidValueError(msg)
        super().__init__(
            LedgerPort(ledger.run, is_blocking=False), chat_id, user_id, metadata=metadata, sandbox=sandbox
        )
        self._ledger, self._is_scratch = ledger, False

    def fork(self) -> "AsyncContextEngine":
        """Return a scratch copy in memory; see `ContextEngine.fork`. Use it with `async with`, or close it."""
        ledger = open_async_ledger("memory:")
        scratch = AsyncContextEngine(ledger, new_id(), self.user_id, sandbox=self.sandbox)
        scratch._is_scratch = True
        return scratch.set(*self.fragments)

    async def close(self) -> None:
        """Close a scratch copy. The ledger of any other engine stays open: whoever opened it closes it."""
        if self._is_scratch:
            await self._ledger.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncContextEngine {self.chat_id!r} on {self.branch or 'no branch yet'}>"
