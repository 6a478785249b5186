"""
Commands: each decides on the state in the index, and makes events of it, encoded for the log; many are carried out together.

One command alone is carried out by the thread that calls. Those that come meanwhile queue up, and a thread of its own takes
all of them along: it decides on each in one snapshot, sends each as soon as it is decided, and applies those that the log
acknowledged in one transaction. Each caller gets its own events or error. It is fair, as nobody overtakes anybody on a chat;
and threads that wait in a queue do not wake each other for every step, as many do that want the interpreter's lock.
"""

import logging
import math
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, Final, NamedTuple

from chatledger.domain.chat.events import Body, MessagesAppended, Recorded
from chatledger.domain.chat.state import stream_head
from chatledger.domain.errors import (
    ChatledgerError,
    InvalidValueError,
    LedgerClosedError,
    LogUnavailableError,
    PayloadTooLargeError,
)
from chatledger.domain.holds import is_destroying
from chatledger.domain.limits import MAX_COMMIT_EVENTS
from chatledger.domain.log.codec import EncodedEvent, encode_events
from chatledger.projections.index import Index
from chatledger.projections.log.holds import under_holds
from chatledger.projections.log.kinds import StoredStream, StreamKind
from chatledger.projections.projector import Projector
from chatledger.projections.snapshot import Snapshot

from ..log.envelope import clock_ms, current, draw_salts
from ..log.port import Appends, EventLog
from .commands import EventKind, EventLimits, View

_MOST: Final = 64
"""So many commands are carried out together, at most: who comes next waits for all of them."""
_logger = logging.getLogger(__name__)


class Decided(NamedTuple):
    """
    What was decided on one state of a stream.

    Args:
        position: How far the index was then.
        expected_position: The position of the last event of the stream then.
        encoded: The events to be written; none when there is nothing to do.
        is_large: Whether large data are stored with them, which nobody else should wait for.
        known: Where the events are, first and last, when a command of this id was carried out before.
        refusal: What the decision raised. A value, for the state may be behind what was on the log when the call began: whether
            it is the answer, or is decided again, says `Store.execute`.
    """

    position: int
    expected_position: int = 0
    encoded: Sequence[EncodedEvent] = ()
    is_large: bool = False
    known: tuple[int, int] | None = None
    refusal: ChatledgerError | None = None

    def written_at(self, positions: Sequence[int]) -> list[Recorded]:
        """Return the events, as the log has them at these positions."""
        return [Recorded(at, event.event, event.hash) for at, event in zip(positions, self.encoded, strict=True)]


class Command(NamedTuple):
    """
    A decision to be made and written.

    Args:
        stream: The id of the chat, or other stream, that it is about.
        streams, key: Its kind, and what it is known by there.
        decide: Returns what is to be written, from the stream's state and the time in ms.
        kind: The event that the decision writes first; None for one that heeds no command id.
        view: Limits the snapshot to what the caller may see.
    """

    stream: str
    streams: StreamKind[Any]
    key: str
    decide: Callable[[Any, int], list[Body]]
    kind: EventKind | None
    view: View | None = None

    def decided(self, snapshot: Snapshot, limits: EventLimits) -> Decided:
        """Read the state and decide on it, unless the command was carried out before."""
        position = snapshot.state.position
        try:
            seen = snapshot if self.view is None else self.view(snapshot)
            state: StoredStream = seen.stream(self.streams, self.key)
            head, envelope = stream_head(state), current()
            if self.kind is not None and envelope.command_id:
                tombstone = state.tombstone
                if tombstone is not None and tombstone.command_id == envelope.command_id:
                    return Decided(position, known=(tombstone.head.position, tombstone.head.position))
                earlier_commit = state.command(envelope.command_id)
                if earlier_commit is not None:
                    return Decided(position, known=earlier_commit)
            now = max(clock_ms(), head.occurred_at)  # clocks go back, a chat's events do not
            bodies = self.decide(state, now)
            # Messages that come to what is there take nothing away, and begin nothing that a hold would mark.
            if state.record is None or any(type(body) is not MessagesAppended for body in bodies):
                bodies = under_holds(snapshot, state, self.key, bodies)
            encoded = encode_events(
                bodies,
                stream_id=self.stream,
                version=head.version,
                previous_hash=head.hash,
                occurred_at=now,
                event_ids=map(str, iter(uuid.uuid4, None)),
                salts=draw_salts(),
                envelope=envelope,
                limit_bytes=limits.event_bytes,
                message_limit_bytes=limits.message_bytes,
            )
            if len(encoded) > MAX_COMMIT_EVENTS:
                msg = f"one call on chat {self.stream!r} takes {len(encoded):,} events, at most {MAX_COMMIT_EVENTS:,} fit; split it"
                raise InvalidValueError(msg)
        except ChatledgerError as error:
            return Decided(position, refusal=error)
        return Decided(position, head.position, encoded, any(event.large for event in encoded))


class Adoption(NamedTuple):
    """
    Events of another log, to be written as they are.

    Args:
        stream, streams, key: As of a `Command`.
        take: Returns the events that follow a state of the stream, none where it has them.
        view: As of a `Command`.
    """

    stream: str
    streams: StreamKind[Any]
    key: str
    take: Callable[[Any], Sequence[EncodedEvent]]
    view: View | None = None
    kind: None = None

    def decided(self, snapshot: Snapshot, limits: EventLimits) -> Decided:
        position = snapshot.state.position
        try:
            state = (snapshot if self.view is None else self.view(snapshot)).stream(self.streams, self.key)
            encoded = self.take(state)
            bodies = [event.event.body for event in encoded]
            if any(map(is_destroying, bodies)):
                under_holds(snapshot, state, self.key, bodies)
            largest = max((len(event.state) for event in encoded), default=0)
            if largest > limits.event_bytes:
                raise PayloadTooLargeError(self.stream, size_bytes=largest, limit_bytes=limits.event_bytes)
        except ChatledgerError as error:
            return Decided(position, refusal=error)
        return Decided(position, stream_head(state).position, encoded, any(event.large for event in encoded))


class QueuedCommand:
    """
    A command that another thread carries out, with what comes of it; that thread fills it, and its caller reads it afterwards.

    Args:
        command: What is asked.
        on_end: Called in the thread that carries it out when it is over, in place of `wait`.

    Attributes:
        decided: What was decided, from before it is sent. What the log says of it then is final.
        written: The events, once the log has acknowledged them.
        error: What the log or the index said.
    """

    def __init__(self, command: Command | Adoption, on_end: Callable[[], object] | None = None) -> None:
        self.command, self.context = command, copy_context()  # of the caller, in whose place another thread decides
        self.decided: Decided | None = None
        self.written: list[Recorded] = []
        self.error: Exception | None = None
        self._is_ended = self._is_left = False
        self._done = threading.Lock()
        self._done.acquire()
        self._on_end = on_end or self._done.release

    def end(self, error: Exception | None = None) -> None:
        """Let the caller go on."""
        self.error, self._is_ended = error, True
        self._on_end()

    def leave(self) -> None:
        """Let the caller carry it out alone; nothing was written."""
        self.decided, self._is_left = None, True
        self.end()

    def give_up(self) -> None:
        """End it, if it is not, because something went wrong that it had no part in."""
        if self._is_ended:
            return
        if self.decided is None or not self.decided.encoded:
            self.leave()
            return
        msg = f"chat {self.command.stream!r}: writing was interrupted. The outcome is unknown; retrying is safe"
        self.end(LogUnavailableError(msg))

    def wait(self) -> Decided | None:
        """Wait until another thread has carried it out; raises what came of it. None when the caller is to do it."""
        self._done.acquire()
        error, self.error = self.error, None
        if error is None:
            return None if self._is_left else self.decided
        try:
            raise error
        finally:
            del error  # it refers to this frame


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

    def carry_out(
        self, command: Command | Adoption, begun: QueuedCommand | None = None
    ) -> tuple[Decided, list[Recorded]]:
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
                # Carry out commands on different streams; end each of them, whatever happens.
                try:
                    self._write_together(*self._decide_together(commands))
                finally:
                    for command in commands:
                        command.give_up()
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
