"""
`LedgerChatStore` and `LedgerAsyncChatStore`: LlamaIndex's chat stores on a ledger. A key is the id of a chat.

The history of a chat as LlamaIndex counts it, each message active or archived, and what its stores do to it.

A message is archived by its annotation: `{"llamaindex": {"status": "archived"}}`, with `"before": true` where all that come before
it on the chain are archived too. So archiving the oldest messages is one annotation, and reading the active ones ends there.
"""

import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Concatenate, Final, Literal, NamedTuple, ParamSpec, TypeVar

from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.storage.chat_store.base import BaseChatStore
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus
from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.forms.llamaindex import NAME
from chatledger.domain.forms.plain import object_at
from chatledger.domain.forms.reading import name_of
from chatledger.domain.limits import check_choice, check_id, same_json
from chatledger.domain.values import Annotation, Message, NewMessage

from ....ledger.aio.awaiting import in_thread, threaded
from ....ledger.drafts import new_id
from ....ledger.history import Commit, History, MessageHistory, Standing, Told
from ..access import AdapterLedger, Closable, Source, with_floats

MESSAGE_ID: Final = "message_id"
"""The key of `additional_kwargs` under which a message may have an id, which makes a repeated write one write."""
ARCHIVED: Final = Annotation(metadata={NAME: {"status": MessageStatus.ARCHIVED.value}})
"""The annotation of a message that is archived."""
_FIRST_PAGE: Final = 32
_messages: Final = TypeAdapter(list[ChatMessage])


def value_of(message: ChatMessage) -> dict[str, Any]:
    """Return a message as JSON. Raises `InvalidValueError` for what JSON does not know."""
    try:
        value = message.model_dump(mode="json")
    except PydanticSerializationError as error:
        msg = f"a message must be JSON to be stored: {error}"
        raise InvalidValueError(msg) from error
    if message.additional_kwargs:
        value["additional_kwargs"] = with_floats(value["additional_kwargs"], message.additional_kwargs)
    for block, dumped in zip(message.blocks, value["blocks"], strict=True):
        if isinstance(block, ToolCallBlock):
            dumped["tool_kwargs"] = with_floats(dumped["tool_kwargs"], block.tool_kwargs)
    return value


def draft_of(message: ChatMessage, chat_id: str, unique_id: str) -> NewMessage:
    """Return the message to store in a chat, as `value_of` makes it; its id is made of `unique_id` where it has none of its own."""
    own, value = message.additional_kwargs.get(MESSAGE_ID), value_of(message)
    message_id = f"{chat_id}:{own if isinstance(own, str) and own else unique_id}"
    return NewMessage(name_of(value, NAME), value, form=NAME, id=message_id)


class HistoryEntry(NamedTuple):
    """
    A message of the history.

    Attributes:
        origin: The stored ones that it is told of.
        last: The last stored one that it and those before it are told of.
        begins: Whether no message before it is told of the same.
        ends: Whether no message behind it is told of what is stored up to `last`.
    """

    value: Any
    origin: Sequence[Standing]
    last: Standing
    begins: bool
    ends: bool
    status: MessageStatus


def entries(history: History | None, status: MessageStatus | None = None) -> list[HistoryEntry]:
    """Return the messages of a status, oldest first, all when None. Active ones cost the same however many are archived."""
    if history is None:
        return []
    length = history.branch.message_count
    for chain in history.growing(_FIRST_PAGE if status is MessageStatus.ACTIVE else length):
        if len(chain) == length or any(map(_ends_archive, chain)):
            told_of, told = history.tell(chain, NAME)
            if len(chain) == length or any(map(_ends_archive, told_of)):
                return [entry for entry in _entries(told_of, told) if status in {None, entry.status}]
    return []


def values(
    history: History | None, status: MessageStatus | None = None, start: int = 0, end: int | None = None
) -> list[Any]:
    """Return messages of a status as JSON, oldest first, from one place to before another."""
    plain = None if history is None else _plain(history, status)
    if plain is None:
        return [entry.value for entry in entries(history, status)[start:end]]
    return [] if status is MessageStatus.ARCHIVED else [message.data for message in plain[start:end]]


def count(history: History | None, status: MessageStatus | None = None) -> int:
    plain = None if history is None else _plain(history, status)
    if plain is None:
        return len(entries(history, status))
    return 0 if status is MessageStatus.ARCHIVED else len(plain)


def _plain(history: History, status: MessageStatus | None) -> list[Message] | None:
    """Return the branch where each message is one of LlamaIndex, and active: nothing is translated, archived or hidden."""
    chain: list[Message] = []
    # Where many are archived, the newest ones say so.
    for chain in history.growing(_FIRST_PAGE if status is MessageStatus.ACTIVE else history.branch.message_count):
        if any(message.annotation is not None or message.form != NAME for message in chain):
            return None
    return chain


def objects_of(values: list[Any]) -> list[ChatMessage]:
    """Return messages of LlamaIndex for messages as JSON."""
    return _messages.validate_python(values)


def messages_of(entries: Iterable[HistoryEntry]) -> list[ChatMessage]:
    return objects_of([entry.value for entry in entries])


def put(commit: Commit, messages: Sequence[ChatMessage], status: MessageStatus) -> None:
    """Make messages the history, all of one status: what is new at the end is added, where something differs begins a new branch."""
    commit.begin()
    _replace(commit, entries(commit.history()), messages, status)


def delete(commit: Commit, index: int | None) -> ChatMessage | None:
    """
    Take the message at an index out of the history and return it, the newest one for None; None where there is none.

    Of several messages that are told of one, it is left out of a new branch.
    """
    history = commit.history()
    newest = _newest(history) if index is None else entries(history)
    index = -1 if index is None else index
    if not -len(newest) <= index < len(newest):
        return None
    gone = newest[index]
    [message] = messages_of([gone])
    if gone.begins and gone.ends:
        for standing in reversed(gone.origin):
            commit.remove(standing)
    else:
        whole = entries(history)
        index = index if index < 0 else index - len(whole)
        rest = messages_of([*whole[:index], *whole[len(whole) + index + 1 :]])
        _replace(commit, whole, rest, gone.status)
    return message


def clear(commit: Commit, status: MessageStatus) -> None:
    commit.hide(standing for entry in entries(commit.history(), status) for standing in entry.origin)


def take_oldest(commit: Commit, count: int, *, is_archived: bool) -> list[ChatMessage]:
    """
    Archive the oldest active messages, or hide them, at most `count`; returns those that were.

    Of several messages that are told of one all are taken, or none.
    """
    active = entries(commit.history(), MessageStatus.ACTIVE)
    count = max(0, min(count, len(active)))
    while count and not active[count - 1].ends:
        count -= 1
    taken = active[:count]
    if taken and is_archived:
        mark = {"status": MessageStatus.ARCHIVED.value, "before": True}
        commit.annotate([taken[-1].last.base.id], metadata={NAME: mark})
    elif taken:
        commit.hide(standing for entry in taken for standing in entry.origin)
    return messages_of(taken)


def _replace(
    commit: Commit, stored: Sequence[HistoryEntry], messages: Sequence[ChatMessage], status: MessageStatus
) -> None:
    same = 0
    values = map(value_of, messages)
    for entry, value in zip(stored, values, strict=False):
        # What is told of others' messages has not all the fields that LlamaIndex writes.
        if entry.status is not status or not (
            same_json(entry.value, value) or same_json(value_of(messages_of([entry])[0]), value)
        ):
            break
        same += 1
    while same and not stored[same - 1].ends:  # never a part of those that are told of one stored message
        same -= 1
    new = commit.with_free_ids(
        draft_of(message, commit.state.chat_id, f"{commit.unique_id}-{number}")
        for number, message in enumerate(messages[same:], same)
    )
    if same == len(stored):
        commit.append(new)
    else:
        commit.replace(stored[same - 1].last.base.id if same else None, new)
    if new and status is MessageStatus.ARCHIVED:
        commit.annotate([str(draft.id) for draft in new], metadata=ARCHIVED.metadata)


def _newest(history: History | None) -> list[HistoryEntry]:
    """Return the end of a history, empty only where all of it is. Mostly costs O(1)."""
    for chain in () if history is None else history.growing(1):
        newest = _entries(*history.tell(chain, NAME)) if history is not None else []
        if newest:
            return newest
    return []


def _entries(chain: Sequence[Message], told: Sequence[Told]) -> list[HistoryEntry]:
    places = {message.id: place for place, message in enumerate(chain)}
    archived = max((place for place, message in enumerate(chain) if _ends_archive(message)), default=-1)
    spans = [[places[standing.base.id] for standing in origin] for _, origin in told]
    following = [*accumulate(map(min, reversed(spans)), min, initial=len(chain))][-2::-1]  # the first place behind each
    listed: list[HistoryEntry] = []
    latest, last = -1, None
    for (value, origin), span, behind in zip(told, spans, following, strict=True):
        begins, end = min(span) > latest, max(span)
        if last is None or end > latest:
            latest, last = end, origin[span.index(end)]
        is_archived = end <= archived or bool(_marks(origin[-1].base))
        status = MessageStatus.ARCHIVED if is_archived else MessageStatus.ACTIVE
        listed.append(HistoryEntry(value, origin, last, begins, latest < behind, status))
    return listed


def _marks(message: Message) -> Mapping[str, Any]:
    return {} if message.annotation is None else object_at(message.annotation.metadata, NAME)


def _ends_archive(message: Message) -> bool:
    return _marks(message).get("before") is True


OnDelete = Literal["erase", "branch"]
P = ParamSpec("P")
T = TypeVar("T")


class _Chats:
    """The chats of both stores, with the methods of the asynchronous one."""

    def __init__(self, ledger: AdapterLedger, on_delete: OnDelete) -> None:
        self._ledger = ledger
        self._is_erased = check_choice(on_delete, ("erase", "branch"), "on_delete") == "erase"

    def _history(self, key: str) -> MessageHistory:
        return MessageHistory(self._ledger.blocking, check_id(key, "key"))

    def get_messages(
        self,
        key: str,
        status: MessageStatus | None = MessageStatus.ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        """
        Return messages of the active branch, oldest first; none when there is no such chat.

        Args:
            key: The id of the chat.
            status: Only these; all when None. Active ones cost the same however many are archived.
            limit: At most so many, the oldest ones.
            offset: Leave out so many first.
        """
        start = offset or 0
        end = None if limit is None else start + limit
        return objects_of(self._history(key).read(lambda history: values(history, status, start, end)) or [])

    def count_messages(self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE) -> int:
        """Return the number of messages of a status, of all when None; 0 when there is no such chat."""
        return self._history(key).read(lambda history: count(history, status)) or 0

    def add_message(self, key: str, message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE) -> None:
        """Add a message, as `add_messages` does."""
        self.add_messages(key, [message], status)

    def add_messages(
        self, key: str, messages: Sequence[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """
        Add messages: one commit, all or nothing. The chat is made if there is none.

        Raises:
            InvalidValueError: A message is not JSON.
            OwnerMismatchError: The chat of that id belongs to another user.
        """
        if messages:
            drafts = [draft_of(message, key, new_id()) for message in messages]
            self._history(key).add(drafts, annotation=ARCHIVED if status is MessageStatus.ARCHIVED else None)

    def set_messages(
        self, key: str, messages: Sequence[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Make these the messages of a chat, all of one status. Where something differs begins a new branch."""
        self._history(key).commit(lambda commit: put(commit, messages, status))

    def delete_message(self, key: str, idx: int | None) -> ChatMessage | None:
        """
        Take a message out of the history and return it; None when there is none. It stays in the chat, as a hidden message.

        Args:
            key: The id of the chat.
            idx: Its place among all messages of the active branch, from 0.
        """
        return self._history(key).commit(lambda commit: delete(commit, idx))

    def delete_chat(self, key: str) -> list[ChatMessage] | None:
        """Delete a chat, see `on_delete`; returns the messages that it had, None when there is none."""
        history = self._history(key)
        deleted = history.read(values)
        if self._is_erased:
            self._ledger.blocking.delete_chat(key)
        else:
            history.clear()
        return None if deleted is None else objects_of(deleted)

    def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Delete a chat, see `on_delete`; with a status hide the messages that have it."""
        if status is None:
            self.delete_chat(key)
        else:
            self._history(key).commit(lambda commit: clear(commit, status))

    def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Hide the oldest active messages, at most `n`, and return them."""
        return self._history(key).commit(lambda commit: take_oldest(commit, n, is_archived=False)) or []

    def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archive the oldest active messages, at most `n`, and return them. Writes one event, however many they are."""
        return self._history(key).commit(lambda commit: take_oldest(commit, n, is_archived=True)) or []

    def get_keys(self) -> list[str]:
        """Return the ids of the chats, in the order of their creation."""
        return [chat.id for chat in self._ledger.blocking.list_chats(order="created", ascending=True)]


class LedgerChatStore(Closable, BaseChatStore):
    """
    Chats of LlamaIndex: `ChatMemoryBuffer.from_defaults(chat_store=LedgerChatStore(ledger), chat_store_key="trip")`.

    A key is the id of a chat, also of one that something else wrote; its active branch is read and gone on with. Each call is one
    commit. A message that has a text in `additional_kwargs["message_id"]` is not stored twice. Safe for threads and tasks.

    Args:
        source: A ledger, or the location of one, as `chatledger.open` takes it; `close` closes what was opened here.
        user_id: The user whose chats these are. None: the user of the ledger, or nobody.
        on_delete: What `delete_messages`, and so the `reset` of a memory, does: erase the chat with all its branches and its
            history, or go on with an empty `branch`.

    Raises:
        ConfigurationError: The source is neither a ledger nor a location.
    """

    _ledger: AdapterLedger = PrivateAttr()
    _chats: _Chats = PrivateAttr()

    def __init__(self, source: Source, *, user_id: str | None = None, on_delete: OnDelete = "erase") -> None:
        super().__init__()
        self._ledger = AdapterLedger(source, user_id=user_id, adapter="LedgerChatStore")
        self._chats = _Chats(self._ledger, on_delete)

    @classmethod
    def class_name(cls) -> str:
        return "LedgerChatStore"

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """
        Make these the messages of a chat. What is new at the end is added; where something differs begins a new branch.

        Raises:
            InvalidValueError: A message is not JSON.
            OwnerMismatchError: The chat of that id belongs to another user.
        """
        self._chats.set_messages(key, messages)

    def get_messages(self, key: str) -> list[ChatMessage]:
        """Return the messages of the active branch, oldest first; none when there is no such chat."""
        return self._chats.get_messages(key, None)

    def add_message(self, key: str, message: ChatMessage) -> None:
        """
        Add a message; the chat is made if there is none. Costs the same in a long chat as in a short one.

        Raises:
            InvalidValueError: The message is not JSON.
            OwnerMismatchError: The chat of that id belongs to another user.
        """
        self._chats.add_message(key, message)

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Delete a chat, see `on_delete`; returns the messages that it had, None when there is none."""
        return self._chats.delete_chat(key)

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """
        Take the message at an index out of the history and return it; None when there is none.

        It stays in the chat: the newest one as another version, others as hidden messages, which no branch shows any more.
        """
        return self._chats.delete_message(key, idx)

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Take the newest message off the branch and return it; None when there is none. The chat is not read."""
        return self._chats.delete_message(key, None)

    def get_keys(self) -> list[str]:
        """Return the ids of the chats, in the order of their creation."""
        return self._chats.get_keys()

    # Theirs are declared as coroutines of `async def`; these are awaited alike.
    aset_messages = threaded(set_messages)  # pyright: ignore[reportAssignmentType]
    aget_messages = threaded(get_messages)  # pyright: ignore[reportAssignmentType]
    async_add_message = threaded(add_message)  # pyright: ignore[reportAssignmentType]
    adelete_messages = threaded(delete_messages)  # pyright: ignore[reportAssignmentType]
    adelete_message = threaded(delete_message)  # pyright: ignore[reportAssignmentType]
    adelete_last_message = threaded(delete_last_message)  # pyright: ignore[reportAssignmentType]
    aget_keys = threaded(get_keys)  # pyright: ignore[reportAssignmentType]


def _in_thread(method: Callable[Concatenate[_Chats, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return a method of the chats as one of a store that has them, in a worker thread."""

    async def call(store: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await in_thread(lambda: method(store._chats, *args, **kwargs))  # noqa: SLF001 - both stores are of this module

    functools.update_wrapper(call, method)
    return call


class LedgerAsyncChatStore(Closable, AsyncDBChatStore):
    """
    Chats of LlamaIndex with active and archived messages: `Memory.from_defaults("trip", chat_store=LedgerAsyncChatStore(ledger))`.

    Archived messages stay on their branch, where search and everybody else still have them. Otherwise as `LedgerChatStore`.

    Args:
        source: A ledger, or the location of one, as `chatledger.open` takes it; `close` closes what was opened here.
        user_id: The user whose chats these are. None: the user of the ledger, or nobody.
        on_delete: What `delete_messages` without a status does, see `LedgerChatStore`.

    Raises:
        ConfigurationError: The source is neither a ledger nor a location.
    """

    _ledger: AdapterLedger = PrivateAttr()
    _chats: _Chats = PrivateAttr()

    def __init__(self, source: Source, *, user_id: str | None = None, on_delete: OnDelete = "erase") -> None:
        super().__init__()
        self._ledger = AdapterLedger(source, user_id=user_id, adapter="LedgerAsyncChatStore")
        self._chats = _Chats(self._ledger, on_delete)

    @classmethod
    def class_name(cls) -> str:
        return "LedgerAsyncChatStore"

    # Theirs are declared as coroutines of `async def`; these are awaited alike.
    get_messages = _in_thread(_Chats.get_messages)  # pyright: ignore[reportAssignmentType]
    count_messages = _in_thread(_Chats.count_messages)  # pyright: ignore[reportAssignmentType]
    add_message = _in_thread(_Chats.add_message)  # pyright: ignore[reportAssignmentType]
    add_messages = _in_thread(_Chats.add_messages)  # pyright: ignore[reportAssignmentType]
    set_messages = _in_thread(_Chats.set_messages)  # pyright: ignore[reportAssignmentType]
    delete_message = _in_thread(_Chats.delete_message)  # pyright: ignore[reportAssignmentType]
    delete_messages = _in_thread(_Chats.delete_messages)  # pyright: ignore[reportAssignmentType]
    delete_oldest_messages = _in_thread(_Chats.delete_oldest_messages)  # pyright: ignore[reportAssignmentType]
    archive_oldest_messages = _in_thread(_Chats.archive_oldest_messages)  # pyright: ignore[reportAssignmentType]
    get_keys = _in_thread(_Chats.get_keys)  # pyright: ignore[reportAssignmentType]
