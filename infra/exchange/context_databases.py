"""
Databases of `@deepagents/context`: of its PostgresContextStore and SqlServerContextStore, as versions 0.26 to 0.29 make them.

The tables are those of its SQLite files, in one schema: `public` or `dbo`, unless `?schema=` in the location names another. On
PostgreSQL, `metadata` and `data` are JSONB.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from chatledger.domain.chat.import_tree import Reporter
from chatledger.domain.chat.interchange import ImportedChat
from chatledger.domain.errors import ConfigurationError, InvalidValueError
from chatledger.domain.extras import needing

from ..store.opening.presence import without_secrets
from .deepagents import COLUMNS, make_chat
from .source import check_encoded, is_id

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select, Table

_POSTGRES: Final = ("postgresql://", "postgres://")
_SQL_SERVER: Final = "mssql+"
_JSON: Final = ("metadata", "data")


def is_database(location: str) -> bool:
    return location.startswith((*_POSTGRES, _SQL_SERVER))


def is_context_database(location: str) -> bool:
    """Whether a database is one of `@deepagents/context`, and not of LangGraph's PostgresSaver, which has a table `checkpoints` too."""
    if location.startswith(_SQL_SERVER):
        return True
    import sqlalchemy

    with _reading(location) as place:
        if place.schema is not None:  # the saver has no such option
            return True
        inspector = sqlalchemy.inspect(place.connection)
        return inspector.has_table("checkpoints") and "chatid" in {
            column["name"] for column in inspector.get_columns("checkpoints")
        }


def read_database(location: str, report: Reporter) -> Iterator[ImportedChat]:
    """
    The chats of a database, oldest first; nothing is written to it. Of PostgreSQL one consistent state, even while others write.

    `location`: `postgresql://user:password@host/database?schema=name`, or one of SQLAlchemy for SQL Server, such as
    `mssql+pyodbc://user:password@host/database?driver=...&schema=name`.

    Raises:
        InvalidValueError: It cannot be read, or has no such tables.
        ConfigurationError: What reads it is not installed.
    """
    with _reading(location) as place:
        import sqlalchemy

        tables = context_tables(place.schema)
        inspector = sqlalchemy.inspect(place.connection)
        missing = [name for name in tables if not inspector.has_table(name, schema=place.schema)]
        if missing:
            where = "" if place.schema is None else f" in the schema {place.schema!r}"
            msg = f"{report.source} has no table {missing[0]} of @deepagents/context{where}; ?schema= names the schema"
            raise InvalidValueError(msg)
        for row in place.connection.execute(rows_of(tables["chats"])).mappings().all():
            if is_id(row["id"], "the id of a chat", report):

                def of_chat(name: str, chat_id: str = row["id"]) -> Any:
                    return place.connection.execute(rows_of(tables[name], chat_id)).mappings()

                yield make_chat(row, of_chat, report)


def context_tables(schema: str | None) -> "dict[str, Table]":
    """Return the tables by name. Their columns are made without quotes, so each database folds the names as it likes."""
    from sqlalchemy import Column, MetaData, Table

    metadata = MetaData(schema=schema)
    return {
        name: Table(name, metadata, *(Column[Any](c, quote=False) for c in names)) for name, names in COLUMNS.items()
    }


def rows_of(table: "Table", chat_id: str | None = None) -> "Select[Any]":
    """Return the statement that reads the rows of a table, or of a chat, oldest first. What is JSON is read as text."""
    from sqlalchemy import Unicode, cast, select

    columns = [cast(c, Unicode).label(c.name) if c.name in _JSON else c for c in table.columns]
    rows = select(*columns).order_by(table.c.createdAt, table.c.id)
    return rows if chat_id is None else rows.where(table.c.chatId == chat_id)


class _Place(NamedTuple):
    connection: "Connection"
    schema: str | None


@contextmanager
def _reading(location: str) -> Generator[_Place]:
    with needing("postgres", "reading a database of @deepagents/context"):
        import sqlalchemy
        from sqlalchemy.exc import SQLAlchemyError
        from sqlalchemy.pool import NullPool

        from ..log.alchemy.postgres import PostgresPlace
    check_encoded(location)
    try:
        if location.startswith(_SQL_SERVER):
            try:
                url = sqlalchemy.make_url(location)
            except ValueError:  # for a port that is no number
                msg = f"{without_secrets(location)} has a port that is no number"
                raise InvalidValueError(msg) from None
            schema = url.query.get("schema")
            engine = sqlalchemy.create_engine(url.difference_update_query(["schema"]), poolclass=NullPool)
        else:
            import psycopg

            postgres = PostgresPlace(location)
            schema = postgres.schema
            engine = sqlalchemy.create_engine(
                "postgresql+psycopg://",
                creator=lambda: psycopg.connect(**postgres.parameters),
                poolclass=NullPool,
                isolation_level="REPEATABLE READ",  # one consistent state, even while others write
            )
        with engine.connect() as connection:
            yield _Place(connection, str(schema) if schema else None)
    except ConfigurationError as error:
        raise InvalidValueError(str(error)) from None
    except (SQLAlchemyError, ImportError) as error:
        # The driver's own words: SQLAlchemy adds the statement, and what it was given.
        msg = f"{without_secrets(location)} cannot be read: {getattr(error, 'orig', None) or error}"
        raise InvalidValueError(msg) from error
