"""
The hash of an event as `docs/explanation/log-format.md` says it, written from the page: nothing of chatledger is imported.

Two programs that agree on what an event is, and on no others, are what a third party needs who trusts neither.
"""

from hashlib import sha256

_FIXED = {
    **dict.fromkeys((0xC0, 0xC2, 0xC3), 0),
    0xCA: 4,
    0xCB: 8,
    0xCC: 1,
    0xCD: 2,
    0xCE: 4,
    0xCF: 8,
    0xD0: 1,
    0xD1: 2,
    0xD2: 4,
    0xD3: 8,
    0xD4: 2,
    0xD5: 3,
    0xD6: 5,
    0xD7: 9,
    0xD8: 17,
}
"""The number of bytes that follow the first one."""
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""The size of the length that follows: binary, extension, text."""
_COUNTED = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}


class NoEventError(Exception):
    """The bytes are no event."""


def skip(data: bytes, at: int) -> int:
    """Return where the value ends that begins at a place."""
    values = 1
    while values:
        values -= 1
        first = _byte(data, at)
        at += 1
        if first < 0x80 or first >= 0xE0:
            continue
        if first < 0x90:
            values += 2 * (first & 15)
        elif first < 0xA0:
            values += first & 15
        elif first < 0xC0:
            at += first & 31
        elif first in _FIXED:
            at += _FIXED[first]
        elif first in _SIZED:
            width = _SIZED[first]
            at += width + _number(data, at, width) + (0xC7 <= first <= 0xC9)
        elif first in _COUNTED:
            width, each = _COUNTED[first]
            values += each * _number(data, at, width)
            at += width
        else:
            raise NoEventError
        if at > len(data):
            raise NoEventError
    return at


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise NoEventError
    return data[at]


def _number(data: bytes, at: int, width: int) -> int:
    if at + width > len(data):
        raise NoEventError
    return int.from_bytes(data[at : at + width], "big")


def _slot(slot: bytes) -> bytes:
    if slot == b"\xc0" or (slot[:2] == b"\xc4\x20" and len(slot) == 34):
        return slot
    if 0x92 <= slot[0] <= 0x9F and slot[1:3] == b"\xc4\x10":
        return b"\xc4\x20" + sha256(slot).digest()
    raise NoEventError


def _part(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the leaf of the part at a place, and where it ends."""
    if _byte(data, at) != 0x93:
        raise NoEventError
    structure = at + 1
    who = skip(data, structure)
    what = skip(data, who)
    end = skip(data, what)
    hashed = data[structure:who] + _slot(data[who:what]) + _slot(data[what:end])
    return sha256(b"\x10" + hashed).digest(), end


def root(leaves: list[bytes]) -> bytes:
    """Return the root of a tree whose left side has the largest power of two below the number of its leaves."""
    if len(leaves) < 2:
        return leaves[0] if leaves else sha256(b"").digest()
    left = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\x11" + root(leaves[:left]) + root(leaves[left:])).digest()


def hash_of_event(data: bytes) -> bytes:
    """Return the hash of an event. Raises `NoEventError`."""
    if data[:2] != b"\x93\x02":
        raise NoEventError
    head, at = _part(data, 2)
    first = _byte(data, at)
    width = {0xDC: 2, 0xDD: 4}.get(first, 0)
    count = _number(data, at + 1, width) if width else first & 15
    if (first >> 4 != 9) if not width else (count <= (15 if width == 2 else 65_535)):
        raise NoEventError
    at += 1 + width
    leaves: list[bytes] = []
    for _ in range(count):
        leaf, at = _part(data, at)
        leaves.append(leaf)
    if at != len(data):
        raise NoEventError
    return sha256(b"\x12" + head + count.to_bytes(4, "big") + root(leaves)).digest()
