"""The port of a context engine, which is all that it knows of the outside, and its state: its fragments, its branch, how it loads them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, Self, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from ...chat.save import Foreseen, Save, SavePreview, SaveResult
from ...errors import InvalidValueError
from ...limits import check_id, check_metadata, check_optional_id, same_json
from ...values import Branch, Chat, Checkpoint, Graph, Message
from ..builders import check_holds_no_message
from ..estimate import Tokenizer, add_usage, usage_of
from ..fitting import Fit
from ..fragments import Fragment, is_lazy_fragment, is_message_fragment
from ..messages import ASSISTANT, as_fragments, with_own_data
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

    def get_chat(self, chat_id: str) -> Awaitable[Chat]: ...

    def get_branch(self, chat_id: str, name: str) -> Awaitable[Branch]: ...

    def get_active_branch(self, chat_id: str) -> Awaitable[Branch]: ...

    def set_active_branch(self, chat_id: str, name: str) -> Awaitable[Branch]: ...

    def fork(self, chat_id: str, message_id: str, *, base: str, activate: bool) -> Awaitable[Branch]:
        """Make a branch at a message, named after another branch."""
        ...

    def set_checkpoint(self, chat_id: str, name: str, message_id: str) -> Awaitable[Checkpoint]: ...

    def get_checkpoint(self, chat_id: str, name: str) -> Awaitable[Checkpoint | None]: ...

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

    def tokenizer(self, counter: Tokenizer | str) -> Tokenizer:
        """Find a tokenizer by the name of its encoding; a function is returned as it is."""
        ...

    def report(self, what: str, error: Exception) -> None:
        """Log a failure that does not stop anything."""

    def new_id(self) -> str: ...

    def clock_ms(self) -> int: ...


class PendingMessage(msgspec.Struct, frozen=True):
    """
    A message that waits for a save, the id it gets if its own is taken by a message it edits, and the record of the prompt
    that it answers, if that was planned for a cache.
    """

    fragment: Fragment
    spare_id: str
    record: Mapping[str, Any] | None = None


class Attempt(msgspec.Struct, frozen=True):
    """A save whose outcome is unknown: repeating it under its command id makes sure that it happened once."""

    save: Save
    command_id: str
    pending: tuple[PendingMessage, ...]


class EngineBase:
    """
    State and first use of a context engine.

    Args:
        port: The outside.
        chat_id: The chat; created on first use.
        user_id: Its owner, or a writer.
        metadata: Merged over the chat's own on first use.
        sandbox: What computed values get that ask for one.
    """

    def __init__(
        self, port: Port, chat_id: str, user_id: str, *, metadata: dict[str, Any] | None, sandbox: Any
    ) -> None:
        self._port = port
        self._chat_id = check_id(chat_id, "chat_id")
        self._user_id = check_id(user_id, "user_id")
        self._metadata = check_metadata(metadata)
        self._sandbox = sandbox
        self._context: list[Fragment] = []
        self._pending: list[PendingMessage] = []
        self._unsettled: Attempt | None = None
        self._chat: Chat | None = None
        self._branch: str | None = None
        self._read_head: str | UnsetType | None = UNSET
        self._after: str | UnsetType | None = UNSET
        self._record: Mapping[str, Any] | None = None

    @property
    def chat_id(self) -> str:
        """The id of the chat."""
        return self._chat_id

    @property
    def user_id(self) -> str:
        """The id of its owner."""
        return self._user_id

    @property
    def sandbox(self) -> Any:
        """The sandbox that is passed to computed values which ask for one."""
        return self._sandbox

    @property
    def branch(self) -> str | None:
        """The name of the branch that the engine is on; None before first use."""
        return self._branch

    @property
    def head_message_id(self) -> str | None:
        """The head of that branch as the engine last read it; None while it was empty, and before first use."""
        return None if self._read_head is UNSET else self._read_head

    @property
    def chat(self) -> Chat | None:
        """The chat as the engine last read it; None before first use."""
        return self._chat

    @property
    def is_regenerating(self) -> bool:
        """Whether the next save stores an answer on a branch of its own, as `regenerate` was called."""
        return self._after is not UNSET

    @property
    def fragments(self) -> list[Fragment]:
        """The context fragments, which make up the system prompt: copies."""
        return list(map(with_own_data, self._context))

    @property
    def pending(self) -> list[Fragment]:
        """The messages that the next save stores, as they were set: copies."""
        return [with_own_data(entry.fragment) for entry in self._pending]

    def set(self, *fragments: Fragment | Any, form: str | None = None) -> Self:
        """Add context fragments and messages; see `ContextEngine.set`. Not awaited, for nothing is written."""
        adopted = [self._port.adopted(fragment, form) for fragment in fragments]
        added = [_checked(with_own_data(fragment)) for fragment in as_fragments(adopted)]
        messages = [fragment for fragment in added if is_message_fragment(fragment)]
        context = list(self._context)
        for fragment in added:
            if is_message_fragment(fragment):
                continue
            same = [at for at, before in enumerate(context) if fragment.id is not None and before.id == fragment.id]
            if same:
                context[same[0]] = fragment
            else:
                context.append(fragment)
        # All are checked before anything changes: a call that raises has set nothing.
        for message in messages:
            if message.id is None and not is_lazy_fragment(message):
                msg = f"message fragment {message.name!r} has no id; user(), assistant() and message() give it one"
                raise InvalidValueError(msg)
        self._context = context
        for message in messages:
            record = self._record if message.name == ASSISTANT else None
            self._record = None if record is not None else self._record
            self._pending.append(PendingMessage(message, self._port.new_id(), record))
        return self

    def unset(self, fragment_id: str) -> bool:
        """Remove the context fragment of that id from the system prompt; returns whether there was one."""
        check_id(fragment_id, "fragment_id")
        before = len(self._context)
        self._context = [fragment for fragment in self._context if fragment.id != fragment_id]
        return len(self._context) < before

    def discard(self) -> list[Fragment]:
        """
        Drop the pending messages, and return them; a `regenerate` is taken back. What is stored stays.

        Of a save whose outcome is unknown they may be stored; then they are, and the next one goes on from there.
        """
        dropped = self.pending
        self._forget()
        return dropped

    async def _ready(self) -> str:
        """Open the chat on first use; returns the name of the branch."""
        if self._branch is not None:
            return self._branch
        opened = await self._port.open_chat(self._chat_id, self._user_id, self._metadata)
        chat = opened.chat
        metadata = self._metadata
        # Compared first, so that an engine which opens a chat anew writes no event.
        if metadata and not same_json({**(chat.metadata or {}), **metadata}, chat.metadata):
            chat = await self._port.update_chat(
                self._chat_id,
                lambda chat: {"metadata": {**(chat.metadata or {}), **metadata}},
                command_id=self._port.new_id(),
            )
        self._chat = chat
        self._adopt(opened.branch)
        return opened.branch.name

    def _adopt(self, branch: Branch) -> None:
        self._branch, self._read_head = branch.name, branch.head_message_id

    def _move_to(self, branch: Branch) -> None:
        """Go to another branch; pending messages belonged to the old one."""
        self._adopt(branch)
        self._forget()

    def _forget(self) -> None:
        """Forget all that the next save would do."""
        self._pending, self._unsettled, self._after, self._record = [], None, UNSET, None

    def _drop(self, saved: Sequence[PendingMessage]) -> None:
        """Drop saved messages from the queue; those set meanwhile stay."""
        done = {id(entry) for entry in saved}
        self._pending = [entry for entry in self._pending if id(entry) not in done]


def _checked(fragment: Fragment) -> Fragment:
    """Check a fragment: a message with a wrong id, once in the queue, would make every save fail."""
    check_optional_id(fragment.id, f"the id of fragment {fragment.name!r}")
    if fragment.type not in ("fragment", "message"):
        msg = f"the type of fragment {fragment.name!r} must be 'fragment' or 'message', not {fragment.type!r}"
        raise InvalidValueError(msg)
    if not is_message_fragment(fragment):
        check_holds_no_message(fragment)
    return fragment


class ChatUpdates(EngineBase):
    """The part of a context engine that changes the chat as a whole."""

    async def update_chat(
        self,
        *,
        title: str | UnsetType | None = UNSET,
        metadata: dict[str, Any] | None = None,
        replace_metadata: dict[str, Any] | UnsetType | None = UNSET,
    ) -> Chat:
        """
        Set the title, and merge metadata over what is stored; concurrent calls lose nothing.

        Args:
            title: The new title; None clears it, left out it stays.
            metadata: The keys to set; others stay.
            replace_metadata: The new metadata as a whole instead; None clears them.

        Returns:
            The chat afterwards.
        """
        merged = check_metadata(metadata) or {}
        if metadata is not None and replace_metadata is not UNSET:
            msg = "give metadata to merge, or replace_metadata, not both"
            raise InvalidValueError(msg)

        def merge(chat: Chat) -> dict[str, Any] | None:
            changes: dict[str, Any] = {} if title is UNSET else {"title": title}
            if replace_metadata is not UNSET:
                changes["metadata"] = replace_metadata
            if merged:
                changes["metadata"] = {**(chat.metadata or {}), **merged}
            return changes or None

        return await self._update(merge)

    async def track_usage(self, usage: Mapping[str, Any]) -> Chat:
        """
        Add token counts to `metadata["usage"]`, field by field, nested ones too. Concurrent calls lose nothing.

        Args:
            usage: Counts, and objects of them, under whatever names the provider gives them: `input_tokens`, `prompt_tokens`,
                `total_tokens`, ... None counts as absent. `raw`, what the provider said, replaces the one before.

        Raises:
            InvalidValueError: A count is no number of at least 0.
        """

        def add(chat: Chat) -> dict[str, Any] | None:
            metadata = chat.metadata or {}
            return {"metadata": {**metadata, "usage": add_usage(usage_of(chat), usage)}}

        return await self._update(add)

    async def _update(self, updater: Any) -> Chat:
        await self._ready()
        self._chat = await self._port.update_chat(self._chat_id, updater)
        return self._chat
