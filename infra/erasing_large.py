"""Erasing large data that no chat has any more."""

from collections.abc import Callable

from chatledger.projections.index import Index

from .log import EventLog


class _PostponedError(Exception):
    """Events are being erased, and data go after the events that refer to them."""


class LargeDataEraser:
    """
    Erases the large data of deleted chats.

    Args:
        log, index: Where they are, and what says which chats have them.
        catch_up: Brings the index to the end of the log.
    """

    def __init__(self, log: EventLog, index: Index, catch_up: Callable[[], object]) -> None:
        self._log, self._index, self._catch_up = log, index, catch_up

    def finish(self) -> None:
        """Erase what deleted chats had and no others have. What a writer is about to refer to again stays for the next time."""
        with self._index.snapshot() as snapshot:
            dropped = snapshot.dropped_large()
        for digest in dropped:
            try:
                is_done = self._log.blobs.drop(digest, is_used=lambda digest=digest: self._is_used(digest))  # type: ignore[misc]  # a default of a lambda
            except _PostponedError:
                return
            if is_done:
                self._index.finish_drop(digest)

    def sweep(self) -> int:
        """Erase what no event refers to, because a writer died before its event or an index was lost; how many there were."""
        self._catch_up()
        with self._index.snapshot() as snapshot:
            digests = snapshot.large_digests()
        count = 0
        for name in self._log.blobs.unreferenced(digests):
            try:
                count += self._log.blobs.drop_name(name, is_used=lambda name=name: self._is_name_used(name))  # type: ignore[misc]  # as above
            except _PostponedError:
                break
        return count

    def _is_used(self, digest: bytes) -> bool:
        self._catch_up()
        with self._index.snapshot() as snapshot:
            if snapshot.erasures():
                raise _PostponedError
            return snapshot.is_large_used(digest)

    def _is_name_used(self, name: str) -> bool:
        self._catch_up()
        with self._index.snapshot() as snapshot:
            if snapshot.erasures():
                raise _PostponedError
            return any(self._log.blobs.has(name, digest) for digest in snapshot.large_digests())
