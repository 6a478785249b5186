"""The index as one user may see it: what belongs to others is not there."""

import msgspec

from chatledger.domain.chat.state import Tombstone
from chatledger.domain.log.tombstones import owner_digest
from chatledger.domain.thread.record import ThreadRecord
from chatledger.domain.values import Chat

from .chat.chains import Place
from .chat.lists import ALL_CHATS, ChatList, Cursor
from .chat.reader import IndexedChat
from .generations import IndexState
from .index import Snapshot
from .lmdb.environment import Transaction
from .lmdb.tables import Tables
from .thread.reader import IndexedThread


class OwnedThread(IndexedThread):
    """A thread of one user, or none. `is_taken` says that its id is another user's, or belongs to a thread of nobody."""

    def __init__(self, tables: Tables, txn: Transaction, thread_id: str, *, user_id: str) -> None:
        super().__init__(tables, txn, thread_id)
        self._user_id = user_id
        self.is_taken = not self.is_of(user_id) and (self.owner is not None or super().record is not None)
        if self.is_taken:
            self.thread_no = None

    @property
    def record(self) -> ThreadRecord | None:
        """None when the user has no such thread."""
        return None if self.thread_no is None else super().record

    def beside(self, thread_id: str) -> "OwnedThread":
        """Another thread at the same moment."""
        return OwnedThread(self._tables, self._txn, thread_id, user_id=self._user_id)


class OwnedChat(IndexedChat):
    """A chat of one user, or none. `is_taken` says that there is one of that id, but another user's."""

    def __init__(self, tables: Tables, txn: Transaction, chat_id: str, chat_no: int | None, *, user_id: str) -> None:
        super().__init__(tables, txn, chat_id, chat_no)
        self._user_id = user_id
        self.is_taken = False

    @property
    def tombstone(self) -> Tombstone | None:
        """The last deletion of a chat of this id. Of another user's, only where the stream goes on."""
        found = super().tombstone
        if found is None or found.owner_digest == owner_digest(self.chat_id, self._user_id):
            return found
        return msgspec.structs.replace(found, command_id=None)

    def is_elsewhere(self, message_id: str) -> bool:
        """Whether another chat of this user has a message of this id."""
        return any(
            chat_no != self.chat_no and _owner(self._tables, self._txn, chat_no)[1] == self._user_id
            for chat_no, _ in self._tables.locations(self._txn, message_id)
        )

    def is_used_elsewhere(self, message_id: str) -> bool:
        """Whether any other chat, whosever, has a message of this id."""
        return super().is_elsewhere(message_id)


class OwnedSnapshot:
    """A snapshot of the index, limited to one user."""

    def __init__(self, whole: Snapshot, user_id: str) -> None:
        self._whole, self.user_id = whole, user_id

    def refuse(self, stream: str) -> None:
        """Raise `QuarantinedError` when a stream lost events; see `Snapshot.refuse`."""
        self._whole.refuse(stream)

    @property
    def state(self) -> IndexState:
        """The position of the index; it counts everybody's events."""
        return self._whole.state

    @property
    def txn(self) -> Transaction:
        """The transaction."""
        return self._whole.txn

    @property
    def tables(self) -> Tables:
        """The tables of its environment: for reading what belongs to a chat that this snapshot gave."""
        return self._whole.tables

    def chat(self, chat_id: str, *, even_quarantined: bool = False) -> OwnedChat:
        """The user's chat of that id; its record is None when there is none."""
        chat_no = self.tables.chat_no(self.txn, chat_id)
        if chat_no is None or _owner(self.tables, self.txn, chat_no)[1] == self.user_id:
            if not even_quarantined:
                self._whole.refuse(chat_id)
            return self._chat(chat_id, chat_no)
        hidden = self._chat(chat_id, None)
        hidden.is_taken = True
        return hidden

    def thread(self, thread_id: str, *, even_quarantined: bool = False) -> OwnedThread:
        """The user's thread of that id; its record is None when there is none."""
        thread = OwnedThread(self.tables, self.txn, thread_id, user_id=self.user_id)
        if thread.record is not None and not even_quarantined:
            self._whole.refuse(thread.stream_id)
        return thread

    def chat_nos(self, *, user_id: str | None = None) -> list[int]:
        """The numbers of the user's chats; none when they are asked for another's."""
        return self._whole.chat_nos(user_id=self.user_id) if user_id in {None, self.user_id} else []

    def find(self, message_id: str) -> tuple[IndexedChat, Place] | None:
        """The chat of the user that a message belongs to, and where the message is in it."""
        for chat_no, place in self.tables.locations(self.txn, message_id):
            chat_id, user_id = _owner(self.tables, self.txn, chat_no)
            if user_id == self.user_id:
                self._whole.refuse(chat_id)
                return self._chat(chat_id, chat_no), place
        return None

    def list_chats(
        self, chats: ChatList = ALL_CHATS, *, limit: int | None = None, offset: int = 0, after: Cursor | None = None
    ) -> list[Chat]:
        """A page of a list of the user's chats; nothing when it is of another's."""
        if chats.user_id not in {None, self.user_id}:
            return []
        if after is not None:
            after = after._replace(chat_no=self.chat(after.chat_id).chat_no or 0)
        return self._whole.list_chats(chats._replace(user_id=self.user_id), limit=limit, offset=offset, after=after)

    def count_chats(self, chats: ChatList) -> int:
        """The number of chats of a list of the user's; 0 when it is of another's."""
        if chats.user_id not in {None, self.user_id}:
            return 0
        return self._whole.count_chats(chats._replace(user_id=self.user_id))

    def _chat(self, chat_id: str, chat_no: int | None) -> OwnedChat:
        return OwnedChat(self.tables, self.txn, chat_id, chat_no, user_id=self.user_id)


def _owner(tables: Tables, txn: Transaction, chat_no: int) -> tuple[str, str]:
    """The id of a chat and that of its owner."""
    profile = IndexedChat(tables, txn, "", chat_no).profile
    assert profile is not None, "a living chat has a profile"
    return profile.id, profile.user_id
