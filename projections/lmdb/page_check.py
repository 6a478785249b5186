"""
Whether the pages of an LMDB data file hang together, read without the library.

Every page that a snapshot reaches is read: what the nodes on it say of their place and size, the order of keys, the counts of each
tree, and the lists of free pages. Whether a row says what was written, its own checksum tells (see `checksums`).
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from .pages import (
    BIG,
    BRANCH,
    DUPLICATES,
    HEADER_BYTES,
    IS_KNOWN_LAYOUT,
    LEAF,
    MAX_DEPTH,
    NO_PAGE,
    NODE_BYTES,
    NUMBERS,
    SORTED_DUPLICATES,
    SUBTREE,
    TREE_BYTES,
    NodePage,
    PageError,
    PageSnapshot,
    TreeRecord,
    count_value_pages,
    misplaced,
    newest_snapshot,
    parse_free_pages,
    parse_nodes,
    parse_number,
    parse_page,
    parse_sub_page,
    parse_tree,
)

_LOOKS: Final = 20
_POINTER_BYTES: Final = 8


def find_damage(file: Path) -> str | None:
    """
    Return a description of damage in the newest snapshot of a data file; None when there is none, or the file changes too fast.

    Others may have the file open, and write. Takes about as long as reading all rows.
    """
    if not IS_KNOWN_LAYOUT:
        return None
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
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
        if (snapshot.last_page + 1) * self._bytes > os.fstat(descriptor).st_size:
            msg = f"the file ends before its last page, {snapshot.last_page:,}"
            raise PageError(msg)
        self._used = bytearray(snapshot.last_page + 1)
        self._used[:2] = b"\1\1"  # the two snapshots

    def run(self) -> None:
        """Walk over both trees and the lists of free pages. Raises `PageError`."""
        _Walk(self, self._snapshot.main, is_main=True).run()
        free = _Walk(self, self._snapshot.free)
        free.run()
        for page, value in free.values:
            for number in parse_free_pages(page, value):
                self.take(number)

    def take(self, number: int, count: int = 1) -> None:
        """Note that pages are in use. Raises `PageError` when they do not exist or something else uses them."""
        if not 2 <= number <= number + count - 1 <= self._snapshot.last_page:
            msg = f"page {number} does not exist, and something refers to it"
            raise PageError(msg)
        if any(self._used[number : number + count]):
            msg = f"page {number} is used twice"
            raise PageError(msg)
        self._used[number : number + count] = b"\1" * count

    def page(self, number: int) -> NodePage:
        self.take(number)
        return parse_page(number, os.pread(self._descriptor, self._bytes, number * self._bytes), self._bytes)

    def value(self, number: int, value_bytes: int, *, is_read: bool) -> tuple[int, bytes]:
        """Return the number of pages of a value that has pages of its own; and the value, if it `is_read`."""
        is_there = 2 <= number <= self._snapshot.last_page
        header = os.pread(self._descriptor, HEADER_BYTES, number * self._bytes) if is_there else b""
        pages = count_value_pages(number, header, value_bytes, self._bytes)
        self.take(number, pages)
        return pages, os.pread(self._descriptor, value_bytes, number * self._bytes + HEADER_BYTES) if is_read else b""


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
