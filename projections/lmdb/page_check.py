"""
Whether the pages of an LMDB 0.9 data file hang together, read without the library.

LMDB has no checksums, and follows what stands in a page without a look: a flipped bit can end the process, by an assertion or by
touching what is beyond the end of the file. So the file is read here as bytes: every page that a snapshot reaches, what the
nodes on it say of their place and size, the order of keys, the counts of each tree, and the lists of free pages. Whether a row
says what was written, its own checksum tells (see `checksums`).
"""

import os
from pathlib import Path
from struct import Struct, calcsize
from typing import Final, NamedTuple

_HEADER: Final = 16
_META: Final = Struct("=IIQQ")
_TREE: Final = Struct("=IHHQQQQQ")
_META_END: Final = Struct("=QQ")
_META_BYTES: Final = _HEADER + _META.size + 2 * _TREE.size + _META_END.size
_PAGE: Final = Struct("=QHHHH")
_RUN: Final = Struct("=QHHI")
_NODE: Final = Struct("=HHHH")
_NODE_BYTES: Final = 8
_U64: Final = Struct("=Q")
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH, _LEAF, _OVERFLOW, _META_PAGE, _SUB_PAGE = 0x01, 0x02, 0x04, 0x08, 0x42
_DIRTY: Final = 0x10
_BIG, _SUBTREE, _DUPLICATES = 0x01, 0x02, 0x04
_SORTED_DUPLICATES, _NUMBERS = 0x04, 0x08
_NO_PAGE: Final = 2**64 - 1
_MAX_DEPTH: Final = 32
_LOOKS: Final = 20


class DamagedPageError(Exception):
    """What is wrong, and on which page."""


class _Tree(NamedTuple):
    """What the record of a tree says of it."""

    flags: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    root: int


class _Snapshot(NamedTuple):
    """Where a snapshot begins."""

    txn_id: int
    page_bytes: int
    last_page: int
    free: _Tree
    main: _Tree


def find_damage(file: Path) -> str | None:
    """
    What is wrong with the newest snapshot of a data file; None when nothing is, or when it changes too fast to say.

    Others may have the file open, and write. Takes about as long as reading all rows.
    """
    if calcsize("P") != 8:
        return None  # another layout
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size == 0:
            return None  # as good as new: its maker died at once
        for _ in range(_LOOKS):
            snapshot = damage = None
            try:
                snapshot = _newest(descriptor)
                _Check(descriptor, snapshot).run()
            except DamagedPageError as error:
                damage = str(error)
            if damage is None:
                return None
            if snapshot is None or _is_still(descriptor, snapshot):
                return damage
    finally:
        os.close(descriptor)
    return None


def _is_still(descriptor: int, snapshot: _Snapshot) -> bool:
    """Whether nothing was written since: pages of an older snapshot may be used again."""
    try:
        return _newest(descriptor) == snapshot
    except DamagedPageError:
        return False


def _newest(descriptor: int) -> _Snapshot:
    first = _meta_at(descriptor, 0, 0)
    return max(first, _meta_at(descriptor, 1, first.page_bytes))


def _meta_at(descriptor: int, number: int, page_bytes: int) -> _Snapshot:
    raw = os.pread(descriptor, _META_BYTES, number * page_bytes)
    if len(raw) < _META_BYTES:
        msg = "the file ends within its first two pages"
        raise DamagedPageError(msg)
    _, _, kind, _, _ = _PAGE.unpack_from(raw)
    magic, version, _, _ = _META.unpack_from(raw, _HEADER)
    page_bytes, *free = _TREE.unpack_from(raw, _HEADER + _META.size)
    _, *main = _TREE.unpack_from(raw, _HEADER + _META.size + _TREE.size)
    last_page, txn_id = _META_END.unpack_from(raw, _HEADER + _META.size + 2 * _TREE.size)
    is_sound = (
        (magic, version, kind) == (_MAGIC, _VERSION, _META_PAGE)
        and 512 <= page_bytes <= 65536
        and page_bytes & (page_bytes - 1) == 0
        and free[0] == _NUMBERS
        and last_page >= 1
    )
    if not is_sound:
        msg = f"page {number}, with which a snapshot begins, is not what it was"
        raise DamagedPageError(msg)
    return _Snapshot(txn_id, page_bytes, last_page, _Tree(*free), _Tree(*main))


class _Check:
    """A walk over everything that one snapshot reaches."""

    def __init__(self, descriptor: int, snapshot: _Snapshot) -> None:
        self._descriptor, self._snapshot = descriptor, snapshot
        self._bytes = snapshot.page_bytes
        if (snapshot.last_page + 1) * self._bytes > os.fstat(descriptor).st_size:
            msg = f"the file ends before its last page, {snapshot.last_page:,}"
            raise DamagedPageError(msg)
        self._used = bytearray(snapshot.last_page + 1)
        self._used[:2] = b"\1\1"

    def run(self) -> None:
        """Raises `DamagedPageError`."""
        _Walk(self, self._snapshot.main, is_main=True).run()
        free = _Walk(self, self._snapshot.free)
        free.run()
        for page, value in free.values:
            self._take_free(page, value)

    def take(self, number: int, count: int = 1) -> None:
        """Note that pages are used, which nothing else uses."""
        if not 2 <= number <= number + count - 1 <= self._snapshot.last_page:
            msg = f"page {number} does not exist, and something refers to it"
            raise DamagedPageError(msg)
        if any(self._used[number : number + count]):
            msg = f"page {number} is used twice"
            raise DamagedPageError(msg)
        self._used[number : number + count] = b"\1" * count

    def page(self, number: int) -> bytes:
        """The bytes of a page of a tree."""
        self.take(number)
        return os.pread(self._descriptor, self._bytes, number * self._bytes)

    def value(self, number: int, value_bytes: int, *, is_read: bool) -> tuple[int, bytes]:
        """How many pages a value has for itself; and the value, if it `is_read`."""
        is_there = 2 <= number <= self._snapshot.last_page
        header = os.pread(self._descriptor, _HEADER, number * self._bytes) if is_there else bytes(_HEADER)
        itself, _, kind, pages = _RUN.unpack(header)
        # A shorter value that takes the place of a longer one keeps its pages.
        if (itself, kind & ~_DIRTY) != (number, _OVERFLOW) or pages * self._bytes < _HEADER + value_bytes:
            msg = f"page {number} is not the beginning of a value of {value_bytes:,} bytes"
            raise DamagedPageError(msg)
        self.take(number, pages)
        return pages, os.pread(self._descriptor, value_bytes, number * self._bytes + _HEADER) if is_read else b""

    def _take_free(self, page: int, value: bytes) -> None:
        count = _U64.unpack_from(value)[0] if len(value) >= _U64.size else _NO_PAGE
        if len(value) % _U64.size or count > len(value) // _U64.size - 1:
            msg = f"a list of free pages on page {page} does not fit its length"
            raise DamagedPageError(msg)
        for number in memoryview(value).cast("Q")[1 : count + 1]:
            self.take(number)


class _Walk:
    """A walk over one tree."""

    def __init__(self, check: _Check, tree: _Tree, *, is_main: bool = False, is_of_duplicates: bool = False) -> None:
        self._check, self._tree = check, tree
        self._bytes = check._bytes  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - one module, one job
        self._is_main, self._is_of_duplicates = is_main, is_of_duplicates
        self._are_numbers = tree.flags & _NUMBERS != 0
        self._counted = [0, 0, 0, 0]  # as in the record: branches, leaves, pages of values, entries
        self.values: list[tuple[int, bytes]] = []
        """Of the lists of free pages: (page, value)."""

    def run(self) -> None:
        """Walk over it. Raises `DamagedPageError`."""
        tree = self._tree
        if tree.root == _NO_PAGE:
            return
        if not 1 <= tree.depth <= _MAX_DEPTH:
            msg = f"a tree at page {tree.root} says that it is {tree.depth} pages deep"
            raise DamagedPageError(msg)
        self._visit(tree.root, tree.depth, b"", None)
        counted = [tree.branch_pages, tree.leaf_pages, tree.overflow_pages, tree.entries]
        if tree.flags & _SORTED_DUPLICATES:  # LMDB loses count of the pages of these
            counted[:2] = self._counted[:2]
        if self._counted != counted:
            msg = f"the tree at page {tree.root} has {self._counted} branches, leaves, pages of values and entries, not {counted}"
            raise DamagedPageError(msg)

    def _visit(self, number: int, height: int, least: bytes, limit: bytes | None) -> None:
        """A page, and what is below it: its keys are from `least` on, and less than `limit`."""
        page = self._check.page(number)
        itself, _, kind, lower, upper = _PAGE.unpack_from(page) if len(page) == self._bytes else (0, 0, 0, 0, 0)
        wanted = _LEAF if height == 1 else _BRANCH
        if itself != number or kind & ~_DIRTY != wanted or not _HEADER <= lower <= upper <= self._bytes or lower & 1:
            msg = f"page {number} is not the page that is expected there"
            raise DamagedPageError(msg)
        offsets = memoryview(page).cast("H")[_HEADER // 2 : lower // 2].tolist()
        if height == 1:
            self._counted[1] += 1
            self._read_leaf(number, page, offsets, upper, least, limit)
            return
        self._counted[0] += 1
        children = self._read_branch(number, page, offsets, upper)
        for at, (key, child) in enumerate(children):
            after = children[at + 1][0] if at + 1 < len(children) else limit
            self._visit(child, height - 1, key if at else least, after)

    def _read_branch(self, number: int, page: bytes, offsets: list[int], upper: int) -> list[tuple[bytes, int]]:
        children: list[tuple[bytes, int]] = []
        taken = 0
        for at in offsets:
            low, high, top, key_bytes = _node(number, page, at, upper)
            end = at + _NODE_BYTES + key_bytes
            key = page[at + _NODE_BYTES : end]
            if end > len(page) or (len(children) > 1 and not self._precedes(children[-1][0], key)):
                raise _misplaced(number)
            taken += _NODE_BYTES + key_bytes + (key_bytes & 1)
            children.append((key, low | high << 16 | top << 32))
        if len(children) < 2 or taken != len(page) - upper:
            raise _misplaced(number)
        return children

    def _read_leaf(
        self, number: int, page: bytes, offsets: list[int], upper: int, least: bytes, limit: bytes | None
    ) -> None:
        last, taken = None, 0
        for at in offsets:
            low, high, flags, key_bytes = _node(number, page, at, upper)
            key_end = at + _NODE_BYTES + key_bytes
            key, value_bytes = page[at + _NODE_BYTES : key_end], low | high << 16
            stored = _U64.size if flags & _BIG else value_bytes
            if key_end + stored > len(page) or (last is not None and not self._precedes(last, key)):
                raise _misplaced(number)
            if last is None and least and self._precedes(key, least):
                raise _misplaced(number)
            taken += _NODE_BYTES + key_bytes + stored
            taken += taken & 1
            last = key
            if flags:
                self._read_flagged(number, page, key_end, flags, value_bytes)
            else:
                self._counted[3] += 1
                if self._are_numbers:
                    self.values.append((number, page[key_end : key_end + value_bytes]))
        if taken != len(page) - upper or (last is not None and limit is not None and not self._precedes(last, limit)):
            raise _misplaced(number)

    def _read_flagged(self, number: int, page: bytes, at: int, flags: int, value_bytes: int) -> None:
        """A value that is somewhere else, is a tree, or is several."""
        if flags == _BIG and not self._is_of_duplicates:
            (first,) = _U64.unpack_from(page, at)
            pages, value = self._check.value(first, value_bytes, is_read=self._are_numbers)
            self._counted[2] += pages
            self._counted[3] += 1
            if self._are_numbers:
                self.values.append((number, value))
            return
        has_duplicates = bool(self._tree.flags & _SORTED_DUPLICATES)
        if flags in {_SUBTREE, _SUBTREE | _DUPLICATES} and value_bytes == _TREE.size:
            _, *record = _TREE.unpack_from(page, at)
            tree = _Tree(*record)
            if (flags == _SUBTREE and self._is_main) or (flags != _SUBTREE and has_duplicates):
                _Walk(self._check, tree, is_of_duplicates=flags != _SUBTREE).run()
                self._counted[3] += 1 if flags == _SUBTREE else tree.entries
                return
        if flags == _DUPLICATES and has_duplicates:
            self._counted[3] += _count_on_sub_page(number, page[at : at + value_bytes])
            return
        msg = f"page {number} has a value of an unknown kind, {flags:#x}"
        raise DamagedPageError(msg)

    def _precedes(self, one: bytes, other: bytes) -> bool:
        if self._are_numbers:
            return int.from_bytes(one, "little") < int.from_bytes(other, "little")
        return one < other


def _count_on_sub_page(number: int, page: bytes) -> int:
    """How many values a key has, which lie on a page within the page."""
    if len(page) < _HEADER:
        raise _misplaced(number)
    _, _, kind, lower, upper = _PAGE.unpack_from(page)
    if kind & ~_DIRTY != _SUB_PAGE or not _HEADER <= lower <= upper <= len(page) or lower & 1:
        raise _misplaced(number)
    last, taken = None, 0
    offsets = [int.from_bytes(page[at : at + 2], "little") for at in range(_HEADER, lower, 2)]
    for at in offsets:
        low, high, flags, value_bytes = _node(number, page, at, upper)
        end = at + _NODE_BYTES + value_bytes
        value = page[at + _NODE_BYTES : end]
        if low or high or flags or end > len(page) or (last is not None and last >= value):
            raise _misplaced(number)
        taken += _NODE_BYTES + value_bytes + (value_bytes & 1)
        last = value
    if taken != len(page) - upper:
        raise _misplaced(number)
    return len(offsets)


def _node(number: int, page: bytes, at: int, upper: int) -> tuple[int, int, int, int]:
    if at < upper or at & 1 or at + _NODE_BYTES > len(page):
        raise _misplaced(number)
    low, high, flags, key_bytes = _NODE.unpack_from(page, at)
    return low, high, flags, key_bytes


def _misplaced(number: int) -> DamagedPageError:
    return DamagedPageError(f"the rows on page {number} are not where they should be, or not in order")
