"""
Events to bytes and back, and the hash chain.

Encoding is deterministic given the salts: equal events with equal salts give equal bytes. `parts.py` says what the bytes are;
here each kind of event says which of its fields are structure and which are content.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast, get_origin, get_type_hints

import msgspec

from ..chat.events import CHAT_BODIES, LINK_BODIES, MEMBER_BODIES, RUN_BODIES, Body, Event, MessagesAppended
from ..chat.redaction import redaction_in
from ..errors import DECODE_ERRORS, CorruptStateError, PayloadTooLargeError, UnsupportedFormatError
from ..packing import from_extension, pack, packable
from ..values import UNEXPLAINED, Message
from ..versioned.events import VERSIONED_BODIES
from .large_data import (
    LARGE_BYTES,
    MAX_MESSAGE_BYTES,
    Contents,
    LargeData,
    Reference,
    from_slot_extension,
    may_refer,
    reference_in,
    take_out,
)
from .parts import COMMITTED_BYTES, FORMAT_VERSION, NOTHING, RawPart, hash_of, join

BODIES: tuple[type[Body], ...] = (*CHAT_BODIES, *RUN_BODIES, *MEMBER_BODIES, *LINK_BODIES, *VERSIONED_BODIES)


NO_HASH: Final = b""
"""The previous hash of the very first event of a chat."""

MAX_EVENT_BYTES: Final = 1024 * 1024
_HEAD_ALLOWANCE: Final = 17 * 1024  # chat id, heads, actor, ... of 2,048 bytes each
PREFIX: Final = "chatledger."
"""Before the topic of a record. The topic inside the event has none."""
_IMPLIED: Final = 0
"""In place of an id: the message before it, the parent of the first message, or the last message."""
_NOBODY: Final = (None, None, None, None)
_MOST_GROWTH: Final = 2 * 14
"""The most bytes that a part has more when all of its content was redacted: a slot has a header, a salt and a value."""

_EMPTY: Final[Mapping[Any, Any]] = {tuple: (), dict: {}}
"""Content of these types as it reads where it was taken away; other content is None."""

_encode: Final = msgspec.msgpack.Encoder().encode


class EncodedEvent(NamedTuple):
    """An event encoded for the log; `large` are the data that `state` refers to."""

    event: Event[Any]
    topic: str
    state: bytes
    hash: bytes
    large: tuple[LargeData, ...] = ()


class _LargePart(NamedTuple):
    """The large part of a message: how many bytes its data take, packed whole, and what of them lies beside the log."""

    data_size: int
    large: tuple[LargeData, ...]


class _Packed(NamedTuple):
    """An event to be: its parts, and what is large in the messages of those numbers."""

    body: Body
    parts: Sequence[RawPart] = ()
    large: Mapping[int, _LargePart] = MappingProxyType({})


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of an operation: actor, correlation, causation and command id."""

    actor: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    command_id: str | None = None


class EventPlace(msgspec.Struct, frozen=True, array_like=True):
    """The beginning of the structure of any event, also of one that this version does not know."""

    topic: str
    stream: str
    version: int
    event_id: str
    occurred_at: int
    previous_hash: bytes
    rest: int


class _Who(msgspec.Struct, frozen=True, array_like=True, gc=False):
    salt: bytes
    actor: str | None
    correlation_id: str | None
    causation_id: str | None
    command_id: str | None


class _MessageStructure(msgspec.Struct, frozen=True, array_like=True, gc=False):
    id: str
    parent: str | int | None
    created_at: int | None
    name: str
    type: str | None = None
    form: str | None = None
    agent_id: str | None = None
    reply_to: str | None = None
    copied_from: str | None = None
    merged_from: tuple[str, ...] = ()


class _Sender(msgspec.Struct, frozen=True, array_like=True, gc=False):
    salt: bytes
    sender_id: str


class _MessageContent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    salt: bytes
    data: Any
    notes: dict[str, Any] | None = None


class _MessagesHead(EventPlace, frozen=True, array_like=True):
    branch: int | None = None
    from_head: str | int | None = None
    to_head: str | int | None = None
    changed_at: int | None = None


class _MessagePart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    structure: _MessageStructure
    who: _Sender | bytes | None
    what: _MessageContent | bytes | None


_decode_place: Final = msgspec.msgpack.Decoder(tuple[int, tuple[EventPlace, Any, Any], list[Any]]).decode
_Messages = tuple[int, tuple[_MessagesHead, _Who | bytes | None, None], list[_MessagePart]]
_decode_structures: Final = msgspec.msgpack.Decoder(
    tuple[int, msgspec.Raw, list[tuple[_MessageStructure, msgspec.Raw, msgspec.Raw]]]
).decode
_decode_messages: Final = msgspec.msgpack.Decoder(_Messages, ext_hook=from_slot_extension).decode


class _EventKind:
    """The bytes of one kind of event without parts: the fields of its structure in their order, and those of its content."""

    def __init__(self, body: type[Body]) -> None:
        self.body, self.topic = body, body.TOPIC.removeprefix(PREFIX)
        hints = get_type_hints(body)
        fields = {field.name: field for field in msgspec.structs.fields(body)}
        self.changes = "changes" in fields
        self.content = ["changes"] if self.changes else [name for name in body.CONTENT if name in fields]
        if self.changes:
            hints["changes"] = dict[str, Any] | None
        # Nils at the end are left out, so what may be nil comes last.
        self.structure = sorted(
            (name for name in fields if name not in body.CONTENT), key=lambda name: _may_be_nil(hints[name])
        )
        self.needed = [name for name in self.content if fields[name].required and not _may_be_nil(hints[name])]
        self.empty = {name: _EMPTY.get(get_origin(hints[name])) for name in self.content}
        head = [
            # Of a body whose fields are named as those of `EventPlace`, too.
            (f"own_{name}", hints[name], fields[name].default)
            if not fields[name].required
            else (f"own_{name}", hints[name], None)
            if _may_be_nil(hints[name])
            else (f"own_{name}", hints[name])
            for name in self.structure
        ]
        head_type: Any = msgspec.defstruct(
            f"_{body.__name__}Head", head, bases=(EventPlace,), frozen=True, array_like=True
        )
        content_type: Any = msgspec.defstruct(
            f"_{body.__name__}Content",
            [("salt", bytes), *((name, hints[name] | None) for name in self.content)],
            frozen=True,
            array_like=True,
        )
        event: Any = tuple[int, tuple[head_type, _Who | bytes | None, content_type | bytes | None], tuple[()]]
        self.decode = msgspec.msgpack.Decoder(event, ext_hook=from_extension).decode

    def values(self, body: Body) -> tuple[list[Any], list[Any]]:
        """Return the values of structure and content."""
        if self.changes:
            changes: dict[str, Any] = cast("Any", body).changes
            names = self.body.CONTENT
            plain = {name: value for name, value in changes.items() if name not in names} or None
            secret = {name: value for name, value in changes.items() if name in names} or None
            return [plain if name == "changes" else getattr(body, name) for name in self.structure], [secret]
        return [getattr(body, name) for name in self.structure], [getattr(body, name) for name in self.content]

    def decoded(self, head: Any, what: Any) -> Body:
        """Return the body of decoded structure and content, or of a commitment to that. Raises `CorruptStateError`."""
        fields = {name: getattr(head, f"own_{name}") for name in self.structure}
        # Not the commitment itself: bytes have a `title`, too.
        content = self.empty if isinstance(what, bytes) else {name: getattr(what, name, None) for name in self.content}
        if self.changes:
            fields["changes"] = {**(fields["changes"] or {}), **(content["changes"] or {})}
        elif any(content[name] is None for name in self.needed):
            msg = "content is missing that it cannot do without"
            raise CorruptStateError(msg)
        else:
            fields |= content
        return self.body(**fields)


def _may_be_nil(hint: Any) -> bool:
    return type(None) in getattr(hint, "__args__", ())


_BODIES: Final[Mapping[str, type[Body]]] = {body.TOPIC: body for body in BODIES}


@cache
def event_kind(topic: str) -> _EventKind:
    """The layout of a topic of `_BODIES`, made when it is met first; messages have parts, and a layout of their own."""
    return _EventKind(_BODIES[topic])


_LEAST_VERSION: Final = 2
"""That of topics which are in use no more."""
_GONE: Final = ("chatledger.agent_", "chatledger.state_")
"""The beginnings of topics of threads and states as they were before both became versioned values."""
_VERSIONS: Final = {name: int(version) for name, _, version in (topic.rpartition("/") for topic in _BODIES)}
_MESSAGES: Final = MessagesAppended.TOPIC.removeprefix(PREFIX)


def decode_event(topic: str, state: bytes, contents: Contents | None = None) -> Event[Any]:
    """
    The event that was stored, of which `event_hash` checks the form.

    `contents` are the large data that it refers to; see `references_in`.

    Raises:
        UnknownContentError: It refers to others.
        UnsupportedFormatError: A newer chatledger wrote it, or one before 0.1.
        CorruptStateError: The bytes are damaged.
    """
    try:
        if topic == MessagesAppended.TOPIC:
            _, (head, who, _), parts = _decode_messages(state) if contents is None else _decode_with(contents, state)
            redacted: list[int] = []
            body: Body = _messages(head, parts, redacted)
        else:
            if topic not in _BODIES:
                raise unsupported(topic)
            kind = event_kind(topic)
            _, (head, who, what), _ = kind.decode(state)
            redacted = [1] if isinstance(what, bytes) else []
            body = kind.decoded(head, what)
    except (*DECODE_ERRORS, CorruptStateError) as error:
        raise _damaged(topic, state, error) from error
    if PREFIX + head.topic != topic:
        raise _damaged(topic, state, f"it says that it is of type {head.topic!r}")
    actor = correlation_id = causation_id = command_id = None
    if isinstance(who, _Who):
        actor, correlation_id, causation_id, command_id = (
            who.actor,
            who.correlation_id,
            who.causation_id,
            who.command_id,
        )
    elif who is not None:
        redacted.insert(0, 0)
    return Event(
        head.stream,
        head.version,
        head.event_id,
        head.occurred_at,
        head.previous_hash,
        body,
        head.rest,
        actor,
        correlation_id,
        causation_id,
        command_id,
        tuple(sorted(redacted)) if redacted else (),
    )


def _decode_with(contents: Contents, state: bytes) -> _Messages:
    hook = partial(from_slot_extension, contents=contents)
    decoded: _Messages = msgspec.msgpack.Decoder(_Messages, ext_hook=hook).decode(state)
    return decoded


def references_in(topic: str, state: bytes) -> list[Reference]:
    """
    Return the references of an event to large data, in their order.

    Raises:
        CorruptStateError: The bytes are damaged.
    """
    if topic != MessagesAppended.TOPIC or not may_refer(state):
        return []
    references: list[Reference] = []

    def note(code: int, data: memoryview) -> None:
        reference = reference_in(code, data)
        if reference is not None:
            references.append(reference)

    try:
        msgspec.msgpack.Decoder(_Messages, ext_hook=note).decode(state)
    except DECODE_ERRORS as error:
        raise _damaged(topic, state, error) from error
    return references


def _damaged(topic: str, state: bytes, why: object) -> CorruptStateError:
    return CorruptStateError(
        f"an event of type {topic!r} cannot be decoded: its {len(state):,} bytes are damaged ({why})"
    )


def is_outdated(topic: str) -> bool:
    """Whether an event of this type is of a format that is not read any more."""
    name, _, version = topic.rpartition("/")
    if not (name.startswith(PREFIX) and version.isdecimal()):
        return False
    return name.startswith(_GONE) or int(version) < _VERSIONS.get(name, _LEAST_VERSION)


def unsupported(topic: str) -> UnsupportedFormatError:
    """Return the error for an event that this version does not know."""
    if is_outdated(topic):
        return UnsupportedFormatError(
            f"event type {topic!r}: a version before 0.1 wrote this log, whose format is not read any more. Export its chats "
            "with 'chatledger export' of the version that wrote it, and import them into a new ledger"
        )
    return UnsupportedFormatError(
        f"unknown event type {topic!r}: a newer chatledger wrote this log; upgrade to read it"
    )


class ShownMessages(NamedTuple):
    """Messages of an event of which only some parts are shown: its chat, the number of the branch it moved, and they."""

    chat_id: str
    branch: int | None
    messages: list[Message]


def decode_shown(state: bytes, contents: Contents, numbers: Sequence[int], chosen: Sequence[int]) -> ShownMessages:
    """
    Return the chosen messages of an event that holds only the parts with these numbers; a parent may be the part before.

    Raises:
        UnknownContentError: It refers to large data that are not among these.
        CorruptStateError: The bytes are no such event.
    """
    try:
        _, (head, _, _), parts = _decode_with(contents, state)
        shown = dict(zip(numbers, parts, strict=True))
        messages: list[Message] = []
        for number in chosen:
            before = shown.get(number - 1)
            messages += _messages(head, [shown[number]], [], None if before is None else before.structure.id).messages
    except (*DECODE_ERRORS, CorruptStateError, KeyError) as error:
        raise _damaged(MessagesAppended.TOPIC, state, error) from error
    if head.topic != _MESSAGES:
        raise _damaged(MessagesAppended.TOPIC, state, f"it is of type {head.topic!r}")
    return ShownMessages(head.stream, head.branch, messages)


def lines_in(state: bytes) -> list[tuple[str, bool]]:
    """
    Return the ids of the messages of an event, and whether the parent of each is the one before it. Their content is not decoded.

    Raises:
        CorruptStateError: The bytes are damaged.
    """
    try:
        _, _, parts = _decode_structures(state)
    except DECODE_ERRORS as error:
        raise _damaged(MessagesAppended.TOPIC, state, error) from error
    structures = [structure for structure, _, _ in parts]
    before = [None, *[structure.id for structure in structures[:-1]]]
    return [
        (structure.id, bool(before_id and structure.parent in (_IMPLIED, before_id)))
        for structure, before_id in zip(structures, before, strict=True)
    ]


def _messages(
    head: _MessagesHead, parts: Sequence[_MessagePart], redacted: list[int], before: str | None = None
) -> MessagesAppended:
    """The messages of parts, which follow the message `before`; the slots without content are added to `redacted`."""
    messages: list[Message] = []
    for number, part in enumerate(parts, 1):
        structure, what, who = part.structure, part.what, part.who
        parent: Any = structure.parent
        if parent.__class__ is int:
            if parent != _IMPLIED or before is None:
                msg = f"{parent!r} is no parent"
                raise CorruptStateError(msg)
            parent = before
        if isinstance(what, _MessageContent):
            data, notes = what.data, what.notes
            why = None if notes is None else redaction_in(notes)
        elif what is None:
            msg = "a message has no content"
            raise CorruptStateError(msg)
        else:
            data, notes, why = None, None, UNEXPLAINED
            redacted.append(2 * number + 1)
        sender: str | None = None
        if who is not None:
            if isinstance(who, _Sender):
                sender = who.sender_id
            else:
                redacted.append(2 * number)
        before, created_at = structure.id, structure.created_at
        messages.append(
            Message(
                id=before,
                parent_id=parent,
                name=structure.name,
                type=structure.type,
                form=structure.form,
                data=data,
                notes=notes,
                created_at=head.occurred_at if created_at is None else created_at,
                sender_id=sender,
                agent_id=structure.agent_id,
                reply_to=structure.reply_to,
                copied_from=structure.copied_from,
                merged_from=structure.merged_from,
                redacted=why,
            )
        )
    first = messages[0].parent_id if messages else None
    return MessagesAppended(
        tuple(messages), head.branch, _end(head.from_head, first), _end(head.to_head, before), head.changed_at
    )


def _end(head: str | int | None, implied: str | None) -> str | None:
    """Return where a branch was or is, of which an event says that it is implied by its messages, or the id."""
    if not isinstance(head, int):
        return head
    # Another number is no form that this version writes: read as implied, it would move a branch to a wrong message.
    if head != _IMPLIED:
        msg = f"{head!r} is no head"
        raise CorruptStateError(msg)
    return implied


def place_of_event(state: bytes) -> EventPlace:
    """
    The beginning of an event of any type, also of one that this version does not know.

    Raises:
        CorruptStateError: The bytes are no event.
    """
    try:
        version, (place, _, _), _ = _decode_place(state)
    except DECODE_ERRORS as error:
        msg = f"its {len(state):,} bytes are no event"
        raise CorruptStateError(msg) from error
    if version != FORMAT_VERSION:
        msg = f"it is an event of format {version}"
        raise CorruptStateError(msg)
    return place


def encode_event(event: Event[Any], salts: Iterator[bytes]) -> EncodedEvent:
    """
    Encode an event that has all of its content.

    `salts` has 16 random bytes for each slot, never used before.
    """
    body: Body = event.body
    parts, large = _pack(body, event.occurred_at, salts) if isinstance(body, MessagesAppended) else ([], {})
    head = _pack_head(event, salts)
    beside = chain.from_iterable(part.large for part in large.values())
    return EncodedEvent(event, body.TOPIC, join(head, parts), hash_of(head, parts), tuple(beside))


def encode_events(
    bodies: Sequence[Body],
    *,
    stream_id: str,
    version: int,
    previous_hash: bytes,
    occurred_at: int,
    event_ids: Iterable[str],
    salts: Iterator[bytes],
    envelope: Envelope,
    limit_bytes: int = MAX_EVENT_BYTES,
    message_limit_bytes: int = MAX_MESSAGE_BYTES,
) -> list[EncodedEvent]:
    """
    Encode the events of one commit, chained onto version `version` of a stream. Messages too many for one event get several.

    `event_ids` has an id for each event, of which there may be more than bodies; `salts` 16 random bytes for each slot, never used
    before. In an event of at most `limit_bytes`, each slot counts as no less than its commitment.

    Raises:
        PayloadTooLargeError: One would exceed `limit_bytes` without its large data, or one of these `message_limit_bytes`.
    """
    packed: list[_Packed] = []
    for body in bodies:
        if isinstance(body, MessagesAppended):
            entry = _Packed(body, *_pack(body, occurred_at, salts))
            largest = max([part.data_size for part in entry.large.values()], default=0)
            if largest > message_limit_bytes:
                raise PayloadTooLargeError(stream_id, size_bytes=largest, limit_bytes=message_limit_bytes)
            packed += [entry] if len(entry.parts) < 2 else _split(entry, occurred_at, limit_bytes - _HEAD_ALLOWANCE)
        else:
            packed.append(_Packed(body))
    encoded: list[EncodedEvent] = []
    for number, entry, event_id in zip(range(1, len(packed) + 1), packed, event_ids, strict=False):
        event = Event(
            originator_id=stream_id,
            originator_version=version + number,
            event_id=event_id,
            occurred_at=occurred_at,
            previous_hash=previous_hash,
            body=entry.body,
            rest=len(packed) - number,
            actor=envelope.actor,
            correlation_id=envelope.correlation_id,
            causation_id=envelope.causation_id,
            command_id=envelope.command_id,
        )
        head = _pack_head(event, salts)
        state = join(head, entry.parts)
        may_exceed = len(state) + (len(entry.parts) + 1) * _MOST_GROWTH > limit_bytes
        if may_exceed and (size := len(state) + sum(map(_growth, (head, *entry.parts)))) > limit_bytes:
            raise PayloadTooLargeError(stream_id, size_bytes=size, limit_bytes=limit_bytes)
        previous_hash = hash_of(head, entry.parts)
        beside = chain.from_iterable(part.large for part in entry.large.values())
        encoded.append(EncodedEvent(event, entry.body.TOPIC, state, previous_hash, tuple(beside)))
    if len(encoded) < len(packed):
        msg = f"{len(packed)} events need an id each"
        raise ValueError(msg)
    return encoded


def _pack_head(event: Event[Any], salts: Iterator[bytes]) -> RawPart:
    body: Body = event.body
    what = NOTHING
    if isinstance(body, MessagesAppended):
        fields: list[Any] = [body.branch, body.from_head, body.to_head, body.changed_at]
        if body.branch is not None and body.messages:
            if body.from_head == body.messages[0].parent_id:
                fields[1] = _IMPLIED
            if body.to_head == body.messages[-1].id:
                fields[2] = _IMPLIED
        topic = _MESSAGES
    else:
        kind = event_kind(body.TOPIC)
        topic = kind.topic
        fields, content = kind.values(body)
        if any(value is not None for value in content):
            salt = next(salts)
            try:
                what = _encode((salt, *content))
            except (UnicodeEncodeError, OverflowError):  # what a redaction keeps of a message may have what JSON has
                what = _encode((salt, *map(packable, content)))
    while fields and fields[-1] is None:
        fields.pop()
    place = (
        topic,
        event.originator_id,
        event.originator_version,
        event.event_id,
        event.occurred_at,
        event.previous_hash,
        event.rest,
    )
    who = (event.actor, event.correlation_id, event.causation_id, event.command_id)
    return (
        _encode((*place, *fields)),
        NOTHING if who == _NOBODY else _encode((next(salts), *who)),
        what,
    )


def _pack(
    body: MessagesAppended, occurred_at: int, salts: Iterator[bytes]
) -> tuple[list[RawPart], dict[int, _LargePart]]:
    """Return the parts of messages, the salts of each in the order of its slots, and what is large in those of these numbers."""
    parts: list[RawPart] = []
    large: dict[int, _LargePart] = {}
    before: str | None = None
    for message in body.messages:
        parent = message.parent_id
        sender = message.sender_id
        structure = _structure(message, _IMPLIED if parent is not None and parent == before else parent, occurred_at)
        who = NOTHING if sender is None else _encode((next(salts), sender))
        salt = next(salts)
        what = _content(salt, message.data, message.notes)
        if len(what) > LARGE_BYTES:
            left, beside = take_out(message.data)
            if beside:
                bare = _content(salt, left, message.notes)
                large[len(parts)] = _LargePart(len(what) - len(bare) + len(pack(left)), beside)
                what = bare
        parts.append((structure, who, what))
        before = message.id
    return parts, large


def _structure(message: Message, parent: str | int | None, occurred_at: int) -> bytes:
    created_at = None if message.created_at == occurred_at else message.created_at
    start = (message.id, parent, created_at, message.name)
    form, agent_id, reply_to, copied_from = message.form, message.agent_id, message.reply_to, message.copied_from
    if message.merged_from:
        return _encode((*start, message.type, form, agent_id, reply_to, copied_from, message.merged_from))
    if copied_from is not None:
        return _encode((*start, message.type, form, agent_id, reply_to, copied_from))
    if reply_to is not None:
        return _encode((*start, message.type, form, agent_id, reply_to))
    if agent_id is not None:
        return _encode((*start, message.type, form, agent_id))
    if form is not None:
        return _encode((*start, message.type, form))
    return _encode(start if message.type is None else (*start, message.type))


def _content(salt: bytes, data: Any, notes: dict[str, Any] | None) -> bytes:
    try:
        return _encode((salt, data) if notes is None else (salt, data, notes))
    except (UnicodeEncodeError, OverflowError):
        # Half an emoji, or an integer beyond 64 bits: tried first as it is, since nearly no message has one.
        data = packable(data)
        return _encode((salt, data) if notes is None else (salt, data, notes))


def _split(packed: _Packed, occurred_at: int, room: int) -> Iterable[_Packed]:
    """Cut messages that do not fit into one event into several that follow each other."""
    body, parts, large = packed
    assert isinstance(body, MessagesAppended), "only messages are split"
    sizes = [1 + len(structure) + len(who) + len(what) for structure, who, what in parts]
    for number, large_part in large.items():
        # Whoever reads an event has it whole: it takes the memory of its limit, or of one message.
        sizes[number] += large_part.data_size
    if sum(sizes) + len(parts) * _MOST_GROWTH <= room:
        return [packed]
    starts, used = [0], 0
    for number, (size, part) in enumerate(zip(sizes, parts, strict=True)):
        counted = size + _growth(part)
        if number > starts[-1] and used + counted > room:
            starts.append(number)
            used = 0
        used += counted
    chunks: list[_Packed] = []
    for start, end in zip(starts, [*starts[1:], len(parts)], strict=True):
        messages, (first, *others) = body.messages[start:end], parts[start:end]
        # The head moves once, with the last of them: a commit is visible only as a whole.
        chunk = (
            msgspec.structs.replace(body, messages=messages)
            if end == len(parts)
            else MessagesAppended(messages, changed_at=body.changed_at)
        )
        structure = _structure(messages[0], messages[0].parent_id, occurred_at)
        beside = {number - start: large[number] for number in range(start, end) if number in large} if large else large
        chunks.append(_Packed(chunk, ((structure, *first[1:]), *others), beside))
    return chunks


def _growth(part: RawPart) -> int:
    """Return the bytes that a part has more when all of its content was redacted, where that is shorter than a commitment."""
    return sum(max(COMMITTED_BYTES - len(slot), 0) for slot in part[1:] if slot != NOTHING)
