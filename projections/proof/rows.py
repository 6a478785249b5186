"""The rows of one chat as they are to be compared: what two indexes of the same log must say alike, however it was batched."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from ..chain_pages import unpack_page
from ..chains import Chains
from ..environment import Transaction, prefixed
from ..keys import Tag, number, page_key, to_number
from ..sealed import SEAL_BYTES, is_sound
from ..tables import Tables

_split_page = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode

KINDS: Final = {
    Tag.RECORD: "its record: counts, times, the active branch or the last event",
    Tag.PROFILE: "its owner, title or metadata",
    Tag.COUNTERS: "its counters",
    Tag.BRANCH: "a branch",
    Tag.NAME_COUNT: "how many branches are named alike",
    Tag.CHECKPOINT: "a checkpoint",
    Tag.COMMAND: "the commands that were carried out",
    Tag.SEGMENT: "the order of its messages",
    Tag.FORK: "where its branches fork",
    Tag.PAGE: "a message",
    Tag.ANNOTATION: "an annotation",
    Tag.RUN: "a run",
    Tag.RUN_NUMBER: "the number of a run",
    Tag.RUN_LIST: "a list of runs",
    Tag.REGENERATION: "a regeneration",
    Tag.LARGE: "what large data it has",
}


class Row(NamedTuple):
    """One row: its key without the chat, and its value. A message has a row of its own, whatever page it lies on."""

    key: bytes
    value: bytes


class StoredMessage(NamedTuple):
    """A message where it lies: its number in log order, segment and offset, and its stored form."""

    ordinal: int
    segment: int
    offset: int
    body: bytes


Take = Callable[[StoredMessage], None]


def rows_of(tables: Tables, txn: Transaction, chat_no: int, *, take: Take | None = None) -> Iterator[Row]:
    """The rows of a chat in the order of their keys; `take` is told each message."""
    for key, value in prefixed(txn, tables.rows, number(chat_no)):
        tag = bytes(key[8:9])
        if tag == Tag.SEGMENT:
            yield Row(bytes(key[8:]), _lasting(tables, txn, chat_no, int.from_bytes(key[9:13], "big")))
        elif tag == Tag.PAGE:
            segment = int.from_bytes(key[9:13], "big")
            page = unpack_page(key, value[:-SEAL_BYTES])
            bodies = _split_page(page.array)
            flaw = b"" if is_sound(value) else b"?"
            for offset, (ordinal, body) in enumerate(zip(page.ordinals, bodies, strict=True), page.first_offset):
                message = StoredMessage(ordinal, segment, offset, bytes(body))
                if take is not None:
                    take(message)
                yield Row(page_key(chat_no, segment, offset)[8:], ordinal.to_bytes(8, "big") + message.body + flaw)
        else:
            yield Row(bytes(key[8:]), bytes(value))


def _lasting(tables: Tables, txn: Transaction, chat_no: int, segment: int) -> bytes:
    """A segment without what depends on how messages came together in transactions."""
    found = Chains(txn, tables.rows, chat_no, "").segment(segment)
    return repr(found._replace(tail_start=0, tail_bytes=0)).encode()


def kind_of(row: Row) -> str:
    """What a row is about, in words."""
    return KINDS.get(row.key[:1], "a row")


def next_chat(tables: Tables, txn: Transaction, after: int) -> int | None:
    """The chat with the lowest number above `after` that has rows."""
    cursor = txn.cursor(tables.rows)
    return to_number(bytes(cursor.key()[:8])) if cursor.set_range(number(after + 1)) else None
