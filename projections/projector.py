"""Keeping the index up with the log, by whoever sees an event first."""

import math
import threading
import time
from collections.abc import Sequence
from typing import Final, Protocol

from chatledger.domain.chat.events import Recorded, StreamDeleted
from chatledger.domain.errors import ChainIntegrityError, IndexFullError

from .generations import Erasure, IndexState
from .index import Index

PAGE_EVENTS: Final = 1000
_TOGETHER_S: Final = 0.002
"""The time a writer waits for what another thread wrote before it; reading the log takes about as long."""


class Log(Protocol):
    """The log that a projector reads."""

    @property
    def is_dense(self) -> bool:
        """Whether positions follow each other without gaps, so that a gap means erased or lost events."""
        ...

    def read(self, after: int, limit: int) -> Sequence[Recorded]:
        """The events after a position, in order; empty at the end."""
        ...

    def read_stream(self, stream_id: str, *, after: int) -> Sequence[Recorded]:
        """The events of one chat after a position, in order."""
        ...

    def event_at(self, position: int) -> Recorded | None: ...


def find_tombstone(log: Log, stream_id: str | None, position: int | None) -> Recorded | None:
    """Return the later tombstone that claims the event of a stream at a position; None when there is none."""
    if stream_id is None or position is None:
        return None
    after = position
    while page := log.read_stream(stream_id, after=after):
        for recorded in page:
            if isinstance(recorded.body, StreamDeleted) and recorded.body.first_position <= position:
                return recorded
        after = page[-1].position
    return None


def has_remains(log: Log, erasure: Erasure) -> bool:
    """Whether the log has events that are to be erased."""
    if erasure.targets:
        return False
    page = log.read_stream(erasure.stream_id, after=erasure.first_position - 1)
    return bool(page) and page[0].position < erasure.tombstone_position


def has_content(log: Log, redaction: Erasure) -> bool:
    """Whether the log has content that a redaction takes away."""
    for position, slots in redaction.targets:
        recorded = log.event_at(position)
        if recorded is not None and not set(recorded.event.redacted).issuperset(slots):
            return True
    return False


class Remains:
    """The events that unfinished erasures left of deleted chats on the log, to be left out. An id may have had several lives."""

    def __init__(self) -> None:
        self._lives: dict[str, set[range]] = {}

    def add(self, tombstone: Recorded) -> None:
        """Leave out the events of the chat that this tombstone ends."""
        assert isinstance(tombstone.body, StreamDeleted), "only a deletion leaves remains"
        lives = self._lives.setdefault(tombstone.chat_id, set())
        lives.add(range(tombstone.body.first_position, tombstone.position))

    def removed_from(self, events: Sequence[Recorded]) -> Sequence[Recorded]:
        if not self._lives:
            return events
        return [
            recorded
            for recorded in events
            if not any(recorded.position in life for life in self._lives.get(recorded.chat_id, ()))
        ]


class Projector:
    """Applies the events of a log to an index."""

    def __init__(self, index: Index, log: Log) -> None:
        self._index, self._log = index, log
        self._remains = Remains()
        self._written: dict[int, Sequence[Recorded]] = {}
        self._changed = threading.Condition(threading.Lock())
        self._applying = threading.Lock()

    def read_commits(self, after: int, limit: int = PAGE_EVENTS) -> Sequence[Recorded]:
        """The next page of about `limit` events, whole commits only; empty at the end of the log."""
        while True:
            page = list(self._log.read(after, limit))
            while page and page[-1].event.rest:
                more = self._log.read(page[-1].position, page[-1].event.rest)
                if not more:
                    break
                page.extend(more)
            kept = self._remains.removed_from(page)
            if kept or not page:
                return kept
            after = page[-1].position

    def without_remains(self, events: Sequence[Recorded]) -> Sequence[Recorded]:
        """Return events that were read otherwise without what unfinished erasures left of deleted chats."""
        return self._remains.removed_from(events)

    def take(self, events: Sequence[Recorded]) -> None:
        """Apply events just written; if others came in between, together with theirs, or from the log."""
        first = events[0].position
        with self._changed:
            self._written[first] = events
            is_alone = len(self._written) == 1
            self._changed.notify_all()
        try:
            is_applied = self._log.is_dense and (
                (is_alone and self._index.apply(events, after=first - 1)) or self._take_together(events)
            )
            if not is_applied:
                # Up to these, not to the end: where several processes write it moves on as long as they do. Four of them spent
                # two thirds of their time here, each reading and decoding again what the others were about to apply.
                self.catch_up(events[-1].position)
        except IndexFullError as error:
            raise IndexFullError(error.path, error.reason, position=events[-1].position) from error
        finally:
            with self._changed:
                self._written.pop(first, None)
                self._changed.notify_all()

    def take_all(self, commits: Sequence[Sequence[Recorded]]) -> None:
        """Apply commits that were just written at the same time, in one transaction where nothing came in between."""
        events = sorted((recorded for commit in commits for recorded in commit), key=lambda recorded: recorded.position)
        if not self._log.is_dense:
            if events:
                self.catch_up(events[-1].position)
            return
        while events:
            first = events[0].position
            count = next((at for at, one in enumerate(events) if one.position != first + at), len(events))
            self.take(events[:count])
            events = events[count:]

    def _take_together(self, events: Sequence[Recorded]) -> bool:
        """
        Apply them with what other threads wrote just before and after, in one transaction.

        Threads hear of their events in another order than that of the log; reading the log for each of them would make many
        writers slower than one. False when what comes before does not turn up, as it is another process's.
        """
        first, last = events[0].position, events[-1].position
        ends_at = time.monotonic() + _TOGETHER_S
        while True:
            with self._applying:
                position = self._index.state.position
                if position >= last:
                    return self._index.apply(events, after=first - 1)
                run = self._run_after(position)
                if run and run[-1].position >= last and self._index.apply(run, after=position):
                    return True
            with self._changed:
                left_s = ends_at - time.monotonic()
                if left_s <= 0:
                    return False
                if not self._written_after(position):
                    self._changed.wait(left_s)

    def _run_after(self, position: int) -> list[Recorded]:
        """Return the known events after a position, without a gap."""
        run: list[Recorded] = []
        with self._changed:
            while more := self._written_after(run[-1].position if run else position):
                run.extend(more)
        return run

    def _written_after(self, position: int) -> Sequence[Recorded]:
        return self._written.get(position + 1, ())

    def catch_up(self, least: float = math.inf) -> int:
        """
        Apply everything up to the end of the log, or to a position that is at `least` this; return the position reached.

        Raises:
            ChainIntegrityError: Events are missing on the log, repeated or altered.
        """
        # Looked up each time: another process with this index may have applied what was about to be read.
        while (position := self._index.state.position) < least:
            page = self.read_commits(position, int(min(PAGE_EVENTS, least - position)))
            if not page:
                break
            try:
                self._index.apply(page)
            except ChainIntegrityError as error:
                if not self.explain(error):
                    raise
        self.check_holes(self._index.state)
        return position

    def explain(self, error: ChainIntegrityError) -> bool:
        """
        Whether an event follows a hole only because its chat was deleted later and is half erased; it is then left out.

        An erasure that was interrupted leaves such holes until it is finished.
        """
        tombstone = find_tombstone(self._log, error.chat_id, error.position)
        if tombstone is None:
            return False
        self._remains.add(tombstone)
        self._index.settings.partly_erased.add(tombstone.chat_id)
        return True

    def check_end(self, state: IndexState, last_position: int) -> None:
        """
        Raise `ChainIntegrityError` when there are holes, or the log gave out `last_position` and yet ends before it.

        The last event of all is never erased, since an erasure follows its tombstone.
        """
        self.check_holes(state)
        if self._log.is_dense and state.position < last_position:
            msg = (
                f"the log has given out position {last_position}, but its last event is at {state.position}: the events "
                "after it are lost. Restore the log from a backup"
            )
            raise ChainIntegrityError(msg)

    def check_holes(self, state: IndexState) -> None:
        """Raise `ChainIntegrityError` when more positions hold no event than deleted chats account for."""
        if self._log.is_dense and state.missing > state.erased:
            msg = (
                f"{state.missing} positions up to {state.position} hold no event, but deleted chats account for "
                f"{state.erased} only: events are lost. Restore the log from a backup"
            )
            raise ChainIntegrityError(msg)
