"""The value types that users see. All are frozen; times are integer milliseconds since the Unix epoch, UTC."""

import json
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, ClassVar, Final, Literal, cast

import msgspec
from msgspec import UNSET, UnsetType

from .forms.items import REDACTED
from .forms.reading import parts_of, role_of, text_of
from .legal_hold import LegalHold
from .limits import same_json
from .wire import InNotebook, SchemaHandler, Times, Value

PREVIEW_LENGTH = 50
LINE_LENGTH: Final = 120
Progress = Callable[[int, int], None]
"""(done, in all), for progress bars."""


def no_progress(done: int, total: int) -> None:
    del done, total


def preview(data: Any, form: str | None = None) -> str:
    """At most 50 characters that show what `data` is: its text, else compact JSON; `...` marks a cut."""
    if isinstance(data, str):
        content = data
    else:
        content = "" if form is None else text_of(form, data).replace("\n", " ")
        content = content or json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return content if len(content) <= PREVIEW_LENGTH else content[:PREVIEW_LENGTH] + "..."


class AnyHead(Enum):
    """The type of `ANY`."""

    ANY = "any"


ANY: Final[Literal[AnyHead.ANY]] = AnyHead.ANY
"""Says that a head may be anywhere: `move_head(..., expected=ANY)` moves unconditionally."""

UI: Final = "ui"
"""The form of a UIMessage, see `Message.form`."""

OWNER: Final = "chatledger"
"""The key in the notes of a message below which this library keeps its own records."""

MAIN: Final = "main"
"""The name of the branch that every new chat has."""
MAIN_NUMBER: Final = 0
"""The number of that branch, whatever its name is later."""


class Chat(Value, InNotebook, frozen=True, kw_only=True):
    """
    A conversation. `message_count` counts the messages of all its branches, `branch_count` its branches.

    `updated_at` is the time of the last change of title or metadata or the last appended message; of an imported chat, what its
    source says of that. It never decreases.
    From `expires_at` on the next sweep deletes it, in ms; None for never.
    `last_text` is the last message of the active branch in one line, cut at 120 characters; None where it is hidden, says nothing
    in words, or there is none. While there is a `hold`, neither a sweep nor anybody deletes it.
    """

    id: str
    user_id: str
    title: str | None = None
    metadata: dict[str, Any] | None = None
    created_at: int
    updated_at: int
    message_count: int = 0
    branch_count: int = 1
    expires_at: int | None = None
    last_text: str | None = None
    hold: LegalHold | None = None


class Annotation(Value, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """
    An annotation of a message, written after it; the message itself never changes.

    `stale`: what it answers was edited. `replaced_by`: the message that takes its place. `hidden`: neither for models nor for
    searches. `metadata`: any JSON object. docs/reference/annotations.md has what they change.
    """

    stale: bool = False
    replaced_by: str | None = None
    hidden: bool = False
    metadata: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


RedactionCause = Literal["request", "retention", "erasure"]
"""Why content was redacted: somebody asked for that message, a rule had it end, or a user was erased."""


class Redaction(Value, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """
    A redaction of a message: its content was taken out of the log for ever.

    Args:
        at: When, in ms since the epoch.
        by: The actor, where one was named.
        reason: Why, in words.
        cause: Why, as one of a few words.
        position, version: Where the event is that says so: on the log, and in the chat. 0 where no event says so, or none has been read yet.
    """

    at: int = 0
    by: str | None = None
    reason: str | None = None
    cause: RedactionCause = "request"
    position: int = 0
    version: int = 0


UNEXPLAINED: Final = Redaction()
"""Of a message whose content is gone from its event, before the event is read that says why."""


class Message(Value, InNotebook, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """
    One immutable node of a conversation; `parent_id` is the edge that chains follow, None marks a root.

    `name` is the role or fragment name, `data` the message as it came, in the form that `form` names: `ui`, `openai`, ...;
    None for any other JSON value. `notes` is what the writer and this library said of it, beside the data. `sender_id` names a
    human, `agent_id` an agent (at most one of them), `reply_to` another message of the chat. `copied_from` is the message that it
    is a copy of. `merged_from` are further parents, of which a merge says that what they came to is part of this message's branch from
    here on; chains do not follow them. `annotation` is what was said of it later, None for nothing. `redacted` says when and why its content was taken
    away, None where it was not; `data` is then what was put in its place, or None.
    """

    # `chat_id` has a default so that records inside one chat need not repeat it (`omit_defaults`); answers always carry it.
    # `gc=False`: a message is a tree of JSON values and cannot be part of a cycle.
    id: str
    chat_id: str = ""
    parent_id: str | None = None
    name: str
    type: str | None = None
    data: Any
    created_at: int
    sender_id: str | None = None
    agent_id: str | None = None
    reply_to: str | None = None
    copied_from: str | None = None
    annotation: Annotation | None = None
    form: str | None = None
    notes: dict[str, Any] | None = None
    redacted: Redaction | None = None
    merged_from: tuple[str, ...] = ()

    derived: ClassVar[tuple[str, ...]] = ("text", "is_stale", "is_hidden")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        # NaN is unequal to itself, and the message that has it is equal to itself all the same.
        return Value.__eq__(self, other) is True or (
            Value.__eq__(_without_data(self), _without_data(other)) is True and same_json(self.data, other.data)
        )

    def __ne__(self, other: object) -> bool:  # the one of structs does not ask `__eq__`
        equal = self.__eq__(other)
        return NotImplemented if equal is NotImplemented else not equal

    def __hash__(self) -> int:
        return Value.__hash__(self)

    @property
    def role(self) -> str:
        """The role of who says it: `user`, `assistant`, `system`, `tool`, or the name of another fragment; as the data say in their form, else by `name`."""
        return role_of(self.form, self.shown, self.name)

    @property
    def is_stale(self) -> bool:
        """Whether what it answers was edited, see `Ledger.mark_stale`."""
        return self.annotation is not None and self.annotation.stale

    @property
    def is_hidden(self) -> bool:
        """Whether models and searches do not get to see it, see `Ledger.annotate`."""
        return self.annotation is not None and self.annotation.hidden

    @property
    def shown(self) -> Any:
        """The data as people and models get them: `[redacted]` where nothing is in the place of content that was redacted."""
        return REDACTED if self.redacted is not None and self.data is None else self.data

    @property
    def text(self) -> str:
        """The plain text: a string as it is, the texts of a message in its form, else every string found in `data`, by lines."""
        return text_of(self.form, self.shown)

    @property
    def line(self) -> str | None:
        """Text in one line of at most 120 characters, or the kinds of its parts; None where it is hidden or has neither."""
        if self.is_hidden:
            return None
        return line_of(self.text) or line_of(" ".join([f"[{part.get('type')}]" for part in self.parts])) or None

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The parts of the UIMessage that it is or stands for."""
        return parts_of(self.form, self.shown)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The `metadata` of a UIMessage, and over them the `notes`; empty if it has neither. What was said later is `annotation`."""
        data: Any = self.data if self.form == UI else None
        own: Any = cast("dict[str, Any]", data).get("metadata") if isinstance(data, dict) else None
        own = cast("dict[str, Any]", own) if isinstance(own, dict) else {}
        return own if self.notes is None else {**own, **self.notes}


def line_of(text: str) -> str:
    """Return a text in one line of at most 120 characters."""
    # The beginning will do: a message may be of megabytes, and each append to a chat asks for its line.
    # A lone surrogate, which no file or wire takes, is a question mark here.
    line = " ".join(text[: LINE_LENGTH * 10].split()).encode("utf-8", "replace").decode()
    return line if len(line) <= LINE_LENGTH else line[: LINE_LENGTH - 1] + "…"


def _without_data(message: Message) -> Message:
    return msgspec.structs.replace(message, data=None)


class _DraftContent(Value, frozen=True):
    name: str
    data: Any
    form: str | UnsetType | None = UNSET


class NewMessage(_DraftContent, frozen=True, kw_only=True):
    """
    A message to append: `NewMessage(name, data, form=UNSET, *, ...)`.

    Args:
        name: The role or fragment name: `user`, `assistant`, `system`, ...
        data: The message as it is: any JSON value.
        form: The form of the data, such as `openai`. Told by their shape when not given, and None where none fits; None says that
            they are any JSON, whatever they look like.
        id: A new UUID when None. Appending the same id with the same content again does nothing.
        parent_id: For `add_messages`: the message it answers, None for a root. `append` sets it by itself.
        created_at: Milliseconds since the epoch; the time of the call when None.
        sender_id, agent_id: The human or the agent it comes from; at most one of them.
        reply_to: Another message of the same chat, whatever the parent is.
        metadata: An object to keep beside the data, as `notes`; `Message.metadata` gives it back.
        copied_from: The message that it is a copy of.
        merged_from: Further parents, in this chat too: the heads of the branches that it brings together. Chains do not follow them.
    """

    id: str | None = None
    type: str | None = "message"
    parent_id: str | None = None
    created_at: int | None = None
    sender_id: str | None = None
    agent_id: str | None = None
    reply_to: str | None = None
    metadata: dict[str, Any] | None = None
    copied_from: str | None = None
    merged_from: tuple[str, ...] = ()


class Branch(Value, frozen=True, kw_only=True):
    """
    A named pointer to a head message; None is an empty branch. `message_count` is the length of its chain.

    `number` counts the branches of its chat in the order of their creation, from 0. Events name it by that.
    """

    id: str
    chat_id: str
    name: str
    head_message_id: str | None
    is_active: bool
    message_count: int
    created_at: int
    number: int = MAIN_NUMBER


class Versions(Value, frozen=True, kw_only=True):
    """
    The versions of a message: the messages with the same parent, itself among them. An edit or a new answer makes one.

    Args:
        ids: Their ids, in the order of their creation.
        index: Which one is shown, counted from 0; None when no branch has any of them.
    """

    ids: list[str]
    index: int | None

    derived: ClassVar[tuple[str, ...]] = ("shown",)

    @property
    def shown(self) -> str | None:
        """The id of the one that is shown."""
        return None if self.index is None else self.ids[self.index]


class PageEntry(Value, frozen=True, kw_only=True):
    """A message of a page, and its versions."""

    message: Message
    versions: Versions


class Page(Value, InNotebook, frozen=True, kw_only=True):
    """
    A part of the chain of a branch, as a chat interface shows it.

    Args:
        chat_id: The chat.
        branch: The name of the branch; None where the chain to a message was asked for.
        entries: The messages with their versions, oldest first.
        before: To be given to `get_page` for the page before this one; None when this one begins with a root.
        first: The depth of the first message, counted from 0.
        count: The number of messages of the whole chain.
    """

    chat_id: str
    branch: str | None
    entries: list[PageEntry]
    before: str | None
    first: int
    count: int


class Checkpoint(Value, frozen=True, kw_only=True):
    """A name for a message. Setting the name again keeps the `id` and changes `message_id` and `created_at`."""

    id: str
    chat_id: str
    name: str
    message_id: str
    created_at: int


MemberRole = Literal["reader", "writer"]
"""The role of a member of a chat: a reader sees all of it, a writer also writes, branches and runs agents in it."""


class Member(Value, frozen=True, kw_only=True):
    """A user who is no owner of a chat and may use it. Another role keeps `added_at`."""

    chat_id: str
    user_id: str
    role: MemberRole
    added_at: int


class Link(Value, frozen=True, kw_only=True):
    """
    A link by which anybody reads a chat, and nothing else, until it is revoked or over.

    Args:
        id: The id by which it is revoked. It opens nothing.
        chat_id: The chat.
        branch: The one branch that it shows, by its present name; None for all.
        until: The message that what it shows leads to; None for no such end.
        created_at: When it was made.
        expires_at: When it is over; None for never.
        path: Where the explorer serves it, below the address of the server. Only `create_link` returns it: the ledger keeps a
            hash of the secret that it ends with.
    """

    id: str
    chat_id: str
    branch: str | None = None
    until: str | None = None
    created_at: int
    expires_at: int | None = None
    path: str | None = None


class ErasureReceipt(Value, frozen=True, kw_only=True):
    """
    A receipt of a deletion, or of a redaction.

    Args:
        kind: The kind of what was deleted: `chat`, `thread`, `state` or `item`; `redaction` where messages of a chat lost their content, or events a name.
        id: Its id; of a state or an item a digest, as its tombstone has it; of a redaction that of the chat or value.
        position: The position of its tombstone on the log, or of the event that says what was redacted.
        event_count: The number of events that the tombstone stands for, or that lost content.
        deleted_at: The time of that event in ms since the epoch. From then on it is in no answer.
        erased_at: The time when its bytes were gone from the log and from the rows of the index; None while they are to be erased.
    """

    kind: str
    id: str
    position: int
    event_count: int
    deleted_at: int
    erased_at: int | None


class Swept(Value, frozen=True, kw_only=True):
    """
    The result of a sweep.

    Args:
        chats: The ids of the chats that it deleted.
        versioned: The number of threads, states and items that it erased because they had expired, or no rule keeps them longer.
        messages: The number of messages whose content no rule keeps longer, which it redacted.
        versions: The number of versions of threads, states and items whose content no rule keeps longer, which it took out.
    """

    chats: list[str]
    versioned: int = 0
    messages: int = 0
    versions: int = 0


class GraphNode(Value, frozen=True, kw_only=True, gc=False):
    """A message as the graph shows it: `content` is a preview of at most 50 characters, `role` the message's name, `merged_from` its further parents."""

    id: str
    parent_id: str | None
    role: str
    content: str
    created_at: int
    merged_from: list[str] = msgspec.field(default_factory=list[str])


class GraphBranch(Value, frozen=True, kw_only=True):
    """A branch as the graph shows it."""

    name: str
    head_message_id: str | None
    is_active: bool


class GraphCheckpoint(Value, frozen=True, kw_only=True):
    """A checkpoint as the graph shows it."""

    name: str
    message_id: str


class Graph(Value, InNotebook, frozen=True, kw_only=True):
    """The whole DAG of a chat: nodes by `created_at` (ties in log order), branches and checkpoints."""

    chat_id: str
    nodes: list[GraphNode]
    branches: list[GraphBranch]
    checkpoints: list[GraphCheckpoint]


class Divergence(Value, InNotebook, frozen=True, kw_only=True):
    """
    The difference of two messages: their last `common` ancestor, and what each chain has after it, oldest first.

    `common_count` is how many messages the chains have in common.
    """

    common: Message | None
    only_a: list[Message]
    only_b: list[Message]
    common_count: int = 0


class HitPlace(Value, frozen=True, kw_only=True):
    """
    Where a message is that an agent said: no message of a chat, but one in a thread, a state or an item.

    Args:
        kind: What it is in.
        id: The id of that.
        namespace: The namespace of the thread; empty for others.
        version: The first checkpoint that has it, or the number of the version. Of a write that no checkpoint has taken up, that
            which it waits at. None where all that had it first were pruned.
        field: The channel, or the field.
        owner: Whose it is; None when it is nobody's.
    """

    kind: Literal["thread", "state", "item"]
    id: str
    namespace: str
    version: str | None
    field: str
    owner: str | None = None


class SearchHit(Value, InNotebook, frozen=True, kw_only=True):
    """
    A message that a search found, in a chat, or in a thread, a state or an item.

    Args:
        message: The message. One that is in no chat has no `chat_id`, the id that its writer gave it, or else a digest, the form
            that it is told by, and as `name` the role: `user` and `assistant` for LangChain's `human` and `ai`.
        rank: How well it matches: lower is better. By BM25, over the chats that were searched; in a search by meaning the
            negative of `similarity`, in one by both that of the fused score.
        snippet: The best passage of at most 32 words, as it was written: not escaped for HTML. Of a message that was found by its
            meaning alone, the beginning of the piece that is nearest.
        matches: Where the words of the query are in the snippet: start and end of each, in code points; `parts` cuts it there.
        within: What the passage is from: the text of the message, its tools or its reasoning.
        ranks: In a search by meaning or both, why it was found: its place by `words` and by `meaning`, from 1, of those that have it.
        similarity: The cosine of the query and the nearest piece of the message, where it was found by meaning.
        place: Where it is, when that is no chat.
    """

    message: Message
    rank: float
    snippet: str
    within: Literal["text", "tools", "reasoning"] = "text"
    ranks: dict[Literal["words", "meaning"], int] = msgspec.field(
        default_factory=dict[Literal["words", "meaning"], int]
    )
    similarity: float | None = None
    place: HitPlace | None = None
    matches: list[list[int]] = msgspec.field(default_factory=list[list[int]])

    @property
    def parts(self) -> list[tuple[str, bool]]:
        """The snippet in parts, each with whether it matches the query: what to escape and mark one by one."""
        parts: list[tuple[str, bool]] = []
        end = 0
        for start, stop in self.matches:
            parts += [(self.snippet[end:start], False), (self.snippet[start:stop], True)]
            end = stop
        return [*parts, (self.snippet[end:], False)]


class HitCounts(Value, frozen=True, kw_only=True):
    """
    What the best hits of a search are, counted.

    Args:
        total: How many they are.
        streams: In how many chats, threads, states and items.
        where: How many are in a `chat`, a `thread`, a `state` or an `item`.
        roles: By role.
        owners: By owner; "" for nobody.
        days: By the day when they were written, in UTC, such as `2026-03-01`.
        active: How many are on the active branch of their chat, or in no chat.
        nearest: Where there are none, the query with words that messages have in the place of those that none has.
    """

    total: int = 0
    streams: int = 0
    where: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    roles: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    owners: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    days: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    active: int = 0
    nearest: str | None = None


class SearchHits(list[SearchHit], InNotebook):
    """
    The result of a search, best first.

    `is_degraded` says that the search index of some chat was being built, so that its messages were compared word for word
    with the query instead, and not ranked; or, in a search by words and meaning, that the embedding of the query failed.

    `pending` says in a search by meaning how many of the searched messages had no vectors yet, and could be found by words only; else 0.
    """

    def __init__(self, hits: Iterable[SearchHit] = (), *, is_degraded: bool = False, pending: int = 0) -> None:
        super().__init__(hits)
        self.is_degraded, self.pending = is_degraded, pending

    def to_dict(self, *, times: Times = "ms") -> dict[str, Any]:
        """Return `{"hits": [...], "is_degraded": ..., "pending": ...}`; see `Value.to_dict`."""
        hits = [hit.to_dict(times=times) for hit in self]
        return {"hits": hits, "is_degraded": self.is_degraded, "pending": self.pending}

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, handler: SchemaHandler) -> Any:
        return handler.generate_schema(list[SearchHit])


def make_graph(
    chat_id: str, messages: Iterable[Message], branches: Iterable[Branch], checkpoints: Iterable[Checkpoint]
) -> Graph:
    """The graph of these messages, which come in log order: nodes by `created_at`, ties as they come."""
    return Graph(
        chat_id=chat_id,
        nodes=[
            GraphNode(
                id=message.id,
                parent_id=message.parent_id,
                role=message.name,
                content=preview(message.shown, message.form),
                created_at=message.created_at,
                merged_from=[*message.merged_from],
            )
            for message in sorted(messages, key=lambda message: message.created_at)
        ],
        branches=[
            GraphBranch(name=branch.name, head_message_id=branch.head_message_id, is_active=branch.is_active)
            for branch in branches
        ],
        checkpoints=[
            GraphCheckpoint(name=checkpoint.name, message_id=checkpoint.message_id) for checkpoint in checkpoints
        ],
    )
