"""Members: the users besides its owner who may read a chat, or write to it."""

from collections.abc import Mapping

from chatledger.domain.chat.events import MemberRemoved, MemberSet
from chatledger.domain.chat.members import check_roles, decide_remove_member, decide_replace_members, decide_set_member
from chatledger.domain.errors import ChatNotFoundError
from chatledger.domain.limits import check_id, sought_id
from chatledger.domain.values import Member, MemberRole
from chatledger.projections.log.kinds import CHATS

from ..store.commands import ChatsToRead
from .port import LedgerPart, StorePort


class MemberMethods(LedgerPart):
    """The part of a ledger that is about members of chats."""

    def set_member(self, chat_id: str, user_id: str, role: MemberRole) -> Member:
        """
        Make a user a member of a chat, or give a member another role: `"reader"` or `"writer"`.

        What `for_user` gives the user then has the chat, with all that was said in it before, and the agents' thread with its
        id. Only the owner chooses the members of a chat, or a ledger that is not limited to a user. A chat has at most
        500 members.

        Raises:
            ChatNotFoundError: There is no such chat.
            AccessDeniedError: The ledger is limited to a user who does not own the chat.
            InvalidValueError: The user owns the chat, the role is none, or there are too many members.
        """
        check_id(chat_id, "chat_id")
        while True:
            recorded = self._store.execute(
                CHATS, chat_id, lambda state, _now: decide_set_member(state, user_id, role), kind=MemberSet
            )
            with self._store.snapshot(ChatsToRead(chat_id, is_written=True)) as snapshot:
                member = snapshot.chat(chat_id).member(user_id)
            if member is not None:
                return member
            if recorded:  # a member here, and removed by somebody else since
                return Member(chat_id=chat_id, user_id=user_id, role=role, added_at=recorded[0].occurred_at)

    def remove_member(self, chat_id: str, user_id: str) -> bool:
        """
        Remove a member from a chat. What the user wrote stays; members may remove themselves.

        From then on the chat is not there for the user, also not in feeds and live streams that are open.

        Returns:
            Whether this call removed the user: False where there is no such chat, or the user is no member.

        Raises:
            AccessDeniedError: The ledger is limited to another user who does not own the chat.
        """
        check_id(chat_id, "chat_id")
        return bool(
            self._store.execute(
                CHATS, chat_id, lambda state, _now: decide_remove_member(state, user_id), kind=MemberRemoved
            )
        )

    def set_members(self, chat_id: str, members: Mapping[str, MemberRole]) -> None:
        """
        Make users the members of a chat, by their roles; nobody else is a member then. Its owner is passed over.

        Raises:
            ChatNotFoundError: There is no such chat.
            AccessDeniedError: The ledger is limited to a user who does not own the chat.
            InvalidValueError: A role is none, or there are too many.
        """
        wanted = check_roles(members, "members", "user_id")
        # It heeds no command id: repeating it changes nothing, and a request may have updated the chat under the same id.
        self._store.execute(
            CHATS, check_id(chat_id, "chat_id"), lambda state, _now: decide_replace_members(state, wanted)
        )

    def check_may_write(self, chat_id: str) -> None:
        """
        Check that the user of this ledger may write to a chat, before something is written beside it on the user's behalf.

        Raises:
            ChatNotFoundError: There is no such chat.
            AccessDeniedError: The user only reads it.

        Source: the LMDB index.
        """
        check_may_write(self._store, sought_id(chat_id, "chat_id"))

    def members(self, chat_id: str) -> list[Member]:
        """
        The members of a chat without its owner, the earliest added first; none when there is no such chat.

        Source: the LMDB index at `position`. Costs O(members).
        """
        return self._of_chat(chat_id, lambda chat: chat.members())


def check_may_write(store: StorePort, chat_id: str) -> None:
    """
    Check that what is written beside the log may be: a live stream, or the end of a run that is being executed.

    Raises:
        ChatNotFoundError: The chat is not there for the user of the store.
        AccessDeniedError: The user only reads it.
    """
    with store.snapshot(ChatsToRead(chat_id)) as snapshot:
        chat = snapshot.chat(chat_id)
        if chat.record is None:
            raise ChatNotFoundError(chat_id)
        chat.check_may_write()
