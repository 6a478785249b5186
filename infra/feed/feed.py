"""`Feed`: events as they come."""

from types import TracebackType
from typing import Self

from chatledger.domain.errors import ChatledgerError
from chatledger.domain.events import Recorded

from .cursor import Cursor


class Feed:
    """
    An iterator over the events of a log, in order and without holes. Made by `Ledger.feed`.

    An event counts as handled when the next one is asked for, or when `ack` says so. Under a name, what was handled is kept
    in the log's server: by `ack` at once, else after 100 events or a quarter of a second, at the end of `with`, and when the
    ledger is closed. An error does not end it: asked again, it goes on where it was. One thread at a time may iterate;
    `ack` and `close` may be called from any.
    """

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor

    @property
    def position(self) -> int:
        """The position up to which everything was handled; `feed(after=position)` goes on from there."""
        return self.cursor.position

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Recorded:
        """
        The next event. Waits for it, unless `follow` was False.

        Raises:
            ConflictError: Another reader took the name.
            LogUnavailableError: The log did not answer for long; asking again is safe.
        """
        cursor = self.cursor
        cursor.ask()
        while True:
            try:
                if cursor.is_due:
                    cursor.save()
                recorded = cursor.pop()
                if recorded is not None:
                    return recorded
                if cursor.is_over and cursor.is_following:
                    raise StopIteration
                if cursor.read():
                    continue
                if not cursor.is_following:
                    cursor.save()
                    raise StopIteration
                cursor.note(has_more=cursor.wait())
            except ChatledgerError as error:
                if cursor.is_following and cursor.is_over:
                    raise StopIteration from error
                raise

    def ack(self, position: int | None = None) -> None:
        """
        Say that everything given up to a position was handled. Under a name it is kept before this returns.

        Args:
            position: Of an event that was given; the last one when None. An earlier one than before changes nothing.

        Raises:
            InvalidValueError: No event at so late a position was given.
            ConflictError: Another reader took the name, or it was forgotten.
            LogUnavailableError: No answer; whether it is kept is unknown, and trying again is safe.
        """
        self.cursor.ack(position)

    def close(self) -> None:
        """
        End the feed; calling it again does nothing. What was handled is kept, the event given last only after `ack`.

        Raises:
            ConflictError, LogUnavailableError: As `ack`; the feed is closed nevertheless.
        """
        self.cursor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.cursor.close()
        else:
            self.cursor.close_quietly()
