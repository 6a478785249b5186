"""Checkpoints: names for messages."""

from typing import Final

import msgspec

from chatledger.domain.errors import ChatNotFoundError, CheckpointNotFoundError, MessageNotFoundError, WrongChatError
from chatledger.domain.values import Checkpoint

from ..routing import HttpCall, Route, existing
from .chats import Deleted, get_chat


class CheckpointTarget(msgspec.Struct, forbid_unknown_fields=True):
    """The message that a checkpoint names."""

    message_id: str


def list_checkpoints(call: HttpCall, chat_id: str) -> list[Checkpoint]:
    """List the checkpoints of a chat."""
    get_chat(call, chat_id)
    return call.reader.list_checkpoints(chat_id)


def get_checkpoint(call: HttpCall, chat_id: str, name: str) -> Checkpoint:
    """Read a checkpoint."""
    return existing(call.reader.get_checkpoint(chat_id, name), CheckpointNotFoundError, chat_id, name)


def set_checkpoint(call: HttpCall, chat_id: str, name: str, body: CheckpointTarget) -> Checkpoint:
    """Give a message a name; a name that is there already is moved."""
    return call.ledger.set_checkpoint(chat_id, name, body.message_id)


def delete_checkpoint(call: HttpCall, chat_id: str, name: str) -> Deleted:
    """Delete a checkpoint. The message stays."""
    return Deleted(call.ledger.delete_checkpoint(chat_id, name))


ROUTES: Final = [
    Route("GET", "/chats/{chat_id}/checkpoints", list_checkpoints, raises=[ChatNotFoundError]),
    Route(
        "GET",
        "/chats/{chat_id}/checkpoints/{name}",
        get_checkpoint,
        raises=[ChatNotFoundError, CheckpointNotFoundError],
    ),
    Route(
        "PUT",
        "/chats/{chat_id}/checkpoints/{name}",
        set_checkpoint,
        raises=[ChatNotFoundError, MessageNotFoundError, WrongChatError],
    ),
    Route("DELETE", "/chats/{chat_id}/checkpoints/{name}", delete_checkpoint, raises=[ChatNotFoundError]),
]
