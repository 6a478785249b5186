"""`PolledLog`: a log in a database that tells nobody of new events, so that the highest position is asked for."""

import secrets
import threading
import time
from abc import abstractmethod
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from eventsourcing.persistence import ApplicationRecorder, JSONTranscoder

from chatledger.domain.errors import LedgerClosedError

from .blob_storage import BlobStorage
from .bookmarks import Bookmark, decode_bookmark, decode_bookmarks, encode_bookmark
from .live_storage import LiveStorage
from .mapper import StructMapper
from .port import EventLog, LostRaceError

_POLL_S: Final = 0.05


class PolledLog(EventLog):
    """
    The base of logs in databases: events of other processes are found by polling, and closing waits for those who read.

    `mapper`: of the log; None for one that neither compresses nor encrypts.
    """

    def __init__(
        self,
        recorder: ApplicationRecorder,
        mapper: StructMapper | None,
        blob_storage: BlobStorage,
        live_storage: LiveStorage,
    ) -> None:
        super().__init__(recorder, mapper or StructMapper(JSONTranscoder()), blob_storage, live_storage)
        self._appended = threading.Condition()
        self._is_closed = False
        self._uses = 0
        self._thread = threading.local()

    @contextmanager
    def translated(self, what: str, *, is_write: bool = False) -> Generator[None]:
        """Implement `EventLog.translated`; connections are not closed under those who use them, which would crash SQLite."""
        with self._appended:
            if self._is_closed:
                msg = "the ledger is closed; open it again"
                raise LedgerClosedError(msg)
            # Counted, as `close` waits for zero: a connection that is closed under a thread that uses it crashes the process.
            self._uses += 1
        try:
            with super().translated(what, is_write=is_write):
                yield
        finally:
            with self._appended:
                self._uses -= 1
                self._appended.notify_all()

    @contextmanager
    def erasing(self) -> Generator[None]:
        """Implement `EventLog.erasing`: a file that is due to be written anew is that at the end, and not for each event."""
        self._thread.is_erasing = True
        try:
            yield
        finally:
            self._thread.is_erasing = False
        with self.translated("erasing"):
            self._finish_erasing()

    @property
    def _is_erasing(self) -> bool:
        """Whether this thread is about to erase more."""
        return getattr(self._thread, "is_erasing", False)

    @abstractmethod
    def _finish_erasing(self) -> None:
        """Remove what the files still have of what was erased, and write them anew unless more `_is_erasing`."""

    def append(self, *args: Any, **kwargs: Any) -> list[int]:
        positions = super().append(*args, **kwargs)
        with self._appended:
            self._appended.notify_all()
        return positions

    def load_bookmark(self, key: str) -> Bookmark | None:
        rows = self._select_bookmarks(key)
        return decode_bookmark(*rows[0]) if rows else None

    def save_bookmark(self, bookmark: Bookmark) -> Bookmark:
        # Not counted up: one that was dropped and made anew must not have the revision of the old one.
        revision = 1 + secrets.randbits(62)
        value = encode_bookmark(bookmark).decode()
        if not self._put_bookmark(bookmark.key, value, revision, before=bookmark.revision):
            raise LostRaceError
        return bookmark.saved_as(revision)

    def bookmarks(self) -> list[Bookmark]:
        return decode_bookmarks(self._select_bookmarks(None))

    @abstractmethod
    def _select_bookmarks(self, key: str | None) -> list[tuple[bytes, int]]:
        """Return the values with their revisions, of one key or of all."""

    @abstractmethod
    def _put_bookmark(self, key: str, value: str, revision: int, *, before: int) -> bool:
        """Keep a value in place of the one with the revision `before`, 0 for none; False when there is another one."""

    def wait(self, after: int, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not self._is_closed:
            try:
                if self.last_position() > after:
                    return True
            except LedgerClosedError:
                break
            rest = deadline - time.monotonic()
            if rest <= 0:
                break
            with self._appended:
                # Own appends wake it at once; those of other processes are seen at the next look.
                self._appended.wait(min(rest, _POLL_S))
        return False

    def close(self) -> None:
        with self._appended:
            self._is_closed = True
            self._appended.notify_all()
            while self._uses:
                self._appended.wait()
        self._disconnect()

    def _disconnect(self) -> None:
        """Close the connections, which nobody uses any more."""
        raise NotImplementedError
