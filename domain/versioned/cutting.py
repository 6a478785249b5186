"""
Cutting long values into parts, so that what did not change is found again, and saying what changed in a part.

All of it is about bytes: how good a cut is is the writer's affair, and readers join whatever parts there are.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

PART_BYTES: Final = 32 * 1024
"""A new part has at most so many bytes."""
_LEAST_PART: Final = 8 * 1024
"""A shorter part is cut again with what follows it, so that values that grow leave no crumbs."""
_ANCHOR: Final = 24
_MOST_MISSES: Final = 4
_MOST_DEPTH: Final = 6

Edit = tuple[int, int, bytes]
"""A place in the bytes before, how many of them go there, and what comes in their place."""


def cut(data: bytes, before: Sequence[bytes]) -> list[bytes]:
    """
    Cut bytes into parts, with as many as there are of those that stood here before.

    The parts in order are the bytes, whatever `before` is; equal arguments give equal parts.
    """
    spans: list[tuple[int, int]] = []
    at = misses = missed = 0
    behind = sum(map(len, before))
    for old in before:
        # Behind the part before it, or as far from that or from the end as it was: what repeats itself is found anywhere.
        likely = (at, at + missed, len(data) - behind)
        behind -= len(old)
        place = next((place for place in likely if place >= at and data.startswith(old, place)), -1)
        if place < 0:
            place = data.find(old[:_ANCHOR], at, at + 3 * PART_BYTES)
        if place < 0 or not old or not data.startswith(old, place):
            misses, missed = misses + 1, missed + len(old)
            if misses > _MOST_MISSES and not spans:  # another value: looking on costs more than it finds
                break
            continue
        _add(spans, at, place)
        spans.append((place, place + len(old)))
        at, missed = place + len(old), 0
    _add(spans, at, len(data))
    return [data[start:end] for start, end in spans]


def _add(spans: list[tuple[int, int]], start: int, end: int) -> None:
    """Add new parts, which begin with the part before them if that is short."""
    if start == end:
        return
    if spans and spans[-1][1] - spans[-1][0] < _LEAST_PART:
        start, _ = spans.pop()
    count = -(-(end - start) // PART_BYTES)
    bounds = [start + (end - start) * number // count for number in range(count + 1)]
    spans += pairwise(bounds)


def edits_between(old: bytes, new: bytes) -> list[Edit]:
    """Return the edits that make one of the other, by ascending places."""
    edits: list[Edit] = []
    _compare(old, new, (0, len(old)), (0, len(new)), edits, _MOST_DEPTH)
    return edits


def _compare(
    old: bytes, new: bytes, in_old: tuple[int, int], in_new: tuple[int, int], edits: list[Edit], depth: int
) -> None:
    (a, a_end), (b, b_end) = in_old, in_new
    common = _common_start(old[a:a_end], new[b:b_end])
    a, b = a + common, b + common
    common = _common_end(old[a:a_end], new[b:b_end])
    a_end, b_end = a_end - common, b_end - common
    if a == a_end and b == b_end:
        return
    if depth and min(a_end - a, b_end - b) > 2 * _ANCHOR:
        for share in (2, 1, 3):  # of a quarter: the middle first
            at = a + (a_end - a - _ANCHOR) * share // 4
            anchor = old[at : at + _ANCHOR]
            # As far from the start or from the end as before, if it is there: what repeats itself is found anywhere.
            likely = [
                place for place in (b + at - a, b_end - (a_end - at)) if place >= b and new.startswith(anchor, place)
            ]
            place = likely[0] if likely else new.find(anchor, b, b_end)
            if 0 <= place <= b_end - _ANCHOR:
                _compare(old, new, (a, at), (b, place), edits, depth - 1)
                _compare(old, new, (at, a_end), (place, b_end), edits, depth - 1)
                return
    edits.append((a, a_end - a, new[b:b_end]))


def _common_start(one: bytes, other: bytes) -> int:
    """Count the bytes that both begin with."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while low < high:  # all up to `low` are equal, and not all up to `high`
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_end(one: bytes, other: bytes) -> int:
    """Count the bytes that both end with."""
    return _common_start(one[::-1], other[::-1])


def edited(old: bytes, edits: Iterable[Edit]) -> bytes:
    """
    Return bytes after edits.

    Raises:
        ValueError: They are none of these bytes.
    """
    parts: list[bytes] = []
    at = 0
    for place, dropped, data in edits:
        if not at <= place <= place + dropped <= len(old):
            msg = "edits are not of these bytes"
            raise ValueError(msg)
        parts += (old[at:place], data)
        at = place + dropped
    return b"".join((*parts, old[at:]))


def size_of_edits(edits: Iterable[Edit]) -> int:
    """Return about how many bytes edits take on the log."""
    return sum(len(data) + 9 for _, _, data in edits)
