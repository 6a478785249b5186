"""Streams as one user may see and change them: an id of another user's is taken, and nothing more is known of it."""

import msgspec

from chatledger.domain.chat.events import Body, ChatCreated, MessagesAppended
from chatledger.domain.chat.state import Tombstone
from chatledger.domain.errors import AccessDeniedError, AlreadyExistsError, ChatExistsError, MessageConflictError
from chatledger.domain.graph.events import owner_of_state, shown_id, state_stream
from chatledger.domain.log.tombstones import owner_digest
from chatledger.domain.thread.events import with_owner
from chatledger.domain.thread.record import ThreadRecord

from .chat.reader import IndexedChat
from .graph.reader import IndexedGraphState
from .lmdb.environment import Transaction
from .lmdb.tables import Tables
from .thread.reader import IndexedThread


class UserChat(IndexedChat):
    """A chat of one user, or none. `is_taken` says that there is one of that id, but another user's."""

    def __init__(self, tables: Tables, txn: Transaction, chat_id: str, user_id: str) -> None:
        chat_no = tables.chat_no(txn, chat_id)
        is_taken = IndexedChat(tables, txn, chat_id, chat_no).owner not in {None, user_id}
        super().__init__(tables, txn, chat_id, None if is_taken else chat_no)
        self._user_id, self.is_taken = user_id, is_taken

    @property
    def tombstone(self) -> Tombstone | None:
        """The last deletion of a chat of this id. Of another user's, only where the stream goes on."""
        found = super().tombstone
        if found is None or found.owner_digest == owner_digest(self.chat_id, self._user_id):
            return found
        return msgspec.structs.replace(found, command_id=None)

    def is_elsewhere(self, message_id: str) -> bool:
        """Whether another chat of this user has a message of this id."""
        return self._first_location(message_id) is not None and any(
            chat_no != self.chat_no and IndexedChat(self._tables, self._txn, "", chat_no).owner == self._user_id
            for chat_no, _ in self._tables.locations(self._txn, message_id)
        )


def permitted_in_chat(chat: IndexedChat, bodies: list[Body], user_id: str) -> list[Body]:
    """
    Return the events that a user's decision writes to a chat.

    Raises:
        AccessDeniedError: They would make a chat of another user.
        ChatExistsError: They would make a chat whose id is taken.
        MessageConflictError: They would add a message whose id is used in another chat, whosever.
    """
    if any(isinstance(body, ChatCreated) and body.user_id != user_id for body in bodies):
        msg = f"chat {chat.chat_id!r} cannot be made for another user by a ledger that is limited to one"
        raise AccessDeniedError(msg)
    if bodies and chat.is_taken:
        raise ChatExistsError(chat.chat_id)
    for body in bodies:
        for message in body.messages if isinstance(body, MessagesAppended) else ():
            if IndexedChat.is_elsewhere(chat, message.id):
                raise MessageConflictError(message.id, chat_id=chat.chat_id, other_chat=True)
    return bodies


class UserThread(IndexedThread):
    """A thread of one user, or none. `is_taken` says that its id is another user's, or belongs to a thread of nobody."""

    def __init__(self, tables: Tables, txn: Transaction, thread_id: str, user_id: str) -> None:
        super().__init__(tables, txn, thread_id)
        self._user_id = user_id
        owner = self.owner
        self.is_taken = owner != user_id and (owner is not None or super().record is not None)
        if self.is_taken:
            self.thread_no = None

    @property
    def record(self) -> ThreadRecord | None:
        """None when the user has no such thread."""
        return None if self.thread_no is None else super().record

    def beside(self, thread_id: str) -> "UserThread":
        """Another thread at the same moment."""
        return UserThread(self._tables, self._txn, thread_id, self._user_id)


def permitted_in_thread(thread: IndexedThread, bodies: list[Body], user_id: str) -> list[Body]:
    """
    Return the events that a user's decision writes to a thread; a new one becomes the user's.

    Raises:
        AlreadyExistsError: The id is another user's.
    """
    if bodies and thread.is_taken:
        msg = f"thread {thread.thread_id!r} cannot be used, as its id is taken; use another one"
        raise AlreadyExistsError(msg)
    return bodies if thread.record is not None else [with_owner(body, user_id) for body in bodies]


def state_of_user(tables: Tables, txn: Transaction, state_id: str, user_id: str) -> IndexedGraphState:
    """
    Return a state of a user, whose id names its owner.

    Raises:
        AccessDeniedError: It is another user's, whether or not it exists.
    """
    if owner_of_state(state_id) != user_id:
        msg = f"may not modify state {shown_id(state_id)!r}: it belongs to another user"
        raise AccessDeniedError(msg)
    return IndexedGraphState(tables, txn, state_stream(state_id))
