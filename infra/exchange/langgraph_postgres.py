"""Databases of LangGraph's PostgresSaver (and AsyncPostgresSaver), as langgraph-checkpoint-postgres from 2.0 on fills them."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, LiteralString

from chatledger.domain.errors import ConfigurationError, InvalidValueError
from chatledger.domain.versioned.content import Serial, Tree, list_tree
from chatledger.domain.versioned.decide import PutVersion

from ..ledger.ledger import Ledger
from ..ledger.threads import Threads
from ..store.opening.nats_locations import without_secrets
from .langgraph_savers import (
    ThreadsImport,
    check_ids,
    checkpoint_of,
    explained,
    import_writes,
    plain_value,
    stored_value,
    value_tree,
)
from .source import check_encoded

if TYPE_CHECKING:
    from psycopg import Connection

_CHECKPOINTS: Final = """
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
_WRITES: Final = """
SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, blob
FROM checkpoint_writes ORDER BY checkpoint_id, thread_id, checkpoint_ns, task_id, task_path, idx
"""
_TASKS: Final = "__pregel_tasks"
_PACKETS_IN_VALUES: Final = 4
"""From this version on a checkpoint has the packets to nodes itself; before, they are the writes of its parent."""
_PAGE: Final = 500

_Key = tuple[str, str, str]


def import_saver_database(ledger: Ledger, location: str) -> ThreadsImport:
    """
    Take the threads of a database in: checkpoints, with their ids, parents and metadata, and pending writes.

    What is here stays, so repeating it changes nothing, and an import that broke off goes on. Only pending interrupts, answers to
    them and errors become those of the database. It reads one state of the database, whatever others write meanwhile, and writes
    nothing to it.

    Args:
        ledger: Where to.
        location: As `PostgresSaver.from_conn_string` takes it: `postgresql://user:password@host/database`.

    Raises:
        ConfigurationError: psycopg is not installed.
        InvalidValueError: The database cannot be read, has no tables of that saver, or a row of it cannot be read; rows before
            that one were taken in.
    """
    place = without_secrets(location)
    with _reading(location, place) as connection:
        return _Tables(Threads(ledger), connection, place).take_in()


@contextmanager
def _reading(location: str, place: str) -> "Generator[Connection[Any]]":
    """A connection in a transaction that sees one state of the database."""
    try:
        import psycopg
    except ImportError as error:
        msg = "reading a PostgresSaver needs psycopg: pip install 'chatledger[postgres]'"
        raise ConfigurationError(msg) from error
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
    """The tables of one database, on their way into a ledger."""

    def __init__(self, threads: Threads, connection: "Connection[Any]", place: str) -> None:
        self._threads, self._connection, self._place = threads, connection, place
        self._values: dict[tuple[str, str, str], tuple[str, Tree | Serial]] = {}
        """Of each channel of a namespace the value of its last version, which following checkpoints mostly have, too."""

    def take_in(self) -> ThreadsImport:
        """Store all that is not here."""
        threads: set[str] = set()
        added = unchanged = 0
        for thread_id, namespace, checkpoint_id in self._rows("checkpoints", _CHECKPOINTS):
            if thread_id not in threads:
                threads.add(thread_id)
                self._values.clear()
            where = f"checkpoint {checkpoint_id!r} of thread {thread_id!r} in {self._place}"
            with explained(where):
                check_ids(thread_id, namespace, checkpoint_id)
                if self._threads.peek(thread_id, namespace, checkpoint_id) is None:
                    self._threads.put_checkpoint(thread_id, self._checkpoint((thread_id, namespace, checkpoint_id)))
                    added += 1
                else:
                    unchanged += 1
        writes = import_writes(self._threads, self._rows("writes", _WRITES), self._place)
        return ThreadsImport(len(threads), added, writes, unchanged)

    def _rows(self, name: str, query: LiteralString) -> Iterable[Any]:
        """The rows of a query, page by page: there may be more than fit into memory."""
        with self._connection.cursor(name=f"chatledger_{name}") as cursor:
            cursor.itersize = _PAGE
            yield from cursor.execute(query)

    def _checkpoint(self, key: _Key) -> PutVersion:
        thread_id, namespace, checkpoint_id = key
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
                values[_TASKS] = list_tree([value_tree(type_name, data) for type_name, data in packets])
                versions[_TASKS] = max(versions.values(), default=1)
        return checkpoint_of(namespace, checkpoint_id, parent_id, checkpoint, metadata, values)

    def _stored(self, thread_id: str, namespace: str, versions: dict[str, str]) -> dict[str, Tree | Serial]:
        """The values that are not in the row of the checkpoint itself, by channel."""
        stored: dict[str, Tree | Serial] = {}
        missing: dict[str, str] = {}
        for channel, version in versions.items():
            last = self._values.get((thread_id, namespace, channel))
            if last is not None and last[0] == version:
                stored[channel] = last[1]
            else:
                missing[channel] = version
        if missing:
            wanted = (thread_id, namespace, [*missing], [*missing.values()])
            for channel, version, type_name, data in self._connection.execute(_VALUES, wanted).fetchall():
                stored[channel] = stored_value(type_name, data)
                self._values[thread_id, namespace, channel] = version, stored[channel]
        return stored
