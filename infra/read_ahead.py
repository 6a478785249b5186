"""Reading a log from its beginning to its end, one page ahead of who takes them in."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from chatledger.domain.events import Recorded

ReadLog = Callable[[int], Sequence[Recorded]]
"""The events after a position: a page of whole commits, empty at the end of the log."""


class ReadAhead:
    """
    Reads as `read` does, and the next page already while the caller is busy with this one. A context manager.

    An empty page is never taken from before: the log may have grown since.
    """

    def __init__(self, read: ReadLog) -> None:
        self._read = read
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="chatledger-reader")
        self._next: tuple[int, Future[Sequence[Recorded]]] | None = None

    def __call__(self, after: int) -> Sequence[Recorded]:
        """The events after a position; raises what `read` raises."""
        ahead, self._next = self._next, None
        page: Sequence[Recorded] = ()
        if ahead is not None:
            position, future = ahead
            if position == after:
                page = future.result()
            else:
                future.cancel()
        page = page or self._read(after)
        if page:
            last = page[-1].position
            self._next = last, self._thread.submit(self._read, last)
        return page

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(cancel_futures=True)
