"""Reading the log for whoever asks for events: what the index has seen there must be there, and what is new must follow it."""

import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Self

import lmdb

from chatledger.domain.chat.events import Recorded, StreamDeleted
from chatledger.domain.chat.redaction import without_content
from chatledger.domain.chat.state import StreamHead, stream_head
from chatledger.domain.errors import ChainIntegrityError, ChatledgerError, CorruptStateError
from chatledger.domain.log.tombstones import is_foreign
from chatledger.domain.values import Message
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.index import COMMIT_PAGES, Index
from chatledger.projections.log.entries import Compared, LogEntry, compare, compare_stream, living_stream
from chatledger.projections.log.kinds import kind_of
from chatledger.projections.projector import Projector
from chatledger.projections.snapshot import Snapshot

from ..log.port import READ_PAGE, EventLog

QUIET_S: Final = 0.01
_FOLLOW_S: Final = 5.0
_OTHERS_S: Final = 0.002
"""So long after its event is on the log, another process that shares the index has mostly applied it."""
_TIDY_S: Final = 4.0
_SETTLED_S: Final = 0.1
_MERGE_S: Final = 1.0
"""The search index is merged once nothing came for so long, and this often while something does."""
_MERGE_PAUSE_S: Final = 0.005
"""Between steps of merging the search index, so that other processes come to write."""
_logger = logging.getLogger(__name__)


class Follower(threading.Thread):
    """
    Follows a log until `closing` is set.

    Args:
        log, index, projector: What is followed, and kept up with it.
        tidy: Called every few seconds.
        last_write_s: When this process wrote last, by the monotonic clock.
    """

    def __init__(
        self,
        log: EventLog,
        index: Index,
        projector: Projector,
        closing: threading.Event,
        *,
        tidy: Callable[[], object],
        last_write_s: Callable[[], float],
    ) -> None:
        super().__init__(name="chatledger-follower", daemon=True)
        self._log, self._index, self._projector = log, index, projector
        self._closing, self._tidy, self._last_write_s = closing, tidy, last_write_s

    def run(self) -> None:
        pause, tidied_s, merged_s = 0.05, time.monotonic(), 0.0
        is_merge_due = True
        while not self._closing.is_set():
            try:
                position = self._index.state.position
                is_news = self._log.wait(position, _SETTLED_S if is_merge_due else _FOLLOW_S)
                if is_news:
                    # Each write of ours takes in all that stands before it. Following it too would double its cost (960
                    # to 1,440 us for one append), so this thread waits until we pause.
                    while not self._is_quiet and not self._closing.is_set():
                        self._closing.wait(QUIET_S)
                    # The processes of a directory share its index, and the one that wrote is about to apply it: applying it
                    # here would keep that one waiting for the lock. A feed of this process shows it meanwhile.
                    self._closing.wait(_OTHERS_S)
                    if self._index.state.position == position:
                        self._take_in(position)
                    is_merge_due = True
                # Not after each event: a step takes the lock of the index, which the processes of a directory share.
                if is_merge_due and (not is_news or time.monotonic() - merged_s > _MERGE_S):
                    self._merge_search()
                    merged_s, is_merge_due = time.monotonic(), False
                if time.monotonic() - tidied_s > _TIDY_S:
                    tidied_s = time.monotonic()
                    self._tidy()
                pause = 0.05
            except (ChatledgerError, lmdb.Error) as error:
                if self._closing.is_set():
                    return
                # Commands and `sync` meet the same error and raise it; here it must not end the thread for good. A damaged page
                # of the index is met by what merges and tidies too.
                _logger.warning("following the log: %s", error)
                self._closing.wait(pause)
                pause = min(pause * 2, 5.0)

    def _take_in(self, position: int) -> None:
        """Apply what others wrote after a position: what came while this thread waited, without a request, or else what the log has."""
        news = list(self._log.news(position)) if self._log.is_dense else []
        # A commit is applied as a whole.
        while news and news[-1].event.rest:
            news.pop()
        page = self._projector.without_remains(news)
        with contextlib.suppress(
            ChainIntegrityError
        ):  # `catch_up` knows whether an erasure that is under way explains it
            if page and self._index.apply(page, after=position):
                return
        self._projector.catch_up()

    @property
    def _is_quiet(self) -> bool:
        """Whether this process has not written for a moment."""
        return time.monotonic() - self._last_write_s() >= QUIET_S

    def _merge_search(self) -> None:
        """Merge the search index, step by step, as long as this process does not write."""
        while self._is_quiet and self._index.merge_search():
            if self._closing.wait(_MERGE_PAUSE_S):
                return


ReadLog = Callable[[int], Sequence[Recorded]]
"""The events after a position: a page of whole commits, empty at the end of the log."""


class ReadAhead:
    """
    Reads as `read` does, and the next pages already while the caller is busy with this one. A context manager.

    An empty page is never taken from before: the log may have grown since.
    """

    def __init__(self, read: ReadLog, *, pages: int = COMMIT_PAGES) -> None:
        self._read, self._pages = read, pages
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="chatledger-reader")
        self._position = 0
        self._ahead: deque[Future[Sequence[Recorded]]] = deque()
        """The pages after `_position`, one after the other."""

    def __call__(self, after: int) -> Sequence[Recorded]:
        """The events after a position; raises what `read` raises."""
        page: Sequence[Recorded] = ()
        if self._ahead and self._position == after:
            try:
                page = self._ahead.popleft().result()
            except BaseException:
                self._forget()
                raise
        if not page:
            self._forget()
            page = self._read(after)
        if page:
            self._position = page[-1].position
            if not self._ahead:
                self._ahead.append(self._thread.submit(self._read, self._position))
            while len(self._ahead) < self._pages:
                self._ahead.append(self._thread.submit(self._read_behind, self._ahead[-1]))
        return page

    def _forget(self) -> None:
        while self._ahead:
            self._ahead.pop().cancel()

    def _read_behind(self, before: Future[Sequence[Recorded]]) -> Sequence[Recorded]:
        """Read the page behind one that this thread has read."""
        page = before.result()
        return self._read(page[-1].position) if page else ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)


class CheckedReading:
    """
    Pages of a log without holes.

    Args:
        log: What is read.
        index: Knows what stood at each position, but for the events of what was deleted.
        projector: Brings the index up with the log.
    """

    def __init__(self, log: EventLog, index: Index, projector: Projector) -> None:
        self._log, self._index, self._projector = log, index, projector

    def page(
        self, after: int, limit: int = READ_PAGE, *, stream_id: str | None = None, is_woken: bool = False
    ) -> Sequence[Recorded]:
        """
        About so many of the next events after a position, of all chats or one, whole commits; none at the end of the log.

        It ends before an event that the log lost; the next one begins there and raises. Foreign messages are left out, and what
        a tombstone on the log claims, whether or not it is erased. Takes memory for one page.

        Raises:
            ChainIntegrityError: The event after `after` is lost, or is not the one that was there.
            LogUnavailableError: It is not among what was read, and no majority of the servers says whether it is there.
        """
        is_sure = False
        # Before the log is read: what is rewritten meanwhile was noted by then, or had not happened when this call began.
        with self._index.snapshot() as snapshot:
            pending = snapshot.pending_slots()
        while True:
            seen, page = 0, self._news(after) if is_woken and stream_id is None else ()
            is_news = bool(page)
            page = page or self._read(after, limit, stream_id)
            if not page and (seen := self._known(stream_id)) > after:
                page = self._read(after, limit, stream_id)  # what the index has seen by now must be there
            compared = self._compared(page, after, seen, stream_id, is_news=is_news)
            if compared is None or compared.lost is not None:
                # The tombstone of what is read is on the log before the first event that it claims goes, and the index may be behind.
                self._projector.catch_up()
                compared = self._compared(page, after, seen, stream_id, is_news=False)
            if not is_sure and compared is not None and compared.lost is not None:
                # A server that is behind, or does not lead any more, may have answered: what is read from here on reaches the end.
                self._log.committed_position()
                is_sure, is_woken = True, False
                continue
            kept = self._kept(page, compared)
            if kept or not page:
                return self._redacted(kept, pending)
            after = page[-1].position

    def _redacted(self, events: Sequence[Recorded], pending: Mapping[int, set[int]]) -> Sequence[Recorded]:
        """Return events without what was redacted since, whether or not the log has it still; they say when and why."""
        if not any(recorded.event.redacted or recorded.position in pending for recorded in events):
            return events
        with self._index.snapshot() as snapshot:
            shown = list(events)
            for at, recorded in enumerate(events):
                if recorded.event.redacted or recorded.position in pending:
                    stream = kind_of(recorded.chat_id).read(snapshot.tables, snapshot.txn, recorded.chat_id)
                    slots = pending.get(recorded.position, ())
                    message = stream.message if isinstance(stream, IndexedChat) else dict[str, Message]().get
                    shown[at] = without_content(recorded, slots, message, stream.pseudonym, stream.owner)
            return shown

    def is_indexed(self, position: int, event_hash: bytes) -> bool:
        """
        Return whether the index has applied the event of a position last, and the log has that event, damaged, and no other one.

        Another one has another time, even where it is of the same version of the same chat: a log that lost its end grew again.
        """
        try:
            there = self._log.event_at(position)
        except CorruptStateError as error:
            stream_id, version, time = error.chat_id, error.version, None
        else:
            if there is None:
                return False
            stream_id, version, time = there.chat_id, there.version, there.occurred_at
        if stream_id is None:
            return False
        with self._index.snapshot() as snapshot:
            state, head = snapshot.state, _head(snapshot, stream_id)
        return (
            (state.position, head.position, head.version) == (position, position, version)
            and event_hash in {b"", state.hash}
            and time in {None, head.occurred_at}
        )

    def _known(self, stream_id: str | None) -> int:
        """The position of the last event that the index has seen."""
        with self._index.snapshot() as snapshot:
            return snapshot.state.position if stream_id is None else _head(snapshot, stream_id).position

    def _news(self, after: int) -> Sequence[Recorded]:
        """Return the whole commits that came by themselves."""
        page = self._log.news(after)
        while page and page[-1].event.rest:
            page.pop()
        return self._projector.without_remains(page)

    def _read(self, after: int, limit: int, stream_id: str | None) -> Sequence[Recorded]:
        if stream_id is None:
            return self._projector.read_commits(after, limit)
        return self._log.read_stream(stream_id, after=after, limit=limit)

    def _compared(
        self, page: Sequence[Recorded], after: int, head: int, stream_id: str | None, *, is_news: bool
    ) -> Compared | None:
        """
        Compare a page with the index; None when the index is behind, and cannot tell.

        Only news that follow what it has are given without it: they came just now, and with the tombstones behind them.
        """
        with self._index.snapshot() as snapshot:
            position, txn, tables = snapshot.state.position, snapshot.txn, snapshot.tables
            if stream_id is None:
                until = min(position, page[-1].position if page else head)
                compared = compare(txn, tables, page, after=after, until=until)
            else:
                compared = compare_stream(txn, tables, page, after=after, head=head, until=position)
            fresh = [recorded for recorded in page if recorded.position > position]
            if compared.lost is not None or not fresh:
                return compared
            return compared if is_news and self._follows(snapshot, fresh, max(position, after)) else None

    def _kept(self, page: Sequence[Recorded], compared: Compared | None) -> Sequence[Recorded]:
        """The events of a page up to the first one that is lost, without what is hidden."""
        lost = None if compared is None else compared.lost
        hidden = () if compared is None else compared.hidden
        if lost is None and not hidden:
            return page if compared is not None else [recorded for recorded in page if not is_foreign(recorded)]
        end = math.inf if lost is None else lost.position
        kept = [recorded for recorded in page if recorded.position < end and recorded.position not in hidden]
        if lost is not None:
            while kept and kept[-1].event.rest:
                kept.pop()
            if not kept:
                raise self._error(lost, page)
        return kept

    def _follows(self, snapshot: Snapshot, events: Sequence[Recorded], last: int) -> bool:
        """Whether events that the index has not applied yet follow `last` and those that it has, and none of them is a tombstone."""
        if not self._log.is_dense or events[-1].position - last != len(events):
            return False
        heads: dict[str, tuple[int, bytes]] = {}
        for recorded in events:
            stream = recorded.chat_id
            before = heads.get(stream)
            if before is None:
                head = _head(snapshot, stream)
                before = head.version, head.hash
            is_next = recorded.version == before[0] + 1 and recorded.event.previous_hash == before[1]
            if not is_next or isinstance(recorded.body, StreamDeleted):
                return False
            heads[stream] = recorded.version, recorded.hash
        return True

    def _error(self, entry: LogEntry, page: Sequence[Recorded]) -> ChainIntegrityError:
        with self._index.snapshot() as snapshot:
            stream_id = living_stream(snapshot.txn, snapshot.tables, entry.stream_no)
        whose = f", of chat {stream_id!r}," if stream_id else ""
        is_there = any(recorded.position == entry.position for recorded in page)
        what = (
            "is not the one that was there: it was changed, or the index is damaged. 'chatledger verify' says which"
            if is_there
            else "is lost: the index has seen it, and nothing was deleted. Restore the log from a backup"
        )
        msg = f"the event at position {entry.position} of the log{whose} {what}"
        return ChainIntegrityError(msg, chat_id=stream_id or None, position=entry.position)


def _head(snapshot: Snapshot, stream: str) -> StreamHead:
    """The last event of a stream that the index has applied."""
    return stream_head(kind_of(stream).read(snapshot.tables, snapshot.txn, stream))
