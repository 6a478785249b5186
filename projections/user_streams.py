"""Streams as one user may see and change them: an id of a stranger's is taken, and nothing more is known of it."""

from collections.abc import Sequence

import msgspec

from chatledger.domain.chat.events import Body, ChatCreated, MessagesAppended
from chatledger.domain.chat.members import User, check_permitted, stronger
from chatledger.domain.chat.state import Role, Tombstone
from chatledger.domain.errors import AccessDeniedError, AlreadyExistsError, ChatExistsError, MessageConflictError
from chatledger.domain.log.tombstones import owner_digest
from chatledger.domain.versioned.events import VersionPut, VersionsDeleted, VersionsExpirySet, with_owner
from chatledger.domain.versioned.keys import Family

from .chat.reader import IndexedChat
from .lmdb.environment import Transaction
from .lmdb.tables import Tables
from .versioned.reader import IndexedVersioned


class UserChat(IndexedChat):
    """A chat that one user may read, or none. `is_taken` says that there is one of that id, which the user may not."""

    def __init__(self, tables: Tables, txn: Transaction, chat_id: str, user: User) -> None:
        chat_no = tables.chat_no(txn, chat_id)
        super().__init__(tables, txn, chat_id, chat_no)
        self._user = user
        self.is_taken = chat_no is not None and self.role_of(user.id) is None
        if self.is_taken:
            super().__init__(tables, txn, chat_id, None)

    def role_of(self, user_id: str) -> Role | None:
        """The role of a user in the chat, with what the application grants to the one whose it is here."""
        role = super().role_of(user_id)
        is_granted = user_id == self._user.id and self.record is not None
        return stronger(role, self._user.grants.get(self.chat_id)) if is_granted else role

    def check_may_write(self) -> None:
        """Raise `AccessDeniedError` when the user only reads the chat: for what is written beside the log."""
        check_permitted(f"chat {self.chat_id!r}", self.role_of(self._user.id), self._user.id, None)

    @property
    def tombstone(self) -> Tombstone | None:
        """The last deletion of a chat of this id. Of another user's, only where the stream goes on."""
        found = super().tombstone
        if found is None or found.owner_digest == owner_digest(self.chat_id, self._user.id):
            return found
        return msgspec.structs.replace(found, command_id=None)

    def is_elsewhere(self, message_id: str) -> bool:
        """Whether another chat that this user may read has a message of this id."""
        return self._first_location(message_id) is not None and any(
            chat_no != self.chat_no
            and IndexedChat(self._tables, self._txn, "", chat_no).role_of(self._user.id) is not None
            for chat_no, _ in self._tables.locations(self._txn, message_id)
        )


def permitted_in_chat(chat: IndexedChat, bodies: list[Body], user: User) -> list[Body]:
    """
    Return the events that a user's decision writes to a chat.

    Raises:
        AccessDeniedError: They would make a chat of another user, or the user's role does not allow them.
        ChatExistsError: They would make a chat whose id is taken.
        MessageConflictError: They would add a message whose id is used in another chat, whosever.
    """
    if any(isinstance(body, ChatCreated) and body.user_id != user.id for body in bodies):
        msg = f"chat {chat.chat_id!r} cannot be made for another user by a ledger that is limited to one"
        raise AccessDeniedError(msg)
    if bodies and chat.is_taken:
        raise ChatExistsError(chat.chat_id)
    check_permitted(f"chat {chat.chat_id!r}", chat.role_of(user.id), user.id, bodies)
    for body in bodies:
        for message in body.messages if isinstance(body, MessagesAppended) else ():
            if IndexedChat.is_elsewhere(chat, message.id):
                raise MessageConflictError(message.id, chat_id=chat.chat_id, other_chat=True)
    return bodies


class UserVersioned(IndexedVersioned):
    """
    A versioned value that one user may read, or none: their own, or one of a chat's owner, to members of the chat with its key.

    `is_taken` says that its key is that of a value which the user may not read, or which is nobody's.

    Raises:
        AccessDeniedError: Its key names another owner, whether or not it exists.
    """

    def __init__(self, tables: Tables, txn: Transaction, family: Family, key: str, user: User) -> None:
        named = family.owner_of(key)
        if named is not None and named != user.id:
            msg = f"may not modify {family.name} {family.shown(key)!r}: it belongs to another user"
            raise AccessDeniedError(msg)
        super().__init__(tables, txn, family.stream_of(key))
        self._user = user
        self.role: Role | None = "owner"
        self.beginner: str | None = None
        """The owner of the value if this user begins it: that of the chat, whichever of its members the user is."""
        if named is not None:
            return
        chat, owner, is_there = UserChat(tables, txn, key, user), self.owner, self.record is not None
        self.role = None
        if owner == user.id:
            self.role = "owner"
        elif chat.owner == owner:
            self.role = chat.role_of(user.id)
        elif is_there:
            self.role = user.grants.get(key)
        self.beginner = user.id if owner is None else owner
        self.is_taken = self.role is None and (owner is not None or is_there)
        if self.is_taken:
            self.stream_no, self.record = None, None

    def beside(self, stream_id: str) -> "UserVersioned":
        """Another value at the same moment."""
        key = self.family.key_of(stream_id)
        assert key is not None, "only values whose streams tell their keys are copied"
        return UserVersioned(self._tables, self._txn, self.family, key, self._user)

    def check_may_write(self, bodies: Sequence[Body] | None = None) -> None:
        """
        Check that the user may write events to the value, or any that put something into it.

        Raises:
            AccessDeniedError: The user's role does not allow it.
            AlreadyExistsError: The key is another user's.
        """
        if self.is_taken:
            msg = f"{self.name} cannot be used, as its id is taken; use another one"
            raise AlreadyExistsError(msg)
        check_permitted(self.name, self.role, self._user.id, bodies)


def permitted_in_value(value: IndexedVersioned, bodies: list[Body], _user: User) -> list[Body]:
    """
    Return the events that a user's decision writes to a value; a new one becomes the user's, or that of its chat's owner.

    Raises:
        AccessDeniedError: The user's role does not allow them.
        AlreadyExistsError: The key is another user's.
    """
    assert isinstance(value, UserVersioned), "it was read for the user"
    record = value.record
    # Whoever writes next to a value that has expired writes its end, and a new life begins.
    written = [body for body in bodies if not (isinstance(body, VersionsDeleted) and body.reason == "expired")]
    if record is not None and value.role != "owner" and written == bodies:
        # When it ends is its owner's to say: what members write leaves that as it is.
        written = bodies = [
            msgspec.structs.replace(body, expires_at=record.expires_at) if isinstance(body, VersionPut) else body
            for body in bodies
            if not isinstance(body, VersionsExpirySet)
        ]
    if bodies:
        value.check_may_write(written)
    if record is not None or value.beginner is None:
        return bodies
    return [with_owner(body, value.beginner) for body in bodies]
