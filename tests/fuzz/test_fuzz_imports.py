"""
Foreign files: reading one gives chats and problems, or an error of ours, and the ledger stays as it was after an error.

`tests/infra/test_importers_damage.py` changes the values in the texts of such files; here files are changed as bytes, with
archives and databases among them.
"""

import gzip
import io
import sqlite3
import tempfile
import zipfile
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.fuzz_inputs import DEEP, WILD, any_edits, edited, nearly, odd_msgpack, only_ours

import chatledger
from chatledger import InvalidValueError
from chatledger.importers import read_chats, write_chats
from chatledger.infra.importers.langgraph_sqlite import import_saver_file, is_saver_file

DATA: Final = Path(__file__).resolve().parents[1] / "data"
FEW = settings(max_examples=30, deadline=None)


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


CHATGPT: Final = (DATA / "chatgpt_conversations.json").read_bytes()
SAMPLES: Final = {
    "chatgpt": CHATGPT,
    "chatgpt zip": zipped(CHATGPT),
    "oasst": (DATA / "oasst_trees.jsonl").read_bytes(),
    "oasst gz": gzip.compress((DATA / "oasst_messages.jsonl").read_bytes()),
    "chatledger": exported(),
    "deepagents": deepagents(),
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files") / "some.file"


def read(path: Path, name: str | None) -> list[Any]:
    return list(read_chats(path, format=name, on_problem=lambda _: None))


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_damaged_file(name: str, file: Path) -> None:
    kind = name.partition(" ")[0]
    file.write_bytes(SAMPLES[name])
    assert read(file, None), "the sample itself is read"

    @given(raw=nearly([SAMPLES[name]]) | st.sampled_from(WILD), is_named=st.booleans())
    @FEW
    def check(raw: bytes, *, is_named: bool) -> None:
        file.write_bytes(raw)
        only_ours(lambda: read(file, kind if is_named else None))
        assert {path.name for path in file.parent.iterdir()} == {file.name}, "nothing is left beside it"

    check()


@pytest.mark.parametrize("name", ["chatgpt", "oasst", "chatledger"])
def test_what_is_read_is_imported_or_refused_as_a_whole(name: str, file: Path) -> None:
    @given(raw=nearly([SAMPLES[name]]))
    @settings(max_examples=15, deadline=None)
    def check(raw: bytes) -> None:
        file.write_bytes(raw)
        with chatledger.open("memory:") as ledger:
            for chat in only_ours(lambda: read(file, name)) or []:
                before = ledger.last_position()
                if only_ours(partial(ledger.import_chat, chat)) is None:
                    assert ledger.last_position() == before
            assert ledger.verify().position == ledger.last_position()

    check()


# Files of LangGraph's SqliteSaver


def saver_file(path: Path, checkpoint: Any, metadata: Any, write: Any, ids: tuple[Any, ...] = ("t", "", "1")) -> None:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            """
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


@given(
    checkpoint=st.just(CHECKPOINT) | nearly([CHECKPOINT]) | odd_msgpack([CHECKPOINT]),
    metadata=st.just(b"{}") | nearly([b'{"run_id": "r", "step": 1}']) | st.sampled_from([None, 7, "text", b"[]"]),
    write=nearly([CHECKPOINT]) | odd_msgpack([CHECKPOINT]) | st.sampled_from([None, 7, "text", 1.5]),
    ids=st.just(("t", "", "1"))
    | st.tuples(*(st.sampled_from(["t", "", None, 7, b"\xff", "x" * 3000, "\0", 1.5]),) * 3),
)
@settings(max_examples=40, deadline=None)
def test_rows_of_a_saver(checkpoint: bytes, metadata: Any, write: Any, ids: tuple[Any, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder, chatledger.open("memory:") as ledger:
        path = Path(folder) / "saver.db"
        saver_file(path, checkpoint, metadata, write, ids)
        only_ours(lambda: import_saver_file(ledger, path))
        assert ledger.verify().position == ledger.last_position()


def test_a_damaged_file_of_a_saver(file: Path) -> None:
    saver_file(file, CHECKPOINT, b"{}", CHECKPOINT)
    sound = file.read_bytes()

    @given(edits=any_edits)  # the bytes themselves are too many to be shown
    @FEW
    def check(edits: Any) -> None:
        file.write_bytes(edited(sound, edits))
        is_saver_file(file)
        with chatledger.open("memory:") as ledger:
            only_ours(lambda: import_saver_file(ledger, file))

    check()


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a"], ids=["lists", "objects"])
def test_deep_values_of_a_saver_are_refused(opening: bytes, file: Path) -> None:
    deep = opening * DEEP + b"\xc0"
    with chatledger.open("memory:") as ledger:
        saver_file(file, CHECKPOINT, b"{}", deep)
        with pytest.raises(InvalidValueError, match="cannot be read"):
            import_saver_file(ledger, file)
        saver_file(file, CHECKPOINT, b"[" * DEEP, deep)
        with pytest.raises(InvalidValueError, match="cannot be read"):
            import_saver_file(ledger, file)
