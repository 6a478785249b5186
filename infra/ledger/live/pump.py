"""The thread of a writer of a live stream: sends what gathers, one batch at a time, each behind the one before."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from chatledger.domain.chat.live import (
    BEAT_S,
    MAX_LIVE_AGE_S,
    MAX_LIVE_BYTES,
    MAX_LIVE_CHUNKS,
    MAX_LIVE_ENTRIES,
    Kind,
    LiveCommit,
    LiveEntry,
    LiveKey,
    packed_chunk,
)
from chatledger.domain.errors import (
    AccessDeniedError,
    ChatledgerError,
    LedgerClosedError,
    LiveConflictError,
    LiveLimitError,
    LiveStreamNotFoundError,
    LogUnavailableError,
    NotFoundError,
    PayloadTooLargeError,
)
from chatledger.domain.packing import joined, text_size, without_half

from ...log.live import LiveStreams, LiveTail
from ...log.live_storage import LiveAbsentError, LiveChangedError
from ...store.redactor import Redactor

PAUSE_S: Final = 0.002
"""The least time between two batches: with a shorter one the server is busy, with a longer one readers wait."""
BATCH_BYTES: Final = 256 * 1024
RECORD_BYTES: Final = 1024
"""Room in the record of an entry for what is no chunk."""
_CHUNK_BYTES: Final = 8
"""Bytes that a chunk takes in an entry beside its data, at most."""
_BUFFER_BYTES: Final = 1024 * 1024
_AGAIN_S: Final = 0.5
_GIVE_UP_S: Final = 30.0
"""The time that a caller waits for room or for the answer of the log."""
_SPARE_ENTRIES: Final = 1000
"""Room for entries that are no chunks: beats, the end, and taking the stream over."""
_LAST: Final[frozenset[Kind]] = frozenset({"committing", "leave", "end"})
"""Nothing may stand behind these but what follows from them."""
_EXPECTED: Final = (AccessDeniedError, LedgerClosedError, LiveConflictError, NotFoundError)
_logger = logging.getLogger(__name__)


class _Flight(NamedTuple):
    """An entry that is being stored, or may be: its answer is missing."""

    entry: LiveEntry
    record: bytes


class LivePump:
    """
    Sends the entries of one writer.

    Args:
        streams, key: The stream.
        chat_id, stream_id: Its ids, for errors.
        tail: Its end, behind which this writer goes on.
        last: Its last entry.
        begun_s: When the stream was started, by the monotonic clock.
        check: Raises when the writer may not go on.
        redactor: Takes secrets out of chunks; None where nothing does.
    """

    def __init__(
        self,
        streams: LiveStreams,
        key: LiveKey,
        *,
        chat_id: str,
        stream_id: str,
        tail: LiveTail,
        last: LiveEntry,
        begun_s: float,
        check: Callable[[], None],
        redactor: Redactor | None,
    ) -> None:
        self._check, self._redactor = check, redactor
        self._streams, self._key, self._ids = streams, key, (chat_id, stream_id)
        self._tail, self._last, self._begun_s = tail, last, begun_s
        self._room_bytes = streams.storage.max_entry_bytes - RECORD_BYTES
        self._chunks: list[tuple[Any, int]] = []
        self._buffered_bytes = 0
        self._written, self._size = last.count, last.size
        self._half = ""
        """
        What waits for the next text: the first half of an emoji, as tokens may be cut within one, and with a redactor the end of the
        text, as a secret may go on.
        """
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._flight: _Flight | None = None
        self._trouble: ChatledgerError | None = None
        self._error: ChatledgerError | None = None
        self._is_ending = self._is_held = False
        self._said_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="chatledger-live", daemon=True)
        self._thread.start()

    @property
    def epoch(self) -> int:
        return self._last.epoch

    @property
    def count(self) -> int:
        """The chunks of the stream, with those that were not sent yet."""
        return self._written

    @property
    def is_failed(self) -> bool:
        """Whether the stream is another writer's, or gone."""
        return self._error is not None

    def write(self, data: Any, *, may_wait: bool = True) -> bool:
        """
        Take a chunk in, to be sent soon; False when there is no room and it may not wait.

        Raises:
            InvalidValueError, LiveLimitError: It cannot be a chunk, or the stream takes no more.
            PayloadTooLargeError: The log's server does not take messages of that size.
            LiveConflictError, LiveStreamNotFoundError: Another writer took the stream over, or it is gone.
            LogUnavailableError: The log did not answer; the chunk was not taken in, and writing it again is safe.
        """
        if self._redactor is not None and not isinstance(data, str):
            data = self._redactor.data(data)
        chunk, size = packed_chunk(data)
        if size > self._room_bytes:
            raise PayloadTooLargeError(
                self._ids[0], size_bytes=size, limit_bytes=self._room_bytes, what="a chunk of a live stream of chat"
            )
        with self._changed:
            if (
                not self._has_room(size) and not may_wait
            ):  # a caller on an event loop tries it so, and else waits in a thread
                return False
            self._await(lambda: self._has_room(size), "write")
            limits = (
                (self._size + size > MAX_LIVE_BYTES, f"has {self._size:,} bytes of {MAX_LIVE_BYTES:,}"),
                (self._written >= MAX_LIVE_CHUNKS, f"has {self._written:,} chunks"),
                (self._tail.number >= MAX_LIVE_ENTRIES - _SPARE_ENTRIES, f"has {self._tail.number:,} entries"),
                (time.monotonic() - self._begun_s > MAX_LIVE_AGE_S, f"is older than {MAX_LIVE_AGE_S:,} s"),
            )
            for is_reached, what in limits:
                if is_reached:
                    raise LiveLimitError(*self._ids, what=what)
            if isinstance(chunk, str):
                text, half = without_half(self._half + chunk)
                if self._redactor is not None:
                    text, rest = self._redactor.cut(text)
                    half = rest + half
                if self._half or half:
                    chunk, size, self._half = joined(text), text_size(text), half
                if half and not chunk:
                    return True
            else:
                self._put_half()
            self._put(chunk, size)
        return True

    def _put(self, chunk: Any, size: int) -> None:
        """Take a chunk in, under the lock."""
        self._chunks.append((chunk, size))
        self._buffered_bytes += size + _CHUNK_BYTES
        self._written += 1
        self._size += size
        self._changed.notify_all()

    def _put_half(self) -> None:
        """Take in what waits for the next text, under the lock: that does not come."""
        if self._half:
            text = self._half if self._redactor is None else self._redactor.text(self._half)
            self._put(text, text_size(text))
            self._half = ""

    def _has_room(self, size: int) -> bool:
        return self._error is not None or not self._chunks or self._buffered_bytes + size <= _BUFFER_BYTES

    def flush(self) -> None:
        """Wait until all chunks are stored that were written before. Raises what `write` raises."""
        with self._changed:
            # Not for what others write meanwhile: beside a busy writer it would never end. Chunks that are dropped do not come.
            written = self._written
            self._await(lambda: self._last.count >= min(written, self._written), "flush")

    def _await(self, is_done: Callable[[], bool], doing: str) -> None:
        """Wait, under the lock, for the thread. Raises its error, or after a while that the log does not answer."""
        self._trouble = None  # of an earlier attempt: the thread tries again
        ends_at = time.monotonic() + _GIVE_UP_S
        while True:
            if self._error is not None:
                raise self._error
            if doing == "write" and (self._is_ending or self._is_held):
                raise LiveConflictError(*self._ids, status="closed here" if self._is_ending else "committing")
            if is_done():
                return
            if self._trouble is not None:
                raise self._trouble
            if not self._changed.wait(max(0.0, ends_at - time.monotonic())):
                msg = f"live stream {self._ids[1]!r} of chat {self._ids[0]!r}: the log did not answer; trying again is safe"
                raise LogUnavailableError(msg)

    def send(self, kind: Kind, *, commit: LiveCommit | None = None) -> None:
        """Store an entry that is no chunk, at once. Raises what `write` raises; sending it again is safe."""
        with self._sending:
            if self._error is not None:
                raise self._error
            try:
                before = self._flight
                self._land()
                # What was under way may be this very entry, sent by an earlier call that got no answer: it is not stored twice.
                if before is None or (before.entry.kind, before.entry.commit) != (kind, commit):
                    self._fly(kind, [], 0, commit)
            except (LiveConflictError, LiveStreamNotFoundError) as error:
                self._fail(error)
                raise

    def hold(self, *, is_held: bool = True) -> None:
        """Refuse chunks while the stream is being closed; or take them again."""
        with self._changed:
            self._put_half()
            self._is_held = is_held

    def drop_rest(self) -> None:
        """Forget the chunks that were not sent yet; those under way may be stored already."""
        with self._sending, self._changed:
            taken = 0 if self._flight is None else len(self._flight.entry.chunks)
            del self._chunks[taken:]
            self._half = ""
            size = sum(size for _, size in self._chunks)
            self._buffered_bytes = size + taken * _CHUNK_BYTES
            self._written, self._size = self._last.count + taken, self._last.size + size
            self._changed.notify_all()

    def end(self) -> None:
        """Take no more chunks, and let the thread end when those that are there were sent."""
        with self._changed:
            try:
                self._put_half()
            finally:  # also where a function that takes secrets out fails: the thread must end
                self._is_ending = True
                self._changed.notify_all()

    def join(self, timeout_s: float) -> None:
        """Wait for the end of the thread."""
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while self._error is None:
            with self._changed:
                if not self._chunks and not self._is_ending:
                    is_quiet = self._last.kind in _LAST
                    left_s = BEAT_S if is_quiet else self._said_s + BEAT_S - time.monotonic()
                    self._changed.wait(max(PAUSE_S, left_s))
                if self._is_ending and not self._chunks:
                    return
            try:
                with self._sending:
                    self._send_next()
            except LogUnavailableError as error:
                with self._changed:
                    self._trouble = error
                    self._changed.notify_all()
                if self._is_ending:
                    self._fail(error)
                time.sleep(_AGAIN_S)
            except ChatledgerError as error:
                self._fail(error)
            else:
                time.sleep(PAUSE_S)

    def _send_next(self) -> None:
        """Send the chunks that have gathered, as many as fit into a batch; a beat when there are none."""
        if self._flight is not None:  # its answer was lost: the same record again, so that it is stored once
            self._land()
            return
        if self._last.kind in _LAST:
            return
        # One chunk at least, however long: `write` has looked whether it fits into an entry.
        taken, size, room_bytes = 0, 0, min(BATCH_BYTES, self._room_bytes)
        with self._changed:
            for _, chunk_size in self._chunks:
                if taken and size + chunk_size + (taken + 1) * _CHUNK_BYTES > room_bytes:
                    break
                taken, size = taken + 1, size + chunk_size
            chunks = [chunk for chunk, _ in self._chunks[:taken]]
        if not chunks and time.monotonic() - self._said_s < BEAT_S:
            return
        self._check()
        self._fly("chunks" if chunks else "beat", chunks, size, None)

    def _fly(self, kind: Kind, chunks: list[Any], size: int, commit: LiveCommit | None) -> None:
        last = self._last
        entry = LiveEntry(kind, last.epoch, last.count + len(chunks), last.size + size, chunks, commit=commit)
        self._flight = _Flight(entry, self._streams.seal(self._key, self._tail.number + 1, entry))
        self._land()

    def _land(self) -> None:
        """Store the record that is under way, if there is one: the same again after a lost answer."""
        flight = self._flight
        if flight is None:
            return
        try:
            self._tail = self._streams.add(self._key, self._tail, flight.record)
        except LiveAbsentError:
            self._flight = None
            raise LiveStreamNotFoundError(*self._ids) from None
        except LiveChangedError:
            self._flight = None
            live = self._streams.find(self._key)
            status = "gone" if live is None else live.stream.status
            raise LiveConflictError(*self._ids, status="taken over" if status == "writing" else status) from None
        self._said_s = time.monotonic()
        with self._changed:
            taken = len(flight.entry.chunks)
            self._buffered_bytes -= sum(size + _CHUNK_BYTES for _, size in self._chunks[:taken])
            del self._chunks[:taken]
            self._last, self._flight = flight.entry, None
            self._changed.notify_all()

    def _fail(self, error: ChatledgerError) -> None:
        if not isinstance(error, _EXPECTED):
            _logger.warning("writing a live stream: %s", error)
        with self._changed:
            self._error = error
            self._changed.notify_all()
