"""Fuzzed: foreign files, with archives and databases among them."""

import gzip
import io
import sqlite3
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import msgspec
from tests.fuzz.fuzz_target import Bench, Maker, Target

import chatledger
from chatledger.domain.errors import DECODE_ERRORS
from chatledger.importers import read_chats, validate_chat, write_chats
from chatledger.infra.exchange.langgraph_savers import import_saver_file, is_saver_file

DATA: Final = Path(__file__).resolve().parents[1] / "data"


def zipped(content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", content)
    return stream.getvalue()


def exported() -> bytes:
    stream = io.BytesIO()
    write_chats(stream, read_chats(DATA / "oasst_messages.jsonl", on_problem=lambda _: None))
    return stream.getvalue()


def deepagents() -> bytes:
    """A file of @deepagents/context with one chat."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some.db"
        with closing(sqlite3.connect(path)) as database:
            database.executescript(
                """
                pragma page_size = 512;
                create table chats (id text, userId text, title text, metadata text, createdAt integer, updatedAt integer);
                create table messages (id text, chatId text, parentId text, name text, type text, data text, createdAt integer);
                create table branches (id text, chatId text, name text, headMessageId text, isActive integer, createdAt integer);
                create table checkpoints (id text, chatId text, name text, messageId text, createdAt integer);
                insert into chats values ('c', 'u', 't', '{"a": 1}', 1, 2);
                insert into messages values ('m', 'c', null, 'user', 'message', '"hello"', 1);
                insert into messages values ('n', 'c', 'm', 'assistant', 'message', '{"a": [1]}', 2);
                insert into branches values ('b', 'c', 'main', 'n', 1, 1);
                insert into checkpoints values ('k', 'c', 'here', 'm', 1);
                """
            )
            database.commit()
        return path.read_bytes()


@cache
def samples() -> dict[str, bytes]:
    """A file of each format, by the name of the format and how it is packed."""
    chatgpt = (DATA / "chatgpt_conversations.json").read_bytes()
    return {
        "chatgpt": chatgpt,
        "chatgpt zip": zipped(chatgpt),
        "oasst": (DATA / "oasst_trees.jsonl").read_bytes(),
        "oasst gz": gzip.compress((DATA / "oasst_messages.jsonl").read_bytes()),
        "chatledger": exported(),
        "deepagents": deepagents(),
    }


def read_file(path: Path, name: str | None) -> list[Any]:
    """The chats of a file, problems passed over."""
    return list(read_chats(path, format=name, on_problem=lambda _: None))


def _import(sample: str, bench: Bench) -> Target:
    """A file: it is read as what it seems to be, and as what it was; nothing is left beside it."""
    path = bench.folder / "some.file"
    kind = sample.partition(" ")[0]

    def read(raw: bytes) -> None:
        path.write_bytes(raw)
        chats: list[Any] = []
        try:
            chats = read_file(path, kind)
        finally:
            assert [one.name for one in path.parent.iterdir()] == [path.name], "nothing is left beside it"
            for chat in chats:
                validate_chat(chat)
        read_file(path, None)

    whole = samples()[sample]
    return Target([whole], read, max_bytes=2 * len(whole))


# Files of LangGraph's SqliteSaver


def saver_file(path: Path, checkpoint: Any, metadata: Any, write: Any, ids: tuple[Any, ...] = ("t", "", "1")) -> None:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            """
            pragma page_size = 512;
            create table checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata);
            create table writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value);
            """
        )
        database.execute(
            "insert into checkpoints values (?, ?, ?, null, 'msgpack', ?, ?)", (*ids, checkpoint, metadata)
        )
        database.execute("insert into writes values (?, ?, ?, 'task', 0, 'a', 'msgpack', ?)", (*ids, write))
        database.commit()


CHECKPOINT: Final = msgspec.msgpack.encode(
    {
        "v": 1,
        "id": "1",
        "channel_values": {"log": [{"n": number} for number in range(9)]},
        "channel_versions": {"log": 1},
    }
)


def take_in(path: Path) -> None:
    """Import the file of a saver into an empty ledger, which stays sound."""
    with chatledger.open("memory:") as ledger:
        try:
            import_saver_file(ledger, path)
        finally:
            assert ledger.verify().position == ledger.last_position()


def _saver(bench: Bench) -> Target:
    """A whole file."""
    path = bench.folder / "saver.db"
    saver_file(path, CHECKPOINT, b"{}", CHECKPOINT)
    sound = path.read_bytes()

    def read(raw: bytes) -> None:
        path.write_bytes(raw)
        is_saver_file(path)
        take_in(path)

    return Target([sound], read, max_bytes=len(sound))


def _saver_checkpoint(bench: Bench) -> Target:
    """A checkpoint in msgpack, which is put into a sound file."""
    path = bench.folder / "saver.db"

    def read(raw: bytes) -> None:
        saver_file(path, raw, b"{}", CHECKPOINT)
        take_in(path)

    return Target([CHECKPOINT], read, msgpack_at=0)


def _saver_row(bench: Bench) -> Target:
    """A list of msgpack: the columns that are put into a sound file."""
    path = bench.folder / "saver.db"

    def read(raw: bytes) -> None:
        try:
            checkpoint, metadata, write, *ids = msgspec.msgpack.decode(raw, type=list[Any])
            saver_file(path, checkpoint, metadata, write, tuple(ids))
        except (
            ValueError,
            *DECODE_ERRORS,
            TypeError,
            UnicodeError,
            OverflowError,
            sqlite3.Error,
        ):  # SQLite has no such values
            return
        take_in(path)

    sound = (CHECKPOINT, b'{"run_id": "r", "step": 1}', CHECKPOINT, "t", "", "1")
    return Target([msgspec.msgpack.encode(sound)], read, msgpack_at=0)


IMPORTS: Final[Mapping[str, Maker]] = {
    **{
        f"import-{sample.replace(' ', '-')}": partial(_import, sample)
        for sample in ("chatgpt", "chatgpt zip", "oasst", "oasst gz", "chatledger", "deepagents")
    },
    "import-saver": _saver,
    "import-saver-checkpoint": _saver_checkpoint,
    "import-saver-row": _saver_row,
}
