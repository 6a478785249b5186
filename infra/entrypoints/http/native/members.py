"""Members: the users besides its owner who may read a chat, or write to it."""

from typing import Final

import msgspec

from chatledger.domain.errors import ChatNotFoundError
from chatledger.domain.values import Member, MemberRole

from ..routing import HttpCall, Route
from .chats import Deleted, get_chat


class MemberBody(msgspec.Struct, forbid_unknown_fields=True):
    """The role of a member: a `reader` sees all of the chat, a `writer` also writes, branches and runs agents in it."""

    role: MemberRole


def list_members(call: HttpCall, chat_id: str) -> list[Member]:
    """List the members of a chat without its owner, those first that were added first."""
    get_chat(call, chat_id)
    return call.reader.members(chat_id)


def set_member(call: HttpCall, chat_id: str, user_id: str, body: MemberBody) -> Member:
    """Make a user a member of a chat, or give a member another role. Only its owner may."""
    return call.ledger.set_member(chat_id, user_id, body.role)


def remove_member(call: HttpCall, chat_id: str, user_id: str) -> Deleted:
    """Remove a member from a chat. Its owner may, and the member."""
    return Deleted(call.ledger.remove_member(chat_id, user_id))


_ONE: Final = "/chats/{chat_id}/members/{user_id}"

ROUTES: Final = [
    Route("GET", "/chats/{chat_id}/members", list_members, raises=[ChatNotFoundError]),
    Route("PUT", _ONE, set_member, raises=[ChatNotFoundError]),
    Route("DELETE", _ONE, remove_member),
]
