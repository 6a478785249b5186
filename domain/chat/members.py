"""Members of a chat: what the owner, a writer and a reader may do with it, and decisions on who is a member."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from ..errors import AccessDeniedError, InvalidValueError
from ..limits import MAX_MEMBERS, check_choice, check_id
from ..values import Member, MemberRole
from .decide_chats import require_chat
from .events import LINK_BODIES, Body, ChatUpdated, ContentRedacted, MemberRemoved, MemberSet, StreamDeleted
from .state import ChatProfile, ChatState, Role

ROLES: Final[tuple[MemberRole, ...]] = ("reader", "writer")
"""The roles of members, the weaker first."""
_RANKS: Final[tuple[Role | None, ...]] = (None, *ROLES, "owner")


class User(msgspec.Struct, frozen=True):
    """
    A user whom a ledger is limited to.

    `grants`: by the ids of chats and threads, the roles that the application grants besides what the chats themselves say.
    """

    id: str
    grants: Mapping[str, MemberRole] = {}


def check_roles(roles: Any, what: str, key: str) -> dict[str, MemberRole]:
    """Check an object of roles by ids; none when it is None. Raises `InvalidValueError`."""
    if roles is None:
        return {}
    if not isinstance(roles, Mapping):
        msg = f"{what} must be roles by ids, such as {{'bob': 'writer'}}, not {type(roles).__name__}"
        raise InvalidValueError(msg)
    items = cast("Mapping[object, object]", roles).items()
    return {check_id(id_, key): check_choice(role, ROLES, "a role") for id_, role in items}


def role_in(profile: ChatProfile | None, member: Member | None, user_id: str) -> Role | None:
    """Return the role that a chat gives to a user; None for a stranger, to whom the chat does not exist."""
    if profile is not None and profile.user_id == user_id:
        return "owner"
    return None if profile is None or member is None else member.role


def stronger(role: Role | None, other: Role | None) -> Role | None:
    """Return the role of the two that allows more."""
    return role if _RANKS.index(role) >= _RANKS.index(other) else other


def check_permitted(what: str, role: Role | None, user_id: str, bodies: Sequence[Body] | None) -> None:
    """
    Check that a user with a role may write events to a chat or thread: a reader none, a writer those that leave it to its owner.

    A member may leave. What is written beside the log, such as a live stream, is None in place of events.

    Raises:
        AccessDeniedError: The role does not allow it. Nothing was written.
    """
    if role in {None, "owner"}:  # what nobody has yet becomes the user's
        return
    for body in (None,) if bodies is None else bodies:
        if isinstance(body, MemberRemoved) and body.user_id == user_id:
            continue
        if isinstance(body, ChatUpdated):
            is_owners = "expires_at" in body.changes  # whoever says when a chat ends, deletes it
        else:
            is_owners = isinstance(body, (StreamDeleted, MemberSet, MemberRemoved, ContentRedacted, *LINK_BODIES))
        if is_owners:
            msg = f"only the owner of {what} may delete it, redact messages, say when it ends, change its members, or share it by links; nothing was written"
            raise AccessDeniedError(msg)
        if role == "reader":
            msg = f"a reader of {what} may not write to it, until its owner makes them a writer; nothing was written"
            raise AccessDeniedError(msg)


def members_of_new(chat_id: str, owner: str, members: Mapping[str, MemberRole]) -> list[MemberSet]:
    """
    The members that a new chat begins with.

    Raises:
        InvalidValueError: The owner is among them, or there are too many.
    """
    if owner in members:
        raise _no_member(chat_id)
    if len(members) > MAX_MEMBERS:
        raise _too_many(chat_id)
    return [MemberSet(user_id, role) for user_id, role in members.items()]


def decide_set_member(state: ChatState, user_id: str, role: MemberRole) -> list[Body]:
    """
    A new member, or another role of one; nothing when the user has that role.

    Raises:
        ChatNotFoundError: There is no such chat.
        InvalidValueError: The user is its owner, the role is none, or there are too many members.
    """
    record = require_chat(state)
    check_id(user_id, "user_id")
    check_choice(role, ROLES, "role")
    if state.role_of(user_id) == "owner":
        raise _no_member(state.chat_id)
    before = state.member(user_id)
    if before is None and record.member_count >= MAX_MEMBERS:
        raise _too_many(state.chat_id)
    return [] if before is not None and before.role == role else [MemberSet(user_id, role)]


def decide_replace_members(state: ChatState, members: Mapping[str, MemberRole]) -> list[Body]:
    """
    The changes after which a chat has these members and no others; its owner is passed over.

    Raises:
        ChatNotFoundError: There is no such chat.
        InvalidValueError: There are too many.
    """
    require_chat(state)
    before = {member.user_id: member.role for member in state.members()}
    wanted: dict[str, MemberRole] = {
        user_id: role for user_id, role in members.items() if state.role_of(user_id) != "owner"
    }
    if len(wanted) > MAX_MEMBERS:
        raise _too_many(state.chat_id)
    removed: list[Body] = [MemberRemoved(user_id) for user_id in before if user_id not in wanted]
    return [*removed, *(MemberSet(user_id, role) for user_id, role in wanted.items() if before.get(user_id) != role)]


def decide_remove_member(state: ChatState, user_id: str) -> list[Body]:
    """A member removed; nothing when the user is none, or there is no such chat."""
    return [] if state.member(check_id(user_id, "user_id")) is None else [MemberRemoved(user_id)]


def _no_member(chat_id: str) -> InvalidValueError:
    return InvalidValueError(f"the owner of chat {chat_id!r} may do everything with it; members are others")


def _too_many(chat_id: str) -> InvalidValueError:
    return InvalidValueError(f"chat {chat_id!r} has too many members, at most {MAX_MEMBERS:,} are allowed")
