"""Chains of many short runs: the segments above a message, and the first pages of segments, each fetched many at a time."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from struct import Struct
from typing import Final

import lmdb

from chatledger.domain.log.parts import list_header

from ..lmdb.checksums import CHECKSUM_BYTES, check_sums
from ..lmdb.environment import Transaction
from ..lmdb.keys import NO_SEGMENT, Tag, place_key, segment_key
from .pages import PAGE_MESSAGES, Run, count_in, first_bodies

SEGMENT: Final = Struct(">IIQIIIII")
"""The stored form of a segment: where it hangs, and the rest of `Segment`."""
_parents: Final = Struct(f">II{SEGMENT.size - 8}x{CHECKSUM_BYTES}x").iter_unpack
_MOST_ROWS: Final = 128
_TOGETHER: Final = 64

Rows = Callable[[int, int, int], Iterable[tuple[bytes, bytes]]]
"""The keys and pages of a segment, as they are stored, that hold the offsets from one to another."""
Missing = Callable[[int], Exception]
"""Makes the error that something of a segment is missing."""


def runs_above(
    txn: Transaction, table: "lmdb._Database", chat_no: int, head: tuple[int, int], wanted: int, missing: Missing
) -> list[Run]:
    """
    Return the runs of the chain of a message, its own one first, until they have as many messages as are wanted.

    Segments are numbered as they begin, so a parent is often near: the rows before a segment are fetched with it.
    """
    runs: list[Run] = []
    parents: list[tuple[int, int]] = []
    rows: list[bytes] = []
    lowest = used_from = 0
    size = 1
    number, offset = head
    while wanted > offset and number != NO_SEGMENT:
        runs.append((number, 0, offset))
        wanted -= offset + 1
        if not wanted:
            break
        if not lowest <= number < lowest + len(rows):
            check_sums([rows[segment - lowest] for segment, _, _ in runs[used_from:-1]])
            # Where forks hang on far older messages, the rows between are of no use: what paid before decides how many are fetched.
            is_used = 2 * (len(runs) - 1 - used_from) >= len(rows)
            size = min(2 * size, _MOST_ROWS) if is_used else max(size // 2, 1)
            lowest, used_from = max(number - size + 1, 0), len(runs) - 1
            cursor = txn.cursor(table)
            is_there = cursor.set_range(segment_key(chat_no, Tag.SEGMENT, lowest))
            rows = list(islice(cursor.iternext(keys=False), number - lowest + 1)) if is_there else []
            # Segments have all numbers up to the newest: unless a row is lost, as many rows later is the row of `number`.
            if not rows or cursor.key() != segment_key(chat_no, Tag.SEGMENT, number):
                raise missing(number)
            parents = list(_parents(b"".join(rows)))
        number, offset = parents[number - lowest]
    # The rows of segments that are not on the chain are not looked at: damage there is no reason to refuse it.
    climbed = len(runs) if wanted else len(runs) - 1
    check_sums([rows[segment - lowest] for segment, _, _ in runs[used_from:climbed]])
    if wanted and number != NO_SEGMENT:
        runs.append((number, offset + 1 - wanted, offset))
    return runs


def count_short(runs: Sequence[Run], at: int) -> int:
    """Return how many runs, from number `at` on, are beginnings of segments that a page could hold; at most 64."""
    count = 0
    for _, first, last in runs[at : at + _TOGETHER]:
        if first or last >= PAGE_MESSAGES:
            break
        count += 1
    return count


def join_runs(
    txn: Transaction, table: "lmdb._Database", chat_no: int, runs: Sequence[Run], *, rows: Rows, missing: Missing
) -> bytes:
    """Return the messages of runs that are beginnings of segments, as one msgpack array."""
    keys = [place_key(chat_no, Tag.PAGE, number, 0) for number, _, _ in runs]
    stored = txn.cursor(table).getmulti(keys)
    if [key for key, _ in stored] != keys:  # `getmulti` passes over keys that are not there
        stored_keys = {key for key, _ in stored}
        raise next(missing(number) for (number, _, _), key in zip(runs, keys, strict=True) if key not in stored_keys)
    pages = [page for _, page in stored]
    check_sums(pages)
    bodies = [first_bodies(page, run[2] + 1) for run, page in zip(runs, pages, strict=True)]
    for at, (number, _, last) in enumerate(runs):
        count = count_in(pages[at])
        if count <= last:  # the others are in rows that are not merged yet
            following = [page for _, page in rows(number, count, last)]
            check_sums(following)
            wanted = last + 1 - count
            for page in following:
                bodies[at] += first_bodies(page, wanted)
                wanted -= count_in(page)
    return list_header(sum(run[2] for run in runs) + len(runs)) + b"".join(bodies)
