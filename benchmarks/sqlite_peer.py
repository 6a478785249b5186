"""
The SQLite schema that `@deepagents/context` documents, written anew in Python: what one would have without chatledger.

Tables, keys, indexes, foreign keys and pragmas are those of its version 0.29; so are the questions, above all the recursive
one for a chain. Four things are changed in its favour: the last messages of a chain are found by ending the recursion there
(the package reads all), an append is one transaction (the package commits each statement), a new message is put into the FTS5
table without looking for an older one there (a scan of that table, as the id is not indexed in it), and full-text search can be
left out where we have none to compare it with.
"""

import json
import sqlite3
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self

from chatledger import NewMessage

Synchronous = Literal["FULL", "NORMAL"]
Row = tuple[Any, ...]

BATCH = 1000
_TABLES = ("chats", "messages", "branches", "checkpoints")
_PRAGMAS = """
pragma journal_mode = wal;
pragma synchronous = {synchronous};
pragma busy_timeout = 5000;
pragma cache_size = -64000;
pragma temp_store = memory;
pragma mmap_size = 268435456;
pragma foreign_keys = on;
"""
_SCHEMA = """
create table if not exists chats (
    id text primary key, userId text not null, title text, metadata text,
    createdAt integer not null default (strftime('%s', 'now') * 1000),
    updatedAt integer not null default (strftime('%s', 'now') * 1000));
create index if not exists idx_chats_updatedAt on chats (updatedAt);
create index if not exists idx_chats_userId on chats (userId);
create index if not exists idx_chats_userId_updatedAt on chats (userId, updatedAt desc);

create table if not exists messages (
    id text primary key, chatId text not null references chats (id) on delete cascade,
    parentId text references messages (id), name text not null, type text, data text not null, createdAt integer not null);
create index if not exists idx_messages_chatId on messages (chatId);
create index if not exists idx_messages_parentId on messages (parentId);
create index if not exists idx_messages_chatId_parentId on messages (chatId, parentId);

create table if not exists branches (
    id text primary key, chatId text not null references chats (id) on delete cascade, name text not null,
    headMessageId text references messages (id), isActive integer not null default 0, createdAt integer not null,
    unique (chatId, name));
create index if not exists idx_branches_chatId on branches (chatId);
create index if not exists idx_branches_chatId_isActive on branches (chatId, isActive);

create table if not exists checkpoints (
    id text primary key, chatId text not null references chats (id) on delete cascade, name text not null,
    messageId text not null references messages (id), createdAt integer not null, unique (chatId, name));
create index if not exists idx_checkpoints_chatId on checkpoints (chatId);
"""
_SEARCH = """
create virtual table if not exists messages_fts using fts5(
    messageId unindexed, chatId unindexed, name unindexed, content, tokenize = 'porter unicode61');
"""
_FILL_SEARCH = """
insert into {table} (messageId, chatId, name, content)
select id, chatId, name, json_extract(data, '$.parts[0].text') from messages order by rowid
"""
_FIND = """
select m.id, m.chatId, m.parentId, m.name, m.type, m.data, m.createdAt,
    bm25(messages_fts) as rank, snippet(messages_fts, 3, '<mark>', '</mark>', '...', 32)
from messages_fts join messages m on m.id = messages_fts.messageId{joined}
where messages_fts match ? and {condition} order by rank limit ?
"""
_INSERT_MESSAGE = """
insert into messages (id, chatId, parentId, name, type, data, createdAt) values (?, ?, ?, ?, ?, ?, ?)
on conflict (id) do update set name = excluded.name, type = excluded.type, data = excluded.data
"""
_CHAIN = """
with recursive chain as (
    select *, 0 as depth from messages where id = ?
    union all
    select m.*, c.depth + 1 from messages m join chain c on m.id = c.parentId where c.depth < ?)
select id, chatId, parentId, name, type, data, createdAt from chain order by depth desc
"""
_BRANCHES = """
select b.name, b.headMessageId, b.isActive, coalesce((
    with recursive chain as (
        select id, parentId from messages where id = b.headMessageId
        union all
        select m.id, m.parentId from messages m join chain c on m.id = c.parentId)
    select count(*) from chain), 0)
from branches b where b.chatId = ? order by b.createdAt, b.name
"""
_CHATS = """
select c.id, c.userId, c.title, c.metadata, c.createdAt, c.updatedAt,
    count(distinct m.id) as messageCount, count(distinct b.id) as branchCount
from chats c left join messages m on m.chatId = c.id left join branches b on b.chatId = c.id
group by c.id order by c.updatedAt desc limit ? offset ?
"""


class SqlitePeer:
    """
    A file of that schema, open.

    Args:
        path: The file; made if absent.
        synchronous: `FULL` syncs every commit to the disk, `NORMAL`, what the package sets, only checkpoints.
        search: Whether messages are put into the FTS5 table too.
        loads: Decodes JSON.
    """

    def __init__(
        self,
        path: Path,
        *,
        synchronous: Synchronous = "NORMAL",
        search: bool = False,
        loads: Callable[[str], Any] = json.loads,
    ) -> None:
        self.path, self._search, self._loads = path, search, loads
        self._db = sqlite3.connect(path, isolation_level=None, cached_statements=256)
        self._db.executescript(_PRAGMAS.format(synchronous=synchronous) + _SCHEMA + (_SEARCH if search else ""))

    def create_chat(self, chat_id: str, user_id: str) -> None:
        """Make a chat with its branch `main`."""
        with self._db:
            self._db.execute("begin immediate")
            self._insert_chat(chat_id, user_id)

    def create_chats(self, chat_ids: Iterable[str], user_id: str) -> None:
        """Make many chats, in one transaction."""
        with self._db:
            self._db.execute("begin immediate")
            for chat_id in chat_ids:
                self._insert_chat(chat_id, user_id)

    def set_updated(self, times: Mapping[str, int]) -> None:
        """Set when chats were changed, in milliseconds."""
        with self._db:
            self._db.execute("begin immediate")
            rows = ((updated_at, chat_id) for chat_id, updated_at in times.items())
            self._db.executemany("update chats set updatedAt = ? where id = ?", rows)

    def _insert_chat(self, chat_id: str, user_id: str) -> None:
        self._db.execute("insert into chats (id, userId) values (?, ?)", (chat_id, user_id))
        self._insert_branch(chat_id, "main", None, is_active=True)

    def _insert_branch(self, chat_id: str, name: str, head: str | None, *, is_active: bool) -> None:
        self._db.execute(
            "insert into branches (id, chatId, name, headMessageId, isActive, createdAt) values (?, ?, ?, ?, ?, ?)",
            (str(uuid.uuid4()), chat_id, name, head, int(is_active), 0),
        )

    def create_branch(self, chat_id: str, name: str, head: str) -> None:
        """Make a branch that is not active."""
        with self._db:
            self._db.execute("begin immediate")
            self._insert_branch(chat_id, name, head, is_active=False)

    def append(self, chat_id: str, messages: Iterable[NewMessage]) -> None:
        """Chain messages onto the active branch, in one transaction."""
        with self._db:
            self._db.execute("begin immediate")
            self._append(chat_id, messages)

    def _append(self, chat_id: str, messages: Iterable[NewMessage]) -> None:
        branch_id, head = self._active_branch(chat_id)
        for message in messages:
            data = json.dumps(message.data)
            row = (message.id, chat_id, head, message.name, message.type, data, message.created_at)
            self._db.execute(_INSERT_MESSAGE, row)
            if self._search:
                self._db.execute(
                    "insert into messages_fts (messageId, chatId, name, content) values (?, ?, ?, ?)",
                    (message.id, chat_id, message.name, _text(message.data, "\n")),
                )
            head = message.id
        self._db.execute("update branches set headMessageId = ? where id = ?", (head, branch_id))

    def import_chat(self, chat_id: str, user_id: str, messages: Iterable[NewMessage]) -> None:
        """Make a chat with its messages, in one transaction."""
        self.import_chats([(chat_id, user_id, messages)])

    def import_chats(self, chats: Iterable[tuple[str, str, Iterable[NewMessage]]]) -> None:
        """Make chats, each an id, an owner and messages, in one transaction."""
        with self._db:
            self._db.execute("begin immediate")
            for chat_id, user_id, messages in chats:
                self._insert_chat(chat_id, user_id)
                self._append(chat_id, messages)

    def _active_branch(self, chat_id: str) -> tuple[str, str | None]:
        query = "select id, headMessageId from branches where chatId = ? and isActive = 1"
        branch_id, head = self._db.execute(query, (chat_id,)).fetchone()
        return branch_id, head

    def get_messages(self, chat_id: str, *, limit: int | None = None) -> list[dict[str, Any]]:
        """The chain of the active branch, root first; the last `limit` of it."""
        head = self._active_branch(chat_id)[1]
        return [] if head is None else self.get_chain(head, limit=limit)

    def get_chain(self, head: str, *, limit: int | None = None) -> list[dict[str, Any]]:
        """The messages from the root to `head`, oldest first; the last `limit` of them."""
        loads = self._loads
        last_depth = sys.maxsize if limit is None else limit - 1
        return [
            {
                "id": message_id,
                "chatId": chat_id,
                "parentId": parent_id,
                "name": name,
                "type": kind,
                "data": loads(data),
                "createdAt": created_at,
            }
            for message_id, chat_id, parent_id, name, kind, data, created_at in self._db.execute(
                _CHAIN, (head, last_depth)
            )
        ]

    def list_branches(self, chat_id: str) -> list[tuple[str, str | None, bool, int]]:
        """(name, head, is active, length of the chain) of each branch."""
        return [
            (name, head, is_active == 1, count)
            for name, head, is_active, count in self._db.execute(_BRANCHES, (chat_id,))
        ]

    def list_chats(self, *, limit: int, offset: int = 0) -> list[dict[str, Any]]:
        """Chats with their counts, the last updated first."""
        return [
            {
                "id": chat_id,
                "userId": user_id,
                "title": title,
                "metadata": None if metadata is None else self._loads(metadata),
                "createdAt": created_at,
                "updatedAt": updated_at,
                "messageCount": message_count,
                "branchCount": branch_count,
            }
            for chat_id, user_id, title, metadata, created_at, updated_at, message_count, branch_count in self._db.execute(
                _CHATS, (limit, offset)
            )
        ]

    def graph(self, chat_id: str) -> tuple[list[dict[str, Any]], list[Row], list[Row]]:
        """Nodes with a preview of their text, branches, checkpoints."""
        nodes = [
            {
                "id": message_id,
                "parentId": parent_id,
                "role": name,
                "content": _preview(self._loads(data)),
                "createdAt": created_at,
            }
            for message_id, parent_id, name, data, created_at in self._db.execute(
                "select id, parentId, name, data, createdAt from messages where chatId = ? order by createdAt",
                (chat_id,),
            )
        ]
        branches = self._db.execute(
            "select name, headMessageId, isActive from branches where chatId = ? order by createdAt, name", (chat_id,)
        )
        checkpoints = self._db.execute(
            "select name, messageId from checkpoints where chatId = ? order by createdAt, name", (chat_id,)
        )
        return nodes, branches.fetchall(), checkpoints.fetchall()

    def search(
        self,
        query: str,
        *,
        chat_id: str | None = None,
        user_id: str | None = None,
        roles: Sequence[str] = (),
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """Messages that match a query of FTS5, best first, in one chat or, which the package does not offer, in all, of a user or of everybody."""
        conditions, values = ["messages_fts.chatId = ?"], [chat_id]
        if chat_id is None:
            conditions, values = (["true"], []) if user_id is None else (["c.userId = ?"], [user_id])
        if roles:
            conditions.append(f"messages_fts.name in ({', '.join('?' for _ in roles)})")
        joined = " join chats c on c.id = m.chatId" if user_id is not None else ""
        statement = _FIND.format(joined=joined, condition=" and ".join(conditions))
        return [
            {
                "message": {
                    "id": message_id,
                    "chatId": found_in,
                    "parentId": parent_id,
                    "name": name,
                    "type": kind,
                    "data": self._loads(data),
                    "createdAt": created_at,
                },
                "rank": rank,
                "snippet": snippet,
            }
            for message_id, found_in, parent_id, name, kind, data, created_at, rank, snippet in self._db.execute(
                statement, (query, *values, *roles, -1 if limit is None else limit)
            )
        ]

    def build_search(self, table: str) -> None:
        """Put all messages, of one text part each, into a new FTS5 table of that name, in one transaction."""
        with self._db:
            self._db.execute("begin immediate")
            self._db.execute(_SEARCH.replace("messages_fts", table))
            self._db.execute(_FILL_SEARCH.format(table=table))

    def drop_search(self, table: str) -> None:
        """Drop such a table."""
        self._db.execute(f"drop table {table}")

    def search_bytes(self, table: str = "messages_fts") -> dict[str, int]:
        """The pages of an FTS5 table, in bytes, by its parts: `content`, `data`, `docsize` and so on."""
        query = "select substr(name, length(?) + 2), sum(pgsize) from dbstat where name glob ? || '_*' group by name"
        return dict(self._db.execute(query, (table, table)).fetchall())

    def copy_to(self, other: "SqlitePeer") -> None:
        """Insert every row into an empty file, in the order they were written, in transactions of 1,000 rows."""
        for table in _TABLES:
            rows = self._db.execute(f"select * from {table} order by rowid")
            marks = ", ".join("?" for _ in rows.description)
            for batch in _batches(rows):
                with other._db:  # noqa: SLF001  # of the same class
                    other._db.execute("begin immediate")  # noqa: SLF001  # as above
                    other._db.executemany(f"insert into {table} values ({marks})", batch)  # noqa: SLF001  # as above

    def count_messages(self) -> int:
        """Number of messages."""
        count: int = self._db.execute("select count(*) from messages").fetchone()[0]
        return count

    def checkpoint(self) -> None:
        """Move everything from the WAL to the file."""
        self._db.execute("pragma wal_checkpoint(truncate)")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _batches(rows: Iterator[Row]) -> Iterator[Sequence[Row]]:
    while batch := list(islice(rows, BATCH)):
        yield batch


def _text(data: Any, separator: str) -> str:
    if isinstance(data, str):
        return data
    return separator.join(part["text"] for part in data["parts"] if part["type"] == "text")


def _preview(data: Any) -> str:
    content = _text(data, " ")
    return content if len(content) <= 50 else content[:50] + "..."
