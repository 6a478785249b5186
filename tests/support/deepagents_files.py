"""SQLite files as `@deepagents/context` writes them."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

# The columns that @deepagents/context writes, in our words.
SCHEMA = """
CREATE TABLE chats (id TEXT PRIMARY KEY, userId TEXT NOT NULL, title TEXT, metadata TEXT,
    createdAt INTEGER NOT NULL, updatedAt INTEGER NOT NULL);
CREATE TABLE messages (id TEXT PRIMARY KEY, chatId TEXT NOT NULL, parentId TEXT, name TEXT NOT NULL, type TEXT,
    data TEXT NOT NULL, createdAt INTEGER NOT NULL);
CREATE TABLE branches (id TEXT PRIMARY KEY, chatId TEXT NOT NULL, name TEXT NOT NULL, headMessageId TEXT,
    isActive INTEGER NOT NULL DEFAULT 0, createdAt INTEGER NOT NULL, UNIQUE (chatId, name));
CREATE TABLE checkpoints (id TEXT PRIMARY KEY, chatId TEXT NOT NULL, name TEXT NOT NULL, messageId TEXT NOT NULL,
    createdAt INTEGER NOT NULL, UNIQUE (chatId, name));
"""
CHAT = ("c1", "ada", "Bread", '{"b": 1, "a": [true, null]}', 1_700_000_000_000, 1_700_000_009_000)
MESSAGES = [
    ("m1", "c1", None, "user", "message", '{"role":"user","parts":[{"type":"text","text":"hi"}]}', 1_700_000_000_001),
    ("m2", "c1", "m1", "assistant", "message", '"plain"', 1_700_000_000_002),
    ("m3", "c1", "m1", "hint", None, "null", 1_700_000_000_003),
]
BRANCHES = [
    ("b1", "c1", "main", "m2", 0, 1_700_000_000_000),
    ("b2", "c1", "main-v2", "m3", 1, 1_700_000_000_004),
    ("b3", "c1", "empty", None, 0, 1_700_000_000_005),
]
CHECKPOINTS = [("k1", "c1", "start", "m1", 1_700_000_000_006)]


def make_file(
    path: Path,
    *,
    chats: list[Any] | None = None,
    messages: list[Any] | None = None,
    branches: list[Any] | None = None,
    checkpoints: list[Any] | None = None,
    journal: str = "DELETE",
) -> Path:
    """A file with these rows."""
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA journal_mode = {journal}")
        database.executescript(SCHEMA)
        for table, rows in (
            ("chats", [CHAT] if chats is None else chats),
            ("messages", MESSAGES if messages is None else messages),
            ("branches", BRANCHES if branches is None else branches),
            ("checkpoints", CHECKPOINTS if checkpoints is None else checkpoints),
        ):
            for row in rows:
                database.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        database.commit()
    return path
