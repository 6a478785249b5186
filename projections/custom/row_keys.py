"""Keys of the rows of custom projections: text, numbers and tuples of them in LMDB's 511 bytes, in a sensible order."""

from hashlib import blake2b
from typing import Any, Final, cast

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.rules import encoded

from ..keys import number, to_number

Key = str | int | tuple[str | int, ...]
"""Text, a whole number of 64 bits, or a tuple of those. A tuple of one part is that part."""

MAX_KEY_BYTES: Final = 480
"""What the parts of a key may take, each with up to 2 bytes more than its text has, or 9 as a number."""
_PLAIN_BYTES: Final = 150
_KEPT_BYTES: Final = 100
_DIGEST_BYTES: Final = 20
_INT, _TEXT = b"\x02", b"\x03"
_END: Final = b"\x00"
_CUT: Final = b"\xff"  # no UTF-8 text has this byte
_OFFSET: Final = 2**63


def stream_digest(stream: str) -> bytes:
    """What stands for a chat, or another stream of the log, in keys."""
    return blake2b(stream.encode(), digest_size=_DIGEST_BYTES).digest()


def to_key(key: Any) -> bytes:
    """
    The bytes of a key, which begin with those of its first parts. They sort numbers before text, and text by its bytes.

    Of a text beyond 150 bytes the first 100 stay, with a digest of all: such texts sort by these 100 bytes.

    Raises:
        InvalidValueError: It is no key, or too long.
    """
    parts = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else (key,)
    packed = b"".join(map(_part, parts))
    if len(packed) > MAX_KEY_BYTES:
        msg = f"the key of a row takes {len(packed)} bytes, at most {MAX_KEY_BYTES} fit; use fewer parts, or a digest"
        raise InvalidValueError(msg)
    return packed


def _part(part: Any) -> bytes:
    if isinstance(part, str):
        raw = encoded(part, "the key of a row")
        if b"\0" in raw:
            msg = "the key of a row must not contain a NUL character"
            raise InvalidValueError(msg)
        if len(raw) <= _PLAIN_BYTES:
            return _TEXT + raw + _END
        return _TEXT + raw[:_KEPT_BYTES] + _CUT + blake2b(raw, digest_size=_DIGEST_BYTES).digest()
    if isinstance(part, int) and not isinstance(part, bool) and -_OFFSET <= part < _OFFSET:
        return _INT + number(part + _OFFSET)
    msg = f"the key of a row is text, a whole number of 64 bits, or a tuple of those, not {part!r:.50}"
    raise InvalidValueError(msg)


def is_cut(key: Key) -> bool:
    """Whether a key can not be had back from its bytes."""
    parts = key if isinstance(key, tuple) else (key,)
    return any(isinstance(part, str) and len(part.encode()) > _PLAIN_BYTES for part in parts)


def from_key(packed: bytes) -> Key:
    """The key of some bytes, unless it `is_cut`."""
    parts: list[str | int] = []
    at = 0
    while at < len(packed):
        if packed[at : at + 1] == _INT:
            parts.append(to_number(packed[at + 1 : at + 9]) - _OFFSET)
            at += 9
        else:
            end = packed.index(_END, at)
            parts.append(packed[at + 1 : end].decode())
            at = end + 1
    return parts[0] if len(parts) == 1 else tuple(parts)
