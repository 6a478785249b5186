"""The port of a context engine: a conversation store, a clock, new ids."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from ...chat.save import Save, SavePreview, SaveResult
from ...values import Branch, Chat, Checkpoint, Graph, Message
from ..formats.message_format import MessageFormat
from ..fragments import Fragment


class Opened(msgspec.Struct, frozen=True):
    """A chat and its active branch, read at one moment."""

    chat: Chat
    branch: Branch


class Port(Protocol):
    """
    The outside of a context engine. A `Ledger` fulfils it, and an `AsyncLedger` does.

    Errors are those of the ledger's methods of the same names.
    """

    async def open_chat(self, chat_id: str, user_id: str, metadata: dict[str, Any] | None) -> Opened:
        """Create the chat unless it is there; an existing one is left as it is, also when another user owns it."""
        ...

    async def update_chat(
        self, chat_id: str, updater: Callable[[Chat], dict[str, Any] | None], *, command_id: str | None = None
    ) -> Chat:
        """Change title and metadata, once per command id, the caller's when None; the updater may run several times."""
        ...

    async def get_chat(self, chat_id: str) -> Chat:
        """Read the chat, which exists."""
        ...

    async def get_branch(self, chat_id: str, name: str) -> Branch:
        """Read a branch, which exists."""
        ...

    async def get_active_branch(self, chat_id: str) -> Branch:
        """Read the active branch of a chat, which exists."""
        ...

    async def set_active_branch(self, chat_id: str, name: str) -> Branch:
        """Make another branch the active one."""
        ...

    async def fork(self, chat_id: str, message_id: str, *, base: str, activate: bool) -> Branch:
        """Make a branch at a message, named after another branch."""
        ...

    async def set_checkpoint(self, chat_id: str, name: str, message_id: str) -> Checkpoint:
        """Bookmark a message."""
        ...

    async def get_checkpoint(self, chat_id: str, name: str) -> Checkpoint | None:
        """Read a checkpoint."""
        ...

    async def get_messages(self, chat_id: str, branch: str, *, limit: int, before: str | None) -> list[Message]:
        """Read the last messages of a branch that come before a message of it."""
        ...

    async def get_graph(self, chat_id: str) -> Graph:
        """Read the whole DAG."""
        ...

    async def save(self, chat_id: str, save: Save, *, command_id: str) -> SaveResult:
        """Carry out a save, once per command id."""
        ...

    async def preview_save(self, chat_id: str, save: Save) -> SavePreview:
        """Read the chain as it would be after a save."""
        ...

    async def compute(self, fragments: Sequence[Fragment], *, context: Any, sandbox: Any) -> list[Fragment]:
        """Evaluate the computed values in context fragments."""
        ...

    def message_format(self, form: str | MessageFormat) -> MessageFormat:
        """Find a format by its name."""
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
