"""Messages that wait until there are enough of them for a segment: adding them, which needs no NumPy."""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from chatledger.domain.errors import CorruptStateError

from ..lmdb.environment import Transaction, prefixed
from ..lmdb.tables import Tables
from .manifest import PENDING, u32

HEAD: Final = Struct("<QqIIIIIIII")
"""Of a message: chat, `created_at`, number in the log order of the chat, segment, offset, length of each field, bytes of name and terms."""
_ROW_BYTES: Final = 1_900
"""A longer row would have pages of its own."""
_MAX_IN_ROW: Final = 255


class WaitingMessage(NamedTuple):
    """
    A message that waits.

    Args:
        chat_no: The number of its chat.
        number: Its number in the order of the log of the chat.
        created_at: In ms.
        place: Where it is in the chains of the chat.
        name: The role.
        lengths: How many terms its text, its tools and its reasoning have.
        terms: All of them, each between two NULs; those of tools and reasoning begin with the sign of the field.
    """

    chat_no: int
    number: int
    created_at: int
    place: tuple[int, int]
    name: str
    lengths: tuple[int, int, int]
    terms: bytes


def packed(message: WaitingMessage) -> tuple[bytes, bytes]:
    name = message.name.encode()
    sizes = len(name), len(message.terms)
    head = HEAD.pack(
        *(message.chat_no, message.created_at, message.number, *message.place, *message.lengths),
        *sizes,
    )
    return head, name + message.terms


class WaitingRow(NamedTuple):
    """A row: the heads of some messages, and the names and terms of one after the other."""

    message_count: int
    heads: bytes
    bodies: bytes


def parse_row(row: bytes) -> WaitingRow:
    end = 1 + row[0] * HEAD.size
    return WaitingRow(row[0], row[1:end], row[end:])


def _joined(count: int, heads: bytes, bodies: bytes) -> bytes:
    return bytes((count,)) + heads + bodies


def add_rows(txn: Transaction, tables: Tables, messages: Sequence[tuple[bytes, bytes]], next_row: int) -> int:
    """Add packed messages behind those in the rows before one; returns the number of the next row."""
    row = WaitingRow(0, b"", b"")
    if next_row:
        last = txn.get(PENDING + u32(next_row - 1), db=tables.search)
        if last is not None and len(last) < _ROW_BYTES:
            row = parse_row(last)
            next_row -= 1
    for head, body in messages:
        size = 1 + len(row.heads) + len(row.bodies) + len(head) + len(body)
        if row.message_count and (size > _ROW_BYTES or row.message_count == _MAX_IN_ROW):
            txn.put(PENDING + u32(next_row), _joined(*row), db=tables.search)
            next_row += 1
            row = WaitingRow(0, b"", b"")
        row = WaitingRow(row.message_count + 1, row.heads + head, row.bodies + body)
    txn.put(PENDING + u32(next_row), _joined(*row), db=tables.search)
    return next_row + 1


def rows_of(txn: Transaction, tables: Tables) -> Iterator[WaitingRow]:
    """Yield the rows, in the order in which they came."""
    for _, row in prefixed(txn, tables.search, PENDING):
        yield parse_row(row)


def check_rows(txn: Transaction, tables: Tables) -> None:
    """Raise `CorruptStateError` unless the rows are as they are written."""
    for _, raw in prefixed(txn, tables.search, PENDING):
        row = parse_row(raw)
        parts = list(map(packed, messages_in([row])))
        if not parts or _joined(len(parts), *map(b"".join, zip(*parts, strict=True))) != raw:
            msg = "messages that wait in the search index are damaged"
            raise CorruptStateError(msg)


def messages_in(rows: Iterable[WaitingRow]) -> Iterator[WaitingMessage]:
    for row in rows:
        at = 0
        for head in HEAD.iter_unpack(row.heads):
            chat_no, created_at, number, segment, offset, text, tools, reasoning, name_bytes, term_bytes = head
            end = at + name_bytes + term_bytes
            name, terms = row.bodies[at : at + name_bytes].decode(), row.bodies[at + name_bytes : end]
            at = end
            yield WaitingMessage(chat_no, number, created_at, (segment, offset), name, (text, tools, reasoning), terms)
