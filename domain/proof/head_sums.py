"""
Sums over the last events of chats: of two ledgers that have the same ones all sums are equal, and those that differ lead to the rest.

A tree of two levels over 65,536 buckets, into which the digests of their ids put chats. A bucket has the sum of one number for each
of its chats, so that a chat that goes on changes it without a look at its neighbours.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from typing import Final

from ..chat.state import StreamHead

BUCKET_BYTES: Final = 2
_SUM_BYTES: Final = 32
_MODULUS: Final = 1 << 8 * _SUM_BYTES
# Half a digest travels: whoever is to be misled by equal ones has to be the one who answers, who could as well say nothing.
_DIGITS: Final = 32


def bucket_of(chat_id: str) -> bytes:
    """Return the bucket of a chat."""
    return sha256(chat_id.encode()).digest()[:BUCKET_BYTES]


def moved(total: bytes, chat_id: str, before: StreamHead | None, head: StreamHead | None) -> bytes:
    """Return the sum of a bucket in which the last event of a chat took the place of another one; empty for one without chats."""
    # Added up, not combined by XOR, with which chats of any wanted sum are found by solving linear equations.
    number, encoded = int.from_bytes(total), chat_id.encode()
    if before is not None:
        number -= int.from_bytes(sha256(before.version.to_bytes(8) + before.hash + encoded).digest())
    if head is not None:
        number += int.from_bytes(sha256(head.version.to_bytes(8) + head.hash + encoded).digest())
    return (number % _MODULUS).to_bytes(_SUM_BYTES) if number else b""


def bucket_sums(heads: Mapping[str, tuple[int, str]]) -> dict[bytes, bytes]:
    """Return the sums of the buckets that chats are in, from the versions and hashes of their last events."""
    sums: dict[bytes, bytes] = {}
    for chat_id, (version, event_hash) in heads.items():
        bucket, head = bucket_of(chat_id), StreamHead(version, 0, bytes.fromhex(event_hash))
        sums[bucket] = moved(sums.get(bucket, b""), chat_id, None, head)
    return dict(sorted(sums.items()))


def rows_below(sums: Mapping[bytes, bytes], first: bytes) -> Iterable[tuple[bytes, bytes]]:
    """Return those of the sums of `bucket_sums` whose buckets begin with some bytes."""
    return [(bucket, total) for bucket, total in sums.items() if bucket.startswith(first)]


def sums_under(read: Callable[[bytes], Iterable[tuple[bytes, bytes]]], under: Sequence[str]) -> dict[str, str]:
    """
    Return what stands directly below places of the tree: below `""` up to 256 groups, below each of these its buckets.

    Args:
        read: Yields the buckets that begin with some bytes, in order, with their sums.
        under: The places, in hexadecimal digits; none of them for the root, which is at `""`.
    """
    if not under:
        return {"": _digest(read(b""))}
    sums: dict[str, str] = {}
    for place in dict.fromkeys(under):
        if place:
            sums.update((bucket.hex(), total.hex()[:_DIGITS]) for bucket, total in read(bytes.fromhex(place)))
        else:
            groups = groupby(read(b""), key=lambda row: row[0][:1])
            sums.update((first.hex(), _digest(rows)) for first, rows in groups)
    return sums


def _digest(rows: Iterable[tuple[bytes, bytes]]) -> str:
    return sha256(b"".join(bucket + total for bucket, total in rows)).hexdigest()[:_DIGITS]
