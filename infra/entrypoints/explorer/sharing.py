"""The page of who reads a chat besides its owner: its members, and links."""

from typing import Final

from chatledger.domain.errors import ChatNotFoundError
from chatledger.domain.values import Chat, Link, Member
from chatledger.domain.wire import Value

from ..http.routing import HttpCall
from .offers import Offer, sharing_actions
from .page import ExplorerPage


class SharingPage(Value, frozen=True, kw_only=True):
    """
    Who reads a chat.

    Args:
        leaves: The member that the caller is, and may end to be; None for others.
    """

    chat: Chat
    members: list[Member]
    links: list[Link]
    actions: list[Offer]
    leaves: str | None


def sharing(call: HttpCall, chat_id: str) -> SharingPage:
    """Read who reads a chat now, whatever moment is asked for: of the past nobody can be removed."""
    chat = call.ledger.get_chat(chat_id)
    if chat is None:
        raise ChatNotFoundError(chat_id)
    members, actions = call.ledger.members(chat_id), sharing_actions(call, chat)
    user_id = call.principal.user_id if call.principal.may("write") else None
    return SharingPage(
        chat=chat,
        members=members,
        links=call.ledger.links(chat_id),
        actions=actions,
        leaves=user_id if any(member.user_id == user_id for member in members) else None,
    )


PAGES: Final = (ExplorerPage("/c/{chat_id}/sharing", sharing, "sharing.html"),)
