"""Events to bytes and back, and the hash chain. Encoding is deterministic: equal events give equal bytes."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple, cast

import msgspec

from ..chat.events import CHAT_BODIES, MEMBER_BODIES, RUN_BODIES, Body, Event, MessagesAppended
from ..errors import DECODE_ERRORS, CorruptStateError, PayloadTooLargeError, UnsupportedFormatError
from ..graph.events import STATE_BODIES
from ..thread.events import AGENT_BODIES
from ..values import Message
from .large_data import MAX_MESSAGE_BYTES, LargeData, find_large, largest_message, stored_size

NO_POSITION_HASH: Final = b""
"""The position hash before the first event, and before a tombstone: what stood there may be erased."""


def next_position_hash(before: bytes, position: int, event_hash: bytes) -> bytes:
    """Return the position hash after one more event: SHA-256 over the one before, the position (8 bytes) and the event's hash."""
    return sha256(b"%s%s%s" % (before, position.to_bytes(8), event_hash)).digest()


BODIES: tuple[type[Body], ...] = (*CHAT_BODIES, *RUN_BODIES, *MEMBER_BODIES, *AGENT_BODIES, *STATE_BODIES)


NO_HASH: Final = b""
"""The previous hash of the very first event of a chat."""

MAX_EVENT_BYTES: Final = 1024 * 1024
_ENVELOPE_ALLOWANCE: Final = 17 * 1024  # chat id, branch name, heads, actor, ... of 2,048 bytes each

_encode = msgspec.msgpack.Encoder().encode
_ANY: Final[msgspec.msgpack.Decoder[Event[Any]]] = msgspec.msgpack.Decoder(cast("Any", Event)[Any])
_DECODERS: Final[Mapping[str, msgspec.msgpack.Decoder[Event[Any]]]] = {
    body.TOPIC: msgspec.msgpack.Decoder(cast("Any", Event)[body]) for body in BODIES
}


_MESSAGES_BEFORE_FORMS: Final = "chatledger.message_appended/1"


class EncodedEvent(NamedTuple):
    """An event encoded for the log; `large` are the parts of `state` that may be stored by reference."""

    event: Event[Any]
    topic: str
    state: bytes
    hash: bytes
    large: tuple[LargeData, ...] = ()


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of an operation: actor, correlation, causation and command id."""

    actor: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    command_id: str | None = None


def encode_event(event: Event[Any]) -> bytes:
    """The stored form of an event."""
    return _encode(event)


def decode_event(topic: str, state: bytes) -> Event[Any]:
    """
    The event that was stored.

    Raises:
        UnsupportedFormatError: A newer chatledger wrote it, or one whose messages do not say their form.
        CorruptStateError: The bytes are damaged.
    """
    decoder = _DECODERS.get(topic)
    if topic == _MESSAGES_BEFORE_FORMS:
        msg = (
            f"events of type {topic!r} are of an earlier chatledger, whose messages do not say their form; export the log with the "
            "version that wrote it (`chatledger export`), and import that"
        )
        raise UnsupportedFormatError(msg)
    if decoder is None:
        msg = f"unknown event type {topic!r}: a newer chatledger wrote this log; upgrade to read it"
        raise UnsupportedFormatError(msg)
    try:
        return decoder.decode(state)
    except DECODE_ERRORS as error:
        msg = f"an event of type {topic!r} cannot be decoded: its {len(state):,} bytes are damaged"
        raise CorruptStateError(msg) from error


def decode_any(state: bytes) -> Event[Any]:
    """
    The envelope of an event of any type, also one that this version does not know; its body is as it was stored.

    Raises:
        CorruptStateError: The bytes are no event.
    """
    try:
        return _ANY.decode(state)
    except DECODE_ERRORS as error:
        msg = f"its {len(state):,} bytes are no event"
        raise CorruptStateError(msg) from error


def event_hash(topic: str, state: bytes) -> bytes:
    """The hash that the chat's next event names: SHA-256 over topic and stored form."""
    return sha256(b"%d:%s%s" % (len(topic), topic.encode(), state)).digest()


def encode_events(
    bodies: Sequence[Body],
    *,
    stream_id: str,
    version: int,
    previous_hash: bytes,
    occurred_at: int,
    event_ids: Sequence[str],
    envelope: Envelope,
    limit_bytes: int = MAX_EVENT_BYTES,
    message_limit_bytes: int = MAX_MESSAGE_BYTES,
) -> list[EncodedEvent]:
    """
    Encode the events of one commit, chained onto version `version` of a stream.

    Raises:
        PayloadTooLargeError: One would exceed `limit_bytes` without its large data, or one of these `message_limit_bytes`.
    """
    encoded: list[EncodedEvent] = []
    for number, (body, event_id) in enumerate(zip(bodies, event_ids, strict=True), 1):
        event = Event(
            originator_id=stream_id,
            originator_version=version + number,
            event_id=event_id,
            occurred_at=occurred_at,
            previous_hash=previous_hash,
            body=body,
            rest=len(bodies) - number,
            actor=envelope.actor,
            correlation_id=envelope.correlation_id,
            causation_id=envelope.causation_id,
            command_id=envelope.command_id,
        )
        state = _encode(event)
        large = find_large(body, state)
        if large and (largest := largest_message(body)) > message_limit_bytes:
            raise PayloadTooLargeError(stream_id, size_bytes=largest, limit_bytes=message_limit_bytes)
        if (size := stored_size(state, large)) > limit_bytes:
            raise PayloadTooLargeError(stream_id, size_bytes=size, limit_bytes=limit_bytes)
        previous_hash = event_hash(body.TOPIC, state)
        encoded.append(EncodedEvent(event, body.TOPIC, state, previous_hash, large))
    return encoded


def split(bodies: Sequence[Body], limit_bytes: int = MAX_EVENT_BYTES) -> list[Body]:
    """Split bodies with too many messages for one event into several that follow each other; others stay."""
    parts: list[Body] = []
    room = limit_bytes - _ENVELOPE_ALLOWANCE
    for body in bodies:
        if isinstance(body, MessagesAppended) and len(body.messages) > 1 and len(_encode(body.messages)) > room:
            parts.extend(_split_messages(body, room))
        else:
            parts.append(body)
    return parts


def _split_messages(body: MessagesAppended, room: int) -> list[Body]:
    chunks: list[list[Message]] = [[]]
    used = 0
    for message in body.messages:
        size = len(_encode(message))
        if chunks[-1] and used + size > room:
            chunks.append([])
            used = 0
        chunks[-1].append(message)
        used += size
    *earlier, last = chunks
    # The head moves once, with the last of them: a commit is visible only as a whole.
    return [
        *(MessagesAppended(messages=tuple(chunk), changed_at=body.changed_at) for chunk in earlier),
        msgspec.structs.replace(body, messages=tuple(last)),
    ]
