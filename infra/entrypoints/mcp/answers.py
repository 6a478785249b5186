"""Answers: conversations and messages as an assistant reads them, cut to a size that fits its context; and the URIs that name them."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args
from urllib.parse import quote, unquote

import msgspec

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.values import Branch, Chat, Checkpoint, Member, MemberRole, Message
from chatledger.domain.wire import iso

SCHEME: Final = "chatledger://chats/"

Part = Literal["branches", "messages", "checkpoints"]
_PARTS: Final[dict[str, Part]] = {part: part for part in get_args(Part)}

TEMPLATES: Final = (
    ("conversation", SCHEME + "{chat}", "A conversation: what it is about, its branches and its newest messages."),
    ("branch", SCHEME + "{chat}/branches/{name}", "The newest messages of a branch."),
    ("message", SCHEME + "{chat}/messages/{message}", "A message with its whole text and data."),
    ("checkpoint", SCHEME + "{chat}/checkpoints/{name}", "The message that a checkpoint names, and those before it."),
)
"""Name, template and description of each kind of resource."""

MAX_ANSWER_CHARS: Final = 60_000
"""Characters of text in one answer; what does not fit is reached by asking again."""
MESSAGE_CHARS: Final = 4_000
"""Characters of each message, unless the assistant asks for more."""
LABEL_CHARS: Final = 1_000

MessageLimit = Annotated[int, msgspec.Meta(ge=1, le=100, description="At most this many messages.")]
TextLimit = Annotated[
    int, msgspec.Meta(ge=1, le=MAX_ANSWER_CHARS, description="At most this many characters of each message.")
]


class ResourceName(NamedTuple):
    """The thing that a URI names: a chat, or one of its branches, messages or checkpoints."""

    chat_id: str
    part: Part | None = None
    name: str = ""


def uri_of(chat_id: str, part: Part | None = None, name: str = "") -> str:
    uri = SCHEME + quote(chat_id, safe="")
    return uri if part is None else f"{uri}/{part}/{quote(name, safe='')}"


def parse_uri(uri: str) -> ResourceName:
    """Read a URI of one of the forms of `TEMPLATES`."""
    parts = uri.removeprefix(SCHEME).split("/") if uri.startswith(SCHEME) else []
    try:
        names = [unquote(part, errors="strict") for part in parts]
    except UnicodeDecodeError:
        names = []
    if len(names) == 1 and names[0]:
        return ResourceName(names[0])
    if len(names) == 3 and all(names) and names[1] in _PARTS:
        return ResourceName(names[0], _PARTS[names[1]], names[2])
    msg = f"{uri[:200]!r} names nothing here; the forms are {', '.join(template for _, template, _ in TEMPLATES)}"
    raise InvalidValueError(msg)


class Answer(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The base of all answers. Fields that have nothing to say are left out."""


class Conversation(Answer, frozen=True):
    """A conversation. `uri` names it as a resource; times are ISO 8601 in UTC."""

    id: str
    uri: str
    owner: str
    created_at: str | int
    updated_at: str | int
    message_count: int
    branch_count: int
    title: str | None = None
    metadata: dict[str, Any] | None = None


class ShownMessage(Answer, frozen=True):
    """
    One message of a conversation.

    `omitted_characters` says how much of a long text is missing: read the message's `uri` for all of it. `versions` counts the
    edits and answers that share its place, itself among them. A hidden message has no text.
    """

    id: str
    uri: str
    role: str
    at: str | int
    text: str = ""
    omitted_characters: int = 0
    versions: int = 1
    is_hidden: bool = False
    is_stale: bool = False
    replaced_by: str | None = None
    note: dict[str, Any] | None = None


class BranchInfo(Answer, frozen=True):
    """A branch: a name for the last message of one line of a conversation."""

    name: str
    uri: str
    head_message: str | None
    message_count: int
    is_active: bool


class CheckpointInfo(Answer, frozen=True):
    """A name that somebody gave to a message."""

    name: str
    uri: str
    message: str
    set_at: str | int


class MemberInfo(Answer, frozen=True):
    """A user who may read a conversation, or write to it."""

    user: str
    role: MemberRole
    added_at: str | int


class Room:
    """The characters that an answer still has room for, and those for the text of each message."""

    def __init__(self, chars: int = MAX_ANSWER_CHARS, *, each: int = MESSAGE_CHARS) -> None:
        self.left, self._each = chars, each

    def take(self, message: Message, *, versions: int = 1) -> ShownMessage | None:
        """Return a message, its text cut to the limit of each; None when the answer has no room for it."""
        shown = show_message(message, each=self._each, versions=versions)
        size = sum(map(len, (shown.text, shown.id, shown.uri, shown.role, repr(shown.note) if shown.note else "")))
        if size > self.left:
            return None
        self.left -= size
        return shown

    def take_newest(self, messages: Sequence[tuple[Message, int]]) -> list[ShownMessage]:
        """Return the newest of these messages that there is room for, with their numbers of versions, oldest first; at least one."""
        newest: list[ShownMessage] = []
        for message, versions in reversed(messages):
            shown = self.take(message, versions=versions)
            # At least one, however short: an empty page would look as if nothing came before.
            if shown is None and not newest:
                shown = show_message(message, each=min(self._each, max(self.left, 1)), versions=versions)
                self.left = 0
            if shown is None:
                break
            newest.append(shown)
        return newest[::-1]

    def take_oldest(self, messages: Iterable[Message]) -> list[ShownMessage]:
        """Return the first of these messages that there is room for, in their order."""
        oldest: list[ShownMessage] = []
        for message in messages:
            shown = self.take(message)
            if shown is None:
                break
            oldest.append(shown)
        return oldest


def show_message(message: Message, *, each: int | None = None, versions: int = 1) -> ShownMessage:
    """Return a message as an assistant reads it, its text cut to `each` characters."""
    text = "" if message.is_hidden else message.text
    shown = text if each is None else text[:each]
    annotation = message.annotation
    return ShownMessage(
        id=message.id,
        uri=uri_of(message.chat_id, "messages", message.id),
        role=message.name,
        at=iso(message.created_at),
        text=shown,
        omitted_characters=len(text) - len(shown),
        versions=versions,
        is_hidden=message.is_hidden,
        is_stale=message.is_stale,
        replaced_by=None if annotation is None else annotation.replaced_by,
        note=short_metadata(None if annotation is None else annotation.metadata),
    )


def show_chat(chat: Chat) -> Conversation:
    return Conversation(
        id=chat.id,
        uri=uri_of(chat.id),
        owner=chat.user_id,
        title=None if chat.title is None else chat.title[:LABEL_CHARS],
        metadata=short_metadata(chat.metadata),
        created_at=iso(chat.created_at),
        updated_at=iso(chat.updated_at),
        message_count=chat.message_count,
        branch_count=chat.branch_count,
    )


def show_branch(branch: Branch) -> BranchInfo:
    return BranchInfo(
        name=branch.name,
        uri=uri_of(branch.chat_id, "branches", branch.name),
        head_message=branch.head_message_id,
        message_count=branch.message_count,
        is_active=branch.is_active,
    )


def show_checkpoint(checkpoint: Checkpoint) -> CheckpointInfo:
    return CheckpointInfo(
        name=checkpoint.name,
        uri=uri_of(checkpoint.chat_id, "checkpoints", checkpoint.name),
        message=checkpoint.message_id,
        set_at=iso(checkpoint.created_at),
    )


def show_member(member: Member) -> MemberInfo:
    return MemberInfo(user=member.user_id, role=member.role, added_at=iso(member.added_at))


def short_metadata(metadata: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return metadata as far as it fits; keys whose values are long are left out."""
    if not metadata:
        return None
    room = LABEL_CHARS
    short: dict[str, Any] = {}
    for key, value in metadata.items():
        size = len(key) + len(msgspec.json.encode(value))
        if size <= room:
            short[key] = value
            room -= size
    return short


def transcript(messages: Iterable[ShownMessage]) -> str:
    """Return messages as text that a model reads: a line with role, time and id, then the text of the message."""
    return "\n\n".join(
        f"[{shown.role}, {shown.at}, {shown.id}]\n{shown.text}"
        + (f"\n({shown.omitted_characters:,} more characters: {shown.uri})" if shown.omitted_characters else "")
        for shown in messages
        if not shown.is_hidden
    )
