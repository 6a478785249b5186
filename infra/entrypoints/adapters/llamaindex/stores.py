"""`LedgerChatStore` and `LedgerAsyncChatStore`: LlamaIndex's chat stores on a ledger. A key is the id of a chat."""

from collections.abc import Sequence
from typing import Literal

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.storage.chat_store.base import BaseChatStore
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus

from chatledger.domain.limits import check_choice, check_id

from ....ledger.aio.awaiting import in_thread, threaded
from ....ledger.drafts import new_id
from ....ledger.history import MessageHistory
from ..access import AdapterLedger, Source
from .history import ARCHIVED, clear, count, delete, draft_of, objects_of, put, take_oldest, values

OnDelete = Literal["erase", "branch"]


class _Histories:
    """The calls of both stores, which say what they do."""

    def __init__(self, source: Source, *, user_id: str | None, on_delete: OnDelete, adapter: str) -> None:
        self.ledger = AdapterLedger(source, user_id=user_id, adapter=adapter)
        self._is_erased = check_choice(on_delete, ("erase", "branch"), "on_delete") == "erase"

    def of(self, key: str) -> MessageHistory:
        return MessageHistory(self.ledger.blocking, check_id(key, "key"))

    def messages(
        self, key: str, status: MessageStatus | None = None, start: int = 0, end: int | None = None
    ) -> list[ChatMessage]:
        return objects_of(self.of(key).read(lambda history: values(history, status, start, end)) or [])

    def count(self, key: str, status: MessageStatus | None) -> int:
        return self.of(key).read(lambda history: count(history, status)) or 0

    def add(self, key: str, messages: Sequence[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE) -> None:
        if messages:
            drafts = [draft_of(message, key, new_id()) for message in messages]
            self.of(key).add(drafts, annotation=ARCHIVED if status is MessageStatus.ARCHIVED else None)

    def put(self, key: str, messages: Sequence[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE) -> None:
        self.of(key).commit(lambda commit: put(commit, messages, status))

    def delete(self, key: str, index: int | None) -> ChatMessage | None:
        return self.of(key).commit(lambda commit: delete(commit, index))

    def delete_all(self, key: str) -> list[ChatMessage] | None:
        history = self.of(key)
        deleted = history.read(values)
        if self._is_erased:
            self.ledger.blocking.delete_chat(key)
        else:
            history.clear()
        return None if deleted is None else objects_of(deleted)

    def clear(self, key: str, status: MessageStatus) -> None:
        self.of(key).commit(lambda commit: clear(commit, status))

    def take_oldest(self, key: str, count: int, *, is_archived: bool) -> list[ChatMessage]:
        return self.of(key).commit(lambda commit: take_oldest(commit, count, is_archived=is_archived)) or []

    def keys(self) -> list[str]:
        return [chat.id for chat in self.ledger.blocking.list_chats(order="created", ascending=True)]

    amessages = threaded(messages)
    acount = threaded(count)
    aadd = threaded(add)
    aput = threaded(put)
    adelete = threaded(delete)
    adelete_all = threaded(delete_all)
    aclear = threaded(clear)
    atake_oldest = threaded(take_oldest)
    akeys = threaded(keys)


class LedgerChatStore(BaseChatStore):
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

    _chats: _Histories = PrivateAttr()

    def __init__(self, source: Source, *, user_id: str | None = None, on_delete: OnDelete = "erase") -> None:
        super().__init__()
        self._chats = _Histories(source, user_id=user_id, on_delete=on_delete, adapter="LedgerChatStore")

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
        self._chats.put(key, messages)

    def get_messages(self, key: str) -> list[ChatMessage]:
        """Return the messages of the active branch, oldest first; none when there is no such chat."""
        return self._chats.messages(key)

    def add_message(self, key: str, message: ChatMessage) -> None:
        """
        Add a message; the chat is made if there is none. Costs the same in a long chat as in a short one.

        Raises:
            InvalidValueError: The message is not JSON.
            OwnerMismatchError: The chat of that id belongs to another user.
        """
        self._chats.add(key, [message])

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Delete a chat, see `on_delete`; returns the messages that it had, None when there is none."""
        return self._chats.delete_all(key)

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """
        Take the message at an index out of the history and return it; None when there is none.

        It stays in the chat: the newest one as another version, others as hidden messages, which no branch shows any more.
        """
        return self._chats.delete(key, idx)

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Take the newest message off the branch and return it; None when there is none. The chat is not read."""
        return self._chats.delete(key, None)

    def get_keys(self) -> list[str]:
        """Return the ids of the chats, in the order of their creation."""
        return self._chats.keys()

    # Theirs are declared as coroutines of `async def`; these are awaited alike.
    aset_messages = threaded(set_messages)  # pyright: ignore[reportAssignmentType]
    aget_messages = threaded(get_messages)  # pyright: ignore[reportAssignmentType]
    async_add_message = threaded(add_message)  # pyright: ignore[reportAssignmentType]
    adelete_messages = threaded(delete_messages)  # pyright: ignore[reportAssignmentType]
    adelete_message = threaded(delete_message)  # pyright: ignore[reportAssignmentType]
    adelete_last_message = threaded(delete_last_message)  # pyright: ignore[reportAssignmentType]
    aget_keys = threaded(get_keys)  # pyright: ignore[reportAssignmentType]

    def close(self) -> None:
        """Close the ledger, if it was opened here. Calling it again does nothing."""
        self._chats.ledger.close()

    async def aclose(self) -> None:
        """Close, in a worker thread."""
        await in_thread(self._chats.ledger.close)


class LedgerAsyncChatStore(AsyncDBChatStore):
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

    _chats: _Histories = PrivateAttr()

    def __init__(self, source: Source, *, user_id: str | None = None, on_delete: OnDelete = "erase") -> None:
        super().__init__()
        self._chats = _Histories(source, user_id=user_id, on_delete=on_delete, adapter="LedgerAsyncChatStore")

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class."""
        return "LedgerAsyncChatStore"

    async def get_messages(
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
        return await self._chats.amessages(key, status, start, None if limit is None else start + limit)

    async def count_messages(
        self,
        key: str,
        status: MessageStatus | None = MessageStatus.ACTIVE,
    ) -> int:
        """Return the number of messages of a status, of all when None; 0 when there is no such chat."""
        return await self._chats.acount(key, status)

    async def add_message(self, key: str, message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE) -> None:
        """Add a message, as `add_messages` does."""
        await self.add_messages(key, [message], status)

    async def add_messages(
        self,
        key: str,
        messages: list[ChatMessage],
        status: MessageStatus = MessageStatus.ACTIVE,
    ) -> None:
        """
        Add messages: one commit, all or nothing. The chat is made if there is none.

        Raises:
            InvalidValueError: A message is not JSON.
            OwnerMismatchError: The chat of that id belongs to another user.
        """
        await self._chats.aadd(key, messages, status)

    async def set_messages(
        self,
        key: str,
        messages: list[ChatMessage],
        status: MessageStatus = MessageStatus.ACTIVE,
    ) -> None:
        """Make these the messages of a chat, all of one status. Where something differs begins a new branch."""
        await self._chats.aput(key, messages, status)

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """
        Take a message out of the history and return it; None when there is none. It stays in the chat, as a hidden message.

        Args:
            key: The id of the chat.
            idx: Its place among all messages of the active branch, from 0.
        """
        return await self._chats.adelete(key, idx)

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Delete a chat, see `on_delete`; with a status hide the messages that have it."""
        if status is None:
            await self._chats.adelete_all(key)
        else:
            await self._chats.aclear(key, status)

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Hide the oldest active messages, at most `n`, and return them."""
        return await self._chats.atake_oldest(key, n, is_archived=False)

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archive the oldest active messages, at most `n`, and return them. Writes one event, however many they are."""
        return await self._chats.atake_oldest(key, n, is_archived=True)

    async def get_keys(self) -> list[str]:
        """Return the ids of the chats, in the order of their creation."""
        return await self._chats.akeys()

    def close(self) -> None:
        """Close the ledger, if it was opened here. Calling it again does nothing."""
        self._chats.ledger.close()

    async def aclose(self) -> None:
        """Close, in a worker thread."""
        await in_thread(self._chats.ledger.close)
