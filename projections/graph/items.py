"""The lists of items: all of a user's, those under the beginning of a namespace, and the namespaces themselves."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from chatledger.domain.graph.decide import GraphStateRecord

from ..lmdb.environment import Transaction, prefixed
from ..lmdb.keys import to_number
from ..lmdb.tables import Tables
from . import keys
from .reader import record_at


class Namespace(msgspec.Struct, frozen=True, array_like=True):
    """A namespace that has items with a value, and their number, expired ones included."""

    labels: tuple[str, ...]
    count: int


_LAST: Final = b"\xff" * 17
"""Beyond the time and the number with which keys of a list end."""
decode_namespace: Final = msgspec.msgpack.Decoder(Namespace).decode


def listed_items(txn: Transaction, tables: Tables, *, user_id: str | None = None) -> Iterator[GraphStateRecord]:
    """Yield the records of all items, or of a user's, in the order in which they began; expired and ended ones too."""
    prefix = keys.ITEMS if user_id is None else keys.items_of_user_prefix(user_id)
    for key, _ in prefixed(txn, tables.state_order, prefix):
        yield record_at(txn, tables, to_number(key[-8:]))


def known_items(txn: Transaction, tables: Tables, user_id: str, labels: Sequence[str]) -> Iterator[GraphStateRecord]:
    """Yield the records of a user's items under the beginning of a namespace as they began; expired and ended ones too."""
    for key, _ in prefixed(txn, tables.state_order, keys.known_items_prefix(user_id, labels)):
        yield record_at(txn, tables, to_number(key[-8:]))


def living_items(txn: Transaction, tables: Tables, user_id: str, labels: Sequence[str]) -> Iterator[GraphStateRecord]:
    """Yield the records of a user's items with a value under the beginning of a namespace, the last changed first; expired ones too."""
    prefix = keys.living_items_prefix(user_id, labels)
    cursor = txn.cursor(tables.state_order)
    found = cursor.prev() if cursor.set_range(prefix + _LAST) else cursor.last()
    while found and cursor.key().startswith(prefix):
        yield record_at(txn, tables, to_number(cursor.key()[-8:]))
        found = cursor.prev()


def listed_namespaces(
    txn: Transaction, tables: Tables, user_id: str, labels: Sequence[str] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield the namespaces in which a user has items with a value and that begin with some labels, in order."""
    wanted = tuple(labels)
    prefix = keys.namespaces_prefix(user_id) + keys.ordered_labels(wanted)[: keys.ORDERED_BYTES]
    end = len(keys.namespaces_prefix(user_id)) + keys.ORDERED_BYTES
    rows = prefixed(txn, tables.state_order, prefix)
    for _, alike in groupby(rows, key=lambda row: row[0][:end]):  # mostly one: long ones differ later
        for namespace in sorted(decode_namespace(raw).labels for _, raw in alike):
            if namespace[: len(wanted)] == wanted:
                yield namespace
