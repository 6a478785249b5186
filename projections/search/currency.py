"""Whether the search index can be relied on: made by this version, and of all messages."""

from typing import Final

from chatledger.domain.search.tokens import TOKENIZER

from ..environment import Transaction
from ..tables import Tables

VERSION: Final = b"1/" + TOKENIZER
"""Changes whenever rows, keys or terms do; a search index of another version is built anew."""

_VERSION, _BEHIND = b"search", b"search behind"


def is_current(txn: Transaction, tables: Tables) -> bool:
    """Whether the search index was made by this version."""
    return txn.get(_VERSION, db=tables.meta) == VERSION


def is_behind(txn: Transaction, tables: Tables) -> bool:
    """Whether there may be chats with messages that are not in the search index."""
    return txn.get(_BEHIND, db=tables.meta) is not None


def note_behind(txn: Transaction, tables: Tables) -> None:
    """Note that a message was left out."""
    if not is_behind(txn, tables):
        txn.put(_BEHIND, b"1", db=tables.meta)


def note_complete(txn: Transaction, tables: Tables) -> None:
    """Note that none is left out."""
    txn.delete(_BEHIND, db=tables.meta)


def begin_anew(txn: Transaction, tables: Tables) -> None:
    """Drop the whole search index; it is of this version from now on, and behind."""
    txn.drop(tables.search, delete=False)
    txn.put(_VERSION, VERSION, db=tables.meta)
    note_behind(txn, tables)
