"""Decisions on checkpoints."""

from ..events import Body, CheckpointDeleted, CheckpointSet
from ..rules import check_id
from ..state import ChatState
from .branches import check_target
from .chats import require_chat


def decide_set_checkpoint(
    state: ChatState, name: str, message_id: str, *, checkpoint_id: str, created_at: int
) -> list[Body]:
    """
    A bookmark of a message. Setting a name again keeps its id; each setting is an event, so earlier targets stay known.

    Raises:
        ChatNotFoundError, MessageNotFoundError, WrongChatError: The chat or the message is not there.
    """
    require_chat(state)
    check_id(name, "checkpoint name")
    check_target(state, check_id(message_id, "message_id"))
    existing = state.checkpoint(name)
    return [CheckpointSet(checkpoint_id if existing is None else existing.id, name, message_id, created_at)]


def decide_delete_checkpoint(state: ChatState, name: str) -> list[Body]:
    """
    A bookmark removed; nothing when there is none of that name.

    Raises:
        ChatNotFoundError: There is no such chat.
    """
    require_chat(state)
    return [] if state.checkpoint(check_id(name, "checkpoint name")) is None else [CheckpointDeleted(name)]
