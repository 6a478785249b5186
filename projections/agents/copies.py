"""Which threads were copied from which: known by their numbers, also of a deleted one until its copies need it no more."""

from collections.abc import Iterator

from ..environment import Transaction, drop_prefixed, prefixed
from ..keys import number, to_number
from ..tables import Tables
from . import keys


def note_copy(txn: Transaction, tables: Tables, source_no: int, copy_no: int, copy_id: str) -> None:
    """Note that a thread took over what another one had."""
    txn.put(_prefix(source_no) + number(copy_no), copy_id.encode(), db=tables.agents)


def all_copies(txn: Transaction, tables: Tables, thread_no: int) -> dict[int, str]:
    """The threads that were copied from one, from those copies and so on: numbers and ids, also of deleted ones."""
    found: dict[int, str] = {}
    pending = [thread_no]
    while pending:
        for copy_no, copy_id in _copies(txn, tables, pending.pop()):
            if copy_no not in found:
                found[copy_no] = copy_id
                pending.append(copy_no)
    return found


def forget_copies(txn: Transaction, tables: Tables, thread_no: int) -> None:
    """Forget which threads were copied from one."""
    drop_prefixed(txn, tables.agents, _prefix(thread_no))


def _copies(txn: Transaction, tables: Tables, thread_no: int) -> Iterator[tuple[int, str]]:
    prefix = _prefix(thread_no)
    for key, value in prefixed(txn, tables.agents, prefix):
        yield to_number(key[len(prefix) :]), value.decode()


def _prefix(thread_no: int) -> bytes:
    return number(thread_no) + keys.COPY
