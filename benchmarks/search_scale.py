"""
Search over many chats against SQLite FTS5 on the same texts, in one process and in turns.

    python -m benchmarks.search_scale                                            100,000 messages in 2,000 chats
    python -m benchmarks.search_scale --messages 1000000 --chats 20000           takes some minutes

Both answer with the best 20 messages, decoded, with their snippets. Times are the processor's, the least of several turns, in ms.
"""

import argparse
import json
import sqlite3
import tempfile
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import chatledger
from chatledger import Ledger, NewMessage
from chatledger.infra.ledger.port import store_of

from .prose import COMMON, PHRASE, Prose
from .world import settle

_QUERIES: Final = {
    "absent": "zyzzyva",
    "two words": "window morning",
    "phrase": f'"{PHRASE}"',
    "frequent phrase": '"of the"',
    "prefix": "inter*",
    "frequent": COMMON,
}
_SCHEMA: Final = """
create table messages (id integer primary key, chat integer, text text);
create virtual table found using fts5 (text, content = messages, content_rowid = id, tokenize = 'porter unicode61');
"""
_FIND: Final = """
select m.id, m.chat, m.text, f.rank, snippet(found, 0, '<mark>', '</mark>', '...', 32)
from found f join messages m on m.id = f.rowid where found match ? {only} order by f.rank limit 20
"""


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="Search over many chats against SQLite FTS5.")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--chats", type=int, default=2_000)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--rebuild", action="store_true", help="build the search index anew before the searches")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        peer = sqlite3.connect(path / "peer.db", isolation_level=None)
        peer.executescript(
            "pragma journal_mode = off; pragma synchronous = off; pragma cache_size = -200000;" + _SCHEMA
        )
        with chatledger.open(f"sqlite:///{path}/log.db", durability="fast") as ledger:
            queries = _QUERIES | _fill(ledger, peer, chats=given.chats, length=given.messages // given.chats)
            _print_build(ledger, peer, given.messages, is_anew=given.rebuild)
            _print_searches(ledger, peer, queries, given.chats, turns=given.turns)


def _texts(chats: int, length: int) -> Iterator[tuple[int, list[str]]]:
    """Parts of chats, which take turns: each chat is written in five parts."""
    talks = [Prose(number, length=length) for number in range(chats)]
    part = max(length // 5, 1)
    for start in range(0, length, part):
        for number, talk in enumerate(talks):
            yield number, [talk.text(at) for at in range(start, min(start + part, length))]


def _fill(ledger: Ledger, peer: sqlite3.Connection, *, chats: int, length: int) -> dict[str, str]:
    """Write the same to both; returns words that a few messages have."""
    having: Counter[str] = Counter()
    spent = {"chatledger": 0.0, "FTS5": 0.0}
    for number in range(chats):
        ledger.create_chat(f"chat-{number}", f"user-{number // 20}")
    for number, texts in _texts(chats, length):
        having.update(word for text in texts for word in set(text.split()))
        started = time.process_time()
        ledger.append(f"chat-{number}", [NewMessage("user", text) for text in texts])
        spent["chatledger"] += time.process_time() - started
        started = time.process_time()
        peer.execute("begin")
        for text in texts:
            inserted = peer.execute("insert into messages (chat, text) values (?, ?)", (number, text))
            peer.execute("insert into found (rowid, text) values (?, ?)", (inserted.lastrowid, text))
        peer.execute("commit")
        spent["FTS5"] += time.process_time() - started
    count = chats * length
    print(", ".join(f"{who} wrote a message in {1e6 * seconds / count:.0f} us" for who, seconds in spent.items()))
    by_count = sorted((many, word) for word, many in having.items())
    wanted = {"in 10": 10, "in 1 %": count // 100}
    return {name: by_count[bisect_left(by_count, (many, ""))][1] for name, many in wanted.items()}


def _print_build(ledger: Ledger, peer: sqlite3.Connection, messages: int, *, is_anew: bool) -> None:
    if is_anew:
        started = time.process_time()
        ledger.rebuild(only="search")
        ours = time.process_time() - started
        started = time.process_time()
        peer.execute("insert into found (found) values ('rebuild')")
        theirs = time.process_time() - started
        print(f"built anew: {messages / ours:,.0f} messages/s; FTS5 {messages / theirs:,.0f}/s")
    settle(ledger)
    with store_of(ledger).snapshot() as snapshot:
        pages = snapshot.txn.stat(snapshot.tables.search)
    ours_bytes = (pages["branch_pages"] + pages["leaf_pages"] + pages["overflow_pages"]) * pages["psize"]
    (theirs_bytes,) = peer.execute("select sum(pgsize) from dbstat where name glob 'found_*'").fetchone()
    print(f"bytes of the index: {ours_bytes / 1e6:.1f} MB; FTS5 {theirs_bytes / 1e6:.1f} MB")


def _print_searches(
    ledger: Ledger, peer: sqlite3.Connection, queries: dict[str, str], chats: int, *, turns: int
) -> None:
    chat = chats // 2
    scopes: dict[str, tuple[dict[str, str], str]] = {
        "all": ({}, ""),
        "one user": ({"user_id": f"user-{chat // 20}"}, f"and m.chat / 20 = {chat // 20}"),
        "one chat": ({"chat_id": f"chat-{chat}"}, f"and m.chat = {chat}"),
    }
    print(f"{'ms':>10} {'query':>16} {'ours':>9} {'FTS5':>9}  FTS5/ours")
    for scope, (ours, theirs) in scopes.items():
        for name, query in queries.items():
            sides: dict[str, Callable[[], object]] = {
                "ours": partial(ledger.search, query, limit=20, **ours),  # type: ignore[arg-type]  # names of scopes
                "FTS5": partial(_ask, peer, _FIND.format(only=theirs), query),
            }
            least = {who: min(_spent(side) for _ in range(turns)) for who, side in sides.items()}
            ratio = least["FTS5"] / least["ours"]
            print(f"{scope:>10} {name:>16} {1e3 * least['ours']:9.3f} {1e3 * least['FTS5']:9.3f} {ratio:9.2f}")


def _ask(peer: sqlite3.Connection, statement: str, query: str) -> list[Any]:
    return [(json.dumps(text), rank, cut) for _, _, text, rank, cut in peer.execute(statement, (query,))]


def _spent(ask: Callable[[], object]) -> float:
    times = max(1, round(0.01 / max(_once(ask), 1e-6)))
    started = time.process_time()
    for _ in range(times):
        ask()
    return (time.process_time() - started) / times


def _once(ask: Callable[[], object]) -> float:
    started = time.perf_counter()
    ask()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
