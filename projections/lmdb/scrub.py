"""
Scrubbing: what was deleted leaves the index's file too.

Its bytes are in free pages, and in unused parts and keys of pages in use (see `PageFile`). The unused parts also get new
ones as long as a process has memory of pages from before the deletion, or of branches copied before the scrub cleaned their
keys, so each process frees that memory before its first write after either: see `Environment.update`. That a scrub is due is a row, written with the deletion, so a crash postpones it only.
"""

import os
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Final

import lmdb
import msgspec

from chatledger.domain.errors import CorruptStateError

from ..custom.records import drop_record, drop_rows, load_records, save_record
from ..generations import Generation, Generations
from ..operating_system import OPEN_FLAGS, read_at, write_at
from .environment import Environment, Transaction
from .page_check import (
    BIG,
    BRANCH,
    HEADER_BYTES,
    IS_KNOWN_LAYOUT,
    MAX_DEPTH,
    NO_PAGE,
    NODE_BYTES,
    SUBTREE,
    NodePage,
    PageError,
    PageSnapshot,
    count_value_pages,
    parse_free_pages,
    parse_nodes,
    parse_number,
    parse_page,
    parse_tree,
    read_snapshots,
)

_CLEAN_MARK: Final = b"\0swept\0\0"
_MARK_BYTES: Final = 16
_RUN_PAGES: Final = 256
GRACE_S: Final = 15.0
"""The time that processes with custom projections which lag behind a deletion are given to catch up; they look every 5 seconds."""
_MAX_DEPTH: Final = 2 * MAX_DEPTH
"""Of a tree with a tree in it."""
_OTHER_ORDERS: Final = 0x6A
"""Flags of tables whose keys or values are compared as numbers, or backwards."""


class PageFile:
    """The data file of an environment that is open."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not IS_KNOWN_LAYOUT:
            msg = "the file of a 32-bit machine"
            raise PageError(msg)
        self._fd = os.open(path, os.O_RDWR | OPEN_FLAGS)
        self._bytes = 4096
        self._file_bytes = 0
        self._visited = bytearray()
        self.cleaned = 0
        """The number of pages that were written to."""

    def close(self) -> None:
        os.close(self._fd)

    def snapshot(self, txn_id: int) -> PageSnapshot | None:
        """The snapshot of a transaction; None when it was overwritten by a later one."""
        snapshots = read_snapshots(self._fd)
        self._bytes = snapshots[0].page_bytes
        return next((snapshot for snapshot in snapshots if snapshot.txn_id == txn_id), None)

    def clean_trees(self, snapshot: PageSnapshot) -> None:
        """
        Overwrite what is unused in the pages of a snapshot, which a read transaction holds.

        A page is marked when it and all below it are clean. A change below it would have made another page of it, so
        marked pages are passed over: the cost is that of the pages written since the last time.

        Raises:
            PageError: A page is not what the tree says. Nothing was written to it.
        """
        with self._walking():
            self._clean_tree(snapshot.free.root, snapshot, 0, is_text=False)
            self._clean_tree(snapshot.main.root, snapshot, 0, is_text=True)

    @contextmanager
    def _walking(self) -> Generator[None]:
        """Begin a walk over trees, which comes to each page once; what is damaged may refer to anything."""
        self._file_bytes = os.fstat(self._fd).st_size
        self._visited = bytearray(self._file_bytes // self._bytes)
        try:
            yield
        except (StructError, IndexError, OverflowError) as error:
            msg = f"something on a page is not where it should be: {error}"
            raise PageError(msg) from error

    def _visit(self, number: int) -> None:
        if self._visited[number]:  # in a damaged tree this would go on for ever
            msg = f"page {number} belongs to two places"
            raise PageError(msg)
        self._visited[number] = 1

    def _clean_tree(self, number: int, snapshot: PageSnapshot, depth: int, *, is_text: bool) -> bytes:
        """Clean a tree, whose keys are in the order of their bytes if `is_text`; returns its first key."""
        if number == NO_PAGE:
            return b""
        page = self._page(number, snapshot, depth)
        lower, upper, is_branch = page.lower, page.upper, page.kind == BRANCH
        mark_at = (upper & ~7) - _MARK_BYTES  # LMDB copies pages in words of 8 bytes: no copy has the whole mark
        mark = _CLEAN_MARK + number.to_bytes(8, sys.byteorder)
        can_mark = mark_at >= (lower + 7) & ~7
        if can_mark and page.raw[mark_at : mark_at + _MARK_BYTES] == mark:
            return self._first_key(page, snapshot, depth)
        self._visit(number)
        first = b""
        for index, (at, child_or_size, flags, key_bytes) in enumerate(parse_nodes(page)):
            if is_branch:
                least = self._clean_tree(child_or_size, snapshot, depth + 1, is_text=is_text)
                first = first if index else least
                if is_text:
                    self._clean_separator(page, at, key_bytes, least, is_first=not index)
            elif flags & BIG:
                self._clean_tail(parse_number(page.raw, at + NODE_BYTES + key_bytes), child_or_size, snapshot)
            elif flags & SUBTREE:
                tree = parse_tree(page.raw, at + NODE_BYTES + key_bytes)
                self._clean_tree(tree.root, snapshot, depth + 1, is_text=not tree.flags & _OTHER_ORDERS)
        clean = bytearray(upper - lower)
        if can_mark:
            clean[mark_at - lower : mark_at - lower + _MARK_BYTES] = mark
        self._overwrite(number * self._bytes + lower, page.raw[lower:upper], clean)
        return first if is_branch else self._first_key(page, snapshot, depth)

    def _first_key(self, page: NodePage, snapshot: PageSnapshot, depth: int) -> bytes:
        while page.offsets:
            ((at, child, _, key_bytes),) = parse_nodes(page._replace(offsets=page.offsets[:1]))
            if page.kind != BRANCH:
                return page.raw[at + NODE_BYTES : at + NODE_BYTES + key_bytes]
            depth += 1
            page = self._page(child, snapshot, depth)
        return b""

    def _clean_separator(self, page: NodePage, at: int, key_bytes: int, least: bytes, *, is_first: bool) -> None:
        """
        Make a key of a branch, which may be of a row that is no more, one of no row: what it shares with a live key stays.

        All its bytes after the first that differs from the least key below become 0xff. A reader of the page meanwhile, or a copy
        of it, sees a mixture that is not less than before and not above that key, so it separates as before.
        """
        key_at = at + NODE_BYTES
        key = page.raw[key_at : key_at + key_bytes]
        shared = next(
            (place for place, (a, b) in enumerate(zip(key, least, strict=False)) if a != b), min(len(key), len(least))
        )
        if shared == len(key):
            return
        if is_first:  # it separates nothing and is not compared
            shared -= 1
        elif shared == len(least) or key[shared] > least[shared]:
            msg = f"page {page.number} has a branch to keys that are less than its own"
            raise PageError(msg)
        rest = key[shared + 1 :]
        self._overwrite(page.number * self._bytes + key_at + shared + 1, rest, b"\xff" * len(rest))

    def _page(self, number: int, snapshot: PageSnapshot, depth: int) -> NodePage:
        """Read a branch or leaf. It is checked, as bytes in it are going to be overwritten."""
        if not 2 <= number <= snapshot.last_page or depth > _MAX_DEPTH:
            msg = f"a tree with page {number} at depth {depth}"
            raise PageError(msg)
        return parse_page(number, read_at(self._fd, self._bytes, number * self._bytes), self._bytes)

    def _clean_tail(self, number: int, value_bytes: int, snapshot: PageSnapshot) -> None:
        start = number * self._bytes
        pages = count_value_pages(number, read_at(self._fd, HEADER_BYTES, start), value_bytes, self._bytes)
        end = start + pages * self._bytes
        value_end = start + HEADER_BYTES + value_bytes
        if number + pages - 1 > snapshot.last_page or end > self._file_bytes:
            msg = f"page {number} of a value of {value_bytes} bytes says it has {pages} pages"
            raise PageError(msg)
        rest = end - value_end
        self._overwrite(value_end, read_at(self._fd, rest, value_end), bytes(rest))

    def clean_free(self, snapshot: PageSnapshot, *, oldest_reader: int | None) -> bool:
        """
        Overwrite the free pages and what follows the last page, while the write lock is held.

        Pages that were freed after the oldest reader began are left to it. Returns whether there were none.
        """
        is_whole = True
        free: list[int] = []
        with self._walking():
            for freed_by, pages in self._free_lists(snapshot.free.root, snapshot, 0):
                if oldest_reader is None or freed_by <= oldest_reader:
                    free += pages
                else:
                    is_whole = False
        free.sort()
        for first, count in _runs(free):
            start, size = first * self._bytes, count * self._bytes
            # The file may end before its last page: pages that were freed before they were written were never there.
            present = read_at(self._fd, size, start)
            self._overwrite(start, present, bytes(len(present)))
        # What unfinished transactions wrote behind the last page.
        end, step = (snapshot.last_page + 1) * self._bytes, self._bytes * _RUN_PAGES
        for at in range(end, os.fstat(self._fd).st_size, step):
            present = read_at(self._fd, step, at)
            self._overwrite(at, present, bytes(len(present)))
        return is_whole

    def _free_lists(self, number: int, snapshot: PageSnapshot, depth: int) -> Iterator[tuple[int, list[int]]]:
        """Return the pages that each transaction freed."""
        if number == NO_PAGE:
            return
        page = self._page(number, snapshot, depth)
        self._visit(number)
        for at, child_or_size, flags, key_bytes in parse_nodes(page):
            if page.kind == BRANCH:
                yield from self._free_lists(child_or_size, snapshot, depth + 1)
                continue
            value_at = at + NODE_BYTES + key_bytes
            value = page.raw[value_at : value_at + child_or_size]
            if flags & BIG:
                own_at = parse_number(page.raw, value_at) * self._bytes + HEADER_BYTES
                value = read_at(self._fd, min(child_or_size, self._file_bytes), own_at)
            pages = parse_free_pages(number, value)
            if not all(2 <= page_no <= snapshot.last_page for page_no in pages):
                msg = f"a list of {len(pages)} free pages on page {number}"
                raise PageError(msg)
            yield parse_number(page.raw, at + NODE_BYTES), pages

    def _overwrite(self, at: int, present: bytes, wanted: bytes | bytearray) -> None:
        if present == wanted:  # mostly: a page that is not written to need not be written back to the disk
            return
        if write_at(self._fd, wanted, at) != len(wanted):
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

    Does nothing while another process scrubs or builds: that needs the other generations, or does the same.

    Raises:
        PageError: A page is not laid out as is known; a new generation has to be built instead.
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
            msg = f"the index at {live.path} cannot be cleaned of what was deleted: {error}"
            raise CorruptStateError(msg) from error


def scrub(generation: Generation, *, is_last: bool) -> bool:
    """
    Overwrite everything in the file of a generation that no reader of its present snapshot can see.

    Returns whether nothing is left that was deleted before; else a reader still has it, or it was written again meanwhile.
    With `is_last`, that nothing is left in other files either, it is noted for good.

    Raises:
        PageError: A page is not laid out as is known; a new generation has to be built instead.
    """
    with generation.reading() as txn:
        if generation.scrub_due(txn) is None:
            return is_last
    return _wipe_stale(generation) and scrub_rows(generation, is_last=is_last)


def _wipe_stale(generation: Generation) -> bool:
    """
    Remove the rows of projections that lag behind a deletion. Returns whether there are none (any more).

    Projections that are not broken get some time first. Nobody may be building: see `Index.building`.
    """
    with generation.reading() as txn:
        stale = [record for _, record in load_records(txn, generation.tables) if record.dirty_until]
    if not stale:
        generation.stale_since_s = None
        return True
    now_s = time.monotonic()
    if generation.stale_since_s is None:
        generation.stale_since_s = now_s
    has_time = now_s - generation.stale_since_s < GRACE_S

    def wipe(txn: Transaction) -> bool:
        is_clean = True
        for slot, record in load_records(txn, generation.tables):
            if not record.dirty_until:
                continue
            if record.error:
                drop_rows(txn, generation.tables, record)
                save_record(txn, generation.tables, slot, msgspec.structs.replace(record, dirty_until=0))
            elif has_time:
                is_clean = False
                continue
            else:
                drop_record(txn, generation.tables, slot, record.name)
            generation.note_dirty(txn)
        return is_clean

    return generation.update(wipe)


def scrub_rows(env: Environment, *, is_last: bool = True) -> bool:
    """Overwrite everything in a file that no reader can see, as `scrub` does, whatever rows the file has."""
    with env.reading() as txn:
        if env.scrub_due(txn) is None:
            return is_last
    pages = PageFile(env.file)
    try:
        # Pages in use are cleaned while others write, and only those written meanwhile under the write lock.
        due: bytes | None = None
        for _ in range(_LOOKS):
            with env.reading() as txn:
                snapshot = pages.snapshot(txn.id())
                # What was read of it may have been overwritten where a later transaction has ended since.
                if snapshot is not None and env.last_txn_id == txn.id():
                    due = env.scrub_due(txn)
                    pages.clean_trees(snapshot)
                    break
        if due is None:
            return False

        def finish(txn: Transaction) -> bool:
            snapshot = pages.snapshot(env.last_txn_id)
            assert snapshot is not None, "nobody else writes"
            pages.clean_trees(snapshot)
            is_whole = pages.clean_free(snapshot, oldest_reader=env.oldest_reader())
            # A process that wrote with old memory since then has noted that it is due again.
            if not (is_whole and is_last) or env.scrub_due(txn) != due:
                return False
            env.note_scrubbed(txn)
            return True

        return env.update(finish, with_fresh_memory=True)
    finally:
        pages.close()
