"""
Threads out of the databases of LangGraph's own savers: what SqliteSaver's and PostgresSaver's tables have in common.

Nothing is decoded beyond msgpack: values of classes stay the bytes that they are, so no code that the data name is run, no
class is needed, and LangGraph is not either.
"""

import sqlite3
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, LiteralString, cast

import msgspec

from chatledger.domain.errors import DECODE_ERRORS, ChatledgerError, InvalidValueError
from chatledger.domain.extras import needing
from chatledger.domain.limits import check_id
from chatledger.domain.versioned.content import Serial, Tree, dict_tree, leaf_tree, list_tree
from chatledger.domain.versioned.record import PutVersion
from chatledger.domain.versioned.serials import bare, is_plain

from ..ledger.ledger import Ledger
from ..ledger.threads import Threads, is_cut
from ..store.opening.presence import without_secrets
from .source import check_encoded

if TYPE_CHECKING:
    from psycopg import Connection


FORMAT: Final = "langgraph"
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode


class ThreadsImport(msgspec.Struct, frozen=True):
    """
    The result of an import of threads.

    Args:
        threads: How many threads the database has.
        checkpoints: How many checkpoints were added.
        writes: For how many tasks pending writes were added.
        known: How many checkpoints were here already; they stay as they are.
    """

    threads: int
    checkpoints: int
    writes: int
    known: int


@contextmanager
def explained(where: str) -> Generator[None]:
    """Say where a row is that cannot be read."""
    try:
        yield
    except ChatledgerError:
        raise
    except (*DECODE_ERRORS, TypeError, ValueError, AttributeError, OverflowError) as error:
        msg = f"{where} cannot be read: {error}"
        raise InvalidValueError(msg) from error


def check_ids(thread_id: Any, namespace: Any, checkpoint_id: Any) -> None:
    """Raise `InvalidValueError` when an id breaks a rule."""
    check_id(thread_id, "thread_id")
    check_id(namespace, "checkpoint_ns", empty=True)
    check_id(checkpoint_id, "checkpoint_id")


def checkpoint_of(
    namespace: str,
    checkpoint_id: str,
    parent_id: str | None,
    checkpoint: Mapping[str, Any],
    metadata: Mapping[str, Any],
    values: Mapping[str, Tree | Serial],
) -> PutVersion:
    """Return the checkpoint of a row, whose values are in pieces."""
    run_id = metadata.get("run_id")
    return PutVersion(
        line=namespace,
        id=checkpoint_id,
        parent=parent_id,
        frames=(("msgpack", _encode(checkpoint)), ("msgpack", _encode(metadata))),
        values=values,
        run_id=run_id if isinstance(run_id, str) else None,
    )


def _take_in(
    threads: Threads,
    place: str,
    checkpoints: Iterable[Sequence[Any]],
    read: Callable[[str, Sequence[Any]], PutVersion],
    writes: Iterable[Sequence[Any]],
) -> ThreadsImport:
    """
    Store checkpoints and pending writes, as far as they are not here.

    `checkpoints` begin with (thread, namespace, checkpoint), parents first, and `read` makes one of where it is and its row. `writes`
    are (thread, namespace, checkpoint, task, path of the task, index, channel, type, value), those of a task together.
    """
    seen: set[str] = set()
    added = unchanged = tasks = 0
    for row in checkpoints:
        thread_id, namespace, checkpoint_id = row[:3]
        seen.add(thread_id)
        where = f"checkpoint {checkpoint_id!r} of thread {thread_id!r} in {place}"
        with explained(where):
            check_ids(thread_id, namespace, checkpoint_id)
            if threads.peek(thread_id, namespace, checkpoint_id) is None:
                threads.put_checkpoint(thread_id, read(where, row))
                added += 1
            else:
                unchanged += 1
    for (thread_id, namespace, checkpoint_id, task_id, task_path), of_task in groupby(writes, key=lambda row: row[:5]):
        with explained(f"the writes of task {task_id!r} of thread {thread_id!r} in {place}"):
            check_ids(thread_id, namespace, checkpoint_id)
            tasks += threads.put_writes(
                thread_id,
                namespace,
                checkpoint_id,
                task_id=task_id,
                task_path=task_path,
                writes=[
                    (index, channel, stored_value(type_name, data)) for *_, index, channel, type_name, data in of_task
                ],
                written_at=0,
            )
    return ThreadsImport(len(seen), added, tasks, unchanged)


def stored_value(type_name: str, data: bytes) -> Tree | Serial:
    """A value as its saver stored it, as a whole where it is plain."""
    return plain_value(_decode(data)) if type_name == "msgpack" else leaf_tree(type_name, data or b"")


def plain_value(value: Any) -> Tree | Serial:
    """A value as a whole where it is plain, else in pieces."""
    if isinstance(value, list | dict) and is_plain(value):
        return Serial(*bare("msgpack", _encode(value)))
    return plain_tree(value)


def plain_tree(value: Any, depth: int = 0) -> Tree:
    """A value in pieces; what msgpack calls an extension, such as a message, is one piece."""
    if is_cut(value, depth):
        if isinstance(value, dict):
            return dict_tree({key: plain_tree(item, depth + 1) for key, item in cast("dict[str, Any]", value).items()})
        return list_tree([plain_tree(element, depth + 1) for element in value])
    if value is None:
        return leaf_tree("null", b"")
    return leaf_tree("bytes", value) if isinstance(value, bytes) else leaf_tree("msgpack", _encode(value))


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
_SQLITE_CHECKPOINTS: Final = """
select thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata
from checkpoints order by checkpoint_id, thread_id, checkpoint_ns
"""
_SQLITE_WRITES: Final = """
select thread_id, checkpoint_ns, checkpoint_id, task_id, {path}, idx, channel, type, value
from writes order by checkpoint_id, thread_id, checkpoint_ns, task_id, idx
"""
_UNREADABLE: Final = (sqlite3.Error, UnicodeDecodeError)
"""The second when SQLite quotes damaged bytes in what it says."""


def is_saver_file(path: Path) -> bool:
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
    try:
        with closing(_open(path)) as database:
            database.execute("begin")
            # Older files have no paths of tasks.
            column = "task_path" if "task_path" in _columns(database, "writes") else "''"
            # Ordered by the ids of checkpoints, which ascend with time: parents come first.
            checkpoints = database.execute(_SQLITE_CHECKPOINTS)
            writes = database.execute(_SQLITE_WRITES.format(path=column))
            return _take_in(Threads(ledger), str(path), checkpoints, _checkpoint, writes)
    except _UNREADABLE as error:
        msg = f"{path} cannot be read as a SQLite file: {error}"
        raise InvalidValueError(msg) from error


def _checkpoint(where: str, row: Sequence[Any]) -> PutVersion:
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


_POSTGRES_CHECKPOINTS: Final = """
SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints ORDER BY thread_id, checkpoint_id, checkpoint_ns
"""
_CHECKPOINT: Final = """
SELECT parent_checkpoint_id, checkpoint, metadata FROM checkpoints
WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s
"""
_VALUES: Final = """
SELECT channel, version, type, blob FROM checkpoint_blobs
WHERE thread_id = %s AND checkpoint_ns = %s
AND (channel, version) IN (SELECT * FROM unnest(%s::text[], %s::text[])) AND type <> 'empty'
"""
_PACKETS: Final = """
SELECT type, blob FROM checkpoint_writes
WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s AND channel = %s ORDER BY task_path, task_id, idx
"""
_POSTGRES_WRITES: Final = """
SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, blob
FROM checkpoint_writes ORDER BY checkpoint_id, thread_id, checkpoint_ns, task_id, task_path, idx
"""
_TASKS: Final = "__pregel_tasks"
_PACKETS_IN_VALUES: Final = 4
"""From this version on a checkpoint has the packets to nodes itself; before, they are the writes of its parent."""
_PAGE: Final = 500


def import_saver_database(ledger: Ledger, location: str) -> ThreadsImport:
    """
    Take the threads of a database in: checkpoints, with their ids, parents and metadata, and pending writes.

    What is here stays, so repeating it changes nothing, and an import that broke off goes on. Only pending interrupts, answers to
    them and errors become those of the database. It reads one state of the database, whatever others write meanwhile, and writes
    nothing to it.

    `location`: as `PostgresSaver.from_conn_string` takes it: `postgresql://user:password@host/database`.

    Raises:
        ConfigurationError: psycopg is not installed.
        InvalidValueError: The database cannot be read, has no tables of that saver, or a row of it cannot be read; rows before
            that one were taken in.
    """
    place = without_secrets(location)
    with _reading(location, place) as connection:
        tables = _Tables(connection)
        checkpoints, writes = tables.rows("checkpoints", _POSTGRES_CHECKPOINTS), tables.rows("writes", _POSTGRES_WRITES)
        return _take_in(Threads(ledger), place, checkpoints, tables.checkpoint, writes)


@contextmanager
def _reading(location: str, place: str) -> "Generator[Connection[Any]]":
    """A connection in a transaction that sees one state of the database."""
    with needing("postgres", "reading a PostgresSaver"):
        import psycopg
    check_encoded(location)
    try:
        connection = psycopg.connect(location)
    except (psycopg.ProgrammingError, UnicodeEncodeError):  # the message quotes parts of the location
        msg = f"{place} is no location of a PostgreSQL database: postgresql://user:password@host/database"
        raise InvalidValueError(msg) from None
    except psycopg.Error as error:
        msg = f"{place} cannot be read: {error}"
        raise InvalidValueError(msg) from error
    try:
        with connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            yield connection
    except psycopg.errors.UndefinedTable:
        msg = (
            f"{place} has no tables of LangGraph's PostgresSaver, nor of @deepagents/context in the schema that is searched; "
            "?schema= names another one"
        )
        raise InvalidValueError(msg) from None
    except psycopg.Error as error:
        msg = f"{place} cannot be read: {error}"
        raise InvalidValueError(msg) from error


class _Tables:
    """The tables of one database."""

    def __init__(self, connection: "Connection[Any]") -> None:
        self._connection = connection
        self._thread = ""
        self._values: dict[tuple[str, str], tuple[str, Tree | Serial]] = {}
        """Of each channel of a namespace of that thread the value of its last version, which following checkpoints mostly have, too."""

    def rows(self, name: str, query: LiteralString) -> Iterable[Any]:
        """The rows of a query, page by page: there may be more than fit into memory."""
        with self._connection.cursor(name=f"chatledger_{name}") as cursor:
            cursor.itersize = _PAGE
            yield from cursor.execute(query)

    def checkpoint(self, _: str, key: Sequence[Any]) -> PutVersion:
        thread_id, namespace, checkpoint_id = key
        if thread_id != self._thread:
            self._thread = thread_id
            self._values.clear()
        row = self._connection.execute(_CHECKPOINT, key).fetchone()
        assert row is not None, "the transaction sees one state"
        parent_id, checkpoint, metadata = row
        plain: dict[str, Any] = checkpoint.pop("channel_values", None) or {}
        versions: dict[str, Any] = checkpoint["channel_versions"]
        values = {name: plain_value(value) for name, value in plain.items()}
        values |= self._stored(thread_id, namespace, {name: str(version) for name, version in versions.items()})
        if parent_id and checkpoint.get("v", 0) < _PACKETS_IN_VALUES:
            packets = self._connection.execute(_PACKETS, (thread_id, namespace, parent_id, _TASKS)).fetchall()
            if packets:
                # A value as its saver stored it, in pieces; one of another form than msgpack is one piece.
                values[_TASKS] = list_tree(
                    [
                        (plain_tree(_decode(data)) if type_name == "msgpack" else leaf_tree(type_name, data or b""))
                        for type_name, data in packets
                    ]
                )
                versions[_TASKS] = max(versions.values(), default=1)
        return checkpoint_of(namespace, checkpoint_id, parent_id, checkpoint, metadata, values)

    def _stored(self, thread_id: str, namespace: str, versions: dict[str, str]) -> dict[str, Tree | Serial]:
        """The values that are not in the row of the checkpoint itself, by channel."""
        stored: dict[str, Tree | Serial] = {}
        missing: dict[str, str] = {}
        for channel, version in versions.items():
            last = self._values.get((namespace, channel))
            if last is not None and last[0] == version:
                stored[channel] = last[1]
            else:
                missing[channel] = version
        if missing:
            wanted = (thread_id, namespace, [*missing], [*missing.values()])
            for channel, version, type_name, data in self._connection.execute(_VALUES, wanted).fetchall():
                stored[channel] = stored_value(type_name, data)
                self._values[namespace, channel] = version, stored[channel]
        return stored
