"""Commands: decisions on the state in the index, and the events that they make, encoded for the log."""

import threading
import uuid
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, Final, NamedTuple

from chatledger.domain.chat.events import Body, Recorded
from chatledger.domain.chat.state import stream_head
from chatledger.domain.errors import ChatledgerError, InvalidValueError, LogUnavailableError
from chatledger.domain.limits import MAX_COMMIT_EVENTS
from chatledger.domain.log.codec import EncodedEvent, encode_events
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.log.kinds import StoredStream, StreamKind
from chatledger.projections.snapshot import Snapshot
from chatledger.projections.user_snapshot import UserSnapshot

from ..log.envelope import clock_ms, current, draw_salts

Decide = Callable[[IndexedChat, int], list[Body]]
"""(state, now in ms) to what is to be written: a pure function, for it is asked as often as it takes; see `Store.execute`."""
View = Callable[[Snapshot], Snapshot | UserSnapshot]
"""Limits a snapshot to what a caller may see."""
EventKind = type[Body] | tuple[type[Body], ...]
"""The type of the event that a command writes first."""

RETRY_S: Final = 30.0
"""How long a lost race is tried again."""


class ChatsToRead(NamedTuple):
    """
    The chats that a read concerns. A store of an earlier moment prepares them, and then shows no others; one that holds a
    share of the chats refuses others.

    Args:
        chat_id: The chat of this id.
        message_ids: The chats that these messages belong to, up to the first message that is in none.
        branch_id: The chat that has the branch of this id.
        are_all: All chats, or with `user_id` those of that owner.
        are_searched: All chats, and they are searched together.
        user_id: The owner.
        is_written: The caller writes to the chat `chat_id`, which may be done from everywhere.
    """

    chat_id: str | None = None
    message_ids: tuple[str, ...] = ()
    are_all: bool = False
    are_searched: bool = False
    user_id: str | None = None
    is_written: bool = False
    branch_id: str | None = None


NO_CHATS: Final = ChatsToRead()


class EventLimits(NamedTuple):
    """The most bytes of an event as the log stores it, and of the data of a message, which may be stored beside it."""

    event_bytes: int
    message_bytes: int


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
                known = _find_events(state, envelope.command_id)
                if known is not None:
                    return Decided(position, known=known)
            now = max(clock_ms(), head.occurred_at)  # clocks go back, a chat's events do not
            encoded = encode_events(
                self.decide(state, now),
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

    def __init__(self, command: Command, on_end: Callable[[], object] | None = None) -> None:
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


def _find_events(state: StoredStream, command_id: str) -> tuple[int, int] | None:
    """The positions of the first and the last event of a command; None when it was not carried out."""
    tombstone = state.tombstone
    if tombstone is not None and tombstone.command_id == command_id:
        return tombstone.head.position, tombstone.head.position
    return state.command(command_id)
