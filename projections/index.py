"""The index as a whole: the live generation, its position, and the switch to a new one."""

import contextlib
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import lmdb

from chatledger.domain.chat.events import MessagesAppended, Recorded
from chatledger.domain.errors import ChatledgerError, IndexFullError, LedgerClosedError
from chatledger.domain.values import Progress, no_progress

from .chat.lists import finish_drop
from .chat.pages import seldom_collected
from .generations import Erasure, Generation, IndexState, RetiredError
from .lmdb.environment import INITIAL_MAP_BYTES, Transaction
from .lmdb.scrub import scrub_files
from .lmdb.system_errors import unusable, why_full
from .log.applying import Settings, apply_events
from .search import filling, indexer
from .search.deletion import finish_step
from .search.intake import Intake, Inverter
from .search.manifest import manifest_of
from .snapshot import DAMAGE, IndexReader, SettledIndex

T = TypeVar("T")

ReadLog = Callable[[int], Sequence[Recorded]]
"""The events after a position: a page of whole commits, empty at the end of the log."""


def _clean_search(generation: Generation, txn: Transaction) -> bool:
    """Remove some of what the search index has of deleted chats; returns whether there was any."""
    if not indexer.is_current(txn, generation.tables) or not finish_step(txn, generation.tables):
        return False
    if not manifest_of(txn, generation.tables).deleted:
        # That was the last step. Until here the mark of the deletion stands, and no scrub is noted as done.
        generation.note_dirty(txn)
    return True


_STEPS_PER_MESSAGE: Final = 15 / 128
"""So many steps of merging keep up with new messages: 15 with a segment of them."""


_FEW_MESSAGES: Final = 8
"""A write of so many messages does not merge when it has written a segment: it would take longest."""
COMMIT_PAGES: Final = 4
"""So many pages of events are applied in one transaction when an index is built, where they are of common size."""
_COMMIT_BYTES: Final = 8 << 20
"""A transaction that adds more than this was too large."""


def _read_pages(read: ReadLog, after: int, count: int) -> Sequence[Recorded]:
    """Return so many pages of events after a position; fewer at the end of the log."""
    events = list(read(after))
    for _ in range(count - 1):
        page = read(events[-1].position) if events else ()
        if not page:
            break
        events += page
    return events


class Index(IndexReader):
    """
    The index of one log, kept in LMDB and shared by the threads and processes that have it open.

    `open` tells whether it can serve; if not, `rebuild` makes a new generation from the log.
    """

    def __init__(self, root: Path, *, identity: str, map_bytes: int = INITIAL_MAP_BYTES, is_kept: bool = True) -> None:
        super().__init__(root, identity=identity, map_bytes=map_bytes, is_kept=is_kept)
        self._advanced = threading.Condition()
        self.settings = Settings()
        self.custom = self.settings.custom
        self.left: SettledIndex | None = None
        self._is_search_overdue = False
        self._steps_due = 0.0

    def apply(self, events: Sequence[Recorded], *, after: int | None = None) -> bool:
        """
        Take events in, all in one transaction together with the position; those applied before change nothing.

        With `after`, only if the index stands there or already past the last of them; otherwise False, and the events
        in between are to be read from the log.

        Raises:
            ChainIntegrityError: They do not follow what was applied before.
            LogRegressedError: Their positions were given out before, to events that the log lost.
        """
        state = self.update(partial(apply_events, events=events, settings=self.settings, after=after))
        with self._advanced:
            self._advanced.notify_all()
        live = self._live
        if live is not None and (live.tables.caches.flushed or self._is_search_overdue):
            # What stands in the way of merging is met, and reported, by the thread that follows the log; the events are applied.
            with contextlib.suppress(ChatledgerError, lmdb.Error):
                self._relieve_search(live, events)
        return state.position >= events[-1].position

    def await_change(self, after: int, timeout_s: float) -> None:
        """Wait until this process has applied an event after a position, the time is over, or `wake` is called."""
        with self._advanced:
            if self.state.position <= after:
                self._advanced.wait(timeout_s)

    def wake(self) -> None:
        """End all waiting of `await_change`."""
        with self._advanced:
            self._advanced.notify_all()

    def _relieve_search(self, live: Generation, events: Sequence[Recorded]) -> None:
        """
        Merge a little of the search index when much was written and nobody was idle enough to merge it all.

        As much as so many new messages cause, so that it keeps up with writers, whether they write few at a time or many.
        """
        with live.reading() as txn:
            self._is_search_overdue = manifest_of(txn, live.tables).is_overdue
        has_flushed, live.tables.caches.flushed = live.tables.caches.flushed > 0, 0
        if not self._is_search_overdue:
            self._steps_due = 0.0
            return
        bodies = [recorded.event.body for recorded in events]
        message_count = sum(len(body.messages) for body in bodies if isinstance(body, MessagesAppended))
        self._steps_due += message_count * _STEPS_PER_MESSAGE
        if has_flushed and message_count <= _FEW_MESSAGES:
            return  # it has done enough; the next goes on
        while self._steps_due >= 1:
            self._steps_due -= 1
            if not self._merge_step(is_idle=False):
                break

    def merge_search(self) -> bool:
        """Do one step, of a few milliseconds, of merging the search index, unless it is deferred; returns whether there is more to do."""
        live = self._current()
        if live.tables.caches.is_search_deferred:  # two processes would wait for each other's steps
            return False
        with live.reading() as txn:
            manifest = manifest_of(txn, live.tables)
        return (manifest.is_merging or bool(manifest.small_segments)) and self._merge_step(is_idle=True)

    def _merge_step(self, *, is_idle: bool) -> bool:
        # NumPy takes a tenth of a second to import: only for those who write much.
        from .search.merging import step

        return self.update(lambda generation, txn: step(txn, generation.tables, is_idle=is_idle))

    def finish_erasure(self, erasure: Erasure, *, at_ms: int) -> None:
        """Note that the events of a deleted stream are gone from the log."""
        self.update(lambda generation, txn: generation.finish_erasure(txn, erasure, at_ms=at_ms))

    def note_erasures(self, tombstones: Sequence[Recorded], redactions: Sequence[Erasure]) -> None:
        """Note that the log has events, still or again, that these tombstones claim, and content that was taken away."""

        def change(generation: Generation, txn: Transaction) -> None:
            for tombstone in tombstones:
                generation.put_erasure(txn, tombstone)
            for redaction in redactions:
                generation.put_redaction(txn, redaction, is_due=True)

        self.update(change)

    def finish_drop(self, digest: bytes) -> None:
        """Note that large data of deleted chats are not stored any more, or that others have them."""
        self.update(lambda generation, txn: finish_drop(txn, generation.tables, digest))

    @property
    def is_scrub_due(self) -> bool:
        """Whether the files may still have what was deleted."""
        with self.snapshot() as snapshot:
            is_due = snapshot.is_scrub_due
        return is_due or self._generations.has_others

    def scrub(self) -> bool:
        """
        Remove what was deleted from the files. Returns whether it is gone; if not, something still uses it: try again later.

        Raises:
            PageError: Only a rebuild can remove it.
        """
        while self.update(_clean_search):
            pass
        return scrub_files(self._generations, self._current)

    def rebuild(
        self,
        read: ReadLog,
        *,
        check: Callable[[IndexState], None] = lambda state: None,
        progress: Callable[[int], None] = lambda position: None,
        unless_open: bool = False,
        inverter: Inverter | None = None,
    ) -> None:
        """
        Build a new generation from the log while the current one serves, then switch everybody to it.

        Interrupted at any point, or refused by `check`, the old one stays. With `unless_open` nothing is built if another
        process just did. `inverter` inverts batches of messages for the search index elsewhere.
        """
        with self._generations.building():
            if unless_open and self.open() is None:
                return
            number = self._generations.next()
            fresh = self._generations.create(number)
            try:
                fresh.describe(self._identity)
                intake = fresh.tables.caches.sink = Intake(fresh, fresh.tables, inverter or Inverter())
                with seldom_collected() as end_part:

                    def filled(position: int) -> None:
                        progress(position)
                        end_part()

                    check(self._fill(fresh, read, filled, intake))
                    intake.finish()
                fresh.tables.caches.sink = None
                with self._swap:
                    self._switch(fresh, read, progress)
                    old, self._live = self._live, fresh
            except lmdb.Error as error:
                msg = f"a new index cannot be written at {fresh.path}; the old one stays"
                ours = unusable(error, msg, fresh.file)  # while the file is there, and what it took of the disk
                fresh.discard()
                raise ours from error
            except BaseException:
                fresh.discard()
                raise
            if old is not None:
                old.close()
            self._generations.remove_unused()
        with self._advanced:
            self._advanced.notify_all()

    def rebuild_search(self, progress: Progress = no_progress, *, unless_complete: bool = False) -> None:
        """
        Build the search index anew from the messages; told how many of how many are done. What is not done yet is compared.

        With `unless_complete` only what is missing of it, and nothing while another process is at it.
        """
        with self._generations.building(is_waiting=not unless_complete) as is_free:
            if not is_free:
                return
            live = self._current()
            try:
                if not (unless_complete and indexer.is_complete(live, live.tables)):
                    filling.build(live, live.tables, anew=not unless_complete, progress=progress)
            except lmdb.Error as error:
                msg = f"the index at {live.path} cannot be written; rebuild it, the log is not affected"
                raise unusable(error, msg, live.file) from error

    def fill_search(self, is_over: Callable[[], bool]) -> None:
        """Take in what another process leaves to this one, see `defer_search`, until it is over; nothing while a third one builds."""
        with self._generations.building(is_waiting=False) as is_free:
            if is_free:
                live = self._current()
                filling.fill(live, live.tables, is_over)

    @contextlib.contextmanager
    def defer_search(self) -> Generator[None]:
        """
        A time in which transactions of this process leave messages out of the search index; in its end they are taken in together.

        Whoever dies meanwhile leaves an index that says so; the next one who opens it takes them in.
        """
        caches = self._current().tables.caches
        caches.is_search_deferred = True
        try:
            yield
        finally:
            caches.is_search_deferred = False
        self.rebuild_search(unless_complete=True)

    def _fill(
        self, fresh: Generation, read: ReadLog, progress: Callable[[int], None], intake: Intake | None = None
    ) -> IndexState:
        with fresh.reading() as txn:
            state = fresh.state(txn)
        pages = 1
        while events := _read_pages(read, state.position, pages):

            def change(txn: Transaction, events: Sequence[Recorded] = events) -> IndexState:
                if intake is not None:
                    intake.begin()
                return apply_events(fresh, txn, events=events, settings=self.settings)

            before = fresh.used_bytes
            state = fresh.update(change)
            grown = fresh.used_bytes - before
            if grown <= _COMMIT_BYTES // 4:
                pages = min(2 * pages, COMMIT_PAGES)
            elif grown > _COMMIT_BYTES:
                pages = max(pages // 2, 1)
            progress(state.position)
            if intake is not None:
                intake.commit()
        return state

    def _switch(self, fresh: Generation, read: ReadLog, progress: Callable[[int], None]) -> None:
        live = self._live
        if live is None:
            self._generations.publish(fresh.number)
            return

        def change(txn: Transaction) -> None:
            # Nobody can apply to the old generation now; so nobody has seen more than the new one will show.
            self._fill(fresh, read, progress)
            self._generations.publish(fresh.number)
            live.retire(txn)

        live.update(change)

    def building(self) -> AbstractContextManager[bool]:
        """Wait until no other process builds a part of the index, and keep others, and the scrub, waiting."""
        return self._generations.building()

    def update(self, change: Callable[[Generation, Transaction], T]) -> T:
        """Run `change` in a write transaction of the generation that serves, maybe several times: also of the one that took over."""
        while True:
            generation = self._generation()
            try:
                return generation.update(partial(change, generation), admit=generation.refuse_retired)
            except DAMAGE as error:
                full = why_full(error, generation.file)
                if full is not None:
                    raise IndexFullError(str(generation.path), full) from error
                generation.is_suspect = True
                msg = f"the index at {generation.path} cannot be written; what is on the log is not affected"
                raise unusable(error, msg, generation.file) from error
            except RetiredError:
                self._follow(generation)
            except LedgerClosedError:
                # Another thread may have gone over to the next generation, and closed this one.
                if self._is_closed or generation is self._live:
                    raise

    def close(self) -> bool:
        """Close the files, see `IndexReader.close`; notes in `left` how it was left, if that is known."""
        left = None
        if self._live is not None:
            with contextlib.suppress(ChatledgerError, lmdb.Error), self.snapshot() as snapshot:
                left = snapshot.settled()
        is_last = super().close()
        if is_last:
            self.left = left
        return is_last
