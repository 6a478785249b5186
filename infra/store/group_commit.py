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
from contextvars import copy_context
from typing import Final

from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import ChatledgerError, LedgerClosedError
from chatledger.projections.index import Index
from chatledger.projections.projector import Projector
from chatledger.projections.snapshot import Snapshot

from ..log.port import Appends, EventLog
from .commands import Command, EventLimits

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
        note: Called with the last event that the log acknowledged, before its caller is told.
    """

    def __init__(
        self,
        log: EventLog,
        index: Index,
        projector: Projector,
        limits: EventLimits,
        *,
        note: Callable[[Recorded], None],
    ) -> None:
        self._log, self._index, self._projector, self._limits, self._note = log, index, projector, limits, note
        self._changed = threading.Condition(threading.Lock())
        self._queue: deque[Command] = deque()
        self._somebody_writes = self._is_turn = False
        self._writing_thread: int | None = None
        self._last_write_s = -math.inf
        self._is_closed = False
        self._thread: threading.Thread | None = None

    @property
    def last_write_s(self) -> float:
        """When something was written last, by the monotonic clock; now, while something is."""
        return time.monotonic() if self._somebody_writes else self._last_write_s

    def carry_out(self, command: Command) -> None:
        """
        Decide, write and apply; `written` is empty when there was nothing to write.

        Raises:
            ChatledgerError: What the decision says when `encoded` is empty; what the log or the index say otherwise.
            LostRaceError: Another writer wrote to the stream since the index was read; nothing was written.
        """
        me = threading.get_ident()
        with self._changed:
            is_first = not self._somebody_writes
            is_nested = self._writing_thread == me  # as in a signal's handler: nobody may wait for itself
            if is_first:
                self._somebody_writes, self._writing_thread = True, me
            elif not is_nested:
                self._enqueue(command)
        if is_first:
            self._carry_out_first(command)
        elif is_nested:
            self._decide_alone(command)
            self._write_alone(command)
        else:
            self.finish(command)

    def _carry_out_first(self, command: Command) -> None:
        is_holding = True
        try:
            self._decide_alone(command)
            if command.is_large:
                is_holding = False
                self._hand_over()
            self._write_alone(command)
        finally:
            if is_holding:
                self._hand_over()

    def submit(self, *commands: Command) -> None:
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

    def finish(self, command: Command) -> None:
        """Wait until a command that was submitted is over, or carry it out where it was left alone; raises as `carry_out` does."""
        if not command.wait():
            self._decide_alone(command)
            self._write_alone(command)

    def _decide_alone(self, command: Command) -> None:
        with self._index.snapshot() as snapshot:
            command.look(snapshot, self._limits)

    def _write_alone(self, command: Command) -> None:
        if command.encoded:
            expected = command.expected_position
            command.note_written(self._log.append(command.stream, command.encoded, expected_position=expected))
            self._note(command.written[-1])
            self._projector.take(command.written)

    def _enqueue(self, command: Command) -> None:
        if self._is_closed:
            msg = "the ledger is closed; open it again"
            raise LedgerClosedError(msg)
        command.context = copy_context()
        self._queue.append(command)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="chatledger-writer", daemon=True)
            self._thread.start()

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

    def _next(self) -> list[Command]:
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
            return self._take()

    def _take(self) -> list[Command]:
        taken: dict[str, Command] = {}
        left: list[Command] = []
        while self._queue and len(taken) < _MOST:
            command = self._queue.popleft()
            if command.stream in taken:
                left.append(command)
            else:
                taken[command.stream] = command
        self._queue.extendleft(reversed(left))
        return list(taken.values())

    def _carry_out_together(self, commands: Sequence[Command]) -> None:
        """Carry out commands on different streams; end each of them, whatever happens."""
        try:
            self._write_together(*self._decide_together(commands))
        finally:
            for command in commands:
                command.give_up()

    def _decide_together(self, commands: Sequence[Command]) -> tuple[list[Command], Appends]:
        """Decide on each, and send what is to be written."""
        sent: list[Command] = []
        appends = self._log.begin_appends()
        try:
            with self._index.snapshot() as snapshot:
                for command in commands:
                    if self._is_decided(command, snapshot):
                        appends.add(command.stream, command.encoded, command.expected_position)
                        sent.append(command)
        except BaseException:
            appends.finish()
            raise
        return sent, appends

    def _is_decided(self, command: Command, snapshot: Snapshot) -> bool:
        """Decide on a command; whether there is something to write together with others. If not, it is ended."""
        try:
            command.context.run(command.look, snapshot, self._limits)
        except ChatledgerError as error:
            command.end(error)
            return False
        except Exception:  # noqa: BLE001 - the caller finds out by itself, in its own thread
            command.leave()
            return False
        if command.is_large:
            command.leave()
            return False
        if not command.encoded:
            command.end()
            return False
        return True

    def _write_together(self, sent: Sequence[Command], appends: Appends) -> None:
        written: list[Command] = []
        for command, outcome in zip(sent, appends.finish(), strict=True):
            if isinstance(outcome, Exception):
                command.end(outcome)
            else:
                command.note_written(outcome)
                written.append(command)
        if written:
            self._note(max((command.written[-1] for command in written), key=lambda last: last.position))
        try:
            self._projector.take_all([command.written for command in written])
        except ChatledgerError:
            for command in written:
                self._apply_one(command)
        else:
            for command in written:
                command.end()

    def _apply_one(self, command: Command) -> None:
        """Apply one of those that could not be applied together, so that each hears what concerns itself."""
        try:
            self._projector.take(command.written)
        except ChatledgerError as error:
            command.end(error)
        else:
            command.end()

    def close(self) -> None:
        """Refuse those that wait, and wait for those under way; calling it again does nothing."""
        with self._changed:
            self._is_closed = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None:
            thread.join()
