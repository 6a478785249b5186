"""Transcripts of a coding agent: what they take on the disk and of the processor, and how fast one is read."""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from functools import partial
from typing import Any

import chatledger
from chatledger import Ledger, NewMessage
from chatledger.infra.exchange.agents.every import AGENTS
from chatledger.infra.exchange.agents.following import exported
from chatledger.infra.exchange.agents.keeping import AgentFiles, Keeper

from ..measure import Row, bytes_on_disk, check_equal
from ..transcripts import ENTRIES, text_of, transcript
from ..world import World

Entries = Sequence[dict[str, Any]]

_LAST = 50
_SCHEMA = """
pragma journal_mode = wal;
pragma synchronous = full;
create table entries (number integer primary key, session text not null, id text not null unique, entry text not null);
create index entries_of_session on entries (session, number);
create virtual table words using fts5(content, content = '', tokenize = 'porter unicode61');
"""


def transcripts(world: World) -> Iterator[Row]:
    """Imports of transcripts, one commit each, next to a row of JSON for each entry and an index of their words."""
    sessions = [list(transcript(seed)) for seed in range(world.sizes.transcripts)]
    count = len(sessions) * ENTRIES
    raw = sum(len(json.dumps(entry, ensure_ascii=False).encode()) + 1 for entries in sessions for entry in entries)
    world.report("transcripts")
    folder = world.folder()
    samples: dict[str, list[float]] = {"ours": [], "theirs": []}
    with (
        chatledger.open(folder / "ledger", durability="always") as ledger,
        closing(sqlite3.connect(folder / "peer.db", isolation_level=None)) as peer,
    ):
        peer.executescript(_SCHEMA)
        for entries in sessions:
            samples["ours"].append(_spent(partial(_add_ours, ledger, entries)))
            samples["theirs"].append(_spent(partial(_add_theirs, peer, entries)))
        chat_id = sessions[0][0]["sessionId"]
        for limit in (ENTRIES, _LAST):
            ours, theirs = partial(_read_ours, ledger, chat_id, limit), partial(_read_theirs, peer, chat_id, limit)
            check_equal("transcripts", ours(), theirs())
            yield world.compare(
                ours,
                theirs,
                subject="transcripts",
                name=f"read the last {limit} entries of a transcript"
                if limit < ENTRIES
                else f"read a transcript of {limit} entries",
                note="as the objects that were written",
            )
        peer.execute("pragma wal_checkpoint(truncate)")
    name = f"{len(sessions)} transcripts of {ENTRIES} entries, {raw / 1e6:.1f} MB of JSON"
    yield Row(
        subject="transcripts",
        name=f"processor time of {name}",
        peer="SQLite with FTS5",
        show="rate",
        ours=[seconds / ENTRIES for seconds in samples["ours"]],
        theirs=[seconds / ENTRIES for seconds in samples["theirs"]],
        note="one commit each; that of the process that writes, without our server's; a third are results of tools of 8 to 16 KB",
    )
    sizes = {what: bytes_on_disk(folder / "ledger" / what) for what in ("log", "index")}
    for beside, size in (("SQLite with FTS5", bytes_on_disk(folder / "peer.db")), ("lines of JSON", raw)):
        yield Row(
            subject="transcripts",
            name=f"bytes on disk for {name}",
            peer=beside,
            show="bytes",
            ours=[float(sum(sizes.values()))],
            theirs=[float(size)],
            note=f"closed: log {sizes['log'] / raw:.2f} and index {sizes['index'] / raw:.2f} times the JSON, {count:,} entries; both can be searched",
        )
    yield from _files_kept(world, sessions)


def _files_kept(world: World, sessions: Sequence[Entries]) -> Iterator[Row]:
    """The same as files of Claude Code, which `chatledger keep` reads: what they take, and what looking again takes."""
    folder = world.folder()
    files = folder / "home" / ".claude" / "projects" / "-home-ada-project"
    files.mkdir(parents=True)
    for entries in sessions:
        lines = "".join(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n" for entry in entries)
        (files / f"{entries[0]['sessionId']}.jsonl").write_text(lines, encoding="utf-8")
    raw = sum(file.stat().st_size for file in files.iterdir())
    sources = [AgentFiles(agent, agent.roots({}, folder / "home")) for agent in AGENTS.values()]
    with chatledger.open(folder / "ledger", durability="fast") as ledger:
        keeper = Keeper(sources, lambda: nullcontext(ledger), user="ada")
        keeper.once()
        for entries in sessions:
            session = entries[0]["sessionId"]
            own = (files / f"{session}.jsonl").read_bytes()
            check_equal("transcripts", _kept(ledger, session), own)
        yield world.compare(
            keeper.once,
            lambda: [file.stat() for file in files.iterdir()],
            subject="transcripts",
            name=f"keep {len(sessions)} files again that have nothing new",
            peer="their sizes",
            note="each file is looked at, none is read",
        )
    sizes = {what: bytes_on_disk(folder / "ledger" / what) for what in ("log", "index")}
    yield Row(
        subject="transcripts",
        name=f"bytes on disk for {len(sessions)} files of Claude Code, kept byte for byte",
        peer="the files",
        show="bytes",
        ours=[float(sum(sizes.values()))],
        theirs=[float(raw)],
        note=f"closed: log {sizes['log'] / raw:.2f} and index {sizes['index'] / raw:.2f} times the files; each comes back equal",
    )


def _kept(ledger: Ledger, session: str) -> bytes:
    chat = ledger.get_chat(f"claude/-home-ada-project/{session}")
    return b"" if chat is None else exported(ledger, chat, AGENTS["claude-code"])


def _add_ours(ledger: Ledger, entries: Entries) -> None:
    chat_id = entries[0]["sessionId"]
    ledger.create_chat(chat_id, "ada")
    ledger.append(chat_id, [NewMessage(entry["type"], entry, id=entry["uuid"]) for entry in entries])


def _add_theirs(peer: sqlite3.Connection, entries: Entries) -> None:
    peer.execute("begin immediate")
    for entry in entries:
        row = entry["sessionId"], entry["uuid"], json.dumps(entry, ensure_ascii=False)
        number = peer.execute("insert into entries (session, id, entry) values (?, ?, ?)", row).lastrowid
        peer.execute("insert into words (rowid, content) values (?, ?)", (number, text_of(entry)))
    peer.execute("commit")


def _read_ours(ledger: Ledger, chat_id: str, limit: int) -> list[Any]:
    return [message.data for message in ledger.get_messages(chat_id, limit=limit)]


def _read_theirs(peer: sqlite3.Connection, chat_id: str, limit: int) -> list[Any]:
    rows = peer.execute("select entry from entries where session = ? order by number desc limit ?", (chat_id, limit))
    return [json.loads(entry) for (entry,) in rows][::-1]


def _spent(run: Callable[[], None]) -> float:
    """Return the processor time that a call takes in this process."""
    begun = time.process_time()
    run()
    return time.process_time() - begun
