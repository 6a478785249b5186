"""Columns of numbers in rows: each number in as few bytes as the largest needs, or fewer, with the larger ones as exceptions."""

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_U2, _U4 = np.dtype("<u2"), np.dtype("<u4")
_EXCEPTION_BYTES: Final = 6
_MAX_PLACES: Final = 1 << 16
_LARGEST: Final = (0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF)
"""By the width in bytes."""


def width_of(largest: int) -> int:
    """Return how many bytes a number needs: 1 to 4."""
    return 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 3 if largest < 1 << 24 else 4


def pack(values: "NDArray[Any]", width: int) -> bytes:
    """Return the lower bytes of each number, so many of each."""
    if width == 1:
        return values.astype(np.uint8).tobytes()
    if width == 2:  # bytes
        return values.astype(_U2).tobytes()
    packed = np.ascontiguousarray(values, _U4)
    return packed.tobytes() if width == 4 else packed.view(np.uint8).reshape(-1, 4)[:, :3].tobytes()


def unpack(raw: bytes, width: int, count: int, at: int) -> "NDArray[Any]":
    """Return so many unsigned numbers from a place on; read-only, and of whatever type has that width."""
    if width == 1:
        return np.frombuffer(raw, np.uint8, count, at)
    if width == 2:  # bytes
        return np.frombuffer(raw, _U2, count, at)
    if width == 4:
        return np.frombuffer(raw, _U4, count, at)
    wide = np.zeros((count, 4), np.uint8)  # three bytes, which NumPy has no number of
    wide[:, :3] = np.frombuffer(raw, np.uint8, 3 * count, at).reshape(count, 3)
    return wide.view(_U4).reshape(count)


class Column(NamedTuple):
    """
    Packed numbers, and those that do not fit.

    Args:
        width: Of each number, in bytes.
        values: The numbers; of an exception its lower bytes.
        exceptions: Their places as numbers of two bytes, then the exceptions, as numbers of four.
        exception_count: How many exceptions there are.
    """

    width: int
    values: bytes
    exceptions: bytes
    exception_count: int


def packed(values: "NDArray[Any]") -> Column:
    """Pack numbers below 2**32, with exceptions where that takes fewer bytes."""
    largest = int(values.max()) if len(values) else 0
    width = width_of(largest)
    if width == 1 or len(values) >= _MAX_PLACES:  # the places of exceptions have two bytes
        return Column(width, pack(values, width), b"", 0)
    sizes = {width: width * len(values)}
    for narrower in (1, 2):
        if narrower < width:
            beyond = int(np.count_nonzero(values > _LARGEST[narrower]))
            sizes[narrower] = narrower * len(values) + _EXCEPTION_BYTES * beyond
    best = min(sizes, key=sizes.__getitem__)
    if best == width:
        return Column(width, pack(values, width), b"", 0)
    places = np.flatnonzero(values > _LARGEST[best])
    exceptions = places.astype(_U2).tobytes() + values[places].astype(_U4).tobytes()
    return Column(best, pack(values, best), exceptions, len(places))


class StoredColumn(NamedTuple):
    """
    A column where it lies in a row.

    Args:
        raw: The row.
        width, length, at: Of its numbers: how wide, how many, and where they begin.
        exception_count: How many exceptions follow.
    """

    raw: bytes
    width: int
    length: int
    at: int
    exception_count: int

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.at + self.width * self.length + _EXCEPTION_BYTES * self.exception_count

    def values(self) -> "NDArray[Any]":
        """All numbers; of a type that has room for the largest."""
        numbers = unpack(self.raw, self.width, self.length, self.at)
        if self.exception_count:
            numbers = numbers.astype(np.uint32)
            places, exceptions = self._exceptions()
            numbers[places] = exceptions
        return numbers

    def taken(self, indexes: "NDArray[np.int64]") -> "NDArray[np.uint32]":
        """Return the numbers at ascending places."""
        numbers: NDArray[np.uint32] = unpack(self.raw, self.width, self.length, self.at)[indexes].astype(np.uint32)
        if self.exception_count and len(indexes):
            places, exceptions = self._exceptions()
            among = np.searchsorted(places, indexes)
            among[among == len(places)] = 0
            is_exception = places[among] == indexes
            numbers[is_exception] = exceptions[among[is_exception]]
        return numbers

    def copy_to(self, target: "NDArray[np.uint32]", start: int) -> None:
        """Put as many numbers, from a place on, as there is room for."""
        target[:] = unpack(self.raw, self.width, len(target), self.at + self.width * start)
        if self.exception_count:
            places, exceptions = self._exceptions()
            if len(target) < self.length:
                first, last = places.searchsorted(start), places.searchsorted(start + len(target))
                places, exceptions = places[first:last] - start, exceptions[first:last]
            target[places] = exceptions

    def _exceptions(self) -> "tuple[NDArray[np.int64], NDArray[Any]]":
        at, count = self.at + self.width * self.length, self.exception_count
        places = np.frombuffer(self.raw, _U2, count, at).astype(np.int64)
        return places, np.frombuffer(self.raw, _U4, count, at + 2 * count)
