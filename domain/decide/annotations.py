"""Decisions on what is said of messages after they were written."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from ..errors import InvalidValueError
from ..events import Body
from ..rules import check_id, check_metadata, same_json
from ..runs.events import MessagesAnnotated
from ..state import ChatState
from ..values import Annotation
from .branches import check_target
from .chats import require_chat


def decide_annotate(
    state: ChatState,
    message_id: str,
    *,
    stale: bool | UnsetType = UNSET,
    replaced_by: str | UnsetType | None = UNSET,
    hidden: bool | UnsetType = UNSET,
    metadata: dict[str, Any] | UnsetType | None = UNSET,
) -> list[Body]:
    """
    Another annotation; UNSET leaves, None clears. Nothing when all is as it was.

    Raises:
        ChatNotFoundError, MessageNotFoundError, WrongChatError: The chat or a message is not there.
        InvalidValueError: A value breaks a rule, or a message would replace itself.
    """
    require_chat(state)
    check_target(state, check_id(message_id, "message_id"))
    changes: dict[str, Any] = {}
    for name, value in (("stale", stale), ("hidden", hidden)):
        if value is not UNSET:
            if not isinstance(value, bool):
                msg = f"{name} must be True or False, not {value!r}"
                raise InvalidValueError(msg)
            changes[name] = value
    if replaced_by is not UNSET:
        changes["replaced_by"] = _replacement(state, message_id, replaced_by)
    if metadata is not UNSET:
        changes["metadata"] = check_metadata(metadata) or {}
    return annotations(state, [message_id], changes)


def annotations(state: ChatState, message_ids: Sequence[str], changes: dict[str, Any]) -> list[Body]:
    """Changes of the annotations of messages: of those that do not say so already."""
    changing = [message_id for message_id in message_ids if not _says(state.annotation(message_id), changes)]
    return [MessagesAnnotated(tuple(changing), changes)] if changing else []


def _replacement(state: ChatState, message_id: str, replaced_by: str | None) -> str | None:
    if replaced_by is None:
        return None
    check_target(state, check_id(replaced_by, "replaced_by"))
    if replaced_by == message_id:
        msg = f"message {message_id!r} can not be replaced by itself"
        raise InvalidValueError(msg)
    return replaced_by


def _says(annotation: Annotation | None, changes: dict[str, Any]) -> bool:
    known = Annotation() if annotation is None else annotation
    return all(same_json(getattr(known, name), value) for name, value in changes.items())
