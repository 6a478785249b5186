"""Finishing deletions: what is deleted leaves the log, and then the files of the index."""

import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

import lmdb

from chatledger.domain.chat.events import ContentRedacted, Recorded
from chatledger.domain.chat.live import LiveStart
from chatledger.domain.chat.redaction import HEAD_CONTENT
from chatledger.domain.errors import AccessDeniedError, ChatledgerError, CorruptStateError, LogUnavailableError
from chatledger.projections.generations import Erasure
from chatledger.projections.index import Index
from chatledger.projections.lmdb.page_check import PageError
from chatledger.projections.log.applying import redaction_of
from chatledger.projections.log.entries import is_deleted
from chatledger.projections.log.kinds import CHATS, kind_of
from chatledger.projections.projector import Remains, find_tombstone, has_content, has_remains
from chatledger.projections.snapshot import Snapshot

from ..log.envelope import clock_ms
from ..log.live import FoundLive, LiveStreams
from ..log.port import GONE_PAUSE_S, GONE_TRIES, EventLog
from .cascades import Cascades
from .meaning import Meaning


class _PostponedError(Exception):
    """Events are being erased, and data go after the events that refer to them."""


class LargeDataEraser:
    """
    Erases the large data of deleted chats.

    Args:
        log, index: Where they are, and what says which chats have them.
        catch_up: Brings the index to the end of the log.
    """

    def __init__(self, log: EventLog, index: Index, catch_up: Callable[[], object]) -> None:
        self._log, self._index, self._catch_up = log, index, catch_up

    def finish(self) -> None:
        """
        Erase what deleted chats had and no others have. What a writer is about to refer to again stays for the next time.

        Chats of other shares may have the same data, so that is left to who has all chats.
        """
        if self._log.share is not None:
            return
        with self._index.snapshot() as snapshot:
            dropped = snapshot.dropped_large()
        for digest in dropped:
            try:
                is_done = self._log.blobs.drop(digest, is_used=partial(self._is_used, digest))
            except _PostponedError:
                return
            if is_done:
                self._index.finish_drop(digest)

    def sweep(self) -> int:
        """Erase what no event refers to, because a writer died before its event or an index was lost; how many there were."""
        if self._log.share is not None:
            return 0
        self._catch_up()
        with self._index.snapshot() as snapshot:
            digests = snapshot.large_digests()
        count = 0
        for name in self._log.blobs.unreferenced(digests):
            try:
                count += self._log.blobs.drop_name(name, is_used=partial(self._is_name_used, name))
            except _PostponedError:
                break
        return count

    def _is_used(self, digest: bytes) -> bool:
        with self._settled() as snapshot:
            return snapshot.is_large_used(digest)

    def _is_name_used(self, name: str) -> bool:
        with self._settled() as snapshot:
            return any(self._log.blobs.has(name, digest) for digest in snapshot.large_digests())

    @contextmanager
    def _settled(self) -> Generator[Snapshot]:
        self._catch_up()
        with self._index.snapshot() as snapshot:
            if snapshot.erasures():
                raise _PostponedError
            yield snapshot


class LiveEraser:
    """
    Drops live streams: those of deleted chats, and those whose time is over.

    Args:
        streams, index: Where they are, and what says which chats there are.
        is_whole: Whether the index has all chats, so that one that it lacks was deleted.
    """

    def __init__(self, streams: LiveStreams, index: Index, *, is_whole: bool = True) -> None:
        self._streams, self._index, self._is_whole = streams, index, is_whole
        self._next_s: float | None = 0.0

    def drop_chat(self, erasure: Erasure) -> None:
        """
        Drop those of a deleted chat.

        A login from before there were live streams may not even list them. It has written none; those of other logins are
        left to `tidy` of a login that may.

        Raises:
            AccessDeniedError: The chat has live streams, and the login may not drop them.
        """
        try:
            keys = self._streams.keys(erasure.stream_id)
        except AccessDeniedError as error:
            _logger.info(
                "live streams of deleted chats, if there are any, are left to those who may drop them: %s", error
            )
            return
        self._streams.drop_begun(keys, before=erasure.tombstone_position)

    def drop_redacted(self, redaction: Erasure) -> None:
        """
        Drop those that became messages which have lost their content, and those that name a branch as none is called any more
        where words were erased. Raises `AccessDeniedError` where the login may not.
        """
        ids = {message_id for message_id, _ in redaction.messages}
        with self._index.snapshot() as snapshot:
            chat = snapshot.chat(redaction.stream_id, even_quarantined=True)
            branches = {None, *(branch.name for branch in chat.branches())}
        takes_words = any(HEAD_CONTENT in slots for _, slots in redaction.targets)

        def is_redacted(live: FoundLive) -> bool:
            if takes_words and live.start.branch not in branches:
                return True
            return bool({live.start.message_id, live.stream.message_id} & ids)

        try:
            doomed = [live.key for live in self._streams.all(redaction.stream_id) if is_redacted(live)]
        except AccessDeniedError as error:
            _logger.info("live streams of redacted messages are left to those who may drop them: %s", error)
            return
        self._streams.drop(doomed)

    def tidy(self) -> None:
        """Drop what is due, once a minute at most, where the login may."""
        if self._next_s is None or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _LIVE_S
        try:
            self._streams.drop_due(self._is_gone)
        except AccessDeniedError as error:
            self._next_s = None
            _logger.info("live streams whose time is over are left to those who may drop them: %s", error)

    def _is_gone(self, start: LiveStart) -> bool:
        with self._index.snapshot() as snapshot:
            chat = snapshot.chat(start.chat_id, even_quarantined=True)
            is_there = chat.record is not None and chat.stream_no == start.born
            if not self._is_whole and chat.record is None and chat.tombstone is None:
                return False
            return not is_there and snapshot.state.position >= start.born


def _unfinished(streams: Sequence[str], why: str) -> LogUnavailableError:
    names = ", ".join(kind_of(stream).describe(stream) for stream in streams[:_SHOWN])
    return LogUnavailableError(
        f"{names} was deleted, and is in no answer any more. What is left of it on the log is erased later, by the next open of the "
        f"ledger at the latest: {why}"
    )


SCRUB_S: Final = 1.0
"""The time that a deletion waits for readers that began before it."""
_PAUSE_S: Final = 0.01
_LIVE_S: Final = 60.0
_SHOWN: Final = 5
_logger = logging.getLogger(__name__)


class Eraser:
    """
    Erases what tombstones stand for.

    Args:
        log, index, meaning: Where it is erased.
        rebuild: Builds the index anew, for when its files cannot be cleaned.
        closing: Set when the store is being closed.
        cascades: What goes with deleted chats, and what others need of deleted streams.
        catch_up: Brings the index to the end of the log.
    """

    def __init__(
        self,
        log: EventLog,
        index: Index,
        meaning: Meaning,
        rebuild: Callable[[], object],
        closing: threading.Event,
        cascades: Cascades,
        catch_up: Callable[[], object],
    ) -> None:
        self._log, self._index, self._meaning, self._catch_up = log, index, meaning, catch_up
        self._rebuild, self._closing, self._cascades = rebuild, closing, cascades
        self._unfinished: set[int] = set()
        self._is_allowed = True
        self._turn = threading.RLock()  # each erases all that is pending: several at once would do the same work
        self._lock = threading.Lock()
        self._is_due = False
        self._thread: threading.Thread | None = None
        self.large = LargeDataEraser(log, index, catch_up)
        self._live = LiveEraser(log.live, index, is_whole=log.share is None)

    def begin(self) -> None:
        """Finish in another thread, for all deletions that come meanwhile together. `close` waits for it."""
        self._cascades.follow(only_new=True)  # what goes with a chat is in no answer either
        with self._lock:
            self._is_due = True
            if self._thread is None:
                # No daemon: a program that ends without closing its ledger ends when what it deleted is erased.
                self._thread = threading.Thread(target=self._run, name="chatledger-eraser")
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._is_due:
                    self._thread = None
                    return
                self._is_due = False
            try:
                self.finish_if_allowed(timeout_s=SCRUB_S)
            except (ChatledgerError, lmdb.Error) as error:
                _logger.warning("deletions are finished later: %s", error)

    def close(self) -> None:
        """Wait until what `begin` was called for is erased, or cannot be."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def finish(self, *, timeout_s: float) -> None:
        """Erase it from the log and the index; in the index, what readers hold for longer than `timeout_s` stays for `tidy`."""
        with self._turn:
            self._cascades.follow()
            with self._index.snapshot() as snapshot:
                erasures, has_large = snapshot.erasures(), bool(snapshot.dropped_large())
            self._cascades.release(erasures)
            self._meaning.forget(erasures)
            try:
                if erasures or has_large:
                    with self._log.erasing():
                        self._erase(erasures)
            finally:
                self._scrub(timeout_s)  # the files of the index need not wait for the log

    def _erase(self, erasures: Sequence[Erasure]) -> None:
        left: list[str] = []
        for erasure in erasures:
            if erasure.targets:
                self._redact(erasure)
                continue
            first, before = erasure.first_position, erasure.tombstone_position
            try:
                self._log.erase(erasure.stream_id, first_position=first, before=before)
            except LogUnavailableError as error:
                raise _unfinished([erasure.stream_id], str(error)) from error
            if kind_of(erasure.stream_id) is CHATS:
                self._live.drop_chat(erasure)
            if self._is_erased(erasure):
                self._index.finish_erasure(erasure, at_ms=clock_ms())
            else:
                left.append(erasure.stream_id)
        if left:
            raise _unfinished(left, "the log still has events that it was told to erase")
        self.large.finish()

    def _redact(self, redaction: Erasure) -> None:
        damaged: CorruptStateError | None = None
        try:
            for position, slots in redaction.targets:
                try:
                    self._log.rewrite(position, slots)
                except CorruptStateError as error:
                    damaged = error
        except LogUnavailableError as error:
            msg = (
                f"events of {kind_of(redaction.stream_id).describe(redaction.stream_id)} were redacted, and what they said is in no answer any more. It is erased "
                f"from the log later, by the next open of the ledger at the latest: {error}"
            )
            raise LogUnavailableError(msg) from error
        if kind_of(redaction.stream_id) is CHATS:
            self._live.drop_redacted(redaction)
        if damaged is not None:
            # It stays due. What is damaged must not keep everything after it on the log for ever.
            _logger.warning("not all that was redacted can be erased; 'chatledger doctor' says more: %s", damaged)
            return
        self._index.finish_erasure(redaction, at_ms=clock_ms())

    def _is_erased(self, erasure: Erasure) -> bool:
        for attempt in range(GONE_TRIES):
            if not has_remains(self._log, erasure):
                return True
            if attempt < GONE_TRIES - 1:
                time.sleep(GONE_PAUSE_S)  # a replica may have answered that is behind
        return False

    def note_undone(self) -> bool:
        """
        Look whether the log has events or content again that were erased; whether that is so, and noted as what is to be finished.

        Servers of a cluster may take deletions back, when one comes back that missed them and the others are gone. The log is
        read only if it has more events than the index knows of.
        """
        count = self._log.count()
        if count is None:
            return False
        self._catch_up()
        with self._index.snapshot() as snapshot:
            if snapshot.erasures() or count <= snapshot.entry_count:
                return False
        undone: list[Recorded] = []
        redactions: list[Erasure] = []
        noted, after = Remains(), 0
        with suppress(CorruptStateError):  # 'chatledger verify' says what is damaged; the index serves nevertheless
            while page := self._log.read(after):
                after = page[-1].position
                with self._index.snapshot() as snapshot:
                    state, txn, tables = snapshot.state, snapshot.txn, snapshot.tables
                    claimed = [
                        recorded
                        for recorded in page
                        if recorded.position <= state.position and is_deleted(txn, tables, recorded)
                    ]
                    gone = {recorded.position for recorded in claimed}
                    redactions += [
                        redaction
                        for recorded in page
                        if isinstance(body := recorded.body, ContentRedacted) and recorded.position not in gone
                        for stream in [kind_of(recorded.chat_id).read(tables, txn, recorded.chat_id)]
                        if (redaction := redaction_of(stream, recorded, body)) and has_content(self._log, redaction)
                    ]
                for recorded in claimed:
                    if not noted.removed_from([recorded]):
                        continue
                    tombstone = find_tombstone(self._log, recorded.chat_id, recorded.position)
                    if tombstone is not None:
                        noted.add(tombstone)
                        undone.append(tombstone)
        self._index.note_erasures(undone, redactions)
        return bool(undone or redactions)

    def finish_if_allowed(self, *, timeout_s: float = 0) -> None:
        """Finish erasures where the login may; else they are left to those that may, and `tidy` does not try either."""
        if not self._is_allowed:
            return
        try:
            self.finish(timeout_s=timeout_s)
        except AccessDeniedError as error:
            self._is_allowed = False
            _logger.info(
                "what deleted chats left on the log stays there until somebody who may erase opens it: %s", error
            )
        except LogUnavailableError as error:
            if self._closing.is_set():
                raise
            _logger.warning("deletions are finished later: %s", error)

    def tidy(self) -> None:
        """
        Finish what deletions could not, as the log did not answer or readers were in the way; drop live streams that are due.
        Called now and then.
        """
        with self._index.snapshot() as snapshot:
            unfinished = {erasure.tombstone_position for erasure in snapshot.erasures()}
        if self._turn.acquire(blocking=False):  # else it is under way, and who tidies has other things to do
            try:
                if unfinished & self._unfinished:  # those that are new are under way, here or in another process
                    self.finish_if_allowed()
                elif not unfinished:
                    self.large.finish()
                    self._scrub(0)
            finally:
                self._turn.release()
        self._unfinished = unfinished
        self._live.tidy()

    def _scrub(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        try:
            while not (
                (not self._meaning.is_scrub_due or self._meaning.scrub())
                & (not self._index.is_scrub_due or self._index.scrub())
            ):
                if time.monotonic() > deadline:
                    return
                self._closing.wait(_PAUSE_S)
        except PageError as error:
            _logger.info("building the index anew, as its pages cannot be cleaned: %s", error)
            self._rebuild()
