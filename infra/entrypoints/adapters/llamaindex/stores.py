"""`LedgerChatStore` and `LedgerAsyncChatStore`: LlamaIndex's chat stores on a ledger. A key is the id of a chat."""

from collections.abc import Callable, Sequence
from typing import Literal

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.storage.chat_store.base import BaseChatStore
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus

from chatledger.domain.chat.events import Body, Recorded
from chatledger.domain.errors import ChatExistsError, OwnerMismatchError
from chatledger.domain.limits import check_choice, check_id
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.log.kinds import CHATS

from ....ledger.drafts import new_id
from ....ledger.ledger import Ledger
from ....ledger.port import store_of
from ..access import AdapterLedger, Source
from ..histories import Adding
from .deciding import AddingAs, Clearing, Deleting, Setting, TakingOldest
from .history import read
from .messages import draft_of

OnDelete = Literal["erase", "branch"]
_Decide = Callable[[IndexedChat, int], list[Body]]


class _Histories:
    """The calls of both stores, for a worker thread."""

    def __init__(self, source: Source, *, user_id: str | None, on_delete: OnDelete, adapter: str) -> None:
        self.ledger = AdapterLedger(source, user_id=user_id, adapter=adapter)
        self._is_erased = check_choice(on_delete, ("erase", "branch"), "on_delete") == "erase"

    @property
    def _owner(self) -> str:
        return self.ledger.user_id or ""

    def messages(self, ledger: Ledger, key: str, status: MessageStatus | None) -> list[ChatMessage]:
        found = read(store_of(ledger), check_id(key, "key"), status)
        return [entry.message for entry in found or []]

    def add(self, ledger: Ledger, key: str, messages: Sequence[ChatMessage], status: MessageStatus) -> None:
        chat_id = check_id(key, "key")
        if messages:
            adding = Adding([draft_of(message, chat_id, new_id()) for message in messages], self._owner, new_id())
            _execute(ledger, chat_id, AddingAs(adding, status).decided)

    def put(self, ledger: Ledger, key: str, messages: Sequence[ChatMessage], status: MessageStatus) -> None:
        _execute(ledger, check_id(key, "key"), Setting(messages, status, self._owner, new_id()).decided)

    def delete(self, ledger: Ledger, key: str, index: int | None) -> ChatMessage | None:
        deleting = Deleting(index, new_id())
        _execute(ledger, check_id(key, "key"), deleting.decided)
        return deleting.message

    def delete_all(self, ledger: Ledger, key: str) -> list[ChatMessage] | None:
        """Delete a chat, or go on with an empty branch of it; returns its messages, None when there is none."""
        found = read(store_of(ledger), check_id(key, "key"), None)
        if found is None:
            return None
        if self._is_erased:
            ledger.delete_chat(key)
        elif found:
            self.put(ledger, key, [], MessageStatus.ACTIVE)
        return [entry.message for entry in found]

    def clear(self, ledger: Ledger, key: str, status: MessageStatus) -> None:
        _execute(ledger, check_id(key, "key"), Clearing(status).decided)

    def take_oldest(self, ledger: Ledger, key: str, count: int, *, is_archived: bool) -> list[ChatMessage]:
        taking = TakingOldest(count, is_archived=is_archived)
        _execute(ledger, check_id(key, "key"), taking.decided)
        return taking.messages

    def keys(self, ledger: Ledger) -> list[str]:
        return [chat.id for chat in ledger.list_chats(order="created", ascending=True)]


def _execute(ledger: Ledger, chat_id: str, decide: _Decide) -> list[Recorded]:
    try:
        return store_of(ledger).execute(CHATS, chat_id, decide)
    except ChatExistsError:  # a store of one user does not show those of others
        raise OwnerMismatchError(chat_id) from None


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
        self._chats.put(self._chats.ledger.blocking, key, messages, MessageStatus.ACTIVE)

    def get_messages(self, key: str) -> list[ChatMessage]:
        """Return the messages of the active branch, oldest first; none when there is no such chat."""
        return self._chats.messages(self._chats.ledger.blocking, key, None)

    def add_message(self, key: str, message: ChatMessage) -> None:
        """
        Add a message; the chat is made if there is none. Costs the same in a long chat as in a short one.

        Raises:
            InvalidValueError: The message is not JSON.
            OwnerMismatchError: The chat of that id belongs to another user.
        """
        self._chats.add(self._chats.ledger.blocking, key, [message], MessageStatus.ACTIVE)

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Delete a chat, see `on_delete`; returns the messages that it had, None when there is none."""
        return self._chats.delete_all(self._chats.ledger.blocking, key)

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """
        Take the message at an index out of the history and return it; None when there is none.

        It stays in the chat: the newest one as another version, others as hidden messages, which no branch shows any more.
        """
        return self._chats.delete(self._chats.ledger.blocking, key, idx)

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Take the newest message off the branch and return it; None when there is none. The chat is not read."""
        return self._chats.delete(self._chats.ledger.blocking, key, None)

    def get_keys(self) -> list[str]:
        """Return the ids of the chats, in the order of their creation."""
        return self._chats.keys(self._chats.ledger.blocking)

    async def aset_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Do as `set_messages`."""
        await self._chats.ledger.run(lambda ledger: self._chats.put(ledger, key, messages, MessageStatus.ACTIVE))

    async def aget_messages(self, key: str) -> list[ChatMessage]:
        """Do as `get_messages`."""
        return await self._chats.ledger.run(lambda ledger: self._chats.messages(ledger, key, None))

    async def async_add_message(self, key: str, message: ChatMessage) -> None:
        """Do as `add_message`."""
        await self._chats.ledger.run(lambda ledger: self._chats.add(ledger, key, [message], MessageStatus.ACTIVE))

    async def adelete_messages(self, key: str) -> list[ChatMessage] | None:
        """Do as `delete_messages`."""
        return await self._chats.ledger.run(lambda ledger: self._chats.delete_all(ledger, key))

    async def adelete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Do as `delete_message`."""
        return await self._chats.ledger.run(lambda ledger: self._chats.delete(ledger, key, idx))

    async def adelete_last_message(self, key: str) -> ChatMessage | None:
        """Do as `delete_last_message`."""
        return await self._chats.ledger.run(lambda ledger: self._chats.delete(ledger, key, None))

    async def aget_keys(self) -> list[str]:
        """Do as `get_keys`."""
        return await self._chats.ledger.run(self._chats.keys)

    def close(self) -> None:
        """Close the ledger, if it was opened here. Calling it again does nothing."""
        self._chats.ledger.close()

    async def aclose(self) -> None:
        """Close, in a worker thread."""
        await self._chats.ledger.aclose()


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
        found = await self._chats.ledger.run(lambda ledger: self._chats.messages(ledger, key, status))
        start = offset or 0
        return found[start:] if limit is None else found[start : start + limit]

    async def count_messages(
        self,
        key: str,
        status: MessageStatus | None = MessageStatus.ACTIVE,
    ) -> int:
        """Return the number of messages of a status, of all when None; 0 when there is no such chat."""
        return len(await self.get_messages(key, status))

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
        await self._chats.ledger.run(lambda ledger: self._chats.add(ledger, key, messages, status))

    async def set_messages(
        self,
        key: str,
        messages: list[ChatMessage],
        status: MessageStatus = MessageStatus.ACTIVE,
    ) -> None:
        """Make these the messages of a chat, all of one status. Where something differs begins a new branch."""
        await self._chats.ledger.run(lambda ledger: self._chats.put(ledger, key, messages, status))

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """
        Take a message out of the history and return it; None when there is none. It stays in the chat, as a hidden message.

        Args:
            key: The id of the chat.
            idx: Its place among all messages of the active branch, from 0.
        """
        return await self._chats.ledger.run(lambda ledger: self._chats.delete(ledger, key, idx))

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Delete a chat, see `on_delete`; with a status hide the messages that have it."""
        if status is None:
            await self._chats.ledger.run(lambda ledger: self._chats.delete_all(ledger, key))
        else:
            await self._chats.ledger.run(lambda ledger: self._chats.clear(ledger, key, status))

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Hide the oldest active messages, at most `n`, and return them."""
        return await self._chats.ledger.run(lambda ledger: self._chats.take_oldest(ledger, key, n, is_archived=False))

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archive the oldest active messages, at most `n`, and return them. Writes one event, however many they are."""
        return await self._chats.ledger.run(lambda ledger: self._chats.take_oldest(ledger, key, n, is_archived=True))

    async def get_keys(self) -> list[str]:
        """Return the ids of the chats, in the order of their creation."""
        return await self._chats.ledger.run(self._chats.keys)

    def close(self) -> None:
        """Close the ledger, if it was opened here. Calling it again does nothing."""
        self._chats.ledger.close()

    async def aclose(self) -> None:
        """Close, in a worker thread."""
        await self._chats.ledger.aclose()
