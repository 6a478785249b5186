"""A whole conversation as importers hand it in and exports hand it out."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec


class ImportedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """
    One message of a foreign conversation.

    `data` is any JSON value, `created_at` integer milliseconds since the epoch (UTC), None where the source does not say.
    """

    id: str
    parent_id: str | None
    name: str
    data: Any
    type: str | None = "message"
    created_at: int | None = None
    sender_id: str | None = None
    agent_id: str | None = None
    reply_to: str | None = None


class ImportedBranch(msgspec.Struct, frozen=True, kw_only=True):
    """A named pointer to a head message; None is an empty branch."""

    name: str
    head_message_id: str | None
    created_at: int | None = None
    is_active: bool = False
    id: str | None = None


class ImportedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A named bookmark on a message."""

    name: str
    message_id: str
    created_at: int | None = None
    id: str | None = None


class ImportedChat(msgspec.Struct, frozen=True, kw_only=True):
    """
    A whole conversation.

    Parents come before their children in `messages`, and exactly one of `branches` is active.
    """

    id: str
    user_id: str
    title: str | None
    metadata: dict[str, Any] | None
    messages: tuple[ImportedMessage, ...]
    branches: tuple[ImportedBranch, ...]
    checkpoints: tuple[ImportedCheckpoint, ...] = ()
    created_at: int | None = None
    updated_at: int | None = None


class ImportResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an import changed; a repeated one changes nothing."""

    chat_id: str
    is_new: bool = False
    messages_added: int = 0
    branches_added: int = 0
    heads_moved: int = 0
    checkpoints_set: int = 0


def renamed(chat: ImportedChat, chat_id: str, new_ids: Mapping[str, str]) -> ImportedChat:
    """
    The same conversation under another id and with other message ids, as it can stand beside the original.

    A UIMessage carries its id in its data too; it is changed there as well.
    """

    def new(message_id: str | None) -> str | None:
        return None if message_id is None else new_ids.get(message_id, message_id)

    return msgspec.structs.replace(
        chat,
        id=chat_id,
        messages=tuple(
            msgspec.structs.replace(
                message,
                id=new(message.id),
                parent_id=new(message.parent_id),
                reply_to=new(message.reply_to),
                data=_with_id(message, new_ids),
            )
            for message in chat.messages
        ),
        branches=tuple(
            msgspec.structs.replace(branch, id=None, head_message_id=new(branch.head_message_id))
            for branch in chat.branches
        ),
        checkpoints=tuple(
            msgspec.structs.replace(checkpoint, id=None, message_id=new(checkpoint.message_id))
            for checkpoint in chat.checkpoints
        ),
    )


def _with_id(message: ImportedMessage, new_ids: Mapping[str, str]) -> Any:
    data: Any = message.data
    if not isinstance(data, dict):
        return data
    fields = cast("dict[str, Any]", data)
    return {**fields, "id": new_ids[message.id]} if fields.get("id") == message.id else fields
