"""Databases of `@deepagents/context`: the same chats as from its files, told apart from those of LangGraph's saver."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy.dialects.mssql
from langgraph.checkpoint.postgres import PostgresSaver
from tests.support.cli_world import run
from tests.support.deepagents_files import BRANCHES, CHAT, CHECKPOINTS, MESSAGES, make_file
from tests.support.imported_files import read

import chatledger
from chatledger.domain.chat.interchange import ImportedChat
from chatledger.errors import InvalidValueError
from chatledger.importers import read_chats
from chatledger.infra.exchange.context_databases import context_tables, rows_of

pytestmark = pytest.mark.xdist_group("databases")

# The columns that PostgresContextStore makes, in our words. Without quotes, PostgreSQL has their names in lower case.
SCHEMA = """
CREATE SCHEMA IF NOT EXISTS "{0}";
CREATE TABLE "{0}".chats (id TEXT PRIMARY KEY, userId TEXT NOT NULL, title TEXT, metadata JSONB,
    createdAt BIGINT NOT NULL, updatedAt BIGINT NOT NULL);
CREATE TABLE "{0}".messages (id TEXT PRIMARY KEY, chatId TEXT NOT NULL REFERENCES "{0}".chats (id),
    parentId TEXT REFERENCES "{0}".messages (id), name TEXT NOT NULL, type TEXT, data JSONB NOT NULL, createdAt BIGINT NOT NULL);
CREATE TABLE "{0}".branches (id TEXT PRIMARY KEY, chatId TEXT NOT NULL REFERENCES "{0}".chats (id), name TEXT NOT NULL,
    headMessageId TEXT REFERENCES "{0}".messages (id), isActive BOOLEAN NOT NULL DEFAULT FALSE, createdAt BIGINT NOT NULL);
CREATE TABLE "{0}".checkpoints (id TEXT PRIMARY KEY, chatId TEXT NOT NULL REFERENCES "{0}".chats (id), name TEXT NOT NULL,
    messageId TEXT NOT NULL REFERENCES "{0}".messages (id), createdAt BIGINT NOT NULL);
"""


def fill(location: str, schema: str = "public") -> str:
    """Make the tables and rows of the tests of files; return the location."""
    tables: list[tuple[str, list[Any]]] = [
        ("chats", [CHAT]),
        ("messages", MESSAGES),
        ("branches", [(*row[:4], bool(row[4]), *row[5:]) for row in BRANCHES]),
        ("checkpoints", CHECKPOINTS),
    ]
    with psycopg.connect(location) as connection:
        connection.execute(SCHEMA.format(schema).encode())
        for table, rows in tables:
            for row in rows:
                places = ", ".join(["%s"] * len(row))
                connection.execute(f'INSERT INTO "{schema}".{table} VALUES ({places})'.encode(), row)
    return location


def chats_of(location: str) -> list[ImportedChat]:
    problems: list[Any] = []
    found = list(read_chats(location, on_problem=problems.append))
    assert problems == []
    return found


@pytest.mark.parametrize("schema", [None, "Agents"])
def test_a_database_has_what_a_file_has(
    new_postgres_database: Callable[[], str], tmp_path: Path, schema: str | None
) -> None:
    location = fill(new_postgres_database(), schema or "public")
    wanted = f"{location}&schema={schema}" if schema else location
    assert read(make_file(tmp_path / "context.db"), strict=True)[0] == chats_of(wanted)


def test_the_command_takes_it_again_and_again(new_postgres_database: Callable[[], str], tmp_path: Path) -> None:
    location = fill(new_postgres_database())
    ledger = str(tmp_path / "ledger")
    first = run("import", location, "--location", ledger)
    assert (first.exit_code, first.stdout.splitlines()[0]) == (0, "Imported 1 chat: 1 new, 0 changed, 0 unchanged.")
    assert "Nothing changed: 1 chat read" in run("import", location, "--location", ledger).stdout
    with psycopg.connect(location) as connection:
        connection.execute(
            "INSERT INTO messages VALUES ('m4', 'c1', 'm3', 'user', 'message', '{\"a\": 1}', 1700000000010)"
        )
    assert "1 message," in run("import", f"{location}&schema=public", "--location", ledger).stdout
    with chatledger.open(ledger) as opened:
        added = opened.get_message("m4")
        assert added is not None
        assert (added.parent_id, added.data, added.created_at) == ("m3", {"a": 1}, 1_700_000_000_010)


def test_the_tables_of_langgraph_are_still_its(new_postgres_database: Callable[[], str], tmp_path: Path) -> None:
    """Both have a table `checkpoints`; they may lie in two schemas of one database."""
    location = new_postgres_database()
    with PostgresSaver.from_conn_string(location) as saver:
        saver.setup()
    fill(location, "agents")
    ledger = str(tmp_path / "ledger")
    assert run("import", location, "--location", ledger).exit_code == 0
    assert "1 chat" in run("import", f"{location}&schema=agents", "--location", ledger).stdout


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("", "no table chats of @deepagents/context"),
        ("&schema=nope", "in the schema 'nope'; [?]schema= names the schema"),
    ],
)
def test_what_is_no_such_database_is_told(new_postgres_database: Callable[[], str], query: str, reason: str) -> None:
    location = new_postgres_database()
    with pytest.raises(InvalidValueError, match=reason):
        chats_of(location + query)
    found = run("import", location + query, "--location", "memory:")
    assert found.exit_code == 1
    assert "@deepagents/context" in found.stderr


@pytest.mark.parametrize(
    "location",
    [
        "postgresql://ada:s3cret@127.0.0.1:1/agents?schema=x",
        "postgresql://ada:s3cret@h:port/db",
        "postgresql://ada:half@s3cret@127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/s3cret@127.0.0.1:1/db",
        "postgresql://ada:s3cret\udcff@127.0.0.1:1/db",
        "mssql+nodriver://ada:s3cret@127.0.0.1/db",
        "mssql+pyodbc://ada:s3cret@127.0.0.1:port/db",
        "mssql+pyodbc://ada:half@s3cret@127.0.0.1/db",
    ],
)
def test_no_message_has_the_password(location: str) -> None:
    """Neither a traceback: what is wrong with a location is an error in words."""
    with pytest.raises(InvalidValueError) as caught:
        chats_of(location)
    error: BaseException | None = caught.value
    while error is not None:
        assert "s3cret" not in str(error)
        error = error.__cause__


def test_the_statements_for_sql_server() -> None:
    """There is no server to try: they name tables and columns as SqlServerContextStore makes them."""
    dialect: Any = sqlalchemy.dialects.mssql
    table = context_tables("dbo")["messages"]
    text = str(rows_of(table, "c1").compile(dialect=dialect.dialect()))
    assert (
        "SELECT dbo.messages.id, dbo.messages.chatId, dbo.messages.parentId, dbo.messages.name, dbo.messages.type, "
        "CAST(dbo.messages.data AS NVARCHAR(max)) AS data, dbo.messages.createdAt FROM dbo.messages "
        "WHERE dbo.messages.chatId = :chatId_1 ORDER BY dbo.messages.createdAt, dbo.messages.id"
    ) == " ".join(text.split())
