"""The page of one chat."""

from typing import Final

from chatledger.domain.errors import ChatNotFoundError
from chatledger.domain.values import Branch, Chat, PageEntry
from chatledger.domain.wire import Value

from .page import Page, PageCall

_ROWS: Final = 50


class Conversation(Value, frozen=True, kw_only=True):
    """A chat, its branches, and a part of the chain of one of them; `before` begins the part before."""

    chat: Chat
    branches: list[Branch]
    branch: str
    entries: list[PageEntry]
    before: str | None


def chat(call: PageCall, chat_id: str, *, branch: str | None = None, before: str | None = None) -> Conversation:
    """Read a chat and the last messages of a branch; those before a message with `before`."""
    found = call.reader.get_chat(chat_id)
    if found is None:
        raise ChatNotFoundError(chat_id)
    part = call.reader.get_page(chat_id, branch=branch, limit=_ROWS, before=before)
    return Conversation(
        chat=found,
        branches=call.reader.list_branches(chat_id),
        branch=part.branch,
        entries=part.entries,
        before=part.before,
    )


PAGES: Final = (Page("/c/{chat_id}", chat, "chat.html"),)
