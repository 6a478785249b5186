"""A log and its index, kept together: carrying out commands, reading, following what others write."""

import contextlib
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import takewhile
from typing import Final

from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import (
    ChainIntegrityError,
    CorruptStateError,
    InvalidValueError,
    LedgerClosedError,
    LogRegressedError,
    LogUnavailableError,
    UpdateConflictError,
)
from chatledger.domain.log.codec import MAX_EVENT_BYTES
from chatledger.domain.log.large_data import MAX_MESSAGE_BYTES
from chatledger.domain.log.parts import without
from chatledger.domain.values import Progress, no_progress
from chatledger.projections.custom.records import barred
from chatledger.projections.generations import IndexState
from chatledger.projections.index import Index
from chatledger.projections.lmdb.system_errors import system_errors
from chatledger.projections.log.kinds import CHATS, Decision, R, StreamKind
from chatledger.projections.projector import Projector
from chatledger.projections.snapshot import Snapshot

from ..log.envelope import current
from ..log.port import READ_PAGE, EventLog, LostRaceError
from ..log.witness import LastSeen, Witness, refuse_if_regressed
from .cascades import Cascades
from .commands import (
    NO_CHATS,
    RETRY_S,
    ChatsToRead,
    Decide,
    EventKind,
    EventLimits,
    Take,
    View,
)
from .custom_projections import CustomProjections
from .erasure import SCRUB_S, Eraser
from .group_commit import Adoption, Command, GroupCommit, QueuedCommand
from .inverting import ProcessInverter, check_processes
from .meaning import Meaning
from .reading import CheckedReading, Follower, ReadAhead
from .redactor import Redactor
from .search_process import filling_search
from .task_writes import TaskWriteBuffer
from .temp_folders import Scratch

_MAX_PAUSE_S: Final = 0.05
_DOUBLINGS: Final = 6
_CHECKED_ATTEMPTS: Final = 10
"""After so many lost races, and again after as many more, the index is compared with the log: it may be damaged."""
_LOOK_AGAIN_S: Final = 1.0
"""A position that does not come is looked for so often: news may be expected from a server that is cut off."""
_CLOSED: Final = "the ledger is closed; open it again"
_FIRST_PAGE: Final = 60
"""Events of the first page, those after it are larger: who wants a few does not wait until the hashes of a thousand are computed."""
_logger = logging.getLogger(__name__)


class Store:
    """
    One log with one index, shared by all ledgers of a process that were opened at the same place.

    Args:
        log: Where events are.
        index: What is derived from them; not opened yet.
        on_close: Called last, e.g. to stop a server.
        scratch: Where other things that are derived from the log, such as a second index, may lie for a while.
        witness: Notes how far the log went; closed by `on_close`.
        is_following: Whether what others write is taken in without being asked for.
    """

    redactor: Redactor | None = None
    """Takes secrets out of what is written, before it is decided on: a repeated call must be found equal to the first one."""

    def __init__(
        self,
        log: EventLog,
        index: Index,
        *,
        on_close: Sequence[Callable[[], object]] = (),
        max_event_bytes: int = MAX_EVENT_BYTES,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        progress: Progress = no_progress,
        scratch: Scratch | None = None,
        witness: Witness | None = None,
        is_following: bool = True,
    ) -> None:
        self.log, self.index, self._witness = log, index, witness
        self.live = log.live
        self.scratch = scratch or Scratch()
        self.user_id = None
        self.task_writes = TaskWriteBuffer()
        index.settings.is_checked = log.is_checked
        self.projector = Projector(index, log)
        self._reading = CheckedReading(log, index, self.projector)
        self.projections = CustomProjections(index, self._reading.page)
        limits = EventLimits(min(max_event_bytes, log.max_event_bytes or max_event_bytes), max_message_bytes)
        note = None if witness is None else witness.note
        self._commits = GroupCommit(log, index, self.projector, limits, note=note)
        self._on_close = on_close
        self._pid = os.getpid()
        self._damaged: set[int] = set()
        self.erases_soon = False
        self._closing = threading.Event()
        self.meaning = Meaning(index, self._closing)
        self._eraser = Eraser(
            log,
            index,
            self.meaning,
            self.rebuild,
            self._closing,
            Cascades(index, self.snapshot, self.execute),
            self.projector.catch_up,
        )
        try:
            self._open(progress)
        except BaseException:
            self.close()
            raise
        self._follower = Follower(
            log, index, self.projector, self._closing, tidy=self._tidy, last_write_s=lambda: self._commits.last_write_s
        )
        if is_following:
            self._follower.start()

    @system_errors("the index cannot be opened")
    def _open(self, progress: Progress) -> None:
        reason = self.index.open()
        for seen in [] if self._witness is None else self._witness.last_seen():
            self._refuse_if_regressed(seen, is_indexed=reason is None)
        if reason is not None:
            self._refuse_if_regressed(self.index.last_seen(), is_indexed=False)
            _logger.info("building the index: %s", reason)
            self.rebuild(progress, unless_open=True)
        self._refuse_if_regressed(self.index.state)
        last = self.log.last_position()
        self.projector.catch_up()
        self.projector.check_end(self.index.state, last)
        self.projections.build(progress)
        self.index.rebuild_search(progress, unless_complete=True)
        if self._witness is not None:
            state = self.index.state
            self._witness.note(state.position, state.hash)
        self.meaning.reconcile()
        self._eraser.finish_if_allowed(timeout_s=SCRUB_S)
        if self._eraser.note_undone():
            self._eraser.finish_if_allowed(timeout_s=SCRUB_S)
        if reason is not None:  # the old index may have known of data that were to be erased
            self.sweep_large()

    def _refuse_if_regressed(self, seen: LastSeen | IndexState | None, *, is_indexed: bool = True) -> None:
        """Refuse a log that lost its end. One whose last event is there, though damaged, is served from the index, which has it."""
        if seen is None:
            return
        try:
            refuse_if_regressed(self.log, position=seen.position, event_hash=seen.hash)
        except (LogRegressedError, CorruptStateError):
            if not is_indexed or not self._reading.is_indexed(seen.position, seen.hash):
                raise
            if seen.position not in self._damaged:
                self._damaged.add(seen.position)
                _logger.warning(
                    "the last event of the log, at position %d, is damaged; the index has what it says. Restore the log from a "
                    "backup, or export what is here, before the index is lost; 'chatledger verify' names the event",
                    seen.position,
                )

    def snapshot(self, _chats: ChatsToRead = NO_CHATS, /) -> AbstractContextManager[Snapshot]:
        """The index as it is now, whichever chats are read."""
        self.check_open()
        return self.index.snapshot()

    def execute(
        self,
        streams: StreamKind[R],
        key: str,
        decide: Decision[R],
        *,
        kind: EventKind | None = None,
        timeout_s: float = RETRY_S,
        view: View | None = None,
    ) -> list[Recorded]:
        """
        Decide on a stream's present state, write, and apply: again, while others write to the stream in between.

        `decide` is a pure function of the state and the time that it is given, however often it is asked: also where others
        wrote elsewhere, where commands are carried out together, or by another thread, it is asked again on the same state or
        another one, and only its last answer is written. What it needs beside the state, such as new ids or what changes were
        computed from, was there before the call; what it leaves for its caller is that of its last call, in place of earlier
        ones.

        A command with the id of one that was carried out before (see `context`) changes nothing. `kind` is the first event
        that the command writes; None for one that cannot be told from others and heeds no command id: its decision must
        change nothing when it is repeated. It is made on the stream as `view` shows it, if there is one.

        Returns:
            The events that were written, now or then; none when there was nothing to do.

        Raises:
            ChatledgerError: What the decision says; it was made on everything that was on the log when the call began.
            UpdateConflictError: The race was lost until the time was over.
            CorruptStateError: The same, because the index does not show events of the chat that it has read.
            LogUnavailableError: No answer; the outcome is unknown, repeating the call is safe.
        """
        self.check_open()
        command = Command(streams.stream_of(key), streams, key, decide, kind, view)
        return self._carry_out(command, time.monotonic() + timeout_s)

    def adopt(
        self, streams: StreamKind[R], takes: Sequence[tuple[str, Take[R]]], *, view: View | None = None
    ) -> list[Callable[[], list[Recorded]]]:
        """
        Begin to write events of another log as they are, for each key, as `begin` does; return what waits for those that were written.

        A take is a pure function of the stream's state, as `view` shows it, and returns the events that follow it. They were checked:
        what they say is applied. What waits raises `HeldError` where they destroy what a legal hold keeps here, and what a take does.
        """
        return self._begin([Adoption(streams.stream_of(key), streams, key, take, view) for key, take in takes])

    def begin(
        self, streams: StreamKind[R], decisions: Sequence[tuple[str, Decision[R]]], *, view: View | None = None
    ) -> list[Callable[[], list[Recorded]]]:
        """
        Begin what `execute` does for each key and decision, in another thread and in as few batches as the log allows.

        Returns for each, in order, what waits for the outcome, to be called once. The keys differ from each other; the decisions
        are made on the same state, so none may depend on what another writes.
        """
        return self._begin(
            [Command(streams.stream_of(key), streams, key, decide, None, view) for key, decide in decisions]
        )

    def _begin(self, commands: Sequence[Command | Adoption]) -> list[Callable[[], list[Recorded]]]:
        self.check_open()
        deadline = time.monotonic() + RETRY_S
        queued = [QueuedCommand(command) for command in commands]
        self._commits.submit(*queued)
        return [partial(self._carry_out, begun.command, deadline, begun) for begun in queued]

    def submit(self, chat_id: str, decide: Decide, kind: EventKind, on_end: Callable[[], object]) -> QueuedCommand:
        """
        Begin what `execute` does, in another thread, and return at once; `on_end` is called there when it is over.

        Only what it wrote, or an error although there was something to write, is its answer; else `execute` finds out why.
        """
        self.check_open()
        queued = QueuedCommand(Command(chat_id, CHATS, chat_id, decide, kind), on_end)
        self._commits.submit(queued)
        return queued

    def _carry_out(
        self, command: Command | Adoption, deadline: float, begun: QueuedCommand | None = None
    ) -> list[Recorded]:
        """Carry out a command, again while it is not certain; the first time it may have begun already."""
        attempts, end, is_confirmed = 0, None, False
        while True:
            attempts += 1
            try:
                decided, written = self._commits.carry_out(command, begun)
            except LostRaceError:
                end = self._await_other(command.stream, attempts, deadline)
                continue
            finally:
                begun = None
            if written:
                return written
            if decided.known is not None:
                return self._repeated(command.stream, decided.known, command.kind)
            refusal = decided.refusal
            # The state may be behind what others wrote before the call, so only what was decided at the end of the log can be
            # no. That end is looked for once: a call that looked again would not return as long as others write.
            if not isinstance(refusal, InvalidValueError | LedgerClosedError):  # which no state makes valid
                if refusal is not None and not is_confirmed:
                    # A refusal is final for the caller, and one of several servers may be behind.
                    end, is_confirmed = self.projector.catch_up(self.log.committed_position()), True
                elif end is None:
                    end = self.projector.catch_up(self.log.last_position())
                if decided.position < end:
                    continue
            if refusal is None:
                return []
            try:
                raise refusal
            finally:
                del refusal, decided  # they refer to this frame

    def _repeated(self, stream_id: str, positions: tuple[int, int], kind: EventKind | None) -> list[Recorded]:
        """The events of a command that was carried out before."""
        first, last = positions
        written: list[Recorded] = []
        while first <= last and (page := self.page(first - 1, stream_id=stream_id, limit=last - first + 1)):
            written += [recorded for recorded in page if recorded.position <= last]
            first = page[-1].position + 1
        if kind is not None and not (written and isinstance(written[0].body, kind)):
            msg = f"the command id {current().command_id!r} was used on chat {stream_id!r} for another command; use a new one"
            raise InvalidValueError(msg)
        return written

    def _await_other(self, stream_id: str, attempts: int, deadline: float) -> int:
        """Take in what another writer wrote to the chat, and give it a moment when it writes a lot; how far the index is."""
        end = self.projector.catch_up(self.log.last_position())  # and not what they write meanwhile
        is_over = time.monotonic() > deadline
        if is_over or attempts % _CHECKED_ATTEMPTS == 0:
            self._check_head(stream_id)
        if is_over:
            raise UpdateConflictError(stream_id, attempts=attempts)
        if attempts > 1:
            longest_s = min(0.001 * 2 ** min(attempts, _DOUBLINGS), _MAX_PAUSE_S)
            time.sleep(random.uniform(0, longest_s))  # noqa: S311 - spreads writers, hides nothing
        return end

    def _check_head(self, stream: str) -> None:
        """Raise `CorruptStateError` when the index has read an event of a stream and does not show it."""
        position, head = self.index.update(
            lambda generation, txn: (generation.state(txn).position, generation.head_position(txn, stream))
        )
        hidden = self.log.read_stream(stream, after=head, limit=1)
        if hidden and hidden[0].position <= position:
            msg = f"the index lacks events of {stream!r} that are on the log; rebuild it, the log is not affected"
            raise CorruptStateError(msg)

    def whole(self, task: str) -> "Store":
        """Return this store: it is that of all users."""
        del task
        return self

    def catch_up(self, position: int | None, timeout_s: float) -> int:
        """Take in everything up to the present end of the log, or to `position`; returns the position reached."""
        self.check_open()
        deadline = time.monotonic() + timeout_s
        target = self.log.committed_position() if position is None else position
        while (reached := self.projector.catch_up(target)) < target:
            rest = deadline - time.monotonic()
            if rest <= 0 or self._closing.is_set():
                msg = f"the index is at position {reached}, and {target} did not come within {timeout_s} s"
                raise LogUnavailableError(msg)
            self.log.wait(reached, min(rest, _LOOK_AGAIN_S))
        return reached

    def events(
        self,
        after: int,
        *,
        up_to: int | None = None,
        stream_id: str | None = None,
        is_closed: Callable[[], bool] = lambda: False,
    ) -> Iterator[Recorded]:
        """
        The events that are on the log after a position, up to another one; not more is read than may be between them.

        Raises:
            ChainIntegrityError: The next event is lost, or is not the one that was there.
            LedgerClosedError: The store was closed, or the handle that `is_closed` speaks for.
        """
        last = 2**63 - 1 if up_to is None else up_to
        limit = _FIRST_PAGE
        while after < last:
            self.check_open()
            if is_closed():
                raise LedgerClosedError(_CLOSED)
            page = self.page(after, stream_id=stream_id, limit=min(last - after, limit))
            if not page:
                return
            # A page ends with a whole commit, which may be after the last position.
            yield from takewhile(lambda recorded: recorded.position <= last, page)
            after, limit = page[-1].position, min(4 * limit, READ_PAGE)

    def bytes_at(self, positions: Sequence[int]) -> dict[int, bytes]:
        """The bytes of the events at ascending positions, which their hashes are over, without those that were erased."""
        self.check_open()
        with self.index.snapshot() as snapshot:
            pending = snapshot.pending_slots()
        bytes_by_position = self.log.bytes_at(positions)
        for position in pending.keys() & bytes_by_position.keys():
            bytes_by_position[position] = without(bytes_by_position[position], pending[position])
        return bytes_by_position

    def page(
        self, after: int, *, stream_id: str | None = None, limit: int = READ_PAGE, is_woken: bool = False
    ) -> Sequence[Recorded]:
        """
        About so many of the next events after a position, whole commits at a time; none at the end of the log.

        With `is_woken` they may be those that `EventLog.wait` has just brought.

        Raises:
            ChainIntegrityError: The next event is lost, or is not the one that was there.
        """
        self.check_open()
        return self._reading.page(after, limit, stream_id=stream_id, is_woken=is_woken)

    @system_errors("the index cannot be built")
    def rebuild(
        self, progress: Progress = no_progress, *, unless_open: bool = False, processes: int | None = None
    ) -> None:
        """Build the index anew from the log and go over to it, in so many processes where there is much to do."""
        count, total, done = check_processes(processes), self.log.last_position(), 0
        progress(0, total)

        def note(position: int) -> None:
            nonlocal done
            done = position
            progress(done, max(done, total))

        def share() -> float:
            return done / max(done, total, 1)

        while True:
            try:
                with (
                    ReadAhead(self.projector.read_commits) as read,
                    ProcessInverter(count, share=share) as inverter,
                ):
                    self.index.rebuild(
                        read,
                        check=lambda state: self.projector.check_end(state, total),
                        progress=note,
                        unless_open=unless_open,
                        inverter=inverter,
                    )
            except ChainIntegrityError as error:
                if not self.projector.explain(error):
                    raise
            else:
                break
        self.meaning.reconcile()

    @system_errors("the search index cannot be built")
    def rebuild_search(self, progress: Progress = no_progress) -> None:
        """Build the search index anew from the messages in the index."""
        self.check_open()
        self.index.rebuild_search(progress)

    @contextlib.contextmanager
    def search_later(self) -> Generator[None]:
        """
        A time in which much is written: messages get into the search index together, in its end, or meanwhile by a second process.

        A search finds them only then. Writing takes half of the processor time of this process.
        """
        with self.index.defer_search(), filling_search(self.index.folder, self.index.identity):
            yield

    def sweep_large(self) -> int:
        """Erase large data that no event refers to, as their writer died before; how many there were."""
        return self._eraser.large.sweep()

    def erase_deleted(self) -> None:
        """Erase what deletions left on the log and in the index: now, or soon in another thread, as `erases_soon` says."""
        if self.erases_soon:
            self._eraser.begin()
        else:
            self.finish_erasures()

    def finish_erasures(self, *, timeout_s: float = SCRUB_S) -> None:
        """Erase what deletions left on the log and in the index, also what an earlier process did not come to."""
        self._eraser.finish(timeout_s=timeout_s)

    def _tidy(self) -> None:
        self.projections.catch_up()
        self._eraser.tidy()

    def check_open(self) -> None:
        """Raise `LedgerClosedError` after `close`, or in a process forked from the one that opened it."""
        if self._closing.is_set():
            raise LedgerClosedError(_CLOSED)
        if os.getpid() != self._pid:
            msg = "this ledger was opened before the process forked; open it again in the child"
            raise LedgerClosedError(msg)
        if barred.get():
            self.projections.check_outside()

    def close(self) -> None:
        """Stop following, close index and log; calling it again does nothing."""
        if self._closing.is_set() or os.getpid() != self._pid:
            return
        self._eraser.close()
        self._closing.set()
        if self._witness is not None:
            self._witness.stop()
        # First the log: the thread that writes may wait for its answer, and is waited for next. The index goes last, as all of them read it.
        self.log.close()
        self._commits.close()
        follower = getattr(self, "_follower", None)
        if follower is not None and follower.is_alive():
            follower.join()
        self.projections.close()
        self.meaning.close()
        self.index.close()
        for action in self._on_close:
            action()
