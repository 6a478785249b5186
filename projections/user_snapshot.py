"""The index as one user may see it: what belongs to others is not there."""

from chatledger.domain.values import Branch, Chat

from .chat.chains import Place
from .chat.lists import ALL_CHATS, ChatList, Cursor
from .chat.reader import IndexedChat, chat_at
from .generations import IndexState
from .log.kinds import CHATS, R, StreamKind
from .snapshot import Snapshot
from .user_streams import UserChat


class UserSnapshot:
    """A snapshot of the index, limited to one user. `tables` are for reading what belongs to a chat that it gave."""

    is_past = False

    def __init__(self, whole: Snapshot, user_id: str) -> None:
        self._whole, self.user_id = whole, user_id
        self.txn, self.tables, self.refuse = whole.txn, whole.tables, whole.refuse

    @property
    def state(self) -> IndexState:
        """The position of the index; it counts everybody's events."""
        return self._whole.state

    def stream(self, streams: StreamKind[R], key: str, *, even_quarantined: bool = False) -> R:
        """The user's stream of that kind and key; its record is None when there is none."""
        found = streams.read_for(self.tables, self.txn, key, self.user_id)
        if not (even_quarantined or found.is_taken):
            self._whole.refuse(found.stream_id)
        return found

    def chat(self, chat_id: str, *, even_quarantined: bool = False) -> IndexedChat:
        """The user's chat of that id; its record is None when there is none."""
        return self.stream(CHATS, chat_id, even_quarantined=even_quarantined)

    def chat_nos(self, *, user_id: str | None = None) -> list[int]:
        """The numbers of the user's chats; none when they are asked for another's."""
        return self._whole.chat_nos(user_id=self.user_id) if user_id in {None, self.user_id} else []

    def searched_chats(self, *, user_id: str | None = None) -> list[int] | None:
        """The same for a search: the index has chats of others too."""
        return self.chat_nos(user_id=user_id)

    def find(self, message_id: str) -> tuple[IndexedChat, Place] | None:
        """The chat of the user that a message belongs to, and where the message is in it."""
        for chat_no, place in self.tables.locations(self.txn, message_id):
            chat_id = chat_at(self.txn, self.tables, chat_no)
            assert chat_id is not None, "a chat with messages has a profile"
            chat = UserChat(self.tables, self.txn, chat_id, self.user_id)
            if not chat.is_taken:
                self._whole.refuse(chat_id)
                return chat, place
        return None

    def branch(self, branch_id: str) -> Branch | None:
        """The branch of that id in a chat of the user; of the oldest one where several have it."""
        for chat_no, _ in self.tables.branch_keys(self.txn, branch_id):
            chat_id = chat_at(self.txn, self.tables, chat_no)
            assert chat_id is not None, "a chat with branches has a profile"
            if not UserChat(self.tables, self.txn, chat_id, self.user_id).is_taken:
                return self.chat(chat_id).branch_with_id(branch_id)
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
