"""
Files of LangGraph's SqliteSaver (and AsyncSqliteSaver), as versions 2 and 3 of langgraph-checkpoint-sqlite write them.

Nothing is decoded beyond msgpack: values of classes stay the bytes that they are, so no code that the data name is run, no
class is needed, and LangGraph is not either.
"""

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from chatledger.domain.content import Tree, dict_tree, leaf_tree, list_tree
from chatledger.domain.errors import DECODE_ERRORS, ChatledgerError, InvalidValueError
from chatledger.domain.limits import check_id
from chatledger.domain.thread.decide import CheckpointPut

from ..ledger.ledger import Ledger
from ..ledger.threads import Threads, is_cut

FORMAT: Final = "langgraph"
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
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode
_UNREADABLE: Final = (sqlite3.Error, UnicodeDecodeError)
"""The second when SQLite quotes damaged bytes in what it says."""


class ThreadsImport(msgspec.Struct, frozen=True):
    """
    The result of an import of threads.

    Args:
        threads: How many threads the file has.
        checkpoints: How many checkpoints were added.
        writes: For how many tasks pending writes were added.
        known: How many checkpoints were here already; they stay as they are.
    """

    threads: int
    checkpoints: int
    writes: int
    known: int


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

    What is here stays, so repeating it changes nothing, and an import that broke off goes on.

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
            added = known = 0
            for row in database.execute(_CHECKPOINTS):
                where = f"checkpoint {row[2]!r} of thread {row[0]!r} in {path}"
                with _explained(where):
                    _check_ids(*row[:3])
                    if threads.peek(row[0], row[1], row[2]) is None:
                        threads.put_checkpoint(row[0], _checkpoint(where, row))
                        added += 1
                    else:
                        known += 1
            return ThreadsImport(thread_count, added, _import_writes(path, threads, database), known)
    except _UNREADABLE as error:
        msg = f"{path} cannot be read as a SQLite file: {error}"
        raise InvalidValueError(msg) from error


def _import_writes(path: Path, threads: Threads, database: sqlite3.Connection) -> int:
    column = "task_path" if "task_path" in _columns(database, "writes") else "''"
    added = 0
    for (thread_id, namespace, checkpoint_id, task_id, task_path), rows in groupby(
        database.execute(_WRITES.format(path=column)), key=lambda row: row[:5]
    ):
        before = threads.ledger.last_position()
        with _explained(f"the writes of task {task_id!r} of thread {thread_id!r} in {path}"):
            _check_ids(thread_id, namespace, checkpoint_id)
            writes = [(index, channel, _value(type_name, data)) for *_, index, channel, type_name, data in rows]
            threads.put_writes(thread_id, namespace, checkpoint_id, task_id=task_id, task_path=task_path, writes=writes)
        added += threads.ledger.last_position() > before
    return added


@contextmanager
def _explained(where: str) -> Generator[None]:
    """Say where a row is that cannot be read."""
    try:
        yield
    except ChatledgerError:
        raise
    except (*DECODE_ERRORS, TypeError, ValueError, AttributeError, OverflowError) as error:
        msg = f"{where} cannot be read: {error}"
        raise InvalidValueError(msg) from error


def _check_ids(thread_id: Any, namespace: Any, checkpoint_id: Any) -> None:
    check_id(thread_id, "thread_id")
    check_id(namespace, "checkpoint_ns", empty=True)
    check_id(checkpoint_id, "checkpoint_id")


def _checkpoint(where: str, row: tuple[Any, ...]) -> CheckpointPut:
    _, namespace, checkpoint_id, parent_id, type_name, data, metadata = row
    if type_name != "msgpack":
        msg = f"{where} has the form {type_name!r}, and only msgpack is read"
        raise InvalidValueError(msg)
    checkpoint = dict(_decode(data))
    values = dict(checkpoint.pop("channel_values", {}))
    known = msgspec.json.decode(metadata or b"{}")
    run_id = known.get("run_id")
    return CheckpointPut(
        namespace=namespace,
        checkpoint_id=checkpoint_id,
        parent_id=parent_id,
        checkpoint=("msgpack", _encode(checkpoint)),
        metadata=("msgpack", _encode(known)),
        values={name: _tree(value) for name, value in values.items()},
        run_id=run_id if isinstance(run_id, str) else None,
    )


def _value(type_name: str, data: bytes) -> Tree:
    if type_name != "msgpack":
        return leaf_tree(type_name, data or b"")
    return _tree(_decode(data))


def _tree(value: Any, depth: int = 0) -> Tree:
    """A value in pieces; what msgpack calls an extension, such as a message, is one piece."""
    if is_cut(value, depth):
        if isinstance(value, dict):
            return dict_tree({key: _tree(item, depth + 1) for key, item in cast("dict[str, Any]", value).items()})
        return list_tree([_tree(element, depth + 1) for element in value])
    if value is None:
        return leaf_tree("null", b"")
    return leaf_tree("bytes", value) if isinstance(value, bytes) else leaf_tree("msgpack", _encode(value))


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    return {name for _, name, *_ in database.execute("select * from pragma_table_info(?)", (table,))}
