"""A whole conversation as importers hand it in and exports hand it out."""

from typing import Any

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
