"""
Scrubbing: what was deleted leaves the index's file too.

Its bytes are in free pages, and in unused parts and keys of pages in use (see `scrub_pages`). The unused parts also get new
ones as long as a process has memory of pages from before the deletion, so each process frees that memory before its next
write: see `Environment.forget_memory_when`. That a scrub is due is a row, written with the deletion, so a crash postpones it only.
"""

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from struct import Struct, calcsize
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Final, NamedTuple

import lmdb

from chatledger.domain.errors import CorruptStateError

from ..custom.stale import wipe_stale
from ..generations import Generation, Generations
from .environment import Transaction

_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
_HEADER: Final = 16
_META: Final = Struct("=IIQQ")
_DATABASE: Final = Struct("=IHHQQQQQ")
_META_END: Final = Struct("=QQ")
_PAGE: Final = Struct("=QHHHH")
_NODE: Final = Struct("=HHHH")
_U16: Final = Struct("=H")
_U64: Final = Struct("=Q")
_LOWER_AT: Final = 12
_OTHER_ORDERS: Final = 0x6A
"""Flags of tables whose keys or values are compared as numbers, or backwards."""
_BRANCH, _LEAF, _OVERFLOW, _LEAF2 = 0x01, 0x02, 0x04, 0x20
_BIG, _SUBTREE = 0x01, 0x02
_NO_PAGE: Final = 2**64 - 1
_CLEAN_MARK: Final = b"\0swept\0\0"
_MARK_BYTES: Final = 16
_RUN_PAGES: Final = 256
_MAX_DEPTH: Final = 64


class UnknownFormatError(Exception):
    """The file is not laid out as LMDB 0.9 does it on a 64-bit machine."""


class Meta(NamedTuple):
    """Where a snapshot begins: its transaction, the roots of its trees, the number of its last page."""

    txn_id: int
    page_bytes: int
    free_root: int
    main_root: int
    last_page: int


class PageFile:
    """The data file of an environment that is open."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if calcsize("P") != 8:
            msg = "the file of a 32-bit machine"
            raise UnknownFormatError(msg)
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._bytes = 4096
        self._file_bytes = 0
        self._visited = bytearray()
        self.cleaned = 0
        """How many pages were written to."""

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def meta(self, txn_id: int) -> Meta | None:
        """The meta page of a transaction; None when it was overwritten by a later one."""
        first = self._meta_at(0, 0)
        self._bytes = first.page_bytes
        return next((meta for meta in (first, self._meta_at(1, first.page_bytes)) if meta.txn_id == txn_id), None)

    def _meta_at(self, number: int, page_bytes: int) -> Meta:
        raw = os.pread(self._fd, 512, number * page_bytes + _HEADER)
        if len(raw) < 512:
            msg = "the file is too short"
            raise UnknownFormatError(msg)
        magic, version, _, _ = _META.unpack_from(raw)
        if (magic, version) != (_MAGIC, _VERSION):
            msg = f"magic {magic:#x}, version {version:#x}"
            raise UnknownFormatError(msg)
        free = _DATABASE.unpack_from(raw, _META.size)
        main = _DATABASE.unpack_from(raw, _META.size + _DATABASE.size)
        last_page, txn_id = _META_END.unpack_from(raw, _META.size + 2 * _DATABASE.size)
        page_bytes = free[0]
        if page_bytes < 512 or page_bytes & (page_bytes - 1):
            msg = f"pages of {page_bytes} bytes"
            raise UnknownFormatError(msg)
        return Meta(txn_id, page_bytes, free[7], main[7], last_page)

    def clean_trees(self, meta: Meta) -> None:
        """
        Overwrite what is unused in the pages of a snapshot, which a read transaction holds.

        A page is marked when it and all below it are clean. A change below it would have made another page of it, so
        marked pages are passed over: the cost is that of the pages written since the last time.

        Raises:
            UnknownFormatError: A page is not what the tree says. Nothing was written to it.
        """
        with self._walking():
            self._clean_tree(meta.free_root, meta, 0, is_text=False)
            self._clean_tree(meta.main_root, meta, 0, is_text=True)

    @contextmanager
    def _walking(self) -> Generator[None]:
        """A walk over trees, which comes to each page once; what is damaged may refer to anything."""
        self._file_bytes = os.fstat(self._fd).st_size
        self._visited = bytearray(self._file_bytes // self._bytes)
        try:
            yield
        except (StructError, IndexError, OverflowError) as error:
            msg = f"something on a page is not where it should be: {error}"
            raise UnknownFormatError(msg) from error

    def _visit(self, number: int) -> None:
        if self._visited[number]:  # in a damaged tree this would go on for ever
            msg = f"page {number} belongs to two places"
            raise UnknownFormatError(msg)
        self._visited[number] = 1

    def _clean_tree(self, number: int, meta: Meta, depth: int, *, is_text: bool) -> bytes:
        """Clean a tree, whose keys are in the order of their bytes if `is_text`; returns its first key."""
        if number == _NO_PAGE:
            return b""
        page, kind, lower, upper = self._page(number, meta, depth)
        mark_at = (upper & ~7) - _MARK_BYTES  # LMDB copies pages in words of 8 bytes: no copy has the whole mark
        mark = _CLEAN_MARK + _U64.pack(number)
        can_mark = mark_at >= (lower + 7) & ~7
        if can_mark and page[mark_at : mark_at + _MARK_BYTES] == mark:
            return self._first_key(page, kind, meta, depth)
        self._visit(number)
        first = b""
        words = memoryview(page).cast("H")
        for index, node in enumerate(words[_HEADER // 2 : lower // 2]):
            at = node // 2
            if node < upper or node & 1:
                msg = f"page {number} has a row at {node}, where nothing is"
                raise UnknownFormatError(msg)
            if kind & _BRANCH:
                child = words[at] | words[at + 1] << 16 | words[at + 2] << 32
                least = self._clean_tree(child, meta, depth + 1, is_text=is_text)
                first = first if index else least
                if is_text:
                    self._clean_separator(number, page, node, least, is_first=not index)
            elif value_kind := words[at + 2]:
                self._clean_value(page, node, value_kind, meta, depth)
        clean = bytearray(upper - lower)
        if can_mark:
            clean[mark_at - lower : mark_at - lower + _MARK_BYTES] = mark
        self._overwrite(number * self._bytes + lower, page[lower:upper], clean)
        return first if kind & _BRANCH else self._first_key(page, kind, meta, depth)

    def _first_key(self, page: bytes, kind: int, meta: Meta, depth: int) -> bytes:
        while True:
            (lower,) = _U16.unpack_from(page, _LOWER_AT)
            if lower == _HEADER:
                return b""
            (node,) = _U16.unpack_from(page, _HEADER)
            low, high, top, key_bytes = _NODE.unpack_from(page, node)
            if not kind & _BRANCH:
                return page[node + 8 : node + 8 + key_bytes]
            depth += 1
            page, kind, _, _ = self._page(low | high << 16 | top << 32, meta, depth)

    def _clean_separator(self, number: int, page: bytes, node: int, least: bytes, *, is_first: bool) -> None:
        """
        Make a key of a branch, which may be of a row that is no more, one of no row: what it shares with a live key stays.

        All its bytes after the first that differs from the least key below become 0xff. Whoever reads it meanwhile, or
        copies the page, sees a mixture that is not less than before and not above that key, so it separates as before.
        """
        (key_bytes,) = _U16.unpack_from(page, node + 6)
        key = page[node + 8 : node + 8 + key_bytes]
        shared = next(
            (at for at, (a, b) in enumerate(zip(key, least, strict=False)) if a != b), min(len(key), len(least))
        )
        if shared == len(key):
            return
        if is_first:  # it separates nothing and is not compared
            shared -= 1
        elif shared == len(least) or key[shared] > least[shared]:
            msg = f"page {number} has a branch to keys that are less than its own"
            raise UnknownFormatError(msg)
        rest = key[shared + 1 :]
        self._overwrite(number * self._bytes + node + 8 + shared + 1, rest, b"\xff" * len(rest))

    def _page(self, number: int, meta: Meta, depth: int) -> tuple[bytes, int, int, int]:
        """A branch or leaf, its kind, and between where and where nothing is. Checked, as it is going to be written to."""
        is_there = 2 <= number <= meta.last_page and depth <= _MAX_DEPTH
        page = os.pread(self._fd, self._bytes, number * self._bytes) if is_there else b""
        if len(page) < self._bytes:
            msg = f"a tree with page {number} at depth {depth}"
            raise UnknownFormatError(msg)
        itself, _, flags, lower, upper = _PAGE.unpack_from(page)
        kind = flags & (_BRANCH | _LEAF | _OVERFLOW | _LEAF2)
        if itself != number or kind not in {_BRANCH, _LEAF} or not _HEADER <= lower <= upper <= self._bytes:
            msg = f"page {number} says it is {itself}, of kind {flags:#x}, unused from {lower} to {upper}"
            raise UnknownFormatError(msg)
        return page, kind, lower, upper

    def _clean_value(self, page: bytes, node: int, kind: int, meta: Meta, depth: int) -> None:
        """The value of a node: on pages of its own, or the root of a tree."""
        low, high, _, key_bytes = _NODE.unpack_from(page, node)
        value_at = node + 8 + key_bytes
        if kind & _BIG:
            (number,) = _U64.unpack_from(page, value_at)
            self._clean_tail(number, low | high << 16, meta)
        elif kind & _SUBTREE:
            _, flags, _, _, _, _, _, root = _DATABASE.unpack_from(page, value_at)
            self._clean_tree(root, meta, depth + 1, is_text=not flags & _OTHER_ORDERS)

    def _clean_tail(self, number: int, value_bytes: int, meta: Meta) -> None:
        """Overwrite what follows a value on its own pages."""
        start = number * self._bytes
        itself, _, flags, low, high = _PAGE.unpack(os.pread(self._fd, _HEADER, start))
        pages = low | high << 16
        end = start + pages * self._bytes
        value_end = start + _HEADER + value_bytes
        is_sound = itself == number and flags & _OVERFLOW and value_end <= end and number + pages - 1 <= meta.last_page
        if not is_sound or end > self._file_bytes:
            msg = f"page {number} of a value of {value_bytes} bytes says it is {itself}, of kind {flags:#x} and {pages} pages"
            raise UnknownFormatError(msg)
        rest = end - value_end
        self._overwrite(value_end, os.pread(self._fd, rest, value_end), bytes(rest))

    def clean_free(self, meta: Meta, *, oldest_reader: int | None) -> bool:
        """
        Overwrite the free pages and what follows the last page, while the write lock is held.

        Pages that were freed after the oldest reader began are left to it. Returns whether there were none.
        """
        is_whole = True
        free: list[int] = []
        with self._walking():
            for freed_by, pages in self._free_lists(meta.free_root, meta, 0):
                if oldest_reader is None or freed_by <= oldest_reader:
                    free += pages
                else:
                    is_whole = False
        free.sort()
        for first, count in _runs(free):
            start, size = first * self._bytes, count * self._bytes
            # A file may have been extended less far than its last page: what was freed before it was written.
            found = os.pread(self._fd, size, start)
            self._overwrite(start, found, bytes(len(found)))
        self._clean_end((meta.last_page + 1) * self._bytes)
        return is_whole

    def _free_lists(self, number: int, meta: Meta, depth: int) -> Iterator[tuple[int, list[int]]]:
        """Which pages each transaction freed."""
        if number == _NO_PAGE:
            return
        page, flags, lower, _ = self._page(number, meta, depth)
        self._visit(number)
        nodes = memoryview(page).cast("H")
        for node in nodes[_HEADER // 2 : lower // 2]:
            at = node // 2
            if flags & _BRANCH:
                yield from self._free_lists(nodes[at] | nodes[at + 1] << 16 | nodes[at + 2] << 32, meta, depth + 1)
                continue
            (freed_by,) = _U64.unpack_from(page, node + 8)
            size = nodes[at] | nodes[at + 1] << 16
            value = page[node + 16 : node + 16 + size]
            if nodes[at + 2] & _BIG:
                (own_page,) = _U64.unpack_from(page, node + 16)
                value = os.pread(self._fd, min(size, self._file_bytes), own_page * self._bytes + _HEADER)
            words = memoryview(value[: len(value) & ~7]).cast("Q")
            count, *pages = words[: words[0] + 1].tolist() if value else [0]
            if len(value) % 8 or len(pages) != count or not all(2 <= one <= meta.last_page for one in pages):
                msg = f"a list of {count} free pages on page {number}"
                raise UnknownFormatError(msg)
            yield freed_by, pages

    def _clean_end(self, start: int) -> None:
        """What transactions that were not finished wrote behind the last page."""
        size = os.fstat(self._fd).st_size
        for at in range(start, size, self._bytes * _RUN_PAGES):
            found = os.pread(self._fd, self._bytes * _RUN_PAGES, at)
            self._overwrite(at, found, bytes(len(found)))

    def _overwrite(self, at: int, found: bytes, wanted: bytes | bytearray) -> None:
        if found == wanted:
            return
        if os.pwrite(self._fd, wanted, at) != len(wanted):
            msg = f"{len(wanted)} bytes at {at} could not be overwritten"
            raise OSError(msg)
        self.cleaned += 1


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Sorted numbers as (first, how many follow each other), at most 256 at once."""
    first, count = -1, 0
    for number in numbers:
        if number == first + count and count < _RUN_PAGES:
            count += 1
            continue
        if count:
            yield first, count
        first, count = number, 1
    if count:
        yield first, count


_LOOKS: Final = 20


def scrub_files(generations: Generations, current: Callable[[], Generation]) -> bool:
    """
    Scrub the current generation, and remove the others. Returns whether nothing is left that was deleted before.

    It does nothing while another process scrubs or builds.

    Raises:
        UnknownFormatError: The file is not of the known format; a new generation has to be built instead.
        CorruptStateError: It cannot be written.
    """
    with generations.building(is_waiting=False) as is_free:
        if not is_free:
            return False
        is_last = generations.remove_others()
        live = current()
        try:
            return scrub(live, is_last=is_last)
        except (lmdb.Error, OSError) as error:
            msg = f"the index at {live.env.path} cannot be cleaned of what was deleted: {error}"
            raise CorruptStateError(msg) from error


def scrub(generation: Generation, *, is_last: bool) -> bool:
    """
    Overwrite everything in the file that no reader of its present snapshot can see.

    Returns whether nothing is left that was deleted before; else a reader still has it, or it was written again meanwhile.
    That is noted for good if `is_last`: if it is not in other files either.

    Raises:
        UnknownFormatError: The file is not of the known format; a new generation has to be built instead.
    """
    with generation.env.reading() as txn:
        if generation.scrub_due(txn) is None:
            return is_last
    if not wipe_stale(generation):
        return False
    pages = PageFile(generation.env.file)
    try:
        due = _scrub_trees(generation, pages)
        if due is None:
            return False

        def finish(txn: Transaction) -> bool:
            meta = pages.meta(generation.env.last_txn_id)
            assert meta is not None, "nobody else writes"
            pages.clean_trees(meta)  # those written since
            is_whole = pages.clean_free(meta, oldest_reader=generation.env.oldest_reader())
            # Who wrote with old memory since then has noted that it is due again.
            if not (is_whole and is_last) or generation.scrub_due(txn) != due:
                return False
            generation.note_scrubbed(txn, due)
            return True

        return generation.env.update(finish)
    finally:
        pages.close()


def _scrub_trees(generation: Generation, pages: PageFile) -> bytes | None:
    """Clean the pages in use, while others write; returns what is done by it. None when others write too fast."""
    for _ in range(_LOOKS):
        with generation.env.reading() as txn:
            meta = _meta(generation, pages, txn)
            if meta is not None:
                due = generation.scrub_due(txn)
                pages.clean_trees(meta)
                return due
    return None


def _meta(generation: Generation, pages: PageFile, txn: Transaction) -> Meta | None:
    """Where the snapshot of a transaction begins; None when it may have been overwritten while it was read."""
    meta = pages.meta(txn.id())
    return meta if generation.env.last_txn_id == txn.id() else None
