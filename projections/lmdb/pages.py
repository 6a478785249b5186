"""
The pages of a data file of LMDB 0.9 on a 64-bit machine, read without the library.

LMDB has no checksums, and follows what stands in a page without a look: a flipped bit can end the process, by an assertion or by
touching what is beyond the end of the file. Here nothing of a page is used before it is checked.
"""

import os
from struct import Struct, calcsize
from typing import Final, NamedTuple

HEADER_BYTES: Final = 16
NODE_BYTES: Final = 8
TREE_BYTES: Final = 48
BRANCH, LEAF, SUB_PAGE = 0x01, 0x02, 0x42
"""The kinds of pages that have nodes."""
BIG, SUBTREE, DUPLICATES = 0x01, 0x02, 0x04
"""Flags of a node: its value is on pages of its own, is a tree, or is several values."""
SORTED_DUPLICATES, NUMBERS = 0x04, 0x08
"""Flags of a tree: a key has several values, keys are numbers."""
NO_PAGE: Final = 2**64 - 1
MAX_DEPTH: Final = 32
"""Of a tree, in pages."""
IS_KNOWN_LAYOUT: Final = calcsize("P") == 8

_META: Final = Struct("=IIQQ")
_TREE: Final = Struct("=IHHQQQQQ")
_META_END: Final = Struct("=QQ")
_META_BYTES: Final = HEADER_BYTES + _META.size + 2 * _TREE.size + _META_END.size
_PAGE: Final = Struct("=QHHHH")
_RUN: Final = Struct("=QHHI")
_NODE: Final = Struct("=HHHH")
_U64: Final = Struct("=Q")
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_OVERFLOW, _META_PAGE, _DIRTY = 0x04, 0x08, 0x10


class PageError(Exception):
    """A page is not laid out as LMDB 0.9 does it; the message says which page."""


class TreeRecord(NamedTuple):
    """The record of a tree: its root, and the numbers of its pages and entries."""

    flags: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    root: int


class PageSnapshot(NamedTuple):
    """The record of a snapshot: its transaction, the size of pages, the last of them, and its two trees."""

    txn_id: int
    page_bytes: int
    last_page: int
    free: TreeRecord
    main: TreeRecord


class NodePage(NamedTuple):
    """A page with nodes: its kind, the places of its nodes, and the bounds of the unused part between these and the nodes."""

    number: int
    raw: bytes
    kind: int
    offsets: list[int]
    lower: int
    upper: int


def read_snapshots(descriptor: int) -> tuple[PageSnapshot, PageSnapshot]:
    """Read the last two snapshots of a data file, in the order in which they lie there. Raises `PageError`."""
    first = _snapshot_at(descriptor, 0, 0)
    return first, _snapshot_at(descriptor, 1, first.page_bytes)


def newest_snapshot(descriptor: int) -> PageSnapshot:
    """Return the snapshot that LMDB opens: the later one, and the first if both are of the same transaction."""
    # A flipped bit can give both the same transaction. LMDB takes the first then, and what is checked must be what is opened.
    return max(read_snapshots(descriptor), key=lambda snapshot: snapshot.txn_id)


def _snapshot_at(descriptor: int, number: int, page_bytes: int) -> PageSnapshot:
    raw = os.pread(descriptor, _META_BYTES, number * page_bytes)
    if len(raw) < _META_BYTES:
        msg = "the file ends within its first two pages"
        raise PageError(msg)
    _, _, kind, _, _ = _PAGE.unpack_from(raw)
    magic, version, _, _ = _META.unpack_from(raw, HEADER_BYTES)
    page_bytes, *free = _TREE.unpack_from(raw, HEADER_BYTES + _META.size)
    last_page, txn_id = _META_END.unpack_from(raw, HEADER_BYTES + _META.size + 2 * _TREE.size)
    is_sound = (
        (magic, version, kind) == (_MAGIC, _VERSION, _META_PAGE)
        and 512 <= page_bytes <= 65536
        and page_bytes & (page_bytes - 1) == 0
        and free[0] == NUMBERS
        and last_page >= 1
    )
    if not is_sound:
        msg = f"page {number}, with which a snapshot begins, is not what it was"
        raise PageError(msg)
    main = parse_tree(raw, HEADER_BYTES + _META.size + _TREE.size)
    return PageSnapshot(txn_id, page_bytes, last_page, TreeRecord(*free), main)


def parse_tree(raw: bytes, at: int) -> TreeRecord:
    """Return the record of a tree that begins at a place of a page."""
    _, *record = _TREE.unpack_from(raw, at)
    return TreeRecord(*record)


def parse_page(number: int, raw: bytes, page_bytes: int) -> NodePage:
    """Return a branch or a leaf. Raises `PageError` when the page is neither, or has another number."""
    itself, _, kind, lower, upper = _PAGE.unpack_from(raw) if len(raw) == page_bytes else (NO_PAGE, 0, 0, 0, 0)
    kind &= ~_DIRTY
    if itself != number or kind not in {BRANCH, LEAF} or not HEADER_BYTES <= lower <= upper <= page_bytes or lower & 1:
        msg = f"page {number} is not the page that is expected there"
        raise PageError(msg)
    offsets = memoryview(raw).cast("H")[HEADER_BYTES // 2 : lower // 2].tolist()
    return NodePage(number, raw, kind, offsets, lower, upper)


def parse_sub_page(number: int, raw: bytes) -> NodePage:
    """Return a page of values that lies within a page, as the value of a key. Raises `PageError` when it is no such page."""
    if len(raw) < HEADER_BYTES:
        raise misplaced(number)
    _, _, kind, lower, upper = _PAGE.unpack_from(raw)
    if kind & ~_DIRTY != SUB_PAGE or not HEADER_BYTES <= lower <= upper <= len(raw) or lower & 1:
        raise misplaced(number)
    offsets = [int.from_bytes(raw[at : at + 2], "little") for at in range(HEADER_BYTES, lower, 2)]
    return NodePage(number, raw, SUB_PAGE, offsets, lower, upper)


def parse_nodes(page: NodePage) -> list[tuple[int, int, int, int]]:
    """
    Return the nodes of a page: where each begins, its number, its flags, and how many bytes its key has, which follows.

    The number is that of the child on a branch, with flags of 0, and the bytes of the value on a leaf. Raises `PageError` when
    no node can begin there.
    """
    # All nodes of a page in one call: with a call for each the check of a file took 1.4 times as long.
    _, raw, kind, offsets, _, upper = page
    last, unpack = len(raw) - NODE_BYTES, _NODE.unpack_from
    nodes: list[tuple[int, int, int, int]] = []
    for at in offsets:
        if at < upper or at & 1 or at > last:
            raise misplaced(page.number)
        low, high, flags, key_bytes = unpack(raw, at)
        if kind == BRANCH:
            nodes.append((at, low | high << 16 | flags << 32, 0, key_bytes))
        else:
            nodes.append((at, low | high << 16, flags, key_bytes))
    return nodes


def parse_number(raw: bytes, at: int) -> int:
    """Return the number at a place of a page, e.g. of the page of a value."""
    number: int = _U64.unpack_from(raw, at)[0]
    return number


def count_value_pages(number: int, header: bytes, value_bytes: int, page_bytes: int) -> int:
    """Return the number of pages of a value whose first page has this header. Raises `PageError` when it is no such page."""
    itself, _, kind, pages = _RUN.unpack(header) if len(header) == HEADER_BYTES else (NO_PAGE, 0, 0, 0)
    # A shorter value that takes the place of a longer value keeps its pages.
    if (itself, kind & ~_DIRTY) != (number, _OVERFLOW) or pages * page_bytes < HEADER_BYTES + value_bytes:
        msg = f"page {number} is not the beginning of a value of {value_bytes:,} bytes"
        raise PageError(msg)
    count: int = pages
    return count


def parse_free_pages(number: int, value: bytes) -> list[int]:
    """Return the numbers in a list of free pages, which stands on this page. Raises `PageError` when they do not fit its length."""
    count = parse_number(value, 0) if len(value) >= _U64.size else NO_PAGE
    if len(value) % _U64.size or count > len(value) // _U64.size - 1:
        msg = f"a list of free pages on page {number} does not fit its length"
        raise PageError(msg)
    return memoryview(value).cast("Q")[1 : count + 1].tolist()


def misplaced(number: int) -> PageError:
    """Return the error of a page whose nodes overlap, or are not in order."""
    return PageError(f"the rows on page {number} are not where they should be, or not in order")
