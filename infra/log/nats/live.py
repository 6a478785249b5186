"""Live streams on JetStream: in a directory a stream of its own for each, on a server one in memory for all of a log."""

import hashlib
import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

import msgspec
from eventsourcing.persistence import IntegrityError, OperationalError

from chatledger.domain.chat.live import MAX_LIVE_AGE_S, MAX_LIVE_ENTRIES, LiveKey

from ..live_storage import LiveAbsentError, LiveChangedError, LiveReading, StoredEnds, StoredEntry
from .append import STALE_S, OutgoingMessage, append_messages
from .client import JetStreamClient
from .errors import (
    DamagedLogError,
    OutcomeUnknownError,
    StorageFullError,
    StreamAbsentError,
    translated,
)
from .reading import MESSAGE_ID, LogMessage, last_on_subject, next_on_subject
from .stream import PurgeReply, StreamInfo, delete_stream, list_subjects

LIVE: Final = "-live"
"""Follows the name of the log's stream in those of its live streams."""
_NAME: Final = re.compile(rf".+{LIVE}-[0-9a-f]{{32}}-[0-9a-f]{{32}}")
_DOING: Final = "a live stream"
_ATTEMPT_S: Final = 0.5
GONE_S = 3.0
"""Longer than the writers of live streams are quiet."""
_HEADER_BYTES: Final = 4 * 1024
_MAX_ENTRY_BYTES: Final = 4 * 1024 * 1024


class _Info(msgspec.Struct):
    created: datetime
    ts: datetime


class _NamesPage(msgspec.Struct):
    total: int = 0
    streams: list[str] | None = None


def is_live_stream(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


class JetStreamLiveStorage:
    """
    Implements `LiveStorage`. What was purged from a stream in files stays in them; so a directory, where it is to be erased,
    has a stream of its own for each live stream, which is deleted whole. A stream in memory leaves nothing behind.

    `is_shared`: whether one stream in memory serves all.
    """

    def __init__(self, client: JetStreamClient, stream: str, *, replicas: int, is_shared: bool, max_bytes: int) -> None:
        self._client, self._prefix, self._replicas, self._is_shared = client, stream + LIVE, replicas, is_shared
        self._is_made = False
        self.max_entry_bytes = min(_MAX_ENTRY_BYTES, max_bytes - _HEADER_BYTES)

    def make(self) -> None:
        if self._is_shared:
            with translated(_DOING):
                self._ensure_shared()

    def create(self, key: LiveKey, record: bytes) -> int:
        for is_again in (False, True):
            with translated(_DOING):
                if self._is_shared:
                    self._ensure_shared()
                else:
                    self._make(self._stream(key), self._subject(key))
            try:
                return self.add(key, record, expected=0)
            except LiveAbsentError:
                if is_again:
                    break
                self._is_made = False  # a server that keeps it in memory was restarted
        raise LiveChangedError

    def _ensure_shared(self) -> None:
        """Make the stream of all, unless it is there: most logins may not."""
        if self._is_made:
            return
        try:
            self._client.api(f"STREAM.INFO.{self._prefix}", None, StreamInfo, self._client.deadline())
        except StreamAbsentError:
            self._make(self._prefix, f"{self._prefix}.>")
        self._is_made = True

    def _make(self, stream: str, subject: str) -> None:
        # The same for everybody, so that several who make it at the same time succeed.
        config = {
            "name": stream,
            "subjects": [subject],
            "retention": "limits",
            "storage": "memory" if self._is_shared else "file",
            "discard": "new",
            # Without it, a stream that is too long would lose its beginning.
            "discard_new_per_subject": True,
            "num_replicas": self._replicas,
            "max_msgs_per_subject": MAX_LIVE_ENTRIES,
            # Counted from each entry: longer than the longest stream is written and then kept.
            "max_age": 7 * MAX_LIVE_AGE_S * 10**9,
            "allow_direct": True,
        }
        self._client.api(f"STREAM.CREATE.{stream}", config, StreamInfo, self._client.deadline())
        self._client.sync_stream(stream)

    def add(self, key: LiveKey, record: bytes, *, expected: int) -> int:
        subject = self._subject(key)
        # The same record at the same place is the same message: a repetition after a lost answer is known by it.
        message_id = hashlib.sha256(b"%s %d %s" % (subject.encode(), expected, record)).hexdigest()
        message = OutgoingMessage(subject, record, {MESSAGE_ID: message_id}, expected)
        with translated(_DOING):
            try:
                return self._append(self._stream(key), message)
            except (IntegrityError, DamagedLogError):
                if last_on_subject(self._client, self._stream(key), subject, self._client.deadline()) is not None:
                    raise LiveChangedError from None
            except StreamAbsentError:
                pass
        raise LiveAbsentError

    def _append(self, stream: str, message: OutgoingMessage) -> int:
        """Append, and look between the attempts whether the stream is there: nobody answers for one that is not."""
        deadline, is_uncertain = self._client.deadline(), False
        # Until then what a server of several says may be stale; see `append_messages`, whose attempts are shorter here.
        doubts_end_at = time.monotonic() + (STALE_S if self._replicas > 1 else 0)
        while True:
            attempt = self._client.deadline(min(_ATTEMPT_S, deadline.left_s))
            try:
                return append_messages(
                    self._client, stream, [message], attempt, replicas=self._replicas, is_uncertain=is_uncertain
                ).last
            except StorageFullError:
                raise
            except OutcomeUnknownError:
                if deadline.left_s == 0:
                    raise
                is_uncertain = True
            except DamagedLogError:
                if deadline.left_s == 0 or time.monotonic() >= doubts_end_at:
                    raise
            except OperationalError:
                if deadline.left_s == 0:
                    raise
            # Raises `StreamAbsentError` where a reader or a sweep dropped it meanwhile.
            self._client.api(f"STREAM.INFO.{stream}", None, StreamInfo, deadline)

    def ends(self, key: LiveKey) -> StoredEnds | None:
        stream, subject = self._stream(key), self._subject(key)
        with translated(_DOING):
            try:
                first = next_on_subject(self._client, stream, subject, 1, self._client.deadline())
                last = last_on_subject(self._client, stream, subject, self._client.deadline())
                info = self._client.api(f"STREAM.INFO.{stream}", None, _Info, self._client.deadline())
            except StreamAbsentError:
                return None
        if last is None and self._is_shared:
            return None
        since = (last and last.time) or info.created
        return StoredEnds(_stored(first), _stored(last), max(0.0, (info.ts - since).total_seconds()))

    def open(self, key: LiveKey, *, after: int) -> LiveReading:
        is_gone = (lambda: self.ends(key) is None) if self._is_shared else (lambda: False)
        return _JetStreamReading(self._client, self._stream(key), self._subject(key), after, is_gone)

    def list_keys(self, chat: str | None = None) -> list[LiveKey]:
        which = f"{self._prefix}.{chat or '*'}.*"
        with translated(_DOING):
            if self._is_shared:
                subjects = list_subjects(self._client, self._prefix, which)
                return [LiveKey(*subject.removeprefix(f"{self._prefix}.").split(".")) for subject in subjects]
            prefix, names = f"{self._prefix}-", list[str]()
            while True:
                request = {"subject": which, "offset": len(names)}
                page = self._client.api("STREAM.NAMES", request, _NamesPage, self._client.deadline())
                names += page.streams or []
                if not page.streams or len(names) >= page.total:
                    break
        parts = (name.removeprefix(prefix).split("-") for name in names if name.startswith(prefix))
        return [LiveKey(*part) for part in parts if len(part) == len(LiveKey._fields)]

    def drop(self, key: LiveKey) -> None:
        with translated(_DOING):
            if not self._is_shared:
                delete_stream(self._client, self._stream(key))
                return
            # In memory, where a purge leaves no bytes behind.
            request = {"filter": self._subject(key)}
            try:
                self._client.api(f"STREAM.PURGE.{self._prefix}", request, PurgeReply, self._client.deadline())
            except StreamAbsentError:
                return

    def _stream(self, key: LiveKey) -> str:
        return self._prefix if self._is_shared else f"{self._prefix}-{key.chat}-{key.stream}"

    def _subject(self, key: LiveKey) -> str:
        return f"{self._prefix}.{key.chat}.{key.stream}"


def _stored(message: LogMessage | None) -> StoredEntry | None:
    return None if message is None else StoredEntry(message.position, message.payload)


class _JetStreamReading:
    """A consumer ends with its stream, but does not learn that its subject was purged: `is_gone` says so after a while."""

    def __init__(
        self, client: JetStreamClient, stream: str, subject: str, after: int, is_gone: Callable[[], bool]
    ) -> None:
        from .subscription import Prefetch

        self._prefetch = Prefetch(client, stream, after=after, subject=subject, doing=f"reading from {stream}")
        self._is_gone, self._checked_s = is_gone, time.monotonic()

    def next(self, timeout_s: float) -> Sequence[StoredEntry]:
        with translated(_DOING):
            try:
                messages = self._prefetch.take(timeout_s)
            except StreamAbsentError:
                raise LiveAbsentError from None
        # Not at each look: it is a request more, for each reader of a model that thinks.
        is_due = not messages and time.monotonic() - self._checked_s > GONE_S
        if messages or is_due:
            self._checked_s = time.monotonic()
        if is_due and not self._prefetch.is_stopped and self._is_gone():
            raise LiveAbsentError
        return [StoredEntry(message.position, message.payload) for message in messages]

    def close(self) -> None:
        self._prefetch.stop()
