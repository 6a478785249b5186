"""
The parts of an event: which bytes it has, what its hash is over, and how content leaves it without changing the hash.

    event = 93 02 head [part, ...]      msgpack; the head is a part, too
    part  = 93 structure who what
    slot (who, what) = C0               there was nothing
        | array [salt, value, ...]      16 random bytes, then the content
        | C4 20 and 32 bytes            redacted: its commitment alone

A structure stays for ever. Of a slot the hash covers the commitment only, SHA-256 over the slot as it stands, so a slot can be
replaced by its commitment; the salt keeps content that can be guessed from being confirmed by it. Leaves of parts form a Merkle
tree of the shape of RFC 9162. All hashes are over bytes as they are stored: nothing is encoded again.
"""

from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from ..errors import DECODE_ERRORS, CorruptStateError

FORMAT_VERSION: Final = 2
SALT_BYTES: Final = 16
NOTHING: Final = b"\xc0"
"""A slot without content, and without a commitment."""
COMMITTED: Final = b"\xc4\x20"
"""The first bytes of a slot whose content was taken away; its commitment follows."""
COMMITTED_BYTES: Final = 34
START: Final = b"\x93\x02"
NO_PARTS: Final = sha256(b"").digest()
"""The root of no parts."""
_SALTED: Final = frozenset(bytes((0x90 | count,)) + b"\xc4\x10" for count in range(2, 16))
"""The first bytes of a slot with content: an array of 2 to 15 values, whose first one is a salt of 16 bytes."""
_FEW, _MANY = 0x0F, 0xFFFF


RawPart = tuple[bytes, bytes, bytes]
"""A part as it is stored: structure, who, what."""


class RawEvent(NamedTuple):
    """An event as it is stored. Slots are numbered over the head and its parts: 2 for each, who before what."""

    head: RawPart
    parts: Sequence[RawPart]


class _DecodedPart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A part in a stored event. The collector of garbage has nothing to do with it, of which there may be thousands."""

    structure: msgspec.Raw
    who: msgspec.Raw
    what: msgspec.Raw


_decode: Final = msgspec.msgpack.Decoder(tuple[int, _DecodedPart, list[_DecodedPart]]).decode


def committed(slot: bytes) -> bytes:
    """
    Return a slot without its content: `C0`, or the commitment to what was in it.

    Raises:
        CorruptStateError: It is no slot.
    """
    if slot[:3] in _SALTED:
        return COMMITTED + sha256(slot).digest()
    if slot == NOTHING or (len(slot) == COMMITTED_BYTES and slot.startswith(COMMITTED)):
        return slot
    msg = "a slot of it is neither nothing, nor salted content, nor a commitment"
    raise CorruptStateError(msg)


def leaves_of(parts: Iterable[RawPart]) -> list[bytes]:
    """
    Return the hashes of parts, each over its structure and the commitments of its slots.

    Raises:
        CorruptStateError: A slot is none.
    """
    leaves: list[bytes] = []
    for structure, who, what in parts:
        # Every event that is written passes here: the usual slots, salted content and nothing, cost no call.
        if what[:3] in _SALTED:
            content = COMMITTED + sha256(what).digest()
        else:
            content = what if what == NOTHING else committed(what)
        leaves.append(sha256(b"\x10" + structure + (who if who == NOTHING else committed(who)) + content).digest())
    return leaves


def parts_root(leaves: Sequence[bytes]) -> bytes:
    """Return the root of the tree over the leaves of an event's parts."""
    level = leaves
    while len(level) > 1:
        odd = level[-1:] if len(level) % 2 else ()
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [*[sha256(b"\x11" + left + right).digest() for left, right in pairs], *odd]
    return level[0] if level else NO_PARTS


def hash_of(head: RawPart, parts: Sequence[RawPart]) -> bytes:
    """
    Return the hash of an event, which the next one of its stream names.

    Raises:
        CorruptStateError: A slot is none.
    """
    leaves = leaves_of((head, *parts))
    return hash_of_root(leaves[0], len(parts), parts_root(leaves[1:]))


def hash_of_root(head_leaf: bytes, count: int, root: bytes) -> bytes:
    """Return the hash of an event from the hash of its head, and the number and the root of its parts."""
    return sha256(b"\x12" + head_leaf + count.to_bytes(4) + root).digest()


def list_header(count: int) -> bytes:
    """Return the header of a list of so many parts, of which there is one form."""
    if count <= _FEW:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2) if count <= _MANY else b"\xdd" + count.to_bytes(4)


def join(head: RawPart, parts: Sequence[RawPart]) -> bytes:
    """Return the stored form of an event."""
    return b"".join([START, b"\x93%b%b%b" % head, list_header(len(parts)), *[b"\x93%b%b%b" % part for part in parts]])


def take_apart(state: bytes) -> RawEvent:
    """
    Return the parts of an event.

    Raises:
        CorruptStateError: The bytes are no event, or one in another form than the only one that there is.
    """
    try:
        version, head, parts = _decode(state)
    except DECODE_ERRORS as error:
        raise _no_event(state) from error
    raw = [(bytes(part.structure), bytes(part.who), bytes(part.what)) for part in (head, *parts)]
    _check_frame(
        state, version, len(parts), sum([len(structure) + len(who) + len(what) for structure, who, what in raw])
    )
    return RawEvent(raw[0], raw[1:])


def _check_frame(state: bytes, version: int, count: int, size: int) -> None:
    """
    Check what hashes do not cover: the headers around `count` parts, which take `size` bytes with the head's.

    Each header has one shortest form, and all of them have that if the sum is right.
    """
    framed = len(START) + 1 + len(list_header(count)) + count + size
    if version != FORMAT_VERSION or framed != len(state) or not state.startswith(START):
        msg = "it is not in the one form that events have"
        raise CorruptStateError(msg)


def event_hash(state: bytes) -> bytes:
    """
    Return the hash of an event, which the next one of its stream names.

    Raises:
        CorruptStateError: The bytes are no event.
    """
    try:
        version, head, parts = _decode(state)
    except DECODE_ERRORS as error:
        raise _no_event(state) from error
    leaves: list[bytes] = []
    size = 0
    # All events are read by this, so `leaves_of` stands here once more: a list of raw parts in between takes 1.5 us of 4.5.
    for part in (head, *parts):
        structure, who, what = bytes(part.structure), bytes(part.who), bytes(part.what)
        size += len(structure) + len(who) + len(what)
        content = COMMITTED + sha256(what).digest() if what[:3] in _SALTED else committed(what)
        leaves.append(sha256(b"\x10" + structure + (who if who == NOTHING else committed(who)) + content).digest())
    _check_frame(state, version, len(parts), size)
    return hash_of_root(leaves[0], len(parts), parts_root(leaves[1:]))


def _no_event(state: bytes) -> CorruptStateError:
    return CorruptStateError(f"its {len(state):,} bytes are no event")


def without(state: bytes, slots: Collection[int]) -> bytes:
    """
    Return an event without the content of these slots. Its hash stays; a slot that has no content stays as it is.

    Raises:
        CorruptStateError: The bytes are no event.
    """
    apart = take_apart(state)

    def redacted(number: int, part: RawPart) -> RawPart:
        structure, who, what = part
        return (
            structure,
            committed(who) if 2 * number in slots else who,
            committed(what) if 2 * number + 1 in slots else what,
        )

    head, *parts = [redacted(number, part) for number, part in enumerate((apart.head, *apart.parts))]
    return join(head, parts)


def is_without(after: bytes, before: bytes) -> bool:
    """
    Whether an event is another one from which at most content was taken away: its hash is the same, and so is each slot that it still has.

    Raises:
        CorruptStateError: One of them is no event.
    """
    # The hash alone would take content that comes back for the same event, too.
    return event_hash(after) == event_hash(before) and all(
        slot in {earlier, committed(earlier)}
        for now, then in zip(_all_parts(after), _all_parts(before), strict=True)
        for slot, earlier in zip(now[1:], then[1:], strict=True)
    )


def _all_parts(state: bytes) -> list[RawPart]:
    head, parts = take_apart(state)
    return [head, *parts]
