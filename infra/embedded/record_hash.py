"""The checksum of a record in a block file: HighwayHash-64 with a key of the block."""

from hashlib import sha256
from struct import Struct
from typing import Final

CHECKSUM_BYTES: Final = 8
_HEAD: Final = Struct("<IQQH")
_HEADERS_LENGTH_BYTES: Final = 4
_HAS_HEADERS: Final = 1 << 31
_LANES: Final = Struct("<4Q")
_WORD: Final = (1 << 64) - 1
_HALF: Final = (1 << 32) - 1
_PACKET_BYTES: Final = 32
_MUL0: Final[tuple[int, ...]] = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
_MUL1: Final[tuple[int, ...]] = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)


def block_key(stream: str, number: int) -> bytes:
    """The key of the checksums in a block of a stream."""
    return sha256(f"{stream}-{number}".encode()).digest()


def record_hash(record: bytes, key: bytes) -> bytes:
    """
    The checksum that a whole record should end with.

    It is over sequence, time, subject, headers and payload, not over the lengths. A megabyte takes most of a second: this is for a
    few records.
    """
    packed, _, _, subject_bytes = _HEAD.unpack_from(record, 0)
    subject_end = _HEAD.size + subject_bytes
    rest = subject_end + (_HEADERS_LENGTH_BYTES if packed & _HAS_HEADERS else 0)
    return _highway_hash(record[4:20] + record[_HEAD.size : subject_end] + record[rest:-CHECKSUM_BYTES], key)


def _highway_hash(data: bytes, key: bytes) -> bytes:
    lanes: tuple[int, ...] = _LANES.unpack(key)
    v0 = [mul ^ lane for mul, lane in zip(_MUL0, lanes, strict=True)]
    v1 = [mul ^ _swap(lane) for mul, lane in zip(_MUL1, lanes, strict=True)]
    mul0: list[int] = list(_MUL0)
    mul1: list[int] = list(_MUL1)
    whole = len(data) - len(data) % _PACKET_BYTES
    for at in range(0, whole, _PACKET_BYTES):
        _update(v0, v1, mul0, mul1, _LANES.unpack_from(data, at))
    rest = data[whole:]
    if rest:
        size = len(rest)
        v0[:] = [(lane + (size << 32) + size) & _WORD for lane in v0]
        v1[:] = [_turned(lane >> 32, size) << 32 | _turned(lane & _HALF, size) for lane in v1]
        _update(v0, v1, mul0, mul1, _LANES.unpack(_padded(rest)))
    for _ in range(4):
        _update(v0, v1, mul0, mul1, (_swap(v0[2]), _swap(v0[3]), _swap(v0[0]), _swap(v0[1])))
    return ((v0[0] + v1[0] + mul0[0] + mul1[0]) & _WORD).to_bytes(CHECKSUM_BYTES, "little")


def _swap(lane: int) -> int:
    return lane >> 32 | (lane & _HALF) << 32


def _turned(half: int, count: int) -> int:
    return (half << count | half >> (32 - count)) & _HALF


def _padded(rest: bytes) -> bytes:
    """The last packet: what is left over, and its last bytes again where the algorithm wants them."""
    whole, odd = len(rest) & ~3, len(rest) & 3
    packet = bytearray(_PACKET_BYTES)
    packet[:whole] = rest[:whole]
    if len(rest) & 16:
        packet[28:] = rest[-4:]
    elif odd:
        packet[16:19] = bytes((rest[whole], rest[whole + (odd >> 1)], rest[-1]))
    return bytes(packet)


def _update(v0: list[int], v1: list[int], mul0: list[int], mul1: list[int], lanes: tuple[int, ...]) -> None:
    for i in range(4):
        v1[i] = (v1[i] + mul0[i] + lanes[i]) & _WORD
        mul0[i] ^= (v1[i] & _HALF) * (v0[i] >> 32)
        v0[i] = (v0[i] + mul1[i]) & _WORD
        mul1[i] ^= (v0[i] & _HALF) * (v1[i] >> 32)
    for i in (0, 2):
        _merge(v1[i + 1], v1[i], v0, i)
    for i in (0, 2):
        _merge(v0[i + 1], v0[i], v1, i)


def _merge(odd: int, even: int, into: list[int], i: int) -> None:
    """Add the bytes of two lanes, mixed, to two others."""
    into[i] = (
        into[i]
        + (
            ((even & 0xFF000000) | (odd & 0xFF00000000)) >> 24
            | ((even & 0xFF0000000000) | (odd & 0xFF000000000000)) >> 16
            | (even & 0xFF0000)
            | (even & 0xFF00) << 32
            | (odd & 0xFF00000000000000) >> 8
            | (even & 0xFF) << 56
        )
    ) & _WORD
    into[i + 1] = (
        into[i + 1]
        + (
            ((odd & 0xFF000000) | (even & 0xFF00000000)) >> 24
            | (odd & 0xFF0000)
            | (odd & 0xFF0000000000) >> 16
            | (odd & 0xFF00) << 24
            | (even & 0xFF000000000000) >> 8
            | (odd & 0xFF) << 48
            | (even & 0xFF00000000000000)
        )
    ) & _WORD
