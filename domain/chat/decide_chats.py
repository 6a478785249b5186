"""Decisions on chats."""

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from ..errors import ChatExistsError, ChatNotFoundError, InvalidValueError, OwnerMismatchError
from ..limits import MAX_TITLE_BYTES, changed_metadata, check_id, check_metadata, check_time, utf8_bytes
from ..log.tombstones import owner_digest
from ..versioned.keys import check_chat_id
from .events import Body, ChatCreated, ChatDeleted, ChatUpdated
from .state import ChatRecord, ChatState

_encode: Final = msgspec.msgpack.Encoder().encode


def decide_create_chat(
    state: ChatState,
    *,
    user_id: str,
    title: str | None,
    metadata: dict[str, Any] | None,
    branch_id: str,
    created_at: int | None = None,
    expires_at: int | None = None,
    updated_at: int | None = None,
    branch_created_at: int | None = None,
) -> list[Body]:
    """
    A new chat with its branch `main`.

    Raises:
        ChatExistsError: There is one of that id.
        InvalidValueError: An id, the title or the metadata break a rule.
    """
    check_chat_id(state.chat_id)
    check_id(user_id, "user_id", empty=True)
    title = _check_title(title)
    metadata = check_metadata(metadata)
    if created_at is not None:
        check_time(created_at, "created_at")
    if expires_at is not None:
        check_time(expires_at, "expires_at")
    if state.record is not None:
        raise ChatExistsError(state.chat_id)
    return [
        ChatCreated(user_id, title, metadata, branch_id, created_at, expires_at, updated_at, branch_created_at),
    ]


def decide_upsert_chat(
    state: ChatState,
    *,
    user_id: str,
    title: str | None,
    metadata: dict[str, Any] | None,
    branch_id: str,
    expires_at: int | None = None,
) -> list[Body]:
    """
    A new chat, or nothing when the user has one of that id, as its owner or a writer; title, metadata and end are then ignored.

    Raises:
        OwnerMismatchError: The chat of that id belongs to another user.
    """
    if state.record is not None:
        # Whoever opens a chat in this way is about to write: to a ledger of everybody, too, which asks for no role again.
        if state.role_of(check_id(user_id, "user_id", empty=True)) not in {"owner", "writer"}:
            raise OwnerMismatchError(state.chat_id)
        return []
    return decide_create_chat(
        state, user_id=user_id, title=title, metadata=metadata, branch_id=branch_id, expires_at=expires_at
    )


def decide_update_chat(
    state: ChatState,
    *,
    title: str | UnsetType | None = UNSET,
    metadata: dict[str, Any] | UnsetType | None = UNSET,
    expires_at: int | UnsetType | None = UNSET,
    merged_metadata: dict[str, Any] | None = None,
) -> list[Body]:
    """
    Another title, other metadata or another time to end; UNSET leaves, None clears. Nothing when all are as they were.

    `merged_metadata` are set among those that are there, `metadata` take their place.

    Raises:
        ChatNotFoundError: There is no such chat.
        InvalidValueError: A value breaks a rule, or both kinds of metadata are given.
    """
    require_chat(state)
    profile = state.profile
    assert profile is not None, "a chat with a record has a profile"
    changes: dict[str, Any] = {}
    if title is not UNSET and _check_title(title) != profile.title:
        changes["title"] = title
    after = changed_metadata(profile.metadata, metadata, merged_metadata)
    if after is not UNSET and _encode(after) != _encode(profile.metadata):  # another order of keys is a change too
        changes["metadata"] = after
    if expires_at is not UNSET:
        if expires_at is not None:
            check_time(expires_at, "expires_at")
        if expires_at != profile.expires_at:
            changes["expires_at"] = expires_at
    return [ChatUpdated(changes)] if changes else []


def decide_expire_chat(state: ChatState, *, until: int) -> list[Body]:
    """The tombstone of a chat that is due at `until`, in ms; nothing when there is none, it is held, or was given more time."""
    profile = state.profile
    if profile is None or profile.ends_at is None or profile.ends_at > until:
        return []
    return decide_delete_chat(state, user_id=None)


def decide_delete_chat(state: ChatState, *, user_id: str | None) -> list[Body]:
    """The tombstone; nothing when there is no such chat, or `user_id` is given and is not its owner."""
    record, profile = state.record, state.profile
    if record is None or profile is None or (user_id is not None and user_id != profile.user_id):
        return []
    # Once the events are erased nobody can count them again: a verification compares these numbers with what it saw before.
    return [
        ChatDeleted(
            first_position=record.first_position,
            event_count=record.head.version - record.first_version + 1,
            message_count=record.message_count,
            branch_count=record.branch_count,
            checkpoint_count=record.checkpoint_count,
            owner_digest=owner_digest(state.chat_id, profile.user_id),
            member_digests=tuple(owner_digest(state.chat_id, member.user_id) for member in state.members()) or None,
        )
    ]


def require_chat(state: ChatState) -> ChatRecord:
    """The chat's record. Raises `ChatNotFoundError` when there is no such chat."""
    if state.record is None:
        raise ChatNotFoundError(state.chat_id)
    return state.record


def _check_title(title: Any) -> str | None:
    if title is None:
        return None
    if not isinstance(title, str):
        msg = f"title must be text or None, not {type(title).__name__}"
        raise InvalidValueError(msg)
    size = len(utf8_bytes(title, "title"))
    if size > MAX_TITLE_BYTES:
        msg = f"title takes {size:,} bytes, at most {MAX_TITLE_BYTES:,} are allowed"
        raise InvalidValueError(msg)
    return title
