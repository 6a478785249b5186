"""Keeping the index up with the log, by whoever sees an event first."""

from collections.abc import Sequence
from typing import Final, Protocol

from chatledger.domain.errors import ChainIntegrityError
from chatledger.domain.events import Recorded, StreamDeleted

from .generation import IndexState
from .index import Index

PAGE_EVENTS: Final = 1000


class Log(Protocol):
    """What a projector reads from."""

    @property
    def is_dense(self) -> bool:
        """Whether positions follow each other without gaps, so that a gap means erased or lost events."""
        ...

    def read(self, after: int, limit: int) -> Sequence[Recorded]:
        """The events after a position, in order; empty at the end."""
        ...

    def read_chat(self, chat_id: str, *, after: int) -> Sequence[Recorded]:
        """The events of one chat after a position, in order."""
        ...


class Projector:
    """Applies the events of a log to an index."""

    def __init__(self, index: Index, log: Log) -> None:
        self._index, self._log = index, log
        self._doomed: dict[str, int] = {}

    def read_commits(self, after: int, limit: int = PAGE_EVENTS) -> list[Recorded]:
        """The next page of about `limit` events, whole commits only; empty at the end of the log."""
        while True:
            page = list(self._log.read(after, limit))
            while page and page[-1].event.rest:
                more = self._log.read(page[-1].position, page[-1].event.rest)
                if not more:
                    break
                page.extend(more)
            if not page or not self._doomed:
                return page
            after = page[-1].position
            kept = [recorded for recorded in page if recorded.position >= self._doomed.get(recorded.chat_id, 0)]
            if kept:
                return kept

    def take(self, events: Sequence[Recorded]) -> None:
        """Apply events just written; if others came in between, read those from the log too."""
        is_next = self._log.is_dense and self._index.apply(events, after=events[0].position - 1)
        if not is_next:
            self.catch_up()

    def catch_up(self) -> int:
        """
        Apply everything up to the end of the log, and return the position reached.

        Raises:
            ChainIntegrityError: Events are missing on the log, repeated or altered.
        """
        position = self._index.state.position
        while page := self.read_commits(position):
            try:
                self._index.apply(page)
            except ChainIntegrityError as error:
                if not self.explain(error):
                    raise
                continue
            position = page[-1].position
        self.check_holes(self._index.state)
        return position

    def explain(self, error: ChainIntegrityError) -> bool:
        """
        Whether an event follows a hole only because its chat was deleted later and is half erased; it is then left out.

        An erasure that was interrupted leaves such holes until it is finished.
        """
        if error.chat_id is None or error.position is None:
            return False
        after = error.position
        while page := self._log.read_chat(error.chat_id, after=after):
            for recorded in page:
                body = recorded.body
                if isinstance(body, StreamDeleted) and body.first_position <= error.position:
                    self._doomed[error.chat_id] = recorded.position
                    self._index.half_erased.add(error.chat_id)
                    return True
            after = page[-1].position
        return False

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
