"""
HighwayHash-64, with which nats-server protects the records of its block files, computed for many records at once.

Records are sorted by their length and go through the
hash side by side, packet by packet of 32 bytes, as rows of NumPy arrays.

Source: J. Alakuijala, B. Cox, J. Wassenberg, "Fast keyed hash/pseudo-random function using SIMD multiply and permute",
https://arxiv.org/abs/1612.06257
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Lanes = NDArray[np.uint64]
"""One row of four 64-bit lanes for each record."""

_AT_ONCE: Final = 2048
"""Records that go through the hash together: what they take fits into the processor's cache."""
_PACKET: Final = 32
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)
_INIT0: Final = np.array([0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3], np.uint64)
_INIT1: Final = np.array([0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377], np.uint64)
_PAIR: Final = np.array([3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7])
_ZIPPER: Final = np.concatenate([_PAIR, _PAIR + 16]).astype(np.intp)
"""The source of each byte of four lanes when two pairs of lanes are merged."""


def record_hashes(key: bytes, parts: Sequence[bytes]) -> Lanes:
    """Return the HighwayHash-64 of each input, in their order. `key`: 32 bytes."""
    hashes = np.empty(len(parts), np.uint64)
    # The longest first: those that still have a packet are the first rows then, a slice without a copy.
    order = sorted(range(len(parts)), key=lambda index: -len(parts[index]))
    for start in range(0, len(order), _AT_ONCE):
        chosen = order[start : start + _AT_ONCE]
        hashes[chosen] = _hashes(key, [parts[index] for index in chosen])
    return hashes


class _HashStates:
    """The states of several hashes, one row each."""

    def __init__(self, v0: Lanes, v1: Lanes, mul0: Lanes, mul1: Lanes) -> None:
        self.v0, self.v1, self.mul0, self.mul1 = v0, v1, mul0, mul1
        self._products, self._merged = np.empty_like(v0), np.empty_like(v0)

    @classmethod
    def begin(cls, key: bytes, count: int) -> "_HashStates":
        """The states before anything was taken in."""
        words = np.frombuffer(key, "<u8").astype(np.uint64)
        swapped = (words >> _HALF) | (words << _HALF)
        rows = (_INIT0 ^ words, _INIT1 ^ swapped, _INIT0, _INIT1)
        return cls(*(np.tile(row, (count, 1)) for row in rows))

    def update(self, packets: Lanes) -> None:
        """Take a packet into each of the first rows."""
        count = len(packets)
        v0, v1, mul0, mul1 = self.v0[:count], self.v1[:count], self.mul0[:count], self.mul1[:count]
        product, merged = self._products[:count], self._merged[:count]
        v1 += packets
        v1 += mul0
        np.bitwise_and(v1, _LOW, out=product)
        np.right_shift(v0, _HALF, out=merged)
        product *= merged
        mul0 ^= product
        v0 += mul1
        np.bitwise_and(v0, _LOW, out=product)
        np.right_shift(v1, _HALF, out=merged)
        product *= merged
        mul1 ^= product
        _zipper_merge(v1, merged)
        v0 += merged
        _zipper_merge(v0, merged)
        v1 += merged

    def take_remainders(self, packets: Lanes, sizes: NDArray[np.int64]) -> None:
        """Take the padded last packet into each row whose input does not end with a whole one."""
        rows = np.nonzero(sizes)[0]
        bits = sizes[rows].astype(np.uint64)[:, None]
        low, high = self.v1[rows] & _LOW, self.v1[rows] >> _HALF
        back = _HALF - bits
        low, high = ((low << bits) | (low >> back)) & _LOW, ((high << bits) | (high >> back)) & _LOW
        v0 = self.v0[rows] + (bits << _HALF) + bits
        rest = _HashStates(v0, (high << _HALF) | low, self.mul0[rows], self.mul1[rows])
        rest.update(packets[rows])
        self.v0[rows], self.v1[rows], self.mul0[rows], self.mul1[rows] = rest.v0, rest.v1, rest.mul0, rest.mul1

    def finish(self) -> Lanes:
        for _ in range(4):
            swapped = self.v0[:, [2, 3, 0, 1]]
            self.update((swapped >> _HALF) | (swapped << _HALF))
        return self.v0[:, 0] + self.v1[:, 0] + self.mul0[:, 0] + self.mul1[:, 0]


def _zipper_merge(lanes: Lanes, out: Lanes) -> None:
    np.take(
        lanes.view(np.uint8).reshape(-1, _PACKET),
        _ZIPPER,
        axis=1,
        out=out.view(np.uint8).reshape(-1, _PACKET),
        mode="clip",
    )


def _hashes(key: bytes, parts: Sequence[bytes]) -> Lanes:
    """Return the hashes of inputs that are sorted by length, the longest first."""
    states = _HashStates.begin(key, len(parts))
    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    # With room behind the last one, so that every place has 32 bytes.
    source = np.frombuffer(b"".join(parts) + bytes(_PACKET), np.uint8)
    starts = np.cumsum(lengths) - lengths
    whole = lengths // _PACKET
    # The 32 bytes at any place, without a copy.
    windows = np.lib.stride_tricks.as_strided(
        source[:_PACKET].view(f"V{_PACKET}"), shape=(len(source) - _PACKET + 1,), strides=(1,), writeable=False
    )
    for index in range(int(whole[0]) if len(parts) else 0):
        count = int(np.searchsorted(-whole, -index, side="left"))  # the rows that have so many
        states.update(windows[starts[:count] + _PACKET * index].view("<u8").reshape(count, 4))
    sizes = lengths % _PACKET
    if sizes.any():
        ends = windows[starts + whole * _PACKET].view(np.uint8).reshape(-1, _PACKET)
        states.take_remainders(_padded(ends, sizes), sizes)
    return states.finish()


def _padded(ends: NDArray[np.uint8], sizes: NDArray[np.int64]) -> Lanes:
    """Return the last packets, in the order of bytes that the hash prescribes for fewer than 32."""
    last = sizes % 4
    before = sizes - last
    packets = np.where(np.arange(_PACKET)[None, :] < before[:, None], ends, 0).astype(np.uint8)
    rows = np.arange(len(sizes))
    is_large = sizes >= 16
    for index in range(4):
        large = rows[is_large]
        packets[large, 28 + index] = ends[large, sizes[large] - 4 + index]
    small = rows[~is_large & (last > 0)]
    packets[small, 16] = ends[small, before[small]]
    packets[small, 17] = ends[small, before[small] + last[small] // 2]
    packets[small, 18] = ends[small, sizes[small] - 1]
    return packets.view("<u8").reshape(-1, 4)
