"""The index as one user may see it: what belongs to others is not there."""

from typing import Self

from chatledger.domain.chat.members import User
from chatledger.domain.log.tombstones import owner_digest
from chatledger.domain.values import Branch, Chat

from .chat.chains import Place
from .chat.lists import ALL_CHATS, ChatCursor, ChatList, joined_chats
from .chat.reader import IndexedChat, chat_at
from .generations import Erasure, IndexState
from .log.kinds import CHATS, R, StreamKind
from .snapshot import Snapshot
from .user_streams import UserChat
from .versioned.messages import readable_values


class UserSnapshot:
    """
    A snapshot of the index, limited to what one user may read. `tables` are for reading what belongs to a chat that it gave.

    Lists and searches over chats have those that the user owns or is a member of. A chat that only the application grants is
    there where it is named.
    """

    is_past = False
    until = None

    def __init__(self, whole: Snapshot, user: User) -> None:
        self._whole, self.user_id, self._user = whole, user.id, user
        self.txn, self.tables, self.refuse = whole.txn, whole.tables, whole.refuse

    @property
    def live(self) -> Self:
        """The index as it is now: this one."""
        return self

    @property
    def state(self) -> IndexState:
        """The position of the index; it counts everybody's events."""
        return self._whole.state

    @property
    def redacted_at(self) -> int:
        """The position of the last event that took content away, whoever's; 0 for none."""
        return self._whole.redacted_at

    def stream(self, streams: StreamKind[R], key: str, *, even_quarantined: bool = False) -> R:
        """The user's stream of that kind and key; its record is None when there is none."""
        found = streams.read_for(self.tables, self.txn, key, self._user)
        if not (even_quarantined or found.is_taken):
            self._whole.refuse(found.stream_id)
        return found

    def receipts(self, *, is_pending: bool | None = None) -> list[Erasure]:
        """Erasures of chats and threads that the user owned; tombstones of states name no owner."""
        return [
            erasure
            for erasure in self._whole.receipts(is_pending=is_pending)
            if erasure.owner_digest == owner_digest(erasure.stream_id, self.user_id)
        ]

    def chat(self, chat_id: str, *, even_quarantined: bool = False) -> IndexedChat:
        """The user's chat of that id; its record is None when there is none."""
        return self.stream(CHATS, chat_id, even_quarantined=even_quarantined)

    def chat_nos(self, *, user_id: str | None = None) -> list[int]:
        """The numbers of the user's chats, the last changed first; of an owner those that the user may read."""
        return self._whole.chat_nos(user_id=user_id, reader=self.user_id)

    def searched_chats(self, *, user_id: str | None = None) -> list[int] | None:
        """The same for a search: the index has chats of others too."""
        return self.chat_nos(user_id=user_id)

    def searched_values(self, *, user_id: str | None = None) -> list[int]:
        """The numbers of the messages of the user's threads, states and items; of another owner those of threads of common chats."""
        owner = self.user_id if user_id in {None, self.user_id} else None
        joined = set(joined_chats(self.txn, self.tables, self.user_id))
        return readable_values(self.txn, self.tables, owner, self.chat_nos(user_id=user_id), joined)

    def find(self, message_id: str) -> tuple[IndexedChat, Place] | None:
        for chat_no, place in self.tables.locations(self.txn, message_id):
            chat_id = chat_at(self.txn, self.tables, chat_no)
            assert chat_id is not None, "a chat with messages has a profile"
            chat = UserChat(self.tables, self.txn, chat_id, self._user)
            if not chat.is_taken:
                self._whole.refuse(chat_id)
                return chat, place
        return None

    def branch(self, branch_id: str) -> Branch | None:
        """The branch of that id in a chat of the user; of the oldest one where several have it."""
        for chat_no, _ in self.tables.branch_keys(self.txn, branch_id):
            chat_id = chat_at(self.txn, self.tables, chat_no)
            assert chat_id is not None, "a chat with branches has a profile"
            if not UserChat(self.tables, self.txn, chat_id, self._user).is_taken:
                return self.chat(chat_id).branch_with_id(branch_id)
        return None

    def list_chats(
        self, chats: ChatList = ALL_CHATS, *, limit: int | None = None, offset: int = 0, after: ChatCursor | None = None
    ) -> list[Chat]:
        """A page of a list of the user's chats; of another owner's those that the user may read."""
        if after is not None:
            after = after._replace(chat_no=self.chat(after.chat_id).chat_no or 0)
        return self._whole.list_chats(chats._replace(reader=self.user_id), limit=limit, offset=offset, after=after)

    def count_chats(self, chats: ChatList) -> int:
        """The number of chats of a list of the user's."""
        return self._whole.count_chats(chats._replace(reader=self.user_id))
