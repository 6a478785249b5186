"""
Your own conversations in a ledger and in a SQLite file, and the same questions to both, in turns: python -m benchmarks.own FILE

In SQLite they are a table of messages with their parents, a recursive query for chains, and FTS5 for search.
"""

import argparse
import gc
import random
import sqlite3
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

import chatledger
from chatledger import Ledger
from chatledger.domain.chat.interchange import ImportedBranch, ImportedChat, ImportedMessage
from chatledger.domain.errors import ChatledgerError, CorruptStateError, InvalidValueError
from chatledger.domain.values import NewMessage
from chatledger.infra.exchange.readers import read_chats

from .report import format_samples

_REPEATS: Final = 5
_APPENDS: Final = 50
_TAIL: Final = 50
_HITS: Final = 10
_SAMPLE_S: Final = 0.02
_MIN_WORD: Final = 4


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """
    One operation of both.

    Args:
        name: What was done.
        ours_s, theirs_s: Samples in seconds, for one operation, in the order they were taken.
    """

    name: str
    ours_s: list[float]
    theirs_s: list[float]

    @property
    def ratio(self) -> float:
        """Theirs over ours, of the medians: above 1 chatledger is ahead."""
        return statistics.median(self.theirs_s) / statistics.median(self.ours_s)


def compare_with_sqlite(
    chats: Sequence[ImportedChat],
    folder: Path,
    *,
    durability: Literal["always", "fast"] = "always",
) -> list[Comparison]:
    """
    Measure import, appends, chains, tails, search and rebuild in an empty folder. Whether chains are equal is checked.

    Raises:
        InvalidValueError: There is no message to measure with.
        CorruptStateError: Both gave different chains.
    """
    longest = max(chats, key=_length, default=None)
    if longest is None or not _length(longest):
        msg = "there is no chat with a message on its active branch to measure with; name another file"
        raise InvalidValueError(msg)
    with (
        chatledger.open(folder / "ledger", durability=durability) as ledger,
        closing(_SqliteChats(folder / "peer.db", is_synced=durability == "always")) as peer,
    ):
        return _BenchRun(ledger, peer).all(chats, longest, folder)


def _length(chat: ImportedChat) -> int:
    parents = {message.id: message.parent_id for message in chat.messages}
    at = next((branch.head_message_id for branch in chat.branches if branch.is_active), None)
    length = 0
    while at is not None:
        length, at = length + 1, parents[at]
    return length


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


class _SqliteChats:
    """A new file. If `is_synced`, each commit is on the disk when it returns."""

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
            texts.append((message.id, chat_id, message.text))
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


class _BenchRun:
    def __init__(self, ledger: Ledger, peer: _SqliteChats) -> None:
        self._ledger, self._peer = ledger, peer

    def all(self, chats: Sequence[ImportedChat], longest: ImportedChat, folder: Path) -> list[Comparison]:
        ledger, peer, chat_id = self._ledger, self._peer, longest.id
        total = sum(len(chat.messages) for chat in chats)
        length = _length(longest)
        found = [
            self._compare(
                f"import {total:,} messages in {len(chats):,} chats",
                lambda: _each(ledger.import_chat, chats),
                lambda: _each(peer.import_chat, chats),
                is_once=True,
            )
        ]
        self._check(chat_id)
        copies = iter(range(1 << 30))
        word = _word(longest)
        found += [
            self._compare(
                f"chain of {length:,} messages",
                lambda: ledger.get_messages(chat_id),
                lambda: peer.chain(chat_id),
            ),
            self._compare(
                f"last {min(_TAIL, length):,} of {length:,} messages",
                lambda: ledger.get_messages(chat_id, limit=_TAIL),
                lambda: peer.chain(chat_id, limit=_TAIL),
            ),
            self._compare(
                f"search the chat for {word!r}",
                lambda: ledger.search(word, chat_id=chat_id, limit=_HITS),
                lambda: peer.search(word, chat_id, _HITS),
            ),
            self._compare(
                "rebuild of the index; a copy of the file",
                ledger.rebuild,
                lambda: peer.copy_to(folder / f"copy-{next(copies)}.db"),
                is_long=True,
            ),
            self._appends(longest),
        ]
        return found

    def _appends(self, chat: ImportedChat) -> Comparison:
        chat_id, samples = chat.id, [message.data for message in chat.messages[-_APPENDS:]]
        drafts = [NewMessage("user", data) for data in samples]
        at = self._ledger.get_messages(chat_id, limit=1)[0].id
        heads = [at]

        def ours() -> None:
            for draft in drafts:
                self._ledger.append(chat_id, [draft])

        def theirs() -> None:
            for data in samples:
                message = ImportedMessage(id=str(uuid.uuid4()), parent_id=heads[-1], name="user", data=data)
                self._peer.append(chat_id, message)
                heads.append(message.id)

        found = self._compare("append of one message", ours, theirs, is_long=True)
        per = len(drafts)
        return Comparison(
            name=found.name,
            ours_s=[seconds / per for seconds in found.ours_s],
            theirs_s=[seconds / per for seconds in found.theirs_s],
        )

    def _check(self, chat_id: str) -> None:
        ours = [(message.id, message.data) for message in self._ledger.get_messages(chat_id)]
        if ours != [(row[0], row[4]) for row in self._peer.chain(chat_id)]:
            msg = f"the chains of chat {chat_id!r} are not equal in both, so their times are not compared"
            raise CorruptStateError(msg)

    def _compare(
        self,
        name: str,
        ours: Callable[[], object],
        theirs: Callable[[], object],
        *,
        is_once: bool = False,
        is_long: bool = False,
    ) -> Comparison:
        """Samples in turns; short calls are repeated until a sample takes long enough to be measured."""
        calls = (ours, theirs)
        counts = [1 if is_once or is_long else max(1, round(_SAMPLE_S / _sample(call, 1))) for call in calls]
        taken: tuple[list[float], list[float]] = ([], [])
        for turn in range(1 if is_once else _REPEATS):
            for who in (0, 1) if turn % 2 == 0 else (1, 0):
                taken[who].append(_sample(calls[who], counts[who]))
        return Comparison(name=name, ours_s=taken[0], theirs_s=taken[1])


def _each(call: Callable[[ImportedChat], object], chats: Sequence[ImportedChat]) -> None:
    for chat in chats:
        call(chat)


def _sample(call: Callable[[], object], times: int) -> float:
    gc.collect()  # nobody pays for the garbage of the other
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def _word(chat: ImportedChat) -> str:
    """A word of the chat to search for: the first one of some length, so both sides find it."""
    for message in chat.messages:
        for word in message.text.split():
            if len(word) >= _MIN_WORD and word.isalpha():
                return word.lower()
    return "the"


_START_MS: Final = 1_700_000_000_000
_TEXT: Final = """
the of and a to in question answer model memory branch rewind station Riga weather plan ticket because could maybe later again
between morning context token stream index river window seven
"""
_WORDS: Final = _TEXT.split()


def generated_chats(chats: int, messages: int) -> Iterator[ImportedChat]:
    """So many chats, each a chain of so many messages of about 200 bytes; always the same."""
    for number in range(chats):
        yield _chat(f"bench-{number:06}", messages, random.Random(number))


def _chat(chat_id: str, length: int, draw: random.Random) -> ImportedChat:
    messages: list[ImportedMessage] = []
    for number in range(length):
        role = "assistant" if number % 2 else "user"
        message_id = f"{chat_id}-{number:06}"
        text = " ".join(draw.choices(_WORDS, k=20))
        messages.append(
            ImportedMessage(
                id=message_id,
                parent_id=messages[-1].id if messages else None,
                name=role,
                data={"id": message_id, "role": role, "parts": [{"type": "text", "text": text}]},
                created_at=_START_MS + number,
            )
        )
    head = messages[-1].id if messages else None
    return ImportedChat(
        id=chat_id,
        user_id="bench",
        title=None,
        metadata=None,
        messages=tuple(messages),
        branches=(ImportedBranch(name="main", head_message_id=head, is_active=True),),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table: the median of each operation with its lowest and highest sample, and the ratio of SQLite's to ours."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.own", description=main.__doc__)
    parser.add_argument(
        "file", nargs="?", type=Path, help="of any format that 'chatledger import' reads; made up without it"
    )
    parser.add_argument("--durability", choices=("always", "fast"), default="always", help="on both sides")
    parser.add_argument("--folder", type=Path, help="whose disk is measured; the system's temporary folder by default")
    options = parser.parse_args(arguments)
    try:
        chats = list(generated_chats(20, 500) if options.file is None else read_chats(options.file, on_problem=print))
        with tempfile.TemporaryDirectory(prefix="chatledger-bench-", dir=options.folder) as folder:
            rows = compare_with_sqlite(chats, Path(folder), durability=options.durability)
    except (ChatledgerError, OSError) as error:
        sys.exit(str(error))
    print(f"{'':42} {'chatledger':>34} {'SQLite':>34} {'ratio':>8}")
    for row in rows:
        print(
            f"{row.name:42} {format_samples(row.ours_s, 'time'):>34} {format_samples(row.theirs_s, 'time'):>34} {row.ratio:7.2f}x"
        )


if __name__ == "__main__":
    main()
