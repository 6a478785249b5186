"""
A ledger as the outside of a context engine: stored chains, which are read as a whole only where somebody asks for it; computed
values, one evaluation at a time, of which what succeeded is kept where another fails; saves.
"""

import logging
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from contextvars import ContextVar
from functools import cached_property, partial
from typing import Any, Final, Protocol, TypeVar

import anyio

from chatledger.domain.chat.save import Foreseen, Save, SaveResult
from chatledger.domain.context.builders import check_holds_no_message
from chatledger.domain.context.engine.base import Opened
from chatledger.domain.context.estimate import Tokenizer
from chatledger.domain.context.fragments import Fragment
from chatledger.domain.context.summary import StoredChain
from chatledger.domain.errors import BranchNotFoundError, ChatNotFoundError, InvalidValueError
from chatledger.domain.values import Branch, Chat, Message
from chatledger.projections.chat.chains import Chains, Place

from ...log.envelope import acting, clock_ms
from ...store.commands import ChatsToRead
from ..aio.awaiting import awaited
from ..drafts import adopted, new_id
from ..ledger import Ledger
from ..port import StorePort, store_of
from ..saves import foresee_save
from ..tokenizers import as_tokenizer
from .computed import KeptResults, compute, compute_again, has_computed, run_now
from .computed_tree import LoadContext

_under_way: Final[ContextVar[tuple[object, ...]]] = ContextVar("chatledger_computing", default=())
"""The tokens of the evaluations that the value which runs here is part of; they may run in other tasks or threads."""


class Computing:
    """
    The evaluations of one engine.

    Args:
        is_blocking: Whether nothing may be awaited, because the caller is synchronous.
    """

    def __init__(self, *, is_blocking: bool) -> None:
        self._is_blocking = is_blocking
        self._thread_lock, self._task_lock = threading.Lock(), anyio.Lock()
        self._kept = KeptResults()
        self._token: object | None = None

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """
        Wait for the evaluation that is under way in another thread or task, and let none begin until this block ends.

        Raises:
            InvalidValueError: A value that is being computed asks for what it is part of.
        """
        outer = _under_way.get()
        # It would wait for itself for ever. By the context, as a value may ask from a task or thread that it started.
        if self._token in outer:
            msg = "a computed value cannot ask for the context that it is part of; it may read messages"
            raise InvalidValueError(msg)
        async with nullcontext() if self._is_blocking else self._task_lock:
            with self._thread_lock if self._is_blocking else nullcontext():
                self._token = object()
                before = _under_way.set((*outer, self._token))
                try:
                    yield
                finally:
                    self._token = None
                    _under_way.reset(before)

    async def compute(self, fragments: Sequence[Fragment], *, context: Any, sandbox: Any) -> list[Fragment]:
        """
        Evaluate the computed values in context fragments; to be called alone. After a failure it goes on where that one ended.

        Raises:
            ResolverError: As of `chatledger.fragments.compute`.
            InvalidValueError: A value gave a message.
        """
        if not has_computed(fragments):
            return list(fragments)
        call = partial(compute_again, fragments, LoadContext(context, sandbox), self._kept)
        computed = run_now(call) if self._is_blocking else await call()
        for fragment in computed:
            check_holds_no_message(fragment)
        self._kept = KeptResults()
        return computed

    async def ask(self, function: Callable[[], Any], *, name: str) -> Any:
        """
        Return the result of a function that is no part of the context. What earlier evaluations kept stays; others may run beside.

        Raises:
            ResolverError: The function failed; `name` is its path.
        """
        call = partial(compute, [Fragment(name, function)])
        (fragment,) = run_now(call) if self._is_blocking else await call()
        return fragment.data


T = TypeVar("T")
_logger = logging.getLogger("chatledger.engine")


class RunOnLedger(Protocol):
    """Carries out a function of the ledger, at once or in a thread that is awaited."""

    async def __call__(self, call: Callable[[Ledger], T]) -> T: ...


class LedgerPort(Computing):
    """
    The port of a context engine, which computes its values too.

    Args:
        run: How functions of the ledger are carried out: one call is one hop to a thread, if there is one.
        is_blocking: Whether nothing may be awaited, because the caller is synchronous.
    """

    def __init__(self, run: RunOnLedger, *, is_blocking: bool) -> None:
        super().__init__(is_blocking=is_blocking)
        self.run = run

    async def open_chat(self, chat_id: str, user_id: str, metadata: dict[str, Any] | None) -> Opened:
        """Create the chat unless it is there; an existing one is left as it is, and refused when it is not for this user."""

        def call(ledger: Ledger) -> Opened:
            # The command id of the caller is meant for what it asked for, not for the chat that this takes.
            with acting(command_id=new_id()):
                chat = ledger.upsert_chat(chat_id, user_id, metadata=metadata)
            return Opened(chat, _active(ledger, chat_id))

        return await self.run(call)

    async def update_chat(
        self, chat_id: str, updater: Callable[[Chat], dict[str, Any] | None], *, command_id: str | None = None
    ) -> Chat:
        """Change title and metadata, once per command id, the caller's when None; the updater may run several times."""

        def call(ledger: Ledger) -> Chat:
            with acting(command_id=command_id):
                return ledger.update_chat(chat_id, updater=updater)

        return await self.run(call)

    async def get_chat(self, chat_id: str) -> Chat:
        chat = await self.run(lambda ledger: ledger.get_chat(chat_id))
        if chat is None:
            raise ChatNotFoundError(chat_id)
        return chat

    async def get_branch(self, chat_id: str, name: str) -> Branch:
        branch = await self.run(lambda ledger: ledger.get_branch(chat_id, name))
        if branch is None:
            raise BranchNotFoundError(chat_id, name)
        return branch

    async def get_active_branch(self, chat_id: str) -> Branch:
        return await self.run(lambda ledger: _active(ledger, chat_id))

    set_active_branch = awaited(Ledger.set_active_branch)
    fork = awaited(Ledger.fork)
    set_checkpoint = awaited(Ledger.set_checkpoint)
    get_checkpoint = awaited(Ledger.get_checkpoint)
    get_messages = awaited(Ledger.get_messages)
    get_chain = awaited(Ledger.get_chain)
    get_graph = awaited(Ledger.graph)
    preview_save = awaited(Ledger.preview_save)

    async def save(self, chat_id: str, save: Save, *, command_id: str) -> SaveResult:
        """Carry out a save, once per command id."""

        def call(ledger: Ledger) -> SaveResult:
            with acting(command_id=command_id):
                return ledger.save(chat_id, save)

        return await self.run(call)

    async def foresee(self, chat_id: str, save: Save, decide: Callable[[Foreseen, StoredChain], T]) -> T:
        """Return the decision of a function on what a save would add, and on the chain that it adds to."""

        def call(ledger: Ledger) -> T:
            store = store_of(ledger)
            foreseen = foresee_save(store, chat_id, save)
            return decide(foreseen, ChainReader(store, foreseen.base))

        return await self.run(call)

    def tokenizer(self, counter: Tokenizer | str) -> Tokenizer:
        """Find a tokenizer by the name of its encoding; a function is returned as it is."""
        return as_tokenizer(counter)

    def report(self, what: str, error: Exception) -> None:
        """Log a failure that does not stop anything."""
        _logger.warning("%s: %s", what, type(error).__name__)  # without its message, which may quote content

    new_id = staticmethod(new_id)
    adopted = staticmethod(adopted)
    clock_ms = staticmethod(clock_ms)


def _active(ledger: Ledger, chat_id: str) -> Branch:
    branch = ledger.get_active_branch(chat_id)
    if branch is None:
        raise ChatNotFoundError(chat_id)
    return branch


_FIRST_PAGE: Final = 8
_PAGE: Final = 256


class ChainReader:
    """
    The chain of a message, asked one question at a time: a `StoredChain`. Its answers never change, for chains do not.

    Args:
        store: Where it is.
        head: The id of its last message; None for an empty chain, which also a chat has that was deleted meanwhile.
    """

    def __init__(self, store: StorePort, head: str | None) -> None:
        self._store, self._head = store, head

    @property
    def turn(self) -> int:
        """Number of its messages that a user wrote."""
        return self._counts[0]

    @property
    def message_count(self) -> int:
        return self._counts[1]

    @cached_property
    def _counts(self) -> tuple[int, int]:
        return self._ask(lambda chains, head: (chains.turns(head).number, chains.depth(head) + 1), default=(0, 0))

    def last_turn(self) -> Message | None:
        """Return the last message that a user wrote; None when there is none."""
        return self._message(lambda chains, head: chains.turns(head).last)

    def first_turn(self) -> Message | None:
        """Return the first message that a user wrote; None when there is none."""
        return self._message(lambda chains, head: chains.first_turn(head))

    def backwards(self) -> Iterator[Message]:
        """Yield its messages, the newest first; they are read in pages that grow."""
        rest, limit = self.message_count, _FIRST_PAGE
        while rest:
            page = self._page(rest - 1, limit)
            yield from reversed(page)
            rest, limit = rest - len(page) if page else 0, min(2 * limit, _PAGE)

    def _page(self, depth: int, limit: int) -> list[Message]:
        return self._ask(lambda chains, head: chains.chain(chains.ancestor(head, depth), limit), default=[])

    def has_fired(self, once_id: str) -> bool:
        """Whether an id of `once` has fired."""
        return self._ask(lambda chains, head: chains.has_fired(head, once_id), default=False)

    def fired(self) -> frozenset[str]:
        """Return the ids of `once` that have fired."""
        return self._ask(lambda chains, head: chains.fired(head), default=frozenset())

    def _message(self, find: Callable[[Chains, Place], Place | None]) -> Message | None:
        def message(chains: Chains, head: Place) -> Message | None:
            place = find(chains, head)
            return None if place is None else chains.message(place)

        return self._ask(message, default=None)

    def _ask(self, question: Callable[[Chains, Place], T], *, default: T) -> T:
        if self._head is None:
            return default
        with self._store.snapshot(ChatsToRead(message_ids=(self._head,))) as snapshot:
            located = snapshot.find(self._head)
            return default if located is None else question(located[0].chains, located[1])
