"""Annotations of the messages of one chat. Their rows are keyed by place, so that those of a chain lie in its order."""

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, Final

import msgspec

from chatledger.domain.values import Annotation

from .environment import Transaction, prefixed
from .keys import Tag, chat_key

if TYPE_CHECKING:
    import lmdb

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[str, Annotation]).decode
_place: Final = Struct(">II")


class Annotations:
    """The annotations of one chat in one transaction. A chat that has none costs one look-up."""

    def __init__(self, txn: Transaction, table: "lmdb._Database", chat_no: int) -> None:
        self._txn, self._table = txn, table
        self._prefix = chat_key(chat_no, Tag.ANNOTATION)
        self._is_empty: bool | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the chat has none."""
        if self._is_empty is None:
            cursor = self._txn.cursor(self._table)
            self._is_empty = not (cursor.set_range(self._prefix) and cursor.key().startswith(self._prefix))
        return self._is_empty

    def at(self, place: tuple[int, int]) -> Annotation | None:
        """That of the message at a place."""
        if self.is_empty:
            return None
        raw = self._txn.get(self._prefix + _place.pack(*place), db=self._table)
        return None if raw is None else _decode(raw)[1]

    def between(self, segment: int, first: int, last: int) -> Iterator[tuple[int, Annotation]]:
        """Those of the messages of a segment from one offset to another, with the offsets."""
        if self.is_empty:
            return
        cursor = self._txn.cursor(self._table)
        end = self._prefix + _place.pack(segment, last)
        found = cursor.set_range(self._prefix + _place.pack(segment, first))
        while found and (key := cursor.key()) <= end:
            yield _place.unpack_from(key, len(self._prefix))[1], _decode(cursor.value())[1]
            found = cursor.next()

    def all(self) -> dict[str, Annotation]:
        """All of them by message id, in the order of segments."""
        return dict(_decode(value) for _, value in prefixed(self._txn, self._table, self._prefix))

    def put(self, place: tuple[int, int], message_id: str, annotation: Annotation | None) -> None:
        """Set that of a message, or remove it; in a write transaction."""
        key = self._prefix + _place.pack(*place)
        if annotation is None:
            self._txn.delete(key, db=self._table)
        else:
            self._txn.put(key, _encode((message_id, annotation)), db=self._table)
        self._is_empty = None
