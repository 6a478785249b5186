"""
Excerpts: chosen messages of a chat as one text, by which anybody can check, without the ledger, that they were there.

    base64url of msgpack and a signature of 64 bytes over it, which are 0 where nobody signed

    ["cl-excerpt/1", [event, ...], size, path, anchored or nil, issued at or nil, terms or nil, public key or nil]
      event     [number, position, head, count of parts, [[number of a part, part], ...], path in the event,
                 [number of a chosen part, ...], [large data, ...]]
      anchored  [version, position and hash of the last event, [[bit, hash], ...], position, time, count, key and signature of the anchor]
      terms     [nonce, expires at or nil, audience or nil]

Head and parts are bytes of the event as it is stored, without who wrote it. Of messages that were not chosen there are hashes, but for the
structure of the one before a chosen one in the same event, where that is its parent. The events are numbered since the last deletion of
the chat, whose tree has `size` of them, and lead to its root; that leads to the root of the anchor. What a signature vouches for is the root.
"""

import base64
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, ClassVar, Final, NamedTuple, NoReturn

import msgspec

from ..errors import DECODE_ERRORS, ChatledgerError, InvalidValueError
from ..log.codec import PREFIX, decode_shown, lines_in, place_of_event, references_in
from ..log.large_data import UnknownContentError, data_digest
from ..log.merkle import PARTS, Subtree, event_leaf, multi_path, root_from_multi_path, root_from_radix_path, subtree_of
from ..log.parts import START, RawPart, committed, hash_of_root, leaves_of, list_header, take_apart
from ..values import Message
from ..wire import Value
from .anchors import Anchor, AnchorLeaf, key_id_of, stream_digest

FORMAT: Final = "cl-excerpt/1"
NO_SIGNATURE: Final = bytes(64)
_SKEW_MS: Final = 60_000
"""Clocks of issuer and reader may differ by so much."""

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
_Hash = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
_Signature = Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)]


class _Event(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    number: _Number
    position: _Number
    head: msgspec.Raw
    count: _Count
    parts: list[tuple[_Count, msgspec.Raw]]
    path: list[_Hash]
    chosen: list[_Count]
    large: list[bytes]


class _Anchored(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: _Number
    position: _Number
    hash: _Hash
    path: list[tuple[int, _Hash]]
    anchor_position: _Number
    created_at: _Number
    count: _Number
    public_key: _Hash
    signature: _Signature


class Terms(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The limits of a signed excerpt: its nonce, its end in ms, and whom it is for; None for no limit."""

    nonce: bytes
    expires_at: _Number | None
    audience: str | None


class _Payload(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    format: str
    events: list[_Event]
    size: _Number
    path: list[_Hash]
    anchored: _Anchored | None
    issued_at: _Number | None
    terms: Terms | None
    public_key: _Hash | None


_decode: Final = msgspec.msgpack.Decoder(_Payload).decode


class ExcerptEvent(Value, frozen=True, kw_only=True):
    """
    An event of which an excerpt shows messages.

    Args:
        number: Its number among the chat's events since the last deletion, from 0.
        position: Its position on the log.
        hash: Its hash.
        branch: The number of the branch on which the messages were said; None where they were added beside it.
        messages: Those that were chosen.
    """

    number: int
    position: int
    hash: bytes
    branch: int | None
    messages: tuple[Message, ...]


class Excerpt(Value, frozen=True, kw_only=True):
    """
    What an excerpt says.

    Args:
        chat_id: The chat.
        events: Those of its events that brought the messages.
        size: How many events the chat had since its last deletion when it was issued, or at the anchor.
        anchor: The anchor that it leads to, without its leaves; None without one.
        issued_at: When it was signed, in ms; None where it rests on an anchor alone.
        expires_at: When it ends, in ms; None for never.
        audience: Whom it is for; None for anybody.
        nonce: What tells it from others that say the same, in hexadecimal digits; empty where nobody signed it.
        public_key: The 32 bytes of the Ed25519 key that signed it; None where nobody did.
        payload, signature: The bytes that are signed, and the signature.
    """

    chat_id: str
    events: tuple[ExcerptEvent, ...]
    size: int
    anchor: Anchor | None
    issued_at: int | None
    expires_at: int | None
    audience: str | None
    nonce: str
    public_key: bytes | None
    payload: bytes
    signature: bytes

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages, in the order of the log."""
        return tuple(message for event in self.events for message in event.messages)

    @property
    def key_id(self) -> str | None:
        """A short name of the key that signed it."""
        return None if self.public_key is None else key_id_of(self.public_key)

    def check_terms(self, audience: str | None, now: int) -> None:
        """Raise `InvalidValueError` unless it is for this audience, and good at `now`, in ms."""
        if audience != self.audience:
            whom = "anybody" if self.audience is None else repr(self.audience)
            why = f"is for {whom}, not for {'anybody' if audience is None else repr(audience)}"
        elif self.issued_at is not None and self.issued_at > now + _SKEW_MS:
            why = "was issued in the future: one of the clocks is wrong"
        elif self.expires_at is not None and now >= self.expires_at:
            why = f"expired {(now - self.expires_at) / 1000:,.0f} s ago"
        else:
            return
        msg = f"the excerpt of chat {self.chat_id!r} {why}; ask for another one"
        raise InvalidValueError(msg)


class ExcerptStanding(Value, frozen=True):
    """
    What became of the messages of an excerpt, by their ids; it is true where nothing did.

    Args:
        gone: The ledger has no such event: the chat was deleted, or is another one.
        redacted: Their content was redacted.
        revoked: They were annotated as hidden.
        superseded: They were annotated as stale or replaced, their branch leads past them, or the active branch through another version.
    """

    gone: tuple[str, ...] = ()
    redacted: tuple[str, ...] = ()
    revoked: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()

    derived: ClassVar[tuple[str, ...]] = ("is_valid",)

    @property
    def is_valid(self) -> bool:
        """Whether nothing became of them."""
        return not (self.gone or self.redacted or self.revoked or self.superseded)

    def __bool__(self) -> bool:
        return self.is_valid


class ChosenEvent(NamedTuple):
    """An event as it is stored, where it is on the log, which of its messages an excerpt is to show, and its large data by digest."""

    position: int
    state: bytes
    message_ids: list[str]
    large: dict[bytes, bytes]


def payload_of(
    events: Mapping[int, ChosenEvent],
    *,
    tree: Subtree,
    size: int,
    anchor: Anchor | None = None,
    issued_at: int | None = None,
    terms: Terms | None = None,
    public_key: bytes | None = None,
) -> bytes:
    """
    Return what an excerpt says, to be signed.

    Args:
        events: Events of one chat, by their number.
        tree: Returns the root of some of the chat's events, by number.
        size: How many of these there are.
        anchor: An anchor with its leaves, that it is to lead to.
        issued_at: When it is signed, in ms; None where nobody does.
        terms: What the signer limits it to.
        public_key: The key of the signer.

    Raises:
        InvalidValueError: The anchor does not have the messages: it is older; or it lacks its leaves, or is of another log.
    """
    anchored: _Anchored | None = None
    if anchor is not None:
        chat_id = place_of_event(next(iter(events.values())).state).stream
        proof = anchor.proof(chat_id)
        leaf = proof.leaf
        for number, event in events.items():
            if event.position > leaf.position or number >= leaf.size:
                ids = ", ".join(map(repr, event.message_ids))
                msg = f"the anchor of position {anchor.position} does not have message {ids}: take one that was made after it"
                raise InvalidValueError(msg)
        if leaf.size > size:
            raise _other_log(anchor, f"it has {leaf.size} events of chat {chat_id!r}, and there are {size}")
        # The anchor and the events came from two places: whether they belong together shows only here.
        if tree(0, leaf.size) != leaf.root or not anchor.check_proof(chat_id, proof):
            raise _other_log(anchor, f"it has other events of chat {chat_id!r}")
        size, path = leaf.size, list(proof.path)
        place, signed = (leaf.version, leaf.position, leaf.hash), (anchor.public_key, anchor.signature)
        anchored = _Anchored(*place, path, anchor.position, anchor.created_at, anchor.count, *signed)
    payload = _Payload(
        FORMAT,
        [_shown(number, events[number]) for number in sorted(events)],
        size,
        list(multi_path(tree, size, list(events))),
        anchored,
        issued_at,
        terms,
        public_key,
    )
    return msgspec.msgpack.encode(payload)


def _other_log(anchor: Anchor, why: str) -> InvalidValueError:
    return InvalidValueError(
        f"the anchor of position {anchor.position} is not one of this ledger, or the log was changed since: {why}"
    )


def _shown(number: int, event: ChosenEvent) -> _Event:
    head, parts = take_apart(event.state)
    chosen: list[int] = []
    shown: dict[int, RawPart] = {}
    for at, (line_id, follows) in enumerate(lines_in(event.state)):
        if line_id in event.message_ids:
            if follows:
                shown.setdefault(at - 1, _bare(parts[at - 1]))
            shown[at] = parts[at]
            chosen.append(at)
    bare = _bare(head)
    topic = PREFIX + place_of_event(event.state).topic
    references = references_in(topic, _joined(_raw(bare), list(map(_raw, shown.values()))))
    return _Event(
        number,
        event.position,
        _raw(bare),
        len(parts),
        [(at, _raw(part)) for at, part in shown.items()],
        list(multi_path(subtree_of(leaves_of(parts), PARTS), len(parts), list(shown))),
        chosen,
        [event.large[digest] for digest in dict.fromkeys(reference.digest for reference in references)],
    )


def _bare(part: RawPart) -> RawPart:
    """A part without its content."""
    structure, who, what = part
    return structure, committed(who), committed(what)


def _raw(part: RawPart) -> msgspec.Raw:
    return msgspec.Raw(b"\x93%b%b%b" % part)


def _joined(head: msgspec.Raw, parts: Sequence[msgspec.Raw]) -> bytes:
    """An event of these parts, as it would be stored."""
    return b"".join([START, bytes(head), list_header(len(parts)), *map(bytes, parts)])


def token_of(payload: bytes, signature: bytes = NO_SIGNATURE) -> str:
    """Return an excerpt as text."""
    return base64.urlsafe_b64encode(payload + signature).decode().rstrip("=")


def read_excerpt(token: str) -> Excerpt:
    """
    Return what an excerpt says, as far as its parts prove it. Signatures, times and audience are not checked by this.

    Raises:
        InvalidValueError: It is none, or its parts do not belong together.
    """
    try:
        whole = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        payload, signature = whole[: -len(NO_SIGNATURE)], whole[-len(NO_SIGNATURE) :]
        values = _decode(payload)
        if token != token_of(payload, signature):
            msg = "it is written in another way"
            raise ValueError(msg)  # noqa: TRY301 - the one error for what is no excerpt
    except (*DECODE_ERRORS, ValueError) as error:
        msg = f"this is no excerpt of a chat, or it is cut off ({error}); take the text that 'chatledger prove' wrote"
        raise InvalidValueError(msg) from error
    if values.format != FORMAT:
        msg = f"the excerpt has the format {values.format!r}, this version reads {FORMAT!r}"
        raise InvalidValueError(msg)
    is_unsigned = values.public_key is None
    if {signature == NO_SIGNATURE, values.terms is None, values.issued_at is None} != {is_unsigned}:
        _refuse("it is signed in part")
    if is_unsigned and values.anchored is None:
        _refuse("nobody vouches for it")
    read = [_read_event(event) for event in values.events]
    chats = {chat_id for chat_id, _ in read}
    events = tuple(event for _, event in read)
    if len(chats) != 1 or any(event.number >= following.number for event, following in pairwise(events)):
        _refuse("its events are not those of one chat, in order")
    leaves = {event.number: event_leaf(event.position, event.hash) for event in events}
    root = root_from_multi_path(values.size, leaves, values.path)
    if root is None:
        _refuse("its events are not those of a chat of that size")
    (chat_id,) = chats
    terms = values.terms or Terms(b"", None, None)
    return Excerpt(
        chat_id=chat_id,
        events=events,
        size=values.size,
        anchor=None if values.anchored is None else _anchor_of(values.anchored, chat_id, values.size, root),
        issued_at=values.issued_at,
        expires_at=terms.expires_at,
        audience=terms.audience,
        nonce=terms.nonce.hex(),
        public_key=values.public_key,
        payload=payload,
        signature=signature,
    )


def _read_event(values: _Event) -> tuple[str, ExcerptEvent]:
    """Return an event that is shown in part, and its chat."""
    numbers = [number for number, _ in values.parts]
    try:
        event = _joined(values.head, [part for _, part in values.parts])
        head, parts = take_apart(event)
        head_leaf, *leaves = leaves_of((head, *parts))
        large = {data_digest(data): data for data in values.large}
        chat_id, branch, messages = decode_shown(event, large, numbers, values.chosen)
    except ChatledgerError as error:
        _refuse(str(error), error)
    except UnknownContentError as error:
        _refuse("its large data are not those that an event names", error)
    root = root_from_multi_path(values.count, dict(zip(numbers, leaves, strict=True)), values.path, PARTS)
    is_ordered = all(before < after for parts in (numbers, values.chosen) for before, after in pairwise(parts))
    if root is None or not is_ordered or not messages:
        _refuse("its messages are not those of an event")
    return chat_id, ExcerptEvent(
        number=values.number,
        position=values.position,
        hash=hash_of_root(head_leaf, values.count, root),
        branch=branch,
        messages=tuple(msgspec.structs.replace(message, chat_id=chat_id) for message in messages),
    )


def _anchor_of(values: _Anchored, chat_id: str, size: int, root: bytes) -> Anchor:
    """Return the anchor that the tree of a chat leads to."""
    leaf = AnchorLeaf(stream_digest(chat_id), values.version, values.position, values.hash, size, root)
    anchor_root = root_from_radix_path(leaf.digest, leaf.leaf_hash, values.path)
    if anchor_root is None:
        _refuse("the path to its anchor does not fit")
    return Anchor(
        position=values.anchor_position,
        created_at=values.created_at,
        count=values.count,
        root=anchor_root,
        public_key=values.public_key,
        signature=values.signature,
    )


def _refuse(why: str, cause: Exception | None = None) -> NoReturn:
    msg = f"the excerpt does not hold: {why}; it was changed after it was made"
    raise InvalidValueError(msg) from cause
