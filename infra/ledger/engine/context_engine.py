"""`ContextEngine` and `AsyncContextEngine`: the same engine on a `Ledger` and on an `AsyncLedger`."""

import functools
import inspect
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from chatledger.domain.context.engine.engine import Engine
from chatledger.domain.context.fragments import Fragment
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.values import Chat, Message

from ..aio.async_ledger import AsyncLedger
from ..aio.awaiting import Opening
from ..aio.live import AsyncLiveAnswer
from ..drafts import MessageLike, new_id
from ..ledger import Ledger
from ..live import LiveAnswer
from ..open import open_scratch
from .store_port import LedgerPort

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
    vars(call)["__signature__"] = inspect.signature(method)  # so that `help` and editors show the arguments
    return call


def _refuse_regenerating(engine: Engine) -> None:
    if engine.is_regenerating:
        msg = "a regenerated answer goes to a branch that its save makes; write it, then set(...) and save()"
        raise InvalidValueError(msg)


def _close_all(ledgers: list[Ledger]) -> None:
    for ledger in ledgers:
        ledger.close()


class ContextEngine:
    """
    The context of a conversation: what the system prompt says, what was said so far, and what is to be saved.

    `set` takes context fragments, which become the system prompt and are never stored, and messages, which are pending until
    `save` stores them. `resolve` gives both in the form that a model takes.

    Making an engine and `set` write nothing. The first other operation creates the chat, or opens it if this user may write to it.
    An engine stays on one branch: that which is active then. It goes to another one by `rewind`, `restore`,
    `switch_branch`, `refresh`, or a save that makes a branch, and never because of others.

    Made for one thread at a time, as a file is; several engines may work on one chat.

    Args:
        ledger: Where the conversation is kept.
        chat_id: The chat.
        user_id: Its owner, or a member that may write; not empty.
        metadata: Merged over the metadata of the chat on first use; given keys win.
        sandbox: What computed values get that ask for one; see `chatledger.fragments.requires_sandbox`.

    Raises:
        InvalidValueError: An id or the metadata break a rule, or `ledger` is no `Ledger`.

    Example:
        engine = ContextEngine(ledger, "trip", "ada").set(role("You plan trips."), user("Riga in May?"))
        context = engine.resolve(form="openai")
        answer = ask_model(context.system_prompt, context.messages)
        engine.set(assistant(answer)).save()
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
        """The id of the chat."""
        return self._engine.chat_id

    @property
    def user_id(self) -> str:
        """The id of its owner."""
        return self._engine.user_id

    @property
    def sandbox(self) -> Any:
        """The sandbox that is passed to computed values which ask for one."""
        return self._engine.sandbox

    @property
    def branch(self) -> str | None:
        """The name of the branch that the engine is on; None before first use."""
        return self._engine.branch

    @property
    def head_message_id(self) -> str | None:
        """The head of that branch on the ledger at this moment; None while it is empty, and before first use."""
        if self.branch is None:
            return None
        branch = self._ledger.get_branch(self.chat_id, self.branch)
        return None if branch is None else branch.head_message_id

    @property
    def chat(self) -> Chat | None:
        """The chat as the engine last read it; None before first use."""
        return self._engine.chat

    @property
    def is_regenerating(self) -> bool:
        """Whether the next save stores an answer on a branch of its own, as `regenerate` was called."""
        return self._engine.is_regenerating

    @property
    def fragments(self) -> list[Fragment]:
        """The context fragments, which make up the system prompt: copies."""
        return self._engine.fragments

    @property
    def pending(self) -> list[Fragment]:
        """The messages that the next save stores, as they were set: copies."""
        return self._engine.pending

    def set(self, *fragments: Message | MessageLike, form: str | None = None) -> Self:
        """
        Add context fragments to the system prompt, and messages to what the next save stores; both keep their order.

        All are copied, so that later changes by the caller have no effect. A context fragment with the id of another takes its
        place; of pending messages with the same id the last one counts. Nothing is written. A message with the id of a stored one, but other content, is an edit of
        that; see `save`.

        Args:
            *fragments: Fragments, objects of their shape, `NewMessage` or `Message` values, or messages as `Ledger.append` takes
                them: dictionaries and objects of SDKs.
            form: The form of these dictionaries and objects, as for `Ledger.append`.

        Returns:
            The engine, so that a call can follow: `engine.set(user("Hello")).save()`.

        Raises:
            InvalidValueError: Something is no fragment, or a context fragment holds a message; then none of them is set.
        """
        self._engine.set(*fragments, form=form)
        return self

    def unset(self, fragment_id: str) -> bool:
        """Remove the context fragment of that id from the system prompt; returns whether there was one."""
        return self._engine.unset(fragment_id)

    def discard(self) -> list[Fragment]:
        """
        Drop the pending messages, and return them; a `regenerate` is taken back. What is stored stays.

        Of a save whose outcome is unknown they may be stored; then they are, and the next one goes on from there.
        """
        return self._engine.discard()

    resolve = _at_once(Engine.resolve)
    get_messages = _at_once(Engine.get_messages)
    head_message = _at_once(Engine.head_message)
    first_user_message = _at_once(Engine.first_user_message)
    turn_count = _at_once(Engine.turn_count)
    save = _at_once(Engine.save)
    continue_turn = _at_once(Engine.continue_turn)
    regenerate = _at_once(Engine.regenerate)
    rewind = _at_once(Engine.rewind)
    btw = _at_once(Engine.btw)
    switch_branch = _at_once(Engine.switch_branch)
    refresh = _at_once(Engine.refresh)
    checkpoint = _at_once(Engine.checkpoint)
    restore = _at_once(Engine.restore)
    compact = _at_once(Engine.compact)
    update_chat = _at_once(Engine.update_chat)
    track_usage = _at_once(Engine.track_usage)
    estimate = _at_once(Engine.estimate)
    inspect = _at_once(Engine.inspect)

    def live(self, *, name: str = "assistant") -> LiveAnswer:
        """
        Save what is pending, and start a live stream for the answer, on the engine's branch; see `Ledger.live`.

        After its `commit` the answer is on the branch, as if it had been set and saved.

        Args:
            name: The role of the message.

        Raises:
            InvalidValueError: After `regenerate`: the branch of the new answer begins with its save. Or as `save`.
            LogUnavailableError: As `save`.
        """
        _refuse_regenerating(self._engine)
        if self.pending or self.branch is None:
            self.save()
        return self._ledger.live(self.chat_id, name=name, branch=self.branch)

    def fork(self) -> "ContextEngine":
        """
        Return an engine to try things with: a copy of the context fragments, and a new chat in memory without messages.

        The chat of this engine is not touched; to branch that, use `rewind` or `btw`. What the copy saves is gone when it is
        closed, at the latest with the process. Use it as a context manager, or close it.
        """
        ledger = open_scratch(self._ledger)
        scratch = ContextEngine(ledger, new_id(), self.user_id, sandbox=self._engine.sandbox)
        scratch._is_scratch = True
        weakref.finalize(scratch, ledger.close)
        return scratch.set(*self.fragments)

    def close(self) -> None:
        """Close an engine that `fork` made, with its ledger. Any other ledger stays open, as its opener closes it."""
        if self._is_scratch:
            self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ContextEngine {self.chat_id!r} on {self.branch or 'no branch yet'}>"


class AsyncContextEngine(Engine):
    """
    A context engine on an `AsyncLedger`: `ContextEngine` with methods that are awaited.

    `set`, `unset` and `fork` are not awaited, for they write nothing; properties are the same but for `head_message_id`. Made
    for one task at a time; several engines may work on one chat.

    Args:
        ledger: Where the conversation is kept.
        chat_id, user_id, metadata, sandbox: As for `ContextEngine`.

    Raises:
        InvalidValueError: As for `ContextEngine`, or `ledger` is no `AsyncLedger`.

    Example:
        engine = AsyncContextEngine(ledger, "trip", "ada").set(user("Riga in May?"))
        context = await engine.resolve(form="openai")
        await engine.set(assistant(await ask_model(context.messages))).save()
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

    def live(self, *, name: str = "assistant") -> Opening[AsyncLiveAnswer]:
        """Save what is pending, and start a live stream for the answer; see `ContextEngine.live`. By `async with` or `await`."""

        async def start() -> AsyncLiveAnswer:
            _refuse_regenerating(self)
            if self.pending or self.branch is None:
                await self.save()
            return await self._ledger.live(self.chat_id, name=name, branch=self.branch)

        return Opening(start)

    def fork(self) -> "AsyncContextEngine":
        """Return an engine to try things with; see `ContextEngine.fork`. Use it with `async with`, or close it."""
        opened: list[Ledger] = []

        def opener() -> Ledger:
            opened.append(open_scratch(self._ledger._open()))  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - in a thread
            return opened[0]

        scratch = AsyncContextEngine(AsyncLedger(opener, "memory:"), new_id(), self.user_id, sandbox=self.sandbox)
        scratch._is_scratch = True
        weakref.finalize(scratch, _close_all, opened)
        return scratch.set(*self.fragments)

    async def close(self) -> None:
        """Close an engine that `fork` made, with its ledger. Any other ledger stays open, as its opener closes it."""
        if self._is_scratch:
            await self._ledger.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncContextEngine {self.chat_id!r} on {self.branch or 'no branch yet'}>"
