"""The port of a context engine: a conversation store, forms of messages, a clock, new ids."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

import msgspec

from ...chat.save import Foreseen, Save, SavePreview, SaveResult
from ...values import Branch, Chat, Checkpoint, Graph, Message
from ..estimate import Tokenizer
from ..fitting import Fit
from ..formats.message_format import Format, MessageFormat
from ..fragments import Fragment
from ..summary import StoredChain

T = TypeVar("T")


class Opened(msgspec.Struct, frozen=True):
    """A chat and its active branch, read at one moment."""

    chat: Chat
    branch: Branch


class Port(Protocol):
    """
    The outside of a context engine. A `Ledger` fulfils it, and an `AsyncLedger` does.

    Errors are those of the ledger's methods of the same names.
    """

    def open_chat(self, chat_id: str, user_id: str, metadata: dict[str, Any] | None) -> Awaitable[Opened]:
        """Create the chat unless it is there; an existing one is left as it is, and refused when it is not for this user."""
        ...

    def update_chat(
        self, chat_id: str, updater: Callable[[Chat], dict[str, Any] | None], *, command_id: str | None = None
    ) -> Awaitable[Chat]:
        """Change title and metadata, once per command id, the caller's when None; the updater may run several times."""
        ...

    def get_chat(self, chat_id: str) -> Awaitable[Chat]:
        """Read the chat, which exists."""
        ...

    def get_branch(self, chat_id: str, name: str) -> Awaitable[Branch]:
        """Read a branch, which exists."""
        ...

    def get_active_branch(self, chat_id: str) -> Awaitable[Branch]:
        """Read the active branch of a chat, which exists."""
        ...

    def set_active_branch(self, chat_id: str, name: str) -> Awaitable[Branch]:
        """Make another branch the active one."""
        ...

    def fork(self, chat_id: str, message_id: str, *, base: str, activate: bool) -> Awaitable[Branch]:
        """Make a branch at a message, named after another branch."""
        ...

    def set_checkpoint(self, chat_id: str, name: str, message_id: str) -> Awaitable[Checkpoint]:
        """Bookmark a message."""
        ...

    def get_checkpoint(self, chat_id: str, name: str) -> Awaitable[Checkpoint | None]:
        """Read a checkpoint."""
        ...

    def get_messages(self, chat_id: str, *, branch: str, limit: int, before: str | None) -> Awaitable[list[Message]]:
        """Read the last messages of a branch that come before a message of it."""
        ...

    def get_chain(self, head_message_id: str, *, limit: int) -> Awaitable[list[Message]]:
        """Read the last messages up to a message; none when there is no such message."""
        ...

    def get_graph(self, chat_id: str) -> Awaitable[Graph]:
        """Read the whole DAG."""
        ...

    def save(self, chat_id: str, save: Save, *, command_id: str) -> Awaitable[SaveResult]:
        """Carry out a save, once per command id."""
        ...

    def preview_save(self, chat_id: str, save: Save, *, fit: Fit | None = None) -> Awaitable[SavePreview]:
        """Read the chain as it would be after a save, or as much of it as fits."""
        ...

    def foresee(self, chat_id: str, save: Save, decide: Callable[[Foreseen, StoredChain], T]) -> Awaitable[T]:
        """Return the decision of a function on what a save would add, and on the chain that it adds to, which waits to be read."""
        ...

    def compute(self, fragments: Sequence[Fragment], *, context: Any, sandbox: Any) -> Awaitable[list[Fragment]]:
        """Evaluate the computed values in context fragments. After a failure, what succeeded is not evaluated again."""
        ...

    def ask(self, function: Callable[[], Any], *, name: str) -> Awaitable[Any]:
        """Return what a function gives, which may be asynchronous. A failure is a `ResolverError` of that name."""
        ...

    def alone(self) -> AbstractAsyncContextManager[None]:
        """Wait until no other task or thread computes values of this engine; none does inside of the block."""
        ...

    def adopted(self, value: Any, form: str | None = None) -> Any:
        """Return the fragment of a message as another library has it; anything else as it is."""
        ...

    def message_format(self, form: Format) -> MessageFormat:
        """Find a format by its name."""
        ...

    def tokenizer(self, counter: Tokenizer | str) -> Tokenizer:
        """Find a tokenizer by the name of its encoding; a function is returned as it is."""
        ...

    def report(self, what: str, error: Exception) -> None:
        """Log a failure that does not stop anything."""
        ...

    def new_id(self) -> str:
        """Make a new id."""
        ...

    def clock_ms(self) -> int:
        """Read the clock."""
        ...
