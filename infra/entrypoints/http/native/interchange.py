"""Conversations, exported whole and imported as the JSON lines of `docs/reference/export.md`."""

from io import BytesIO
from typing import Annotated, Final

import msgspec

from chatledger.domain.chat.import_check import validate_links
from chatledger.domain.chat.import_tree import Reporter
from chatledger.domain.chat.import_versions import OnChange
from chatledger.domain.chat.interchange import ImportedChat, ImportResult, renamed
from chatledger.domain.errors import (
    ChainIntegrityError,
    ChatNotFoundError,
    InvalidValueError,
    MessageConflictError,
    PayloadTooLargeError,
    UnsupportedFormatError,
)
from chatledger.domain.limits import check_id

from ....exchange.jsonl import read_jsonl, write_chats
from ..problems import RequestError
from ..routing import IDEMPOTENCY_KEY, HttpCall, Route

LINES: Final = "application/jsonl"

Lines = Annotated[
    str, msgspec.Meta(description="JSON lines: the format, the chat and what it has, its end, the totals.")
]
CopyId = Annotated[str, msgspec.Meta(description="Import it under this id, with new ids for its messages: a copy.")]


def export_chat(call: HttpCall, chat_id: str) -> Lines:
    """Export a conversation as JSON lines, which `POST /import` and `chatledger import` read."""
    lines = BytesIO()
    write_chats(lines, [call.reader.export_chat(chat_id)])
    return lines.getvalue().decode()


def import_chats(
    call: HttpCall, body: bytes, chat_id: CopyId | None = None, on_change: OnChange = "version"
) -> list[ImportResult]:
    """
    Take in the conversations of an export: what is there stays, what is lacking is added. Repeating it changes nothing.

    A copy, by `chat_id`, gets new ids for its messages: repeating it changes nothing with the same `Idempotency-Key` alone.
    A broken line refuses all. Of several conversations, those before one that the ledger refuses are taken in.
    """
    lines = Reporter("the body", strict=True, on_problem=lambda _: None)
    try:
        chats = list(read_jsonl(BytesIO(body), lines))
    except UnsupportedFormatError as error:
        raise InvalidValueError(str(error)) from error
    except ChainIntegrityError as error:
        raise RequestError(422, str(error), name="ChainIntegrityError") from error
    if chat_id is not None and len(chats) != 1:
        msg = f"chat_id names one copy, and the body has {len(chats):,} conversations"
        raise InvalidValueError(msg)
    return [_imported(call, chat, chat_id, on_change) for chat in chats]


def _imported(call: HttpCall, chat: ImportedChat, chat_id: str | None, on_change: OnChange) -> ImportResult:
    try:
        if chat_id is not None and call.header(IDEMPOTENCY_KEY) is not None:
            validate_links(chat)
            new_ids = {message.id: str(call.named_by_key(chat_id, message.id)) for message in chat.messages}
            chat, chat_id = renamed(chat, check_id(chat_id, "chat_id"), new_ids), None
        return call.ledger.import_chat(chat, chat_id=chat_id, on_change=on_change)
    except ChainIntegrityError as error:
        # Of what was sent, not of the log.
        raise RequestError(422, str(error), name="ChainIntegrityError") from error


ROUTES: Final = [
    Route("GET", "/chats/{chat_id}/export", export_chat, media_type=LINES, raises=[ChatNotFoundError]),
    Route(
        "POST",
        "/import",
        import_chats,
        body_type=LINES,
        raises=[ChatNotFoundError, MessageConflictError, PayloadTooLargeError],
    ),
]
