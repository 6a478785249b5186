"""
Whether the pages of an LMDB data file hang together, read without the library.

Every page that a snapshot reaches is read: what the nodes on it say of their place and size, the order of keys, the counts of each
tree, and the lists of free pages. Whether a row says what was written, its own checksum tells (see `checksums`).

The pages of a data file of LMDB 0.9 on a 64-bit machine, read without the library.

LMDB has no checksums, and follows what stands in a page without a look: a flipped bit can end the process, by an assertion or by
touching what is beyond the end of the file. Here nothing of a page is used before it is checked.
"""

import os
from contextlib import suppress
from pathlib import Path
from struct import Struct, calcsize
from typing import Final, NamedTuple

from ..operating_system import OPEN_FLAGS, read_at

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
    raw = read_at(descriptor, _META_BYTES, number * page_bytes)
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


_LOOKS: Final = 20
_POINTER_BYTES: Final = 8


def find_damage(file: Path) -> str | None:
    """
    Return a description of damage in the newest snapshot of a data file; None when there is none, or the file changes too fast.

    Others may have the file open, and write. Takes about as long as reading all rows.
    """
    if not IS_KNOWN_LAYOUT:
        return None
    descriptor = os.open(file, os.O_RDONLY | OPEN_FLAGS)
    try:
        if os.fstat(descriptor).st_size == 0:
            return None  # as good as new: its maker died at once
        for _ in range(_LOOKS):
            snapshot = damage = None
            try:
                snapshot = newest_snapshot(descriptor)
                _Check(descriptor, snapshot).run()
            except PageError as error:
                damage = str(error)
            if damage is None:
                return None
            # Pages of an older snapshot may be used again while they are read: only where nothing was written meanwhile is it damage.
            with suppress(PageError):
                if snapshot is None or newest_snapshot(descriptor) == snapshot:
                    return damage
    finally:
        os.close(descriptor)
    return None


class _Check:
    """A walk over everything that one snapshot reaches."""

    def __init__(self, descriptor: int, snapshot: PageSnapshot) -> None:
        self._descriptor, self._snapshot = descriptor, snapshot
        self._bytes = snapshot.page_bytes
        self._present = os.fstat(descriptor).st_size // self._bytes
        self._used = bytearray(snapshot.last_page + 1)
        self._used[:2] = b"\1\1"  # the two snapshots

    def run(self) -> None:
        """Walk over both trees and the lists of free pages. Raises `PageError`."""
        _Walk(self, self._snapshot.main, is_main=True).run()
        free = _Walk(self, self._snapshot.free)
        free.run()
        for page, value in free.values:
            for number in parse_free_pages(page, value):
                self.take(number, is_free=True)

    def take(self, number: int, count: int = 1, *, is_free: bool = False) -> None:
        """Note that pages are in use. Raises `PageError` when they do not exist or something else uses them."""
        if not 2 <= number <= number + count - 1 <= self._snapshot.last_page:
            msg = f"page {number} does not exist, and something refers to it"
            raise PageError(msg)
        # Pages that were freed before they were written were never there: the file may end before the last page.
        if number + count > self._present and not is_free:
            msg = f"the file ends before page {number + count - 1:,}, which is in use"
            raise PageError(msg)
        if any(self._used[number : number + count]):
            msg = f"page {number} is used twice"
            raise PageError(msg)
        self._used[number : number + count] = b"\1" * count

    def page(self, number: int) -> NodePage:
        self.take(number)
        return parse_page(number, read_at(self._descriptor, self._bytes, number * self._bytes), self._bytes)

    def value(self, number: int, value_bytes: int, *, is_read: bool) -> tuple[int, bytes]:
        """Return the number of pages of a value that has pages of its own; and the value, if it `is_read`."""
        is_there = 2 <= number <= self._snapshot.last_page
        header = read_at(self._descriptor, HEADER_BYTES, number * self._bytes) if is_there else b""
        pages = count_value_pages(number, header, value_bytes, self._bytes)
        self.take(number, pages)
        return pages, read_at(self._descriptor, value_bytes, number * self._bytes + HEADER_BYTES) if is_read else b""


class _Walk:
    def __init__(
        self, check: _Check, tree: TreeRecord, *, is_main: bool = False, is_of_duplicates: bool = False
    ) -> None:
        self._check, self._tree = check, tree
        self._is_main, self._is_of_duplicates = is_main, is_of_duplicates
        self._are_numbers = tree.flags & NUMBERS != 0
        self._counted = [0, 0, 0, 0]  # as in the record: branches, leaves, pages of values, entries
        self.values: list[tuple[int, bytes]] = []
        """Of the lists of free pages: (page, value)."""

    def run(self) -> None:
        """Walk over it. Raises `PageError`."""
        tree = self._tree
        if tree.root == NO_PAGE:
            return
        if not 1 <= tree.depth <= MAX_DEPTH:
            msg = f"a tree at page {tree.root} says that it is {tree.depth} pages deep"
            raise PageError(msg)
        self._visit(tree.root, tree.depth, b"", None)
        counted = [tree.branch_pages, tree.leaf_pages, tree.overflow_pages, tree.entries]
        if tree.flags & SORTED_DUPLICATES:  # LMDB loses count of the pages of these
            counted[:2] = self._counted[:2]
        if self._counted != counted:
            msg = f"the tree at page {tree.root} has {self._counted} branches, leaves, pages of values and entries, not {counted}"
            raise PageError(msg)

    def _visit(self, number: int, height: int, least: bytes, limit: bytes | None) -> None:
        """A page, and what is below it: its keys are from `least` on, and less than `limit`."""
        page = self._check.page(number)
        if page.kind != (LEAF if height == 1 else BRANCH):
            msg = f"page {number} is not the page that is expected there"
            raise PageError(msg)
        if height == 1:
            self._counted[1] += 1
            self._read_leaf(page, least, limit)
            return
        self._counted[0] += 1
        children = self._read_branch(page)
        for at, (key, child) in enumerate(children):
            after = children[at + 1][0] if at + 1 < len(children) else limit
            self._visit(child, height - 1, key if at else least, after)

    def _read_branch(self, page: NodePage) -> list[tuple[bytes, int]]:
        children: list[tuple[bytes, int]] = []
        raw, taken = page.raw, 0
        for at, child, _, key_bytes in parse_nodes(page):
            end = at + NODE_BYTES + key_bytes
            key = raw[at + NODE_BYTES : end]
            # The first key of a branch separates nothing and is not compared.
            if end > len(raw) or (len(children) > 1 and not self._precedes(children[-1][0], key)):
                raise misplaced(page.number)
            taken += NODE_BYTES + key_bytes + (key_bytes & 1)
            children.append((key, child))
        if len(children) < 2 or taken != len(raw) - page.upper:
            raise misplaced(page.number)
        return children

    def _read_leaf(self, page: NodePage, least: bytes, limit: bytes | None) -> None:
        number, raw = page.number, page.raw
        last, taken = None, 0
        for at, value_bytes, flags, key_bytes in parse_nodes(page):
            key_end = at + NODE_BYTES + key_bytes
            key = raw[at + NODE_BYTES : key_end]
            stored = _POINTER_BYTES if flags & BIG else value_bytes
            if key_end + stored > len(raw) or (last is not None and not self._precedes(last, key)):
                raise misplaced(number)
            if last is None and least and self._precedes(key, least):
                raise misplaced(number)
            taken += NODE_BYTES + key_bytes + stored
            taken += taken & 1
            last = key
            if flags:
                self._read_flagged(number, raw, key_end, flags, value_bytes)
            else:
                self._counted[3] += 1
                if self._are_numbers:
                    self.values.append((number, raw[key_end : key_end + value_bytes]))
        is_beyond = last is not None and limit is not None and not self._precedes(last, limit)
        if is_beyond or taken != len(raw) - page.upper:
            raise misplaced(number)

    def _read_flagged(self, number: int, page: bytes, at: int, flags: int, value_bytes: int) -> None:
        """A value that is somewhere else, is a tree, or is several."""
        if flags == BIG and not self._is_of_duplicates:
            pages, value = self._check.value(parse_number(page, at), value_bytes, is_read=self._are_numbers)
            self._counted[2] += pages
            self._counted[3] += 1
            if self._are_numbers:
                self.values.append((number, value))
            return
        has_duplicates = bool(self._tree.flags & SORTED_DUPLICATES)
        if flags in {SUBTREE, SUBTREE | DUPLICATES} and value_bytes == TREE_BYTES:
            tree = parse_tree(page, at)
            if (flags == SUBTREE and self._is_main) or (flags != SUBTREE and has_duplicates):
                _Walk(self._check, tree, is_of_duplicates=flags != SUBTREE).run()
                self._counted[3] += 1 if flags == SUBTREE else tree.entries
                return
        if flags == DUPLICATES and has_duplicates:
            self._counted[3] += _count_on_sub_page(parse_sub_page(number, page[at : at + value_bytes]))
            return
        msg = f"page {number} has a value of an unknown kind, {flags:#x}"
        raise PageError(msg)

    def _precedes(self, key: bytes, other: bytes) -> bool:
        if self._are_numbers:
            return int.from_bytes(key, "little") < int.from_bytes(other, "little")
        return key < other


def _count_on_sub_page(page: NodePage) -> int:
    """Return the number of values of a key that lie on a page within the page."""
    last, taken = None, 0
    for at, number, flags, value_bytes in parse_nodes(page):
        end = at + NODE_BYTES + value_bytes
        value = page.raw[at + NODE_BYTES : end]
        if number or flags or end > len(page.raw) or (last is not None and last >= value):
            raise misplaced(page.number)
        taken += NODE_BYTES + value_bytes + (value_bytes & 1)
        last = value
    if taken != len(page.raw) - page.upper:
        raise misplaced(page.number)
    return len(page.offsets)
