"""Large data in a stream beside a log: blobs by name, one subject each. Made when the first entry is written."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

import msgspec
from eventsourcing.persistence import IntegrityError

from ..blob_storage import CHUNK_BYTES, BlobChangedError, BlobEntry
from .client import JetStreamClient
from .erase import erase_all
from .errors import StreamAbsentError, translated
from .key_value import AuxiliaryStream
from .reading import LogMessage, StreamPages
from .stream import list_subjects

_PAGE: Final = 8
_LARGE: Final = "the large data of messages"
_ENTRY_BYTES: Final = 4 * 1024
"""The most that an entry takes besides data."""


class _Now(msgspec.Struct):
    ts: datetime


class JetStreamBlobStorage(AuxiliaryStream):
    """
    Implements `BlobStorage`.

    Args:
        client, stream, replicas: As for `AuxiliaryStream`.
        log: The stream of the log, which is there when this one is not yet.
        max_bytes: The largest message.
    """

    def __init__(self, client: JetStreamClient, stream: str, *, log: str, replicas: int, max_bytes: int) -> None:
        super().__init__(client, stream, replicas=replicas)
        self._log = log
        self.chunk_bytes = min(CHUNK_BYTES, max_bytes - _ENTRY_BYTES)

    @translated(_LARGE)
    def last(self, name: str) -> BlobEntry | None:
        """Implement `BlobStorage.last`."""
        newest = self._last(self._subject(name))
        return None if newest is None else BlobEntry(newest.position, newest.payload)

    def add(self, name: str, entry: bytes, *, expected: int) -> int:
        """Implement `BlobStorage.add`."""
        with translated(_LARGE):
            try:
                position = self._append(self._subject(name), entry, expected)
            except IntegrityError:
                raise BlobChangedError from None
        if len(entry) <= _ENTRY_BYTES:
            # A mark, such as that the data before it are whole and in use. What refers to them may reach the disk before they do.
            self._client.sync_messages(self._stream)
        return position

    def read(self, name: str, *, after: int, until: int) -> Iterator[BlobEntry]:
        """Implement `BlobStorage.read`."""
        deadline, subject = self._client.deadline(), self._subject(name)
        pages = StreamPages(self._client, self._stream, deadline, after=after, subject=subject, until=until)
        while not pages.is_complete:
            for message in self._page(pages):
                if message.position <= until:
                    yield BlobEntry(message.position, message.payload)
                if message.position >= until:
                    return

    @translated(_LARGE)
    def _page(self, pages: StreamPages) -> list[LogMessage]:
        pages.renew(self._client.deadline())
        try:
            return pages.read(_PAGE)
        except StreamAbsentError:
            pages.is_complete = True
            return []

    def erase(self, name: str, *, until: int) -> None:
        """Implement `BlobStorage.erase`."""
        positions = [entry.position for entry in self.read(name, after=0, until=until) if entry.position != until]
        with self._client.erasing():
            self._erase(positions)
            # The last one at the end: a kill before leaves the mark by which the next one finishes it.
            self._erase([until])

    def remove(self, name: str, position: int) -> None:
        """Implement `BlobStorage.remove`."""
        del name
        self._erase([position])

    @translated(_LARGE)
    def _erase(self, positions: Sequence[int]) -> None:
        try:
            erase_all(self._client, self._stream, positions)
        except StreamAbsentError:
            return

    @translated(_LARGE)
    def names(self) -> list[str]:
        """Implement `BlobStorage.names`."""
        prefix = self._subject("")
        return [name.removeprefix(prefix) for name in list_subjects(self._client, self._stream, prefix + ">")]

    @translated(_LARGE)
    def now_ms(self) -> int:
        """Implement `BlobStorage.now_ms`, by the clock of the server that answers; those of a cluster are kept alike."""
        info = self._client.api(f"STREAM.INFO.{self._log}", None, _Now, self._client.deadline())
        return int(info.ts.timestamp() * 1000)
