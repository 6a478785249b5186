"""
SQLite files of `@deepagents/context` (SqliteContextStore), read as versions 0.26 to 0.29 write them.

Tables: `chats`, `messages`, `branches`, `checkpoints`; `messages_fts` is derived and not read. All times are milliseconds;
those of chats are whole seconds times 1000. `metadata` of chats and `data` of messages are JSON texts.
"""

import math
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, cast

from chatledger.domain.chat.import_tree import (
    LostMessage,
    Reporter,
    link_messages,
    repair_branches,
    repair_checkpoints,
)
from chatledger.domain.chat.interchange import ImportedBranch, ImportedChat, ImportedCheckpoint, ImportedMessage
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.forms.detect import form_of
from chatledger.projections.lmdb.environment import private

from .source import GZIP_MAGIC, READ_ERRORS, decode_json, is_id, open_source, refuse_unreadable

COLUMNS: Final = {
    "chats": ("id", "userId", "title", "metadata", "createdAt", "updatedAt"),
    "messages": ("id", "chatId", "parentId", "name", "type", "data", "createdAt"),
    "branches": ("id", "chatId", "name", "headMessageId", "isActive", "createdAt"),
    "checkpoints": ("id", "chatId", "name", "messageId", "createdAt"),
}
"""The tables of a store of `@deepagents/context`, and their columns, in a file and in [databases](context_databases.py) alike."""


class ForeignRow(Protocol):
    """A row, whose values are known by the names of the columns."""

    def __getitem__(self, column: str, /) -> Any: ...


_OF_CHATS = ("messages", "branches", "checkpoints")


def read_deepagents(path: Path, report: Reporter) -> Iterator[ImportedChat]:
    """
    The chats of a file, oldest first, in one consistent state even while others write.

    Nothing is written to the file or beside it. Raises InvalidValueError when it is not such a file.
    """
    try:
        with _open_database(path, report.max_unpacked_bytes) as database:
            database.execute("BEGIN")
            for table, columns in COLUMNS.items():
                present = {row["name"] for row in database.execute("SELECT name FROM pragma_table_info(?)", (table,))}
                missing = [column for column in columns if column not in present]
                if missing:
                    msg = f"{path} is no @deepagents/context file: table {table} lacks {', '.join(missing)}"
                    raise InvalidValueError(msg)
            for table in _OF_CHATS:
                query = f"SELECT count(*) FROM {table} WHERE chatId NOT IN (SELECT id FROM chats)"  # noqa: S608  # constants
                (count,) = database.execute(query).fetchone()
                if count:
                    report.unlinked(f"{count} row(s) of table {table} belong to no chat; skipped")
            for table in _OF_CHATS:  # files need not have an index; SQLite keeps this one in a file of its own
                database.execute(f"CREATE TEMP TABLE of_{table} AS SELECT chatId, rowid AS number FROM main.{table}")  # noqa: S608
                database.execute(f"CREATE INDEX temp.by_chat_{table} ON of_{table} (chatId, number)")
            for row in _select(database, "chats", "ORDER BY createdAt, rowid"):
                if is_id(row["id"], "the id of a chat", report):
                    yield make_chat(row, partial(_rows_of, database, chat_id=row["id"]), report)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the second when SQLite quotes damaged bytes in what it says
        msg = f"{path} cannot be read as a SQLite file: {error}"
        raise InvalidValueError(msg) from error


@contextmanager
def _open_database(path: Path, max_unpacked_bytes: int) -> Generator[sqlite3.Connection]:
    with tempfile.TemporaryDirectory(prefix="chatledger-import-") as directory:
        place = _unpack(path, Path(directory) / "import.db", max_unpacked_bytes)
        try:
            with place.open("rb") as stream:
                is_wal = stream.read(20)[18:] == b"\x02\x02"
        except OSError as error:
            refuse_unreadable(place, error)
        # Opening a file in WAL mode creates -wal and -shm beside it, even read-only, and leaves them. Without a -wal nobody
        # has it open, so `immutable` is safe and leaves nothing. Bytes 18 and 19 tell the mode: sqlite.org/fileformat.html.
        is_idle = is_wal and not place.with_name(f"{place.name}-wal").exists()
        mode = "mode=ro&immutable=1" if is_idle else "mode=ro"
        connection = sqlite3.connect(f"{place.resolve().as_uri()}?{mode}", uri=True, isolation_level=None)
        with closing(connection):
            connection.row_factory = sqlite3.Row
            # Damaged text must not end the reading; its bytes fail the rules for texts one by one.
            connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
            yield connection


def _unpack(path: Path, target: Path, max_unpacked_bytes: int) -> Path:
    with open_source(path, max_unpacked_bytes) as stream:
        try:
            with path.open("rb") as raw:
                if raw.read(len(GZIP_MAGIC)) != GZIP_MAGIC:
                    return path
            with open(target, "wb", opener=private) as out:
                shutil.copyfileobj(stream, out)
        except READ_ERRORS as error:
            refuse_unreadable(path, error)
    return target


def _select(database: sqlite3.Connection, table: str, rest: str, *values: str) -> list[sqlite3.Row]:
    columns = ", ".join(COLUMNS[table])
    # All rows at once: a cursor that a refused record leaves open would outlive its database.
    return database.execute(f"SELECT {columns} FROM {table} {rest}", values).fetchall()  # noqa: S608  # constants


def _rows_of(database: sqlite3.Connection, table: str, chat_id: str) -> list[sqlite3.Row]:
    numbers = f"SELECT number FROM temp.of_{table} WHERE chatId = ?"  # noqa: S608  # constants
    return _select(database, table, f"WHERE rowid IN ({numbers}) ORDER BY rowid", chat_id)


def make_chat(row: ForeignRow, rows_of: Callable[[str], Iterable[ForeignRow]], report: Reporter) -> ImportedChat:
    chat_id: str = row["id"]
    rows = (_make_message(chat_id, message, report) for message in rows_of("messages"))
    linked = link_messages(chat_id, ((message, None) for message in rows if message), report=report)
    messages = linked.messages
    branches = (
        ImportedBranch(
            id=_text(branch["id"]),
            name=_text(branch["name"]) or "",
            head_message_id=_text(branch["headMessageId"]),
            is_active=branch["isActive"] == 1,
            created_at=_milliseconds(branch["createdAt"]),
        )
        for branch in rows_of("branches")
    )
    checkpoints = (
        ImportedCheckpoint(
            id=_text(mark["id"]),
            name=_text(mark["name"]) or "",
            message_id=_text(mark["messageId"]) or "",
            created_at=_milliseconds(mark["createdAt"]),
        )
        for mark in rows_of("checkpoints")
    )
    return ImportedChat(
        id=chat_id,
        user_id=_text(row["userId"]) or "",
        title=_text(row["title"]),
        metadata=_decode_metadata(row, report),
        messages=messages,
        branches=repair_branches(chat_id, ((branch, None) for branch in branches), linked, report=report),
        checkpoints=repair_checkpoints(chat_id, ((mark, None) for mark in checkpoints), messages, report=report),
        created_at=_milliseconds(row["createdAt"]),
        updated_at=_milliseconds(row["updatedAt"]),
    )


def _decode_metadata(row: ForeignRow, report: Reporter) -> dict[str, Any] | None:
    if row["metadata"] is None:
        return None
    what = f"metadata of chat {row['id']!r}"
    metadata = _decode(row["metadata"], what, report)
    if isinstance(metadata, dict):
        return cast("dict[str, Any]", metadata)
    if metadata is not None and metadata is not _BROKEN:
        report.broken(f"{what}: not a JSON object; skipped")
    return None


def _make_message(chat_id: str, row: ForeignRow, report: Reporter) -> ImportedMessage | LostMessage | None:
    message_id, parent_id = row["id"], row["parentId"]
    what = f"message {message_id!r} of chat {chat_id!r}"
    if not isinstance(message_id, str):
        report.broken(f"{what}: its id is not a text; skipped")
        return None
    if not isinstance(parent_id, str | None):
        report.broken(f"{what}: the id of its parent is not a text; it becomes a root")
        parent_id = None
    data = _decode(row["data"], f"data of {what}", report)
    if data is _BROKEN:
        return LostMessage(message_id, parent_id)
    return ImportedMessage(
        id=message_id,
        parent_id=parent_id,
        name=_text(row["name"]) or "",
        type=_text(row["type"]),
        data=data,
        form=form_of(data),
        created_at=_milliseconds(row["createdAt"]),
    )


_BROKEN = object()


def _decode(text: Any, what: str, report: Reporter) -> Any:
    try:
        value, replaced = decode_json(text.encode() if isinstance(text, str) else b"")
    except (InvalidValueError, UnicodeEncodeError) as error:
        reason = "not UTF-8" if isinstance(error, UnicodeEncodeError) else str(error)
        report.broken(f"{what}: {reason}; skipped")
        return _BROKEN
    if replaced is not None:
        report.broken(f"{what}: {replaced}")
    return value


def _text(value: Any) -> str | None:
    """A text as stored, damaged bytes replaced; None for anything else."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None


def _milliseconds(value: Any) -> int | None:
    # JavaScript numbers may be stored as floats; SQLite can hold an infinite one.
    return int(value) if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)) else None
