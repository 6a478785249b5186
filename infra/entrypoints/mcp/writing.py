"""Tools that write: served only where writing is allowed. None deletes, hides or moves what others wrote."""

from typing import Annotated, Any, Final

import msgspec

from chatledger.domain.values import NewMessage

from ...ledger.ledger import Ledger
from .answers import Answer, BranchInfo, CheckpointInfo, ShownMessage, show_branch, show_checkpoint, show_message
from .tools import BranchName, ChatId, MessageId, Tool


class NewTurn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A message to be appended. With an id of your own, appending it again does nothing."""

    role: Annotated[str, msgspec.Meta(description="Such as user, assistant, system or tool.")]
    text: str
    id: str | None = None


class AppendedMessages(Answer, frozen=True):
    """The messages as they were stored."""

    messages: list[ShownMessage]


class MessageNotes(Answer, frozen=True):
    """The notes on a message."""

    message: str
    metadata: dict[str, Any]


def append(
    ledger: Ledger,
    *,
    conversation: ChatId,
    messages: Annotated[list[NewTurn], msgspec.Meta(min_length=1, max_length=100)],
    branch: BranchName | None = None,
    expected_head: Annotated[
        str, msgspec.Meta(description="Write only if this message is the last one of the branch now.")
    ]
    | None = None,
) -> AppendedMessages:
    """Append messages to a branch of a conversation."""
    new = [NewMessage(turn.role, turn.text, id=turn.id) for turn in messages]
    stored = ledger.append(
        conversation, new, branch=branch, expected_head=msgspec.UNSET if expected_head is None else expected_head
    )
    return AppendedMessages(messages=[show_message(message, each=200) for message in stored])


def fork(
    ledger: Ledger,
    *,
    conversation: ChatId,
    message: Annotated[str, msgspec.Meta(description="The last message that the new branch has.")],
    activate: Annotated[bool, msgspec.Meta(description="Make it the branch that people see.")] = False,
) -> BranchInfo:
    """Begin a new branch at a message, to go on from there differently. Nothing is copied or lost."""
    return show_branch(ledger.fork(conversation, message, activate=activate))


def checkpoint(
    ledger: Ledger,
    *,
    conversation: ChatId,
    name: Annotated[str, msgspec.Meta(description="The name; one that is there already is moved.")],
    message: MessageId,
) -> CheckpointInfo:
    """Give a message a name, to find it again."""
    return show_checkpoint(ledger.set_checkpoint(conversation, name, message))


def annotate(
    ledger: Ledger,
    *,
    conversation: ChatId,
    message: MessageId,
    metadata: Annotated[dict[str, Any], msgspec.Meta(description="Keys to set; the others stay.")],
) -> MessageNotes:
    """Attach notes to a message; the message itself stays as it is."""
    # Only metadata: which messages are hidden or replaced is for people to say.
    annotation = ledger.annotate(conversation, message, metadata=metadata)
    return MessageNotes(message=message, metadata=annotation.metadata)


WRITING: Final[list[Tool]] = [
    Tool(append, "Append messages", is_writing=True, is_idempotent=False),
    Tool(fork, "Begin a branch", is_writing=True, is_idempotent=False),
    Tool(checkpoint, "Name a message", is_writing=True, is_destructive=True),
    Tool(annotate, "Annotate a message", is_writing=True, is_destructive=True),
]
