"""Events of a chat: the classes of `Recorded.body`, one for each type."""

from chatledger.domain.chat.events import (
    Body,
    BranchActivated,
    BranchCreated,
    BranchDeleted,
    BranchRenamed,
    ChatCreated,
    ChatDeleted,
    ChatUpdated,
    CheckpointDeleted,
    CheckpointSet,
    HeadMoved,
    MemberRemoved,
    MemberSet,
    MessagesAppended,
)

__all__ = [
    "Body",
    "BranchActivated",
    "BranchCreated",
    "BranchDeleted",
    "BranchRenamed",
    "ChatCreated",
    "ChatDeleted",
    "ChatUpdated",
    "CheckpointDeleted",
    "CheckpointSet",
    "HeadMoved",
    "MemberRemoved",
    "MemberSet",
    "MessagesAppended",
]
