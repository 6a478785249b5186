"""PostgreSQL by psycopg: locations, connections that do not wait for ever, and a commit in one round trip."""

import select
import time
from collections.abc import Callable, Generator
from typing import Any, Final, Self
from urllib.parse import unquote

import psycopg
from psycopg import conninfo, pq

from chatledger.domain.errors import ConfigurationError

_COMMIT: Final = """
BEGIN ISOLATION LEVEL READ COMMITTED;
SELECT set_config('lock_timeout', '{patience_ms}', true), set_config('statement_timeout', '{patience_ms}', true);
UPDATE {counters} SET last = last + %(count)s WHERE name = %(counter)s;
INSERT INTO {events} (id, digest, originator_id, originator_version, topic, state)
    SELECT
        CASE WHEN COALESCE((SELECT MAX(originator_version) FROM {events} WHERE digest = %(digest)s), %(before)s) = %(before)s
            THEN counter.last - %(count)s + event.number
            ELSE (SELECT MAX(id) FROM {events}) END,
        %(digest)s::text, %(stream)s, %(before)s + event.number, event.topic, event.state
    FROM {counters} AS counter,
        UNNEST(%(topics)s::text[], %(states)s::bytea[]) WITH ORDINALITY AS event (topic, state, number)
    WHERE counter.name = %(counter)s
    RETURNING id;
COMMIT
"""
"""
Writes a commit. What a role or a server has as its isolation level may refuse a row that others changed meanwhile.

The insert is a statement of its own, as it sees what was committed while the update waited for the counter. Where the version does
not follow, it takes a position that is taken: that is refused, all is undone, and of the row nothing but this number gets into the
server's log, unlike with a check or a NULL.
"""
_UNREACHED: Final = (
    "refused",
    "No such file",
    "starting up",
    "not yet accepting",
    "shutting down",
    "recovery",
    "closed the connection",
    "timeout",
)


class PostgresPlace:
    """
    A location on PostgreSQL: a URI of libpq, with its parameters, and `schema` besides.

    Args:
        location: `postgresql://user:password@host:port/database?sslmode=require&schema=name`.

    Raises:
        ConfigurationError: It is malformed, or has unknown parameters.
    """

    def __init__(self, location: str) -> None:
        place, _, query = location.partition("://")[2].partition("?")
        pairs = [pair for pair in query.split("&") if pair]
        parameters = {"schema", "ssl", *(option.keyword.decode() for option in pq.Conninfo.get_defaults())}
        unknown = sorted({pair.partition("=")[0] for pair in pairs} - parameters)
        if unknown:
            msg = f"a location on PostgreSQL takes ?schema= and the parameters of libpq, not {', '.join(unknown)}"
            raise ConfigurationError(msg)
        schemas = [unquote(pair.removeprefix("schema=")) for pair in pairs if pair.startswith("schema=")]
        self.schema = schemas[-1] if schemas else None
        uri = f"postgresql://{place}?{'&'.join(pair for pair in pairs if not pair.startswith('schema='))}"
        try:
            self.parameters: dict[str, Any] = conninfo.conninfo_to_dict(uri)
            ports = [int(port) for port in str(self.parameters.get("port", "5432")).split(",") if port]
            is_right = all(0 < port < 65536 for port in ports) and self.schema != ""
        except (ValueError, psycopg.Error):
            is_right = False
        if not is_right or ("@" in place and "@" not in place.partition("/")[0]):
            # The text of libpq's own error may have the password.
            msg = (
                "the location does not name a PostgreSQL database: expected postgresql://user:password@host:port/database, with a "
                "port up to 65535, and special characters percent-encoded, such as / as %2F and @ as %40"
            )
            raise ConfigurationError(msg)

    @staticmethod
    def insert_statement(events: str, counters: str, patience_ms: int) -> str:
        """
        The statement that writes a commit. All goes to the server at once, which holds the counter's lock for no longer than it needs.

        Of statements that are sent one after the other, each makes all other writers wait for a round trip.
        """
        return _COMMIT.format(events=events, counters=counters, patience_ms=patience_ms)

    @staticmethod
    def is_alive(connection: psycopg.Connection[Any]) -> bool:
        """
        Whether a connection that was idle can be used: a server that ends it says so, and nothing else comes unasked.

        It costs no round trip, as a statement would; each append would wait for that.
        """
        polling = select.poll()
        polling.register(connection.fileno(), select.POLLIN)
        return not polling.poll(0)

    @staticmethod
    def is_unreached(error: Exception) -> bool:
        """Whether a server could not be reached, which may pass, as while it restarts. libpq has no codes for it, but English texts."""
        text = str(error)
        return any(part in text for part in _UNREACHED)

    def connect(self, deadline_at: Callable[[], float]) -> psycopg.Connection[Any]:
        """
        Return a new connection of psycopg, which raises its `OperationalError` instead of waiting beyond a deadline.

        Args:
            deadline_at: Says by the monotonic clock until when this thread may wait; infinite for ever.
        """
        rest_s = min(deadline_at() - time.monotonic(), 3600.0)
        parameters: dict[str, Any] = {"connect_timeout": max(1, round(rest_s)), **self.parameters}
        connection = _BoundedConnection.connect(
            cursor_factory=_SendingCursor,
            # Behind a pooler, clients share sessions, where a statement that another one prepared is in the way.
            prepare_threshold=None,
            **parameters,
        )
        connection.deadline_at = deadline_at
        return connection


class _BoundedConnection(psycopg.Connection[Any]):
    """libpq would wait for ever for a server that is frozen, or beyond a network that is gone."""

    deadline_at: Callable[[], float]

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        return super().wait(_until(self.deadline_at(), gen, self), *args, **kwargs)


class _SendingCursor(psycopg.Cursor[Any]):
    """
    Sends statements that are divided by semicolons in one round trip, and gives the rows of the last but `COMMIT`.

    Their parameters are bound by the server. Bound here, content would be part of the statements, which servers log when one fails.
    """

    def execute(self, query: Any, params: Any = None, **kwargs: Any) -> Self:
        statements: list[Any] = query.split(";\n") if isinstance(query, str) else [query]
        if len(statements) == 1:
            return super().execute(statements[0], params, **kwargs)
        *before, last, commit = statements
        failure: psycopg.Error | None = None
        try:
            with self.connection.pipeline():
                try:
                    for statement in before:
                        self.connection.execute(statement, params)
                    super().execute(last, params)
                    self.connection.execute(commit)
                except psycopg.Error as error:  # within the pipeline, psycopg would log what its end brings besides
                    failure = error
        except psycopg.Error as error:
            failure = failure or error
        finally:
            if self.connection.pgconn.pipeline_status != pq.PipelineStatus.OFF:
                # Some answers are missing, and would be taken for those to the next statements.
                self.connection.pgconn.finish()
        if failure is not None:
            raise failure
        return self


def _until(deadline_at: float, waiting: Any, connection: Any) -> Generator[Any, Any, Any]:
    """Do what a waiting generator of psycopg does; it is sent nothing every now and then, which is when the time is looked at."""
    try:
        wanted = next(waiting)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > deadline_at:
                connection.pgconn.finish()  # no answer to this may be taken for one to the next statement
                msg = "the server did not answer in time"
                raise psycopg.OperationalError(msg)
            wanted = waiting.send(ready)
    except StopIteration as ended:
        return ended.value
