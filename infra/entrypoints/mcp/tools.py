"""Tools: a function and its arguments; the schema of both comes from its annotations."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, get_type_hints

import msgspec

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.values import MAIN, MemberRole, NewMessage

from ...ledger.ledger import Ledger
from .answers import (
    Answer,
    BranchInfo,
    CheckpointInfo,
    MemberInfo,
    ShownMessage,
    show_branch,
    show_checkpoint,
    show_member,
    show_message,
)

Time = Annotated[
    str,
    msgspec.Meta(
        description="A time: ISO 8601, e.g. 2026-03-01T09:30:00Z; yesterday; tuesday, the last one; or 7d, a week ago. In UTC."
    ),
]
ChatId = Annotated[str, msgspec.Meta(description="The id of a conversation.")]
MessageId = Annotated[str, msgspec.Meta(description="The id of a message.")]
BranchName = Annotated[str, msgspec.Meta(description="The name of a branch; the active one if left out.")]

_ARGUMENTS: Final = {
    "chat_id": "conversation",
    "message_id": "message",
    "user_id": "user",
    "name of message": "role of message",
}
"""The arguments of tools, by what the ledger calls them."""
_PARAMETERS: Final = re.compile(rf"\b(?:{'|'.join(_ARGUMENTS)})\b")


class Tool:
    """
    A function that an assistant may call.

    Its first parameter is the ledger of the caller, the others are its arguments. Its docstring is the description that the
    assistant reads, its return annotation the form of the answer.

    `is_idempotent`: whether calling it again with the same arguments changes nothing more.
    """

    def __init__(
        self,
        call: Callable[..., Any],
        title: str,
        *,
        is_writing: bool = False,
        is_idempotent: bool = True,
        is_destructive: bool = False,
    ) -> None:
        self.name, self.title, self._call = call.__name__, title, call
        self.is_writing, self.is_idempotent, self.is_destructive = is_writing, is_idempotent, is_destructive
        self.description = inspect.getdoc(call) or title
        hints = get_type_hints(call, include_extras=True)
        parameters = list(inspect.signature(call).parameters.values())[1:]
        fields = [
            (each.name, hints[each.name])
            if each.default is inspect.Parameter.empty
            else (each.name, hints[each.name], each.default)
            for each in parameters
        ]
        self._arguments = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        self.input_schema = schema_of(self._arguments)
        self.output_schema = schema_of(hints["return"])

    def answer(self, ledger: Ledger, arguments: Mapping[str, Any]) -> Any:
        """Call the function, in this thread, with arguments that are checked first."""
        try:
            read = msgspec.convert(arguments, self._arguments, strict=False)
        except msgspec.ValidationError as error:
            msg = f"the arguments of {self.name} cannot be read: {error}"
            raise InvalidValueError(msg) from error
        try:
            return self._call(ledger, **msgspec.structs.asdict(read))
        except InvalidValueError as error:
            # The ledger names its own parameters, which an assistant does not have.
            words = _PARAMETERS.sub(lambda named: _ARGUMENTS[named[0]], str(error))
            raise InvalidValueError(words) from error


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a struct, with all it refers to inside, and an object at its root."""
    (root,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    name = root["$ref"].rpartition("/")[2]
    schema = {key: value for key, value in components.pop(name).items() if key != "title"}
    return schema | ({"$defs": components} if components else {})


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


class RemovedMember(Answer, frozen=True):
    """Whether the user was a member until now."""

    removed: bool


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


def merge(
    ledger: Ledger,
    *,
    conversation: ChatId,
    branch: Annotated[str, msgspec.Meta(description="The branch that came to something.")],
    summary: Annotated[
        str, msgspec.Meta(min_length=1, description="What it came to, for whoever reads the other branch.")
    ],
    into: Annotated[str, msgspec.Meta(description="The branch that goes on with the summary.")] = MAIN,
) -> AppendedMessages:
    """Merge a branch into another one: a summary is appended there, which names what it sums up. Nothing where that is merged already."""
    merged = ledger.merge(conversation, branch, into, summary=summary)
    return AppendedMessages(messages=[show_message(message, each=200) for message in merged.messages])


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


def set_member(
    ledger: Ledger,
    *,
    conversation: ChatId,
    user: Annotated[str, msgspec.Meta(description="The id of the user.")],
    role: Annotated[MemberRole, msgspec.Meta(description="A reader reads all of it; a writer also writes.")],
) -> MemberInfo:
    """Let a user into a conversation, with all that was said in it, or change what a member may do. Only its owner may."""
    return show_member(ledger.set_member(conversation, user, role))


def remove_member(
    ledger: Ledger, *, conversation: ChatId, user: Annotated[str, msgspec.Meta(description="The id of the member.")]
) -> RemovedMember:
    """Remove a member from a conversation: it is not there for that user any more. Only its owner may, and the member."""
    return RemovedMember(removed=ledger.remove_member(conversation, user))


WRITING: Final[list[Tool]] = [
    Tool(append, "Append messages", is_writing=True, is_idempotent=False),
    Tool(fork, "Begin a branch", is_writing=True, is_idempotent=False),
    Tool(merge, "Merge a branch", is_writing=True),
    Tool(checkpoint, "Name a message", is_writing=True, is_destructive=True),
    Tool(annotate, "Annotate a message", is_writing=True, is_destructive=True),
    Tool(set_member, "Let a user in", is_writing=True, is_destructive=True),
    Tool(remove_member, "Remove a member", is_writing=True, is_destructive=True),
]
