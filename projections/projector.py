"""Keeping the index up with the log, by whoever sees an event first."""

from collections.abc import Callable, Sequence
from typing import Final

from chatledger.domain.errors import ChainIntegrityError
from chatledger.domain.events import Recorded

from .index import Index

PAGE_EVENTS: Final = 1000


class Projector:
    """
    Applies the events of a log to an index.

    Args:
        index: Where they go.
        read: The events after a position, in order, at most so many; empty at the end of the log.
        is_dense: Whether positions follow each other without gaps, so that a gap means lost events.
    """

    def __init__(self, index: Index, read: Callable[[int, int], Sequence[Recorded]], *, is_dense: bool) -> None:
        self._index, self._read, self._is_dense = index, read, is_dense

    def read_commits(self, after: int) -> list[Recorded]:
        """The next page of events, whole commits only; empty at the end of the log."""
        page = list(self._read(after, PAGE_EVENTS))
        while page and page[-1].event.rest:
            more = self._read(page[-1].position, page[-1].event.rest)
            if not more:
                break
            page.extend(more)
        return page

    def take(self, events: Sequence[Recorded]) -> None:
        """Apply events just written; if others came in between, read those from the log too."""
        after = events[0].position - 1 if self._is_dense else None
        if after is None or not self._index.apply(events, after=after):
            self.catch_up()

    def catch_up(self) -> int:
        """
        Apply everything up to the end of the log, and return the position reached.

        Raises:
            ChainIntegrityError: Events are missing on the log, repeated or altered.
        """
        position = self._index.state.position
        while page := self.read_commits(position):
            self._index.apply(page)
            position = page[-1].position
        self.check_holes()
        return position

    def check_holes(self) -> None:
        """Raise `ChainIntegrityError` when more positions hold no event than deleted chats account for."""
        state = self._index.state
        if self._is_dense and state.missing > state.erased:
            msg = (
                f"{state.missing} positions up to {state.position} hold no event, but deleted chats account for "
                f"{state.erased} only: events are lost. Restore the log from a backup"
            )
            raise ChainIntegrityError(msg)
