"""`LedgerChatStore` and `LedgerAsyncChatStore`: LlamaIndex's chat stores on a ledger. A key is the id of a chat."""

import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.storage.chat_store.base import BaseChatStore
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus

from chatledger.domain.limits import check_choice, check_id

from ....ledger.aio.awaiting import in_thread, threaded
from ....ledger.drafts import new_id
from ....ledger.history import MessageHistory
from ..access import AdapterLedger, Closable, Source
from .history import ARCHIVED, clear, count, delete, draft_of, objects_of, put, take_oldest, values

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
        """Return the name of the class."""
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
        """Return the name of the class."""
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
