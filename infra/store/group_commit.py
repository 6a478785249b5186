"""
Group commit: the commands of many threads, carried out together while one of them is on its way to the log.

One command alone is carried out by the thread that calls. Those that come meanwhile queue up, and a thread of its own takes
all of them along: it decides on each in one snapshot, sends each as soon as it is decided, and applies those that the log
acknowledged in one transaction. Each caller gets its own events or error. It is fair, as nobody overtakes anybody on a chat;
and threads that wait in a queue do not wake each other for every step, as many do that want the interpreter's lock.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import ChatledgerError, LedgerClosedError
from chatledger.projections.index import Index
from chatledger.projections.projector import Projector

from ..log.port import Appends, EventLog
from .commands import Command, Decided, EventLimits, QueuedCommand

_MOST: Final = 64
"""So many commands are carried out together, at most: who comes next waits for all of them."""
_logger = logging.getLogger(__name__)


class GroupCommit:
    """
    The writers of a store.

    Args:
        log: Where events are written.
        index: What is decided on.
        projector: Applies what was written.
        limits: Of the events that are written.
        note: Called with the position and the hash of the last event that the log acknowledged, before its caller is told.
    """

    def __init__(
        self,
        log: EventLog,
        index: Index,
        projector: Projector,
        limits: EventLimits,
        *,
        note: Callable[[int, bytes], None] | None,
    ) -> None:
        self._log, self._index, self._projector, self._limits, self._note = log, index, projector, limits, note
        self._changed = threading.Condition(threading.Lock())
        self._queue: deque[QueuedCommand] = deque()
        self._somebody_writes = self._is_turn = False
        self._writing_thread: int | None = None
        self._last_write_s = -math.inf
        self._is_closed = False
        self._thread: threading.Thread | None = None

    @property
    def last_write_s(self) -> float:
        """When something was written last, by the monotonic clock; now, while something is."""
        return time.monotonic() if self._somebody_writes else self._last_write_s

    def carry_out(self, command: Command, begun: QueuedCommand | None = None) -> tuple[Decided, list[Recorded]]:
        """
        Decide, write and apply; returns what was decided, and the events, which are none when there was nothing to write.

        `begun` is the command as it was submitted, if it was: it is waited for, and carried out where it was left alone.

        Raises:
            ChatledgerError: What the log or the index says.
            LostRaceError: Another writer wrote to the stream since the index was read; nothing was written.
        """
        has_turn = False
        if begun is None:
            me = threading.get_ident()
            with self._changed:
                has_turn = not self._somebody_writes
                if has_turn:
                    self._somebody_writes, self._writing_thread = True, me
                elif self._writing_thread != me:  # as in a signal's handler: nobody may wait for itself
                    begun = self._enqueue(QueuedCommand(command))
        if begun is not None and (decided := begun.wait()) is not None:
            return decided, begun.written
        try:
            with self._index.snapshot() as snapshot:
                decided = command.decided(snapshot, self._limits)
            if not decided.encoded:
                return decided, []
            if has_turn and decided.is_large:  # what uploads takes its time, and others need not wait for it
                has_turn = False
                self._hand_over()
            positions = self._log.append(command.stream, decided.encoded, expected_position=decided.expected_position)
            written = decided.written_at(positions)
            if self._note is not None:
                self._note(written[-1].position, written[-1].hash)
            self._projector.take(written)
            return decided, written
        finally:
            if has_turn:
                self._hand_over()

    def submit(self, *commands: QueuedCommand) -> None:
        """Let commands be carried out together, and with those that come meanwhile; `on_end` tells when each is over."""
        with self._changed:
            is_nested = self._writing_thread == threading.get_ident()  # it would have to wait for itself
            if not is_nested:
                for command in commands:
                    self._enqueue(command)
                if not self._somebody_writes:
                    self._somebody_writes = self._is_turn = bool(commands)
                    self._changed.notify_all()
        for command in commands if is_nested else ():
            command.leave()

    def _enqueue(self, command: QueuedCommand) -> QueuedCommand:
        if self._is_closed:
            msg = "the ledger is closed; open it again"
            raise LedgerClosedError(msg)
        self._queue.append(command)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="chatledger-writer", daemon=True)
            self._thread.start()
        return command

    def _hand_over(self) -> None:
        """Let the thread take those that queued up meanwhile; who comes when there are none writes alone."""
        with self._changed:
            self._last_write_s = time.monotonic()
            self._writing_thread = None
            self._somebody_writes = bool(self._queue)
            self._is_turn = self._somebody_writes
            if self._is_turn:
                self._changed.notify_all()

    def _run(self) -> None:
        while commands := self._next():
            try:
                self._carry_out_together(commands)
            except BaseException:  # their callers know; those that wait need this thread
                _logger.exception("commands that were carried out together were interrupted")
            self._hand_over()

    def _next(self) -> list[QueuedCommand]:
        """Those that are carried out together: the first ones that wait, one on each stream. None after `close`."""
        with self._changed:
            while not self._is_turn and not self._is_closed:
                self._changed.wait()
            self._is_turn = False
            self._writing_thread = threading.get_ident()
            if self._is_closed:
                for command in self._queue:
                    command.end(LedgerClosedError("the ledger was closed; nothing was written"))
                self._queue.clear()
                return []
            taken: dict[str, QueuedCommand] = {}
            left: list[QueuedCommand] = []
            while self._queue and len(taken) < _MOST:
                queued = self._queue.popleft()
                if queued.command.stream in taken:
                    left.append(queued)
                else:
                    taken[queued.command.stream] = queued
            self._queue.extendleft(reversed(left))
            return list(taken.values())

    def _carry_out_together(self, commands: Sequence[QueuedCommand]) -> None:
        """Carry out commands on different streams; end each of them, whatever happens."""
        try:
            self._write_together(*self._decide_together(commands))
        finally:
            for command in commands:
                command.give_up()

    def _decide_together(self, commands: Sequence[QueuedCommand]) -> tuple[list[QueuedCommand], Appends]:
        """Decide on each, and send what is to be written; those that write nothing are ended."""
        sent: list[QueuedCommand] = []
        appends = self._log.begin_appends()
        try:
            with self._index.snapshot() as snapshot:
                for queued in commands:
                    command = queued.command
                    try:
                        decided = queued.context.run(command.decided, snapshot, self._limits)
                    except Exception:  # noqa: BLE001 - the caller finds out by itself, in its own thread
                        queued.leave()
                        continue
                    if decided.is_large:
                        queued.leave()
                        continue
                    queued.decided = decided  # before it is sent: from then on its outcome may be unknown
                    if decided.encoded:
                        appends.add(command.stream, decided.encoded, decided.expected_position)
                        sent.append(queued)
                    else:
                        queued.end()
        except BaseException:
            appends.finish()
            raise
        return sent, appends

    def _write_together(self, sent: Sequence[QueuedCommand], appends: Appends) -> None:
        written: list[QueuedCommand] = []
        for queued, outcome in zip(sent, appends.finish(), strict=True):
            if isinstance(outcome, Exception):
                queued.end(outcome)
            else:
                assert queued.decided is not None, "it was sent"
                queued.written = queued.decided.written_at(outcome)
                written.append(queued)
        if written and self._note is not None:
            last = max((queued.written[-1] for queued in written), key=lambda event: event.position)
            self._note(last.position, last.hash)
        try:
            self._projector.take_all([queued.written for queued in written])
        except ChatledgerError:
            # Each by itself, so that each hears what concerns it.
            for queued in written:
                try:
                    self._projector.take(queued.written)
                except ChatledgerError as error:
                    queued.end(error)
                else:
                    queued.end()
        else:
            for queued in written:
                queued.end()

    def close(self) -> None:
        """Refuse those that wait, and wait for those under way; calling it again does nothing."""
        with self._changed:
            self._is_closed = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None:
            thread.join()
