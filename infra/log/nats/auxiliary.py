"""Streams beside that of a log: values by key, of which each subject keeps the newest, and large data, one subject each."""

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final

import msgspec
from eventsourcing.persistence import IntegrityError, InterfaceError

from ..blob_storage import CHUNK_BYTES, BlobChangedError, BlobEntry
from .append import OutgoingMessage, SlotEmptyError, SlotTakenError, append_messages
from .client import Deadline, JetStreamClient
from .erase import erase_all
from .errors import NOT_FOUND, ApiError, StorageFullError, StreamAbsentError, translated
from .reading import MESSAGE_ID, LogMessage, StreamPages, last_on_subject
from .stream import PurgeReply, StreamConfig, StreamInfo, list_subjects
from .subjects import token
from .transport import Transport, ask_api

_MARKS: Final = frozenset({"KV-Operation", "Nats-Marker-Reason"})
_MARK_BYTES: Final = 1024
_PLAIN_KEY: Final = re.compile(r"[0-9][-/_=a-zA-Z0-9]{0,99}")
"""Not those that look like tokens, which begin with a letter."""
ALL: Final = -1
"""No limit on the messages of a subject."""


class AuxiliaryStream:
    """A stream beside that of the log, with a subject for each name. `client`: the connection, which may serve others too."""

    per_subject: ClassVar[int] = ALL
    """Number of messages of each subject that the stream keeps."""

    def __init__(self, client: JetStreamClient, stream: str, *, replicas: int) -> None:
        self._client, self._stream, self._replicas = client, stream, replicas
        self._is_there = False

    def make(self) -> None:
        """Create the stream now, for logins that may not do so later."""
        self._ensure(self._client.deadline())

    def _subject(self, name: str) -> str:
        return f"{self._stream}.b.{name}"

    def _last(self, subject: str) -> LogMessage | None:
        """The last message of a subject. From the leader: never stale."""
        client = self._client
        try:
            return last_on_subject(client, self._stream, subject, client.deadline())
        except StreamAbsentError:
            return None

    def _append(self, subject: str, payload: bytes, expected: int, headers: Mapping[str, str] | None = None) -> int:
        """Write behind the message at `expected`, 0 for none; its position. `IntegrityError` when another one is the last."""
        deadline = self._client.deadline()
        self._ensure(deadline)
        # A mark, such as that large data are about to be erased, or the position of a feed in place of the one before.
        is_mark = len(payload) <= _MARK_BYTES
        message = OutgoingMessage(
            subject, payload, {**(headers or {}), MESSAGE_ID: secrets.token_hex(16)}, expected, may_use_reserve=is_mark
        )
        try:
            return append_messages(self._client, self._stream, [message], deadline, replicas=self._replicas).last
        except (SlotTakenError, SlotEmptyError) as error:
            msg = f"{subject} does not end at {expected}: {error}"
            raise IntegrityError(msg) from error

    def _ensure(self, deadline: Deadline) -> None:
        # Nobody answers what is sent to an absent stream, so it has to be there before.
        if not self._is_there:
            self._client.retry(self._make, deadline, doing=f"creating the stream {self._stream}")
            self._is_there = True

    def _make(self, transport: Transport, ends_at: float) -> None:
        try:
            info = ask_api(transport, f"STREAM.INFO.{self._stream}", b"", StreamInfo, ends_at)
        except ApiError as error:
            # Whatever else it says, such as that there is no leader, is no reason to create anything.
            if error.fault.err_code != NOT_FOUND:
                raise
            why_full = self._client.why_full()
            if why_full is not None:
                msg = f"creating the stream {self._stream}: {why_full}"
                raise StorageFullError(msg) from error
            # The same for everybody, so that two who create it at the same time both succeed.
            request = msgspec.json.encode(self._new_config())
            info = ask_api(transport, f"STREAM.CREATE.{self._stream}", request, StreamInfo, ends_at)
            self._client.sync_stream(self._stream)
        self._check(info.config)

    def _check(self, config: StreamConfig) -> None:
        """Refuse a stream that would lose what is written to it, or is not ours."""
        ours = self._new_config()
        names = ("subjects", "retention", "storage", "discard", "allow_direct")
        is_ours = all(getattr(config, name) == ours[name] for name in names)
        is_whole = max(config.max_age, config.max_msgs, config.max_bytes) <= 0
        if not (is_ours and is_whole and self.per_subject == (config.max_msgs_per_subject or ALL)):
            many = "all messages" if self.per_subject == ALL else f"the last {self.per_subject} message(s) of each"
            msg = f"the stream {self._stream!r} does not keep {many} of its subjects for ever"
            raise InterfaceError(msg)

    def _new_config(self) -> dict[str, Any]:
        return {
            "name": self._stream,
            "subjects": [self._subject(">")],
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "num_replicas": self._replicas,
            "max_msgs_per_subject": self.per_subject,
            "allow_direct": True,
        }


def bucket_stream(bucket: str) -> str:
    """Return the name of the stream in which NATS keeps a key-value bucket."""
    return f"KV_{bucket}"


class KeyValue(AuxiliaryStream):
    """
    Values by key, each with a revision, in a key-value bucket of NATS: `nats kv` and nats-py's `KeyValue` read and write it.

    The bucket is made with the first value. A key is written as it is where NATS allows that, as a token otherwise.

    `client` and `replicas`: as for `AuxiliaryStream`.
    """

    per_subject: ClassVar[int] = 1

    def __init__(self, client: JetStreamClient, bucket: str, *, replicas: int) -> None:
        super().__init__(client, bucket_stream(bucket), replicas=replicas)
        self._bucket = bucket

    def get(self, key: str) -> tuple[int, bytes] | None:
        """Return the revision and the value of a key, None when it has none. From the leader: never stale."""
        newest = self._last(self._key_subject(key))
        return None if newest is None or _is_marker(newest) else (newest.position, newest.payload)

    def update(self, key: str, value: bytes, *, last: int) -> int:
        """
        Set the value of a key whose revision is `last`, 0 when it has none, and return the new revision.

        Raises:
            IntegrityError: The key has another revision; nothing was changed.
            InterfaceError: Something else has the name of the stream.
            OutcomeUnknownError: No answer; the value may be set.
        """
        subject = self._key_subject(key)
        try:
            return self._append(subject, value, last)
        except IntegrityError:
            # NATS's own tools delete a key by a marker, behind which a new value is written.
            marker = None if last else self._last(subject)
            if marker is None or not _is_marker(marker):
                raise
            return self._append(subject, value, marker.position)

    def items(self) -> list[tuple[int, bytes]]:
        """Return all revisions and values, oldest first."""
        client, values = self._client, list[tuple[int, bytes]]()
        try:
            info = client.api(f"STREAM.INFO.{self._stream}", None, StreamInfo, client.deadline())
            self._check(info.config)
            pages = StreamPages(client, self._stream, client.deadline(), after=0, until=info.state.last)
            while not pages.is_complete:
                values += [(message.position, message.payload) for message in pages.read() if not _is_marker(message)]
        except StreamAbsentError:
            return []
        return values

    def delete(self, key: str) -> None:
        # A purge leaves the expectation 0 for the subject, as for a key that never was.
        request = {"filter": self._key_subject(key)}
        try:
            self._client.api(f"STREAM.PURGE.{self._stream}", request, PurgeReply, self._client.deadline())
        except StreamAbsentError:
            return

    def _subject(self, name: str) -> str:
        return f"$KV.{self._bucket}.{name}"

    def _key_subject(self, key: str) -> str:
        return self._subject(key if _PLAIN_KEY.fullmatch(key) else token(key))

    def _new_config(self) -> dict[str, Any]:
        return {**super()._new_config(), "allow_rollup_hdrs": True}


def _is_marker(message: LogMessage) -> bool:
    """Whether a message says that its key was deleted."""
    return not _MARKS.isdisjoint(message.headers)


_PAGE: Final = 8
_LARGE: Final = "the large data of messages"
_ENTRY_BYTES: Final = 4 * 1024
"""The most that an entry takes besides data."""


class _Now(msgspec.Struct):
    ts: datetime


class JetStreamBlobStorage(AuxiliaryStream):
    """
    Implements `BlobStorage`.

    `client`, `stream` and `replicas`: as for `AuxiliaryStream`. `log`: the stream of the log, which is there when this one
    is not yet.
    """

    def __init__(self, client: JetStreamClient, stream: str, *, log: str, replicas: int, max_bytes: int) -> None:
        super().__init__(client, stream, replicas=replicas)
        self._log = log
        self.chunk_bytes = min(CHUNK_BYTES, max_bytes - _ENTRY_BYTES)

    @translated(_LARGE)
    def last(self, name: str) -> BlobEntry | None:
        newest = self._last(self._subject(name))
        return None if newest is None else BlobEntry(newest.position, newest.payload)

    def add(self, name: str, entry: bytes, *, expected: int) -> int:
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
        positions = [entry.position for entry in self.read(name, after=0, until=until) if entry.position != until]
        with self._client.erasing():
            self._erase(positions)
            # The last one at the end: a kill before leaves the mark by which the next one finishes it.
            self._erase([until])

    def remove(self, name: str, position: int) -> None:
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
        prefix = self._subject("")
        return [name.removeprefix(prefix) for name in list_subjects(self._client, self._stream, prefix + ">")]

    @translated(_LARGE)
    def now_ms(self) -> int:
        """Implement `BlobStorage.now_ms`, by the clock of the server that answers; those of a cluster are kept alike."""
        info = self._client.api(f"STREAM.INFO.{self._log}", None, _Now, self._client.deadline())
        return int(info.ts.timestamp() * 1000)
