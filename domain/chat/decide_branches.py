"""Decisions on branches and checkpoints."""

from typing import Literal

from ..errors import (
    BranchExistsError,
    HeadConflictError,
    LastBranchError,
    MessageNotFoundError,
    WrongChatError,
)
from ..limits import check_flag, check_id
from ..values import AnyHead
from .decide_chats import require_chat
from .decide_messages import check_expected, find_branch
from .events import (
    Body,
    BranchActivated,
    BranchCreated,
    BranchDeleted,
    BranchRenamed,
    CheckpointDeleted,
    CheckpointSet,
    HeadMoved,
)
from .fork import next_name
from .state import ChatState, next_branch_number


def decide_create_branch(
    state: ChatState, name: str, head_message_id: str | None, *, activate: bool, branch_id: str, created_at: int
) -> list[Body]:
    """
    A new branch with a head of this chat, or an empty one.

    Raises:
        ChatNotFoundError, MessageNotFoundError, WrongChatError: The chat or the head is not there.
        BranchExistsError: The name is taken.
    """
    require_chat(state)
    check_id(name, "branch name")
    check_flag(activate, "activate")
    check_target(state, head_message_id)
    if state.branch(name) is not None:
        raise BranchExistsError(state.chat_id, name)
    return [BranchCreated(next_branch_number(state), branch_id, name, head_message_id, created_at, activate)]


def decide_fork(
    state: ChatState, message_id: str, *, activate: bool, branch_id: str, created_at: int, base: str | None = None
) -> list[Body]:
    """
    A new branch at a message, named after `base` (the active branch when None): `<base>-v<N+1>`.

    Raises:
        ChatNotFoundError, MessageNotFoundError, WrongChatError: The chat or the message is not there.
    """
    record = require_chat(state)
    check_target(state, check_id(message_id, "message_id"))
    check_flag(activate, "activate")
    name = next_name(
        record.active_branch if base is None else check_id(base, "base"),
        named_after=state.branches_named_after,
        is_taken=lambda name: state.branch(name) is not None,
    )
    return [BranchCreated(record.branches_made, branch_id, name, message_id, created_at, activate)]


def decide_activate(state: ChatState, name: str) -> list[Body]:
    """
    Another active branch; nothing when it is the active one already.

    Raises:
        ChatNotFoundError, BranchNotFoundError: The chat or the branch is not there.
    """
    branch = find_branch(state, check_id(name, "branch"))
    return [] if branch.is_active else [BranchActivated(branch.number, branch.name)]


def decide_rename_branch(state: ChatState, name: str, new_name: str) -> list[Body]:
    """
    A branch under another name; nothing when it is the name that it has.

    Raises:
        ChatNotFoundError, BranchNotFoundError: The chat or the branch is not there.
        BranchExistsError: The new name is taken.
    """
    branch = find_branch(state, check_id(name, "branch"))
    if check_id(new_name, "branch name") == branch.name:
        return []
    if state.branch(new_name) is not None:
        raise BranchExistsError(state.chat_id, new_name)
    return [BranchRenamed(branch.number, branch.name, new_name)]


def decide_delete_branch(state: ChatState, name: str) -> list[Body]:
    """
    A branch removed; nothing when there is none of that name. Of the active one, the one seen last before it becomes active.

    Raises:
        LastBranchError: The chat has no other branch.
    """
    branch = state.branch(check_id(name, "branch"))
    if branch is None:
        return []
    deleted = BranchDeleted(branch.number, branch.name)
    if not branch.is_active:
        return [deleted]
    other = next((seen for seen in state.branches_seen() if seen.name != name), None)
    if other is None:
        raise LastBranchError(state.chat_id, name)
    # In this order: the fold refuses an event that deletes the active branch.
    return [BranchActivated(other.number, other.name), deleted]


def decide_show(state: ChatState, message_id: str, *, branch_id: str, created_at: int) -> list[Body]:
    """
    The branch seen last that has a message made active; nothing when it is.

    Where no branch has the message, a new one at the newest leaf below it, named as by `decide_fork`.

    Raises:
        ChatNotFoundError, MessageNotFoundError, WrongChatError: The chat or the message is not there.
    """
    require_chat(state)
    check_target(state, check_id(message_id, "message_id"))
    for branch in state.branches_seen():
        head = branch.head_message_id
        if head is not None and state.is_ancestor(message_id, head):
            return [] if branch.is_active else [BranchActivated(branch.number, branch.name)]
    leaf = state.newest_leaf(message_id)
    return decide_fork(state, leaf, activate=True, branch_id=branch_id, created_at=created_at)


def decide_move_head(
    state: ChatState, name: str, message_id: str | None, *, expected: str | Literal[AnyHead.ANY] | None
) -> list[Body]:
    """
    A branch pointed at another message, if its head is `expected`; nothing when it is there already.

    Raises:
        ChatNotFoundError, BranchNotFoundError, MessageNotFoundError, WrongChatError: Something is not there.
        HeadConflictError: The head is neither `expected` nor `ANY` was given.
    """
    check_expected(expected, "expected")
    branch = find_branch(state, check_id(name, "branch"))
    check_target(state, message_id)
    head = branch.head_message_id
    if not isinstance(expected, AnyHead) and expected != head:
        raise HeadConflictError(state.chat_id, name, expected=expected, actual=head)
    return [] if head == message_id else [HeadMoved(branch.number, name, head, message_id)]


def check_target(state: ChatState, message_id: str | None) -> None:
    """Raise `MessageNotFoundError` or `WrongChatError` unless the message belongs to this chat; None is no message."""
    if message_id is None or state.has_message(check_id(message_id, "message_id")):
        return
    if state.is_elsewhere(message_id):
        raise WrongChatError(message_id, chat_id=state.chat_id)
    raise MessageNotFoundError(message_id, chat_id=state.chat_id)


def decide_set_checkpoint(
    state: ChatState, name: str, message_id: str, *, checkpoint_id: str, created_at: int
) -> list[Body]:
    """
    A checkpoint at a message. Setting a name again keeps its id; each setting is an event, so earlier targets stay known.

    Raises:
        ChatNotFoundError, MessageNotFoundError, WrongChatError: The chat or the message is not there.
    """
    require_chat(state)
    check_id(name, "checkpoint name")
    check_target(state, check_id(message_id, "message_id"))
    existing = state.checkpoint(name)
    return [CheckpointSet(checkpoint_id if existing is None else existing.id, name, message_id, created_at)]


def decide_delete_checkpoint(state: ChatState, name: str) -> list[Body]:
    """A checkpoint removed; nothing when there is none of that name, or no such chat."""
    checkpoint = state.checkpoint(check_id(name, "checkpoint name"))
    return [] if checkpoint is None else [CheckpointDeleted(checkpoint.id, name)]
