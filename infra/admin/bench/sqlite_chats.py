"""Chats in a SQLite file: a table of messages with their parents, a recursive query for chains, FTS5 for search."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from chatledger.domain.chat.interchange import ImportedChat, ImportedMessage
from chatledger.domain.values import plain_text

_SCHEMA: Final = """
pragma journal_mode = wal;
pragma synchronous = {synchronous};
create table messages (
    id text primary key, chat_id text not null, parent_id text references messages (id), name text not null, type text,
    data text not null, created_at integer);
create index messages_by_chat on messages (chat_id, parent_id);
create table heads (chat_id text primary key, message_id text);
create virtual table texts using fts5(message_id unindexed, chat_id unindexed, content, tokenize = 'porter unicode61');
"""
_CHAIN: Final = """
with recursive chain as (
    select *, 0 as depth from messages where id = ?
    union all
    select m.*, c.depth + 1 from messages m join chain c on m.id = c.parent_id where c.depth < ?)
select id, parent_id, name, type, data, created_at from chain order by depth desc
"""
_FIND: Final = """
select message_id, bm25(texts) from texts where texts match ? and chat_id = ? order by bm25(texts) limit ?
"""
_ALL: Final = 1 << 60


class SqliteChats:
    """
    A new file.

    Args:
        path: The file; it must not exist.
        is_synced: Whether each commit is on the disk when it returns.
    """

    def __init__(self, path: Path, *, is_synced: bool) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.executescript(_SCHEMA.format(synchronous="full" if is_synced else "normal"))

    def import_chat(self, chat: ImportedChat) -> None:
        """A whole conversation, in one transaction."""
        heads = [branch.head_message_id for branch in chat.branches if branch.is_active]
        self._write(chat.id, chat.messages, heads[0] if heads else None)

    def append(self, chat_id: str, message: ImportedMessage) -> None:
        """One message at the head, in one transaction."""
        self._write(chat_id, [message], message.id)

    def _write(self, chat_id: str, messages: Iterable[ImportedMessage], head: str | None) -> None:
        rows: list[tuple[Any, ...]] = []
        texts: list[tuple[str, str, str]] = []
        for message in messages:
            data = msgspec.json.encode(message.data).decode()
            rows.append((message.id, chat_id, message.parent_id, message.name, message.type, data, message.created_at))
            texts.append((message.id, chat_id, plain_text(message.data)))
        with self._db:
            self._db.execute("begin immediate")
            self._db.executemany("insert into messages values (?, ?, ?, ?, ?, ?, ?)", rows)
            self._db.executemany("insert into texts values (?, ?, ?)", texts)
            self._db.execute("insert or replace into heads values (?, ?)", (chat_id, head))

    def chain(self, chat_id: str, *, limit: int | None = None) -> list[tuple[Any, ...]]:
        """The messages from the root to the head, data decoded; the last `limit` of them."""
        found = self._db.execute("select message_id from heads where chat_id = ?", (chat_id,)).fetchone()
        rows = self._db.execute(_CHAIN, (found[0], _ALL if limit is None else limit - 1))
        return [(*row[:4], msgspec.json.decode(row[4]), row[5]) for row in rows]

    def search(self, query: str, chat_id: str, limit: int) -> list[tuple[str, float]]:
        """The ids of the best messages with their ranks."""
        return self._db.execute(_FIND, (f'"{query}"', chat_id, limit)).fetchall()

    def copy_to(self, path: Path) -> None:
        """Everything into a new file."""
        self._db.execute("vacuum into ?", (str(path),))

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
