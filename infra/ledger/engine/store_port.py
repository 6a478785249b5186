"""A ledger as the outside of a context engine."""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from chatledger.domain.chat.save import Foreseen, Save, SaveResult
from chatledger.domain.context.engine.port import Opened
from chatledger.domain.context.estimate import Tokenizer
from chatledger.domain.context.fragments import Fragment
from chatledger.domain.context.summary import StoredChain
from chatledger.domain.errors import BranchNotFoundError, ChatNotFoundError
from chatledger.domain.values import Branch, Chat

from ...log.envelope import acting, clock_ms
from ..aio.awaiting import awaited
from ..drafts import adopted, new_id
from ..ledger import Ledger
from ..port import store_of
from ..saves import foresee_save
from ..tokenizers import as_tokenizer
from .computed_tree import LoadContext
from .computing import Computing
from .stored_chain import ChainReader

T = TypeVar("T")
_logger = logging.getLogger("chatledger.engine")


class RunOnLedger(Protocol):
    """Carries out a function of the ledger, at once or in a thread that is awaited."""

    async def __call__(self, call: Callable[[Ledger], T]) -> T:
        """Return what the function returns."""
        ...


class LedgerPort:
    """
    The port of a context engine.

    Args:
        run: How functions of the ledger are carried out: one call is one hop to a thread, if there is one.
        is_blocking: Whether nothing may be awaited, because the caller is synchronous.
    """

    def __init__(self, run: RunOnLedger, *, is_blocking: bool) -> None:
        self.run = run
        self._computing = Computing(is_blocking=is_blocking)

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
        """Read the chat, which exists."""
        chat = await self.run(lambda ledger: ledger.get_chat(chat_id))
        if chat is None:
            raise ChatNotFoundError(chat_id)
        return chat

    async def get_branch(self, chat_id: str, name: str) -> Branch:
        """Read a branch, which exists."""
        branch = await self.run(lambda ledger: ledger.get_branch(chat_id, name))
        if branch is None:
            raise BranchNotFoundError(chat_id, name)
        return branch

    async def get_active_branch(self, chat_id: str) -> Branch:
        """Read the active branch of a chat, which exists."""
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

    async def compute(self, fragments: Sequence[Fragment], *, context: Any, sandbox: Any) -> list[Fragment]:
        """Evaluate the computed values in context fragments."""
        return await self._computing.compute(fragments, LoadContext(context, sandbox))

    async def ask(self, function: Callable[[], Any], *, name: str) -> Any:
        """Return what a function gives, which may be asynchronous."""
        return await self._computing.ask(function, name=name)

    def alone(self) -> AbstractAsyncContextManager[None]:
        """Wait until no other task or thread computes values of this engine, and compute them."""
        return self._computing.alone()

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
