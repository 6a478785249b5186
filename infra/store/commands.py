"""Commands: decisions on the state in the index, and the events that they make, encoded for the log."""

import threading
import uuid
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any, Final, NamedTuple, TypeVar

from chatledger.domain.chat.events import Body, Recorded
from chatledger.domain.chat.state import stream_head
from chatledger.domain.errors import InvalidValueError, LogUnavailableError
from chatledger.domain.limits import MAX_COMMIT_EVENTS
from chatledger.domain.log.codec import EncodedEvent, encode_events
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.log.kinds import StoredStream
from chatledger.projections.snapshot import Snapshot

from ..log.envelope import clock_ms, current, draw_salts

Decide = Callable[[IndexedChat, int], list[Body]]
"""(state, now in ms) to what is to be written: a pure function, for it is asked as often as it takes; see `Store.execute`."""
S = TypeVar("S", bound=StoredStream)
OnStream = tuple[str, Callable[[Snapshot], S], Callable[[S, int], list[Body]]]
"""The id of a stream, what reads its state, and the decision on it."""
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


class Command:
    """
    A decision to be made and written, and its outcome.

    Args:
        stream: The chat, or other stream, that it is about.
        read: Returns the state to decide on.
        decide: Returns what is to be written, from that state and the time in ms.
        kind: The event that the decision writes first; None for one that heeds no command id.
        on_end: Called in the thread that carries it out when it is over, in place of `wait`.

    Attributes:
        context: Holds the caller's context variables, for a thread that decides in the caller's place.
        position: How far the index was when it was decided.
        expected_position: The position of the last event of the stream then.
        encoded: The events to be written; none when there is nothing to do.
        is_large: Whether large data are stored with them, which nobody else should wait for.
        known: Where the events are, first and last, when a command of this id was carried out before.
        written: The events, once the log has acknowledged them.
    """

    context: Context

    def __init__(
        self,
        stream: str,
        read: Callable[[Snapshot], S],
        decide: Callable[[S, int], list[Body]],
        kind: EventKind | None,
        on_end: Callable[[], object] | None = None,
    ) -> None:
        self.stream, self._kind = stream, kind
        self._read: Callable[[Snapshot], Any] = read
        self._decide: Callable[[Any, int], list[Body]] = decide
        self.position = self.expected_position = 0
        self.encoded: Sequence[EncodedEvent] = ()
        self.is_large = False
        self.known: tuple[int, int] | None = None
        self.written: list[Recorded] = []
        self.error: Exception | None = None
        self._is_ended = self._is_left = False
        self._done = threading.Lock()
        self._done.acquire()
        self._on_end = on_end or self._done.release

    def look(self, snapshot: Snapshot, limits: EventLimits) -> None:
        """Read the state and decide on it, unless the command was carried out before. Raises what the decision says."""
        self.position = snapshot.state.position
        state = self._read(snapshot)
        head, envelope = stream_head(state), current()
        self.expected_position, self.encoded, self.is_large = head.position, (), False
        self.known = _find_events(state, envelope.command_id) if self._kind and envelope.command_id else None
        if self.known is not None:
            return
        now = max(clock_ms(), head.occurred_at)  # clocks go back, a chat's events do not
        encoded = encode_events(
            self._decide(state, now),
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
        self.encoded = encoded
        self.is_large = any(encoded.large for encoded in self.encoded)

    def note_written(self, positions: Sequence[int]) -> None:
        """Take what the log said."""
        pairs = zip(positions, self.encoded, strict=True)
        self.written = [Recorded(at, encoded.event, encoded.hash) for at, encoded in pairs]

    def end(self, error: Exception | None = None) -> None:
        """Let the caller go on."""
        self.error, self._is_ended = error, True
        self._on_end()

    def leave(self) -> None:
        """Let the caller carry it out alone; nothing was written."""
        self.encoded, self._is_left = (), True
        self.end()

    def give_up(self) -> None:
        """End it, if it is not, because something went wrong that it had no part in."""
        if self._is_ended:
            return
        if not self.encoded:
            self.leave()
            return
        msg = f"chat {self.stream!r}: writing was interrupted. The outcome is unknown; retrying is safe"
        self.end(LogUnavailableError(msg))

    def wait(self) -> bool:
        """Wait until another thread has carried it out; raises what came of it. False when the caller is to do it."""
        self._done.acquire()
        error, self.error = self.error, None
        if error is None:
            return not self._is_left
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
