"""Files of LangGraph's SqliteSaver (and AsyncSqliteSaver), as versions 2 and 3 of langgraph-checkpoint-sqlite write them."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.versioned.decide import PutVersion

from ..ledger.ledger import Ledger
from ..ledger.threads import Threads
from .langgraph_savers import ThreadsImport, check_ids, checkpoint_of, explained, import_writes, plain_value

_COLUMNS: Final = {
    "checkpoints": {
        "thread_id",
        "checkpoint_ns",
        "checkpoint_id",
        "parent_checkpoint_id",
        "type",
        "checkpoint",
        "metadata",
    },
    "writes": {"thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "type", "value"},
}
_CHECKPOINTS: Final = """
select thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata
from checkpoints order by checkpoint_id, thread_id, checkpoint_ns
"""
_WRITES: Final = """
select thread_id, checkpoint_ns, checkpoint_id, task_id, {path}, idx, channel, type, value
from writes order by checkpoint_id, thread_id, checkpoint_ns, task_id, idx
"""
_decode: Final = msgspec.msgpack.Decoder().decode
_UNREADABLE: Final = (sqlite3.Error, UnicodeDecodeError)
"""The second when SQLite quotes damaged bytes in what it says."""


def is_saver_file(path: Path) -> bool:
    """Whether it is a SQLite file with the tables of that saver."""
    try:
        with path.open("rb") as stream:
            if stream.read(16) != b"SQLite format 3\0":
                return False
        with closing(_open(path)) as database:
            return all(columns <= _columns(database, table) for table, columns in _COLUMNS.items())
    except (OSError, *_UNREADABLE):
        return False


def import_saver_file(ledger: Ledger, path: Path) -> ThreadsImport:
    """
    Take the threads of a file in: checkpoints, with their ids, parents and metadata, and pending writes.

    What is here stays, so repeating it changes nothing, and an import that broke off goes on. Only pending interrupts, answers to
    them and errors become those of the file.

    Raises:
        InvalidValueError: It is no such file, or a row of it cannot be read; rows before it were taken in.
    """
    if not is_saver_file(path):
        msg = f"{path} is no file of LangGraph's SqliteSaver"
        raise InvalidValueError(msg)
    threads = Threads(ledger)
    try:
        with closing(_open(path)) as database:
            database.execute("begin")
            (thread_count,) = database.execute("select count(distinct thread_id) from checkpoints").fetchone()
            added = unchanged = 0
            # Ordered by the ids of checkpoints, which ascend with time: parents come first.
            for row in database.execute(_CHECKPOINTS):
                where = f"checkpoint {row[2]!r} of thread {row[0]!r} in {path}"
                with explained(where):
                    check_ids(*row[:3])
                    if threads.peek(row[0], row[1], row[2]) is None:
                        threads.put_checkpoint(row[0], _checkpoint(where, row))
                        added += 1
                    else:
                        unchanged += 1
            # Older files have no paths of tasks.
            column = "task_path" if "task_path" in _columns(database, "writes") else "''"
            writes = import_writes(threads, database.execute(_WRITES.format(path=column)), str(path))
            return ThreadsImport(thread_count, added, writes, unchanged)
    except _UNREADABLE as error:
        msg = f"{path} cannot be read as a SQLite file: {error}"
        raise InvalidValueError(msg) from error


def _checkpoint(where: str, row: tuple[Any, ...]) -> PutVersion:
    _, namespace, checkpoint_id, parent_id, type_name, data, metadata = row
    if type_name != "msgpack":
        msg = f"{where} has the form {type_name!r}, and only msgpack is read"
        raise InvalidValueError(msg)
    checkpoint = dict(_decode(data))
    values = {name: plain_value(value) for name, value in checkpoint.pop("channel_values", {}).items()}
    details = msgspec.json.decode(metadata or b"{}")
    return checkpoint_of(namespace, checkpoint_id, parent_id, checkpoint, details, values)


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    return {name for _, name, *_ in database.execute("select * from pragma_table_info(?)", (table,))}
