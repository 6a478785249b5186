"""The rows of one custom projection: reading them at one moment, and writing them while it applies an event."""

import threading
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Self, cast

import lmdb
import msgspec

from chatledger.domain.errors import InvalidValueError, LedgerClosedError
from chatledger.domain.limits import check_count, check_id, json_copy, utf8_bytes

from ..lmdb.environment import Transaction, drop_prefixed
from ..lmdb.keys import number, to_number

if TYPE_CHECKING:
    from lmdb import _Database


Key = str | int | tuple[str | int, ...]
"""Text, a whole number of 64 bits, or a tuple of those. A tuple of one part is that part."""

MAX_KEY_BYTES: Final = 480
"""The most that the parts of a key may take, each with up to 2 bytes more than its text has, or 9 as a number."""
_PLAIN_BYTES: Final = 150
_KEPT_BYTES: Final = 100
_DIGEST_BYTES: Final = 20
_INT, _TEXT = b"\x02", b"\x03"
_END: Final = b"\x00"
_CUT: Final = b"\xff"  # no UTF-8 text has this byte
_OFFSET: Final = 2**63


def stream_digest(stream: str) -> bytes:
    """Return the digest that stands for a stream in keys."""
    return blake2b(stream.encode(), digest_size=_DIGEST_BYTES).digest()


def to_key(key: Any) -> bytes:
    """
    The bytes of a key, which begin with those of its first parts. They sort numbers before text, and text by its bytes.

    Of a text beyond 150 bytes the first 100 stay, with a digest of all: such texts sort by these 100 bytes.

    Raises:
        InvalidValueError: It is no key, or too long.
    """
    parts = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else (key,)
    packed = b"".join(map(_part, parts))
    if len(packed) > MAX_KEY_BYTES:
        msg = f"the key of a row takes {len(packed)} bytes, at most {MAX_KEY_BYTES} fit; use fewer parts, or a digest"
        raise InvalidValueError(msg)
    return packed


def _part(part: Any) -> bytes:
    if isinstance(part, str):
        raw = utf8_bytes(part, "the key of a row")
        if b"\0" in raw:
            msg = "the key of a row must not contain a NUL character"
            raise InvalidValueError(msg)
        if len(raw) <= _PLAIN_BYTES:
            return _TEXT + raw + _END
        return _TEXT + raw[:_KEPT_BYTES] + _CUT + blake2b(raw, digest_size=_DIGEST_BYTES).digest()
    if isinstance(part, int) and not isinstance(part, bool) and -_OFFSET <= part < _OFFSET:
        return _INT + number(part + _OFFSET)
    msg = f"the key of a row is text, a whole number of 64 bits, or a tuple of those, not {part!r:.50}"
    raise InvalidValueError(msg)


def is_cut(key: Key) -> bool:
    """Whether a key cannot be had back from its bytes."""
    parts = key if isinstance(key, tuple) else (key,)
    return any(isinstance(part, str) and len(part.encode()) > _PLAIN_BYTES for part in parts)


def from_key(packed: bytes) -> Key:
    """The key of some bytes, unless it `is_cut`."""
    parts: list[str | int] = []
    at = 0
    while at < len(packed):
        if packed[at : at + 1] == _INT:
            parts.append(to_number(packed[at + 1 : at + 9]) - _OFFSET)
            at += 9
        else:
            end = packed.index(_END, at)
            parts.append(packed[at + 1 : end].decode())
            at = end + 1
    return parts[0] if len(parts) == 1 else tuple(parts)


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode
_WITHOUT_KEY, _WITH_KEY = b"\x00", b"\x01"
_GLOBAL, _STREAM = b"\x00", b"\x01"
_CHUNK_ROWS: Final = 256


def scope_of(projection_no: int, stream: str | None = None) -> bytes:
    """Return the prefix of the keys of a projection's rows: those under a chat, or those under none."""
    return number(projection_no) + (_GLOBAL if stream is None else _STREAM + stream_digest(stream))


class Reach:
    """
    A transaction and a table in it, for as long as they may be used. Threads take turns.

    `changes` are keys with what they had before; `failure` is why the transaction is lost, if it is.
    """

    def __init__(self, txn: Transaction, table: "_Database", end: Callable[[], None]) -> None:
        self.lock = threading.Lock()
        self.txn, self.table = txn, table
        self._end, self._is_over = end, False
        self.changes: list[tuple[bytes, bytes | None]] = []
        self.failure: lmdb.Error | None = None

    def write(self, key: bytes, value: bytes | None) -> None:
        self.check()
        if value is None:
            self.txn.delete(key, db=self.table)
        else:
            self.txn.put(key, value, db=self.table)

    def undo(self) -> None:
        """Take back the `changes`."""
        for key, value in reversed(self.changes):
            self.write(key, value)
        self.changes.clear()

    def check(self) -> None:
        """Raise `LedgerClosedError` after the end."""
        if self._is_over:
            msg = "these rows cannot be used any more: their `with` or their `apply` is over, or the ledger was closed"
            raise LedgerClosedError(msg)

    def end(self) -> None:
        """End the transaction; calling it again does nothing."""
        with self.lock:
            if not self._is_over:
                self._is_over = True
                self._end()


class ProjectionView:
    """
    The rows of a projection at one moment. Made by `Ledger.projection`.

    A key is text, a whole number of 64 bits, or a tuple of those; a value is any JSON value. Keys sort by their parts: numbers
    before text, and text by its UTF-8 bytes (beyond 150 of them by the first 100).
    """

    def __init__(self, reach: Reach, projection_no: int, *, position: int, stream: str | None = None) -> None:
        self._reach, self._projection_no, self._stream = reach, projection_no, stream
        self._scope = scope_of(projection_no, stream)
        self._position = position

    @property
    def position(self) -> int:
        """The position on the log up to which everything is in these rows."""
        return self._position

    def of(self, chat_id: str) -> Self:
        """
        The rows under a chat, which have keys of their own and go with the chat when it is deleted.

        Raises:
            InvalidValueError: These are the rows under a chat already.
        """
        check_id(chat_id, "chat_id")
        if self._stream is not None:
            msg = "these are the rows under a chat already; call `of` on what you began with"
            raise InvalidValueError(msg)
        return type(self)(self._reach, self._projection_no, position=self._position, stream=chat_id)

    def get(self, key: Key, default: Any = None) -> Any:
        """The value of a key, or `default` where there is none."""
        raw = self._raw(self._scope + to_key(key))
        return default if raw is None else _value(raw)

    def range(
        self, prefix: Key = (), *, after: Key | None = None, reverse: bool = False, limit: int | None = None
    ) -> Iterator[tuple[Key, Any]]:
        """
        Keys with their values, in the order of the keys.

        Args:
            prefix: Only keys that begin with these parts: `"ada"` for `("ada", 1)`, `("ada", 2)`, ...
            after: Begin behind this key, for reading page by page.
            reverse: From the last key to the first.
            limit: At most so many (>= 0). All when None.
        """
        if limit is not None:
            check_count(limit, "limit")
        first = self._scope + to_key(prefix)
        last = None if after is None else self._scope + to_key(after)
        return self._walk(first, last, reverse=reverse, limit=limit)

    def _walk(
        self, prefix: bytes, last: bytes | None, *, reverse: bool, limit: int | None
    ) -> Iterator[tuple[Key, Any]]:
        while limit is None or limit > 0:
            chunk = self._chunk(prefix, last, reverse=reverse, limit=min(_CHUNK_ROWS, limit or _CHUNK_ROWS))
            for packed, raw in chunk:
                yield _key(packed[len(self._scope) :], raw), _value(raw)
            if limit is not None:
                limit -= len(chunk)
            if len(chunk) < _CHUNK_ROWS:
                return
            last = chunk[-1][0]

    def _raw(self, key: bytes) -> bytes | None:
        reach = self._reach
        with reach.lock:
            reach.check()
            return reach.txn.get(key, db=reach.table)

    def _chunk(self, prefix: bytes, last: bytes | None, *, reverse: bool, limit: int) -> list[tuple[bytes, bytes]]:
        """Some rows whose keys begin with a prefix, behind a key."""
        reach = self._reach
        chunk: list[tuple[bytes, bytes]] = []
        with reach.lock:
            reach.check()
            cursor = reach.txn.cursor(reach.table)
            found = _seek_back(cursor, prefix, last) if reverse else _seek(cursor, prefix, last)
            while found and len(chunk) < limit and (key := cursor.key()).startswith(prefix):
                chunk.append((key, cursor.value()))
                found = cursor.prev() if reverse else cursor.next()
        return chunk


class ProjectionRows(ProjectionView):
    """
    The rows of a projection while it applies an event; what is written is there at once for what is read next.

    They can be used until `apply` returns. If it raises, what it wrote for this event is undone.
    """

    def put(self, key: Key, value: Any) -> None:
        """
        Set the value of a key.

        Raises:
            InvalidValueError: It is no JSON value, or the key is none.
        """
        packed = self._scope + to_key(key)
        kept = json_copy(value, "the value of a row")
        raw = _WITH_KEY + _encode([key, kept]) if is_cut(key) else _WITHOUT_KEY + _encode(kept)
        self._change(packed, raw)

    def add(self, key: Key, amount: int = 1) -> int:
        """Add to the number that a key has, 0 where it has none; returns the sum. A sum of 0 is not kept."""
        value = self.get(key, 0)
        if not isinstance(value, int) or isinstance(value, bool):
            msg = f"add needs a whole number, and the key has a {type(value).__name__}"
            raise InvalidValueError(msg)
        if value + amount:
            self.put(key, value + amount)
        else:
            self.delete(key)
        return value + amount

    def delete(self, key: Key) -> bool:
        """Remove a key; False when it is not there."""
        return self._change(self._scope + to_key(key), None)

    def _change(self, key: bytes, value: bytes | None) -> bool:
        before = self._raw(key)
        self._reach.changes.append((key, before))
        try:
            self._reach.write(key, value)
        except lmdb.Error as error:
            # The transaction is lost, whatever becomes of the exception on its way through `apply`.
            self._reach.failure = error
            raise
        return before is not None

    def drop_stream(self, stream: str) -> None:
        """Remove the rows under a chat, or another stream of the log."""
        drop_prefixed(self._reach.txn, self._reach.table, scope_of(self._projection_no, stream))


def _seek(cursor: "lmdb.Cursor[bytes]", prefix: bytes, last: bytes | None) -> bool:
    if last is None or last < prefix:
        return cursor.set_range(prefix)
    return cursor.set_range(last) and (cursor.key() != last or cursor.next())


def _seek_back(cursor: "lmdb.Cursor[bytes]", prefix: bytes, last: bytes | None) -> bool:
    end = prefix + b"\xff"  # parts begin with smaller bytes
    if last is not None:
        end = min(last, end)
    return cursor.prev() if cursor.set_range(end) else cursor.last()


def _key(packed: bytes, raw: bytes) -> Key:
    if raw[:1] == _WITHOUT_KEY:
        return from_key(packed)
    key = _decode(raw[1:])[0]
    return tuple(cast("list[str | int]", key)) if isinstance(key, list) else cast("str | int", key)


def _value(raw: bytes) -> Any:
    value = _decode(raw[1:])
    return value if raw[:1] == _WITHOUT_KEY else value[1]
