"""The page of one chat."""

from typing import Annotated, Final

import msgspec
from starlette.responses import Response

from chatledger.domain.errors import ChatNotFoundError, NotFoundError
from chatledger.domain.values import Branch, Chat, PageEntry
from chatledger.domain.wire import Value

from .page import Page, PageCall
from .rendering import file_of

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


def file(call: PageCall, chat_id: str, message_id: str, index: Annotated[int, msgspec.Meta(ge=0)]) -> Response:
    """Read the file that a part of a message holds."""
    message = call.reader.get_message(message_id)
    found = None if message is None or message.chat_id != chat_id else file_of(message, index)
    if found is None:
        msg = f"message {message_id!r} of chat {chat_id!r} has no file at {index}"
        raise NotFoundError(msg)
    return found


PAGES: Final = (Page("/c/{chat_id}", chat, "chat.html"), Page("/c/{chat_id}/files/{message_id}/{index}", file))
