"""Commands: decisions on the state in the index, and the events that they make, encoded for the log."""

import uuid
from collections.abc import Callable
from typing import Final, TypeVar

from chatledger.domain.chat.events import Body
from chatledger.domain.chat.state import stream_head
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.log.codec import EncodedEvent, encode_events, split
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.index import Snapshot
from chatledger.projections.log.kinds import StoredStream

from ..log.envelope import clock_ms, current
from .group_commit import Command

Decide = Callable[[IndexedChat, int], list[Body]]
"""(state, now in ms) to what is to be written."""
S = TypeVar("S", bound=StoredStream)
EventKind = type[Body] | tuple[type[Body], ...]
"""The type of the event that a command writes first."""

MAX_COMMIT_EVENTS: Final = 1000
"""The most events that a JetStream server takes in one atomic batch."""


class CommandFactory:
    """Makes commands from decisions, within the limits of a ledger."""

    def __init__(self, *, max_event_bytes: int, max_message_bytes: int) -> None:
        self._max_event_bytes, self._max_message_bytes = max_event_bytes, max_message_bytes

    def command(
        self,
        stream: str,
        read: Callable[[Snapshot], S],
        decide: Callable[[S, int], list[Body]],
        kind: EventKind | None,
        on_end: Callable[[], object] | None = None,
    ) -> Command:
        """Return a command that decides on the state which `read` returns, unless it was carried out before."""

        def look(command: Command, snapshot: Snapshot) -> None:
            command.position = snapshot.state.position
            state = read(snapshot)
            command.known = None if kind is None else _known(state)
            command.expected_position = stream_head(state).position
            command.encoded = () if command.known else self._encode_bodies(state, decide)

        return Command(stream, look, on_end)

    def _encode_bodies(self, state: S, decide: Callable[[S, int], list[Body]]) -> list[EncodedEvent]:
        head = stream_head(state)
        now = max(clock_ms(), head.occurred_at)  # clocks go back, a chat's events do not
        bodies = split(decide(state, now), self._max_event_bytes)
        if len(bodies) > MAX_COMMIT_EVENTS:
            msg = f"one call on chat {state.stream_id!r} takes {len(bodies):,} events, at most {MAX_COMMIT_EVENTS:,} fit; split it"
            raise InvalidValueError(msg)
        return encode_events(
            bodies,
            stream_id=state.stream_id,
            version=head.version,
            previous_hash=head.hash,
            occurred_at=now,
            event_ids=[str(uuid.uuid4()) for _ in bodies],
            envelope=current(),
            limit_bytes=self._max_event_bytes,
            message_limit_bytes=self._max_message_bytes,
        )


def _known(state: StoredStream) -> tuple[int, int] | None:
    """Where the events of the current command are, if it was carried out before."""
    command_id = current().command_id
    if command_id is None:
        return None
    tombstone = state.tombstone
    if tombstone is not None and tombstone.command_id == command_id:
        return tombstone.head.position, tombstone.head.position
    return state.command(command_id)
