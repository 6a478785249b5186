"""The index as a whole: the live generation, its position, and the switch to a new one."""

import contextlib
import struct
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, TypeVar

import lmdb

from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import (
    DECODE_ERRORS,
    ChatledgerError,
    CorruptStateError,
    LedgerClosedError,
    QuarantinedError,
)
from chatledger.domain.values import Chat, Progress, no_progress

from .chat.chains import Place
from .chat.lists import (
    ALL_CHATS,
    ChatList,
    Cursor,
    count_chats,
    dropped_large,
    finish_drop,
    is_large_used,
    large_digests,
    list_chats,
    listed,
)
from .chat.reader import IndexedChat
from .generations import Erasure, Generation, Generations, IndexState, RetiredError, read_state
from .lmdb.environment import INITIAL_MAP_BYTES, Transaction, UncleanStopError
from .lmdb.scrub import scrub_files
from .lmdb.system_errors import unusable
from .log.applying import Settings, describe_foreign
from .log.kinds import CHATS, R, StreamKind
from .log.tracking import PositionRecorder
from .search import indexer
from .search.deletion import finish_step
from .search.manifest import manifest_of

T = TypeVar("T")
ReadLog = Callable[[int], Sequence[Recorded]]
"""The events after a position: a page of whole commits, empty at the end of the log."""

APPLICATION: Final = "chatledger"
_DAMAGE: Final = (lmdb.Error, *DECODE_ERRORS, struct.error, AssertionError)  # what reading damaged rows comes to


Refuse = Callable[[str], None]
"""Raises `QuarantinedError` when the stream is one of these."""


def refuse_nothing(stream: str) -> None:
    """All of them are whole."""
    del stream


def _clean_search(generation: Generation, txn: Transaction) -> bool:
    """Remove some of what the search index has of deleted chats; returns whether there was any."""
    if not indexer.is_current(txn, generation.tables) or not finish_step(txn, generation.tables):
        return False
    if not manifest_of(txn, generation.tables).deleted:
        # That was the last step. Until here the mark of the deletion stands, and no scrub is noted as done.
        generation.note_dirty(txn)
    return True


_STEPS_PER_SEGMENT: Final = 6
"""So many steps of merging keep up with one segment of new messages. Where few are written at a time, each write does one."""


class Snapshot:
    """
    The index at one moment, inside one transaction. With `user_id`, only what that user owns may be shown of it.

    Attributes:
        txn, tables: The transaction, and the tables of its environment.
    """

    user_id: str | None = None

    def __init__(self, generation: Generation, txn: Transaction, refuse: Refuse = refuse_nothing) -> None:
        self.txn, self.tables = txn, generation.tables
        self._generation, self._refuse = generation, refuse

    @property
    def state(self) -> IndexState:
        """The position of the index and the hash of the last event."""
        return self._generation.state(self.txn)

    def refuse(self, stream: str) -> None:
        """Raise `QuarantinedError` when a stream lost events, or has a foreign message on its subject."""
        self._refuse(stream)
        foreign = self.tables.foreign(self.txn, stream)
        if foreign is not None:
            raise QuarantinedError(describe_foreign(stream, *foreign), chat_id=stream, position=foreign[0])

    def chat(self, chat_id: str, *, even_quarantined: bool = False) -> IndexedChat:
        """The chat of that id; its record is None when there is none."""
        return self.stream(CHATS, chat_id, even_quarantined=even_quarantined)

    def stream(self, streams: StreamKind[R], key: str, *, even_quarantined: bool = False) -> R:
        """The stream of that kind and key; its record is None when there is none."""
        stream_id = streams.stream_of(key)
        if not even_quarantined:
            self.refuse(stream_id)
        return streams.read(self.tables, self.txn, stream_id)

    def chat_nos(self, *, user_id: str | None = None) -> list[int]:
        """The numbers of all chats, or of those of an owner, the last changed first."""
        return listed(self.txn, self.tables, user_id=user_id)

    def searched_chats(self, *, user_id: str | None = None) -> list[int] | None:
        """The same for a search; None: all chats that the search index has."""
        return None if user_id is None else self.chat_nos(user_id=user_id)

    def find(self, message_id: str) -> tuple[IndexedChat, Place] | None:
        """The chat that a message belongs to, and where the message is in it."""
        found = self.tables.first_location(self.txn, message_id)
        if found is None:
            return None
        chat = IndexedChat(self.tables, self.txn, "", found[0])
        profile = chat.profile
        assert profile is not None, "a chat with messages has a profile"
        self.refuse(profile.id)
        chat.chat_id = profile.id
        return chat, found[1]

    def list_chats(
        self, chats: ChatList = ALL_CHATS, *, limit: int | None = None, offset: int = 0, after: Cursor | None = None
    ) -> list[Chat]:
        """A page of a list of chats."""
        return list_chats(self.txn, self.tables, chats, limit=limit, offset=offset, after=after)

    def count_chats(self, chats: ChatList) -> int:
        """The number of chats of a list."""
        return count_chats(self.txn, self.tables, chats)

    def tracking(self, application_name: str) -> int | None:
        """Return the tracked position of an application's projection."""
        return self._generation.tracking(self.txn, application_name)

    def erasures(self) -> list[Erasure]:
        """The deleted chats whose events may still be on the log."""
        return self._generation.erasures(self.txn)

    def dropped_large(self) -> list[bytes]:
        """The digests of large data of deleted chats that may still be stored."""
        return dropped_large(self.txn, self.tables)

    def is_large_used(self, digest: bytes) -> bool:
        """Whether a chat has a message with large data of that digest."""
        return is_large_used(self.txn, self.tables, digest)

    def large_digests(self) -> list[bytes]:
        """The digests of the large data of all chats."""
        return list(large_digests(self.txn, self.tables))

    @property
    def is_scrub_due(self) -> bool:
        """Whether the files may still have what was deleted."""
        return self._generation.scrub_due(self.txn) is not None


class Index(PositionRecorder):
    """
    The index of one log, kept in LMDB and shared by the threads and processes that have it open.

    `open` tells whether it can serve; if not, `rebuild` makes a new generation from the log.
    """

    def __init__(self, root: Path, *, identity: str, map_bytes: int = INITIAL_MAP_BYTES) -> None:
        self._generations = Generations(root)
        self._identity, self._map_bytes = identity, map_bytes
        self._live: Generation | None = None
        self._swap = threading.Lock()
        self._advanced = threading.Condition()
        self.settings = Settings(application=APPLICATION)
        self.custom = self.settings.custom
        self._is_closed = self._is_search_overdue = False
        self.refuse: Refuse = refuse_nothing

    def open(self) -> str | None:
        """Open the current generation. Returns why it cannot serve, or None when it does."""
        number = self._generations.current
        if number is None:
            return "there is none yet"
        try:
            generation = Generation(number, self._generations.path(number), map_bytes=self._map_bytes)
        except UncleanStopError:
            return "the machine went down while it was open"
        except CorruptStateError as error:
            return str(error)
        reason = generation.mismatch(self._identity)
        if reason is not None:
            generation.env.close()
            return reason
        self._live = generation
        self._generations.remove_unused()
        return None

    def last_seen(self) -> IndexState | None:
        """Return the position of the current generation after `open` refused it; None when it is unknown."""
        number = self._generations.current
        return None if number is None else read_state(self._generations.path(number), self._identity)

    @contextlib.contextmanager
    def snapshot(self) -> Generator[Snapshot]:
        """The index at one moment. Begin no other one, and do not write, inside the `with`: growing the map waits for it."""
        generation, txn = self._begin()
        try:
            yield Snapshot(generation, txn, self.refuse)
        except _DAMAGE as error:
            generation.env.is_suspect = True
            msg = f"the index at {generation.env.path} is damaged: {error}; rebuild it, the log is not affected"
            raise CorruptStateError(msg) from error
        finally:
            txn.abort()
            generation.env.end()

    def _begin(self) -> tuple[Generation, Transaction]:
        while True:
            generation = self._generation()
            try:
                txn = generation.env.begin()
            except LedgerClosedError:
                if self._is_closed or generation is self._live:
                    raise
                continue
            if not generation.is_retired(txn):
                return generation, txn
            txn.abort()
            generation.env.end()
            self._follow(generation)

    def _current(self) -> Generation:
        """The generation that serves, also when another process has built it meanwhile."""
        generation, txn = self._begin()
        txn.abort()
        generation.env.end()
        return generation

    def apply(self, events: Sequence[Recorded], *, after: int | None = None) -> bool:
        """
        Take events in, all in one transaction together with the position; those applied before change nothing.

        With `after`, only if the index stands there or already past the last of them; otherwise False, and the events
        in between are to be read from the log.

        Raises:
            ChainIntegrityError: They do not follow what was applied before.
            LogRegressedError: Their positions were given out before, to events that the log lost.
        """

        def change(generation: Generation, txn: Transaction) -> bool:
            state = generation.state(txn)
            if after is not None and state.position != after:
                return generation.has_applied(txn, events[-1])
            generation.apply(txn, events, self.settings, state)
            return True

        applied = self.update(change)
        with self._advanced:
            self._advanced.notify_all()
        # What stands in the way of merging is met, and reported, by the thread that follows the log; the events are applied.
        with contextlib.suppress(ChatledgerError):
            self._relieve_search()
        return applied

    def _relieve_search(self) -> None:
        """Merge a little of the search index when this process has written much and nobody was idle enough to merge it all."""
        live = self._live
        if live is None or not (live.tables.flushed or self._is_search_overdue):
            return
        with live.env.reading() as txn:
            self._is_search_overdue = manifest_of(txn, live.tables).is_overdue
        # A write that made one segment has done enough; the next goes on.
        steps = 1 if not live.tables.flushed else _STEPS_PER_SEGMENT * (live.tables.flushed - 1)
        live.tables.flushed = 0
        while self._is_search_overdue and steps > 0 and self._merge_step(is_idle=False):
            steps -= 1

    def merge_search(self) -> bool:
        """Do one step, of a few milliseconds, of merging the search index; returns whether there is more to do."""
        live = self._current()
        with live.env.reading() as txn:
            manifest = manifest_of(txn, live.tables)
        return (manifest.is_merging or bool(manifest.small_segments)) and self._merge_step(is_idle=True)

    def _merge_step(self, *, is_idle: bool) -> bool:
        # NumPy takes a tenth of a second to import: only for those who write much.
        from .search.merging import step

        return self.update(lambda generation, txn: step(txn, generation.tables, is_idle=is_idle))

    def finish_erasure(self, erasure: Erasure) -> None:
        """Note that the events of a deleted chat are gone from the log."""
        self.update(lambda generation, txn: generation.finish_erasure(txn, erasure))

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

    @property
    def state(self) -> IndexState:
        """Return the position of the index and the hash of the last event."""
        with self.snapshot() as snapshot:
            return snapshot.state

    def rebuild(
        self,
        read: ReadLog,
        *,
        check: Callable[[IndexState], None] = lambda state: None,
        progress: Callable[[int], None] = lambda position: None,
        unless_open: bool = False,
    ) -> None:
        """
        Build a new generation from the log while the current one serves, then switch everybody to it.

        Interrupted at any point, or refused by `check`, the old one stays. With `unless_open` nothing is built if another
        process just did.
        """
        with self._generations.building():
            if unless_open and self.open() is None:
                return
            number = self._generations.next()
            fresh = Generation.create(number, self._generations.path(number), map_bytes=self._map_bytes)
            try:
                fresh.describe(self._identity)
                check(self._fill(fresh, read, progress))
                indexer.build(fresh.env, fresh.tables, anew=True, progress=no_progress)
                with self._swap:
                    self._switch(fresh, read, progress)
                    old, self._live = self._live, fresh
            except lmdb.Error as error:
                fresh.discard()
                msg = f"a new index cannot be written at {fresh.env.path}; the old one stays"
                raise unusable(error, msg) from error
            except BaseException:
                fresh.discard()
                raise
            if old is not None:
                old.env.close()
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
                if not (unless_complete and indexer.is_complete(live.env, live.tables)):
                    indexer.build(live.env, live.tables, anew=not unless_complete, progress=progress)
            except lmdb.Error as error:
                msg = f"the index at {live.env.path} cannot be written; rebuild it, the log is not affected"
                raise unusable(error, msg) from error

    def _fill(self, fresh: Generation, read: ReadLog, progress: Callable[[int], None]) -> IndexState:
        with fresh.env.reading() as txn:
            state = fresh.state(txn)
        while page := read(state.position):

            def change(txn: Transaction, events: Sequence[Recorded] = page) -> IndexState:
                return fresh.apply(txn, events, self.settings)

            state = fresh.env.update(change)
            progress(state.position)
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

        live.env.update(change)

    def building(self) -> AbstractContextManager[bool]:
        """Wait until no other process builds a part of the index, and keep others, and the scrub, waiting."""
        return self._generations.building()

    def update(self, change: Callable[[Generation, Transaction], T]) -> T:
        """Run `change` in a write transaction of the generation that serves, maybe several times; see `Environment.update`."""
        while True:
            generation = self._generation()

            def attempt(txn: Transaction, generation: Generation = generation) -> T:
                if generation.is_retired(txn):
                    raise RetiredError
                return change(generation, txn)

            try:
                return generation.env.update(attempt)
            except _DAMAGE as error:
                generation.env.is_suspect = True
                msg = f"the index at {generation.env.path} cannot be written; what is on the log is not affected"
                raise unusable(error, msg, is_written=True) from error
            except RetiredError:
                self._follow(generation)
            except LedgerClosedError:
                if self._is_closed or generation is self._live:
                    raise

    def _generation(self) -> Generation:
        if self._live is None or self._is_closed:
            msg = "the ledger is closed"
            raise LedgerClosedError(msg)
        return self._live

    def _follow(self, retired: Generation) -> None:
        """Go over to the generation that took over from `retired`."""
        with self._swap:
            if self._live is not retired:
                return
            number = self._generations.current
            assert number is not None, "a generation is retired after its successor is published"
            self._live = Generation(number, self._generations.path(number), map_bytes=self._map_bytes)
        retired.env.close()
        self._generations.remove_unused()

    def close(self) -> None:
        """Close the files; calling it again does nothing."""
        self._is_closed = True
        live, self._live = self._live, None
        if live is not None:
            live.env.close()
