"""Encrypted ledgers: nothing in clear on the disk, wrong keys and altered records are found, keys can be changed."""

# White-box: stored records and the folders of indexes are looked at.
# pyright: reportPrivateUsage=false, reportUnusedImport=false

import asyncio
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli_world import finish, start
from tests.support.encrypted_world import KEY, SECRETS, found_in, in_memory  # noqa: F401 - a fixture
from tests.support.foreign_world import by_hand
from tests.support.jetstream_world import TOKEN, running
from tests.support.ledger_world import check_chat, store_behind, texts

import chatledger
from chatledger import (
    AsyncContextEngine,
    ConfigurationError,
    ContextEngine,
    CorruptStateError,
    Encryption,
    Ledger,
    user,
)
from chatledger.errors import LogRegressedError
from chatledger.infra.store.opening import STREAM
from chatledger.infra.store.opening.encryption import index_folder
from chatledger.infra.store.opening.options import Compression

pytestmark = pytest.mark.usefixtures("in_memory")

ENCRYPTION = Encryption(KEY)
OTHER_SAME_ID = Encryption(Encryption.new_key("k1"))
OTHER = Encryption(Encryption.new_key("k2"))


def fill(ledger: Ledger) -> None:
    """Write every secret of `SECRETS`."""
    with ledger.context(actor=SECRETS["actor"]):
        ledger.create_chat("c", SECRETS["user"], title=SECRETS["title"], metadata={"menu": SECRETS["metadata"]})
        (message,) = ledger.append("c", [user(SECRETS["message"])])
        ledger.create_branch("c", SECRETS["branch"], message.id)
        ledger.set_checkpoint("c", SECRETS["checkpoint"], message.id)
        ledger.append("c", [user(f"{SECRETS['message']} again " * 50)])


def check_filled(ledger: Ledger) -> None:
    """Everything reads as it was written."""
    assert texts(ledger, "c")[0] == SECRETS["message"]
    assert len(ledger.search("swordfish")) == 2
    check_chat(ledger, "c")


@pytest.fixture(params=["path", "sqlite"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    (tmp_path / "desk").mkdir()
    place = tmp_path / "desk" / "ledger"
    return str(place) if request.param == "path" else f"sqlite:///{place}.db"


# GS-24, and scenario 8: nothing in clear


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_nothing_stands_in_clear(location: str, tmp_path: Path, compression: Compression) -> None:
    """While it is open, after it is closed, after a rebuild and a reading, no file and no file name holds any content."""
    with chatledger.open(location, encryption=ENCRYPTION, compression=compression) as ledger:
        fill(ledger)
        assert found_in(tmp_path) == set()
    with chatledger.open(location, encryption=ENCRYPTION, compression=compression) as ledger:
        ledger.rebuild()
        check_filled(ledger)
        assert found_in(tmp_path) == set()
    assert found_in(tmp_path) == set()


def test_in_clear_it_does_stand_there(location: str, tmp_path: Path) -> None:
    """The search for secrets finds them where there is no encryption."""
    with chatledger.open(location) as ledger:
        fill(ledger)

    assert found_in(tmp_path) == set(SECRETS)


def test_what_the_stream_shows(tmp_path: Path) -> None:
    """Subjects and headers of an encrypted stream name chats, versions, kinds and ids of events, and nothing else."""
    with chatledger.open(tmp_path / "data", encryption=ENCRYPTION) as ledger:
        fill(ledger)
        event_ids = [recorded.event_id for recorded in ledger.history()]

    async def read(js: Any) -> list[tuple[str, dict[str, str], bytes]]:
        messages = [await js.get_msg(STREAM, seq) for seq in range(1, len(event_ids) + 1)]
        return [(message.subject, dict(message.headers), message.data) for message in messages]

    stored = by_hand(tmp_path / "data", read)
    assert [headers["Nats-Msg-Id"] for _, headers, _ in stored] == event_ids
    for subject, headers, data in stored:
        assert data.startswith(b"\xc1E\x02k1")
        shown = f"{subject} {headers}"
        assert not [what for what, secret in SECRETS.items() if secret in shown]


def test_the_memory_log_and_its_index(in_memory: Path) -> None:  # noqa: F811 - the fixture
    """A ledger in memory keeps its index in memory too, and takes it away."""
    with chatledger.open("memory:", encryption=ENCRYPTION) as ledger:
        fill(ledger)
        check_filled(ledger)
        assert store_behind(ledger).index._generations.root.is_relative_to(in_memory)
        stored = store_behind(ledger).log._recorder.select_notifications(0, 10)
        assert all(record.state.startswith(b"\xc1E\x02k1") for record in stored)

    assert [path for path in in_memory.rglob("*") if path.is_file()] == []


def test_a_postgres_log(new_postgres_database: Callable[[], str]) -> None:
    location = new_postgres_database()
    with chatledger.open(location, encryption=ENCRYPTION, compression="zstd") as ledger:
        fill(ledger)
        check_filled(ledger)
    with pytest.raises(CorruptStateError):
        chatledger.open(location, encryption=OTHER)


# GS-25, GS-26: keys


@pytest.mark.matrix
@pytest.mark.parametrize("other", [OTHER, OTHER_SAME_ID], ids=["another id", "the same id"])
@pytest.mark.parametrize("has_index", [True, False])
def test_another_key(location: str, other: Encryption, in_memory: Path, *, has_index: bool) -> None:  # noqa: F811 - the fixture
    """Scenario 8: with another key nothing opens, whether or not the index is there already."""
    with chatledger.open(location, encryption=ENCRYPTION) as ledger:
        fill(ledger)
    if not has_index:
        shutil.rmtree(in_memory)
        in_memory.mkdir()
    with pytest.raises(CorruptStateError, match="key 'k") as caught:
        chatledger.open(location, encryption=other)

    assert not [what for what, secret in SECRETS.items() if secret in str(caught.value)]
    with chatledger.open(location, encryption=ENCRYPTION) as ledger:
        check_filled(ledger)


def test_no_key(location: str) -> None:
    """An encrypted log without a key: what to do, and no index is made of it."""
    with chatledger.open(location, encryption=ENCRYPTION) as ledger:
        fill(ledger)
    with pytest.raises(ConfigurationError, match="Open it with its key"):
        chatledger.open(location)


def test_a_key_for_a_log_in_clear(location: str) -> None:
    """Clear text is not taken for what was encrypted."""
    with chatledger.open(location) as ledger:
        fill(ledger)
    with pytest.raises(ConfigurationError, match="not encrypted"):
        chatledger.open(location, encryption=ENCRYPTION)
    with chatledger.open(location) as ledger:
        check_filled(ledger)


@pytest.mark.parametrize("place", ["path", "sqlite", "memory:"])
def test_a_missing_key_makes_nothing(tmp_path: Path, place: str) -> None:
    """Scenario 8: encryption without a key is refused before anything is made."""
    locations = {"path": str(tmp_path / "data"), "sqlite": f"sqlite:///{tmp_path}/ledger.db"}
    with pytest.raises(ConfigurationError, match="there is no key"):
        chatledger.open(locations.get(place, place), encryption=Encryption(lambda: ""))

    assert list(tmp_path.iterdir()) == []


def test_changing_the_key(location: str) -> None:
    """New records use the first key; old ones stay readable as long as theirs is given, and its absence is named."""
    new = Encryption.new_key("k2")
    with chatledger.open(location, encryption=ENCRYPTION) as ledger:
        fill(ledger)
    with chatledger.open(location, encryption=Encryption([new, KEY])) as ledger:
        ledger.append("c", [user("with the new key")])
        check_filled(ledger)
        states = [record.state for record in store_behind(ledger).log._recorder.select_notifications(0, 100)]
        assert [state[3:5] for state in states] == [b"k1"] * (len(states) - 1) + [b"k2"]
    with chatledger.open(location, encryption=Encryption([KEY, new])) as ledger:
        ledger.rebuild()
        assert texts(ledger, "c")[-1] == "with the new key"
    for keys, missing in ((new, "k1"), (KEY, "k2")):
        with pytest.raises(CorruptStateError, match=f"needs the key '{missing}', which was not given"):
            chatledger.open(location, encryption=Encryption(keys))


def test_keys_from_a_function(location: str) -> None:
    """It is asked once for every ledger that is opened."""
    asked: list[int] = []

    def keys() -> list[str]:
        asked.append(1)
        return [KEY]

    encryption = Encryption(keys)
    assert asked == []
    for _ in range(2):
        with chatledger.open(location, encryption=encryption) as ledger:
            ledger.upsert_chat("c", "u")
    assert asked == [1, 1]


def test_one_process_with_different_keys(location: str) -> None:
    """Who does not have the keys does not get at a ledger that is open with them in the same process."""
    with chatledger.open(location, encryption=ENCRYPTION) as ledger:
        fill(ledger)
        for other in (None, OTHER, OTHER_SAME_ID):
            with pytest.raises(ConfigurationError, match="open in this process with other encryption keys"):
                chatledger.open(location, encryption=other)
        with chatledger.open(location, encryption=Encryption([KEY])) as second:
            check_filled(second)
        check_filled(ledger)


# GS-26, and scenario 9: altered and moved records


def _rows(path: Path) -> list[tuple[int, bytes]]:
    with sqlite3.connect(path) as connection:
        return connection.execute("SELECT rowid, state FROM stored_events ORDER BY rowid").fetchall()


def _set_row(path: Path, rowid: int, state: bytes) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE stored_events SET state = ? WHERE rowid = ?", (state, rowid))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An SQLite log with an encrypted chat of five events and another one."""
    path = tmp_path / "ledger.db"
    with chatledger.open(f"sqlite:///{path}", encryption=ENCRYPTION) as ledger:
        fill(ledger)
        ledger.create_chat("d", SECRETS["user"])
        ledger.append("d", [user("of another chat")])
    return path


@pytest.mark.parametrize(("source", "target"), [(2, 5), (7, 2), (1, 6)], ids=["version", "chat", "first"])
def test_a_record_in_another_place(file: Path, source: int, target: int) -> None:
    """Scenario 9: a ciphertext that is copied to another version or chat is not taken there."""
    states = dict(_rows(file))
    _set_row(file, target, states[source])
    with (
        pytest.raises(CorruptStateError, match="belongs elsewhere"),
        chatledger.open(f"sqlite:///{file}", encryption=ENCRYPTION) as ledger,
    ):
        ledger.rebuild()


def test_clear_text_in_between(file: Path, tmp_path: Path) -> None:
    """A record in clear, though a proper one, is refused in an encrypted log."""
    with chatledger.open(f"sqlite:///{file}", encryption=ENCRYPTION) as ledger:
        mapper = store_behind(ledger).log._mapper
        second = list(ledger.history())[1]
        plain = type(mapper)(mapper.transcoder).to_stored_event(second.event)
    _set_row(file, 2, plain.state)
    with (
        pytest.raises(CorruptStateError, match="clear text is not accepted"),
        chatledger.open(f"sqlite:///{file}", encryption=ENCRYPTION) as ledger,
    ):
        ledger.rebuild()


def test_errors_and_logs_name_no_content(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """GS-20: a damaged record is told by its chat and version."""
    state = bytearray(dict(_rows(file))[2])
    state[-1] ^= 1
    _set_row(file, 2, bytes(state))
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(CorruptStateError, match="event 2 of chat 'c'") as caught,
        chatledger.open(f"sqlite:///{file}", encryption=ENCRYPTION) as ledger,
    ):
        ledger.rebuild()
    shown = f"{caught.value!r} {caught.getrepr(style='long', showlocals=False)} {caplog.text}"
    assert not [what for what, secret in SECRETS.items() if secret in shown]
    assert KEY.partition(":")[2] not in shown


# The index


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder that is not in memory, as that of other tests may be."""
    with tempfile.TemporaryDirectory(prefix="chatledger-test-", dir="/var/tmp") as folder:
        yield Path(folder)


def test_an_index_on_a_disk_must_be_wanted(location: str, tmp_path: Path, on_disk: Path) -> None:
    """GS-27: where the index of an encrypted log lies is never left to chance."""
    index = on_disk / "index"
    with pytest.raises(ConfigurationError, match="holds its messages in clear"):
        chatledger.open(location, encryption=ENCRYPTION, index=index)
    with pytest.raises(ConfigurationError, match="needs index=folder"):
        chatledger.open(location, encryption=Encryption(KEY, index_at_rest="plain"))
    assert list((tmp_path / "desk").iterdir()) == []
    assert list(on_disk.iterdir()) == []

    with chatledger.open(location, encryption=Encryption(KEY, index_at_rest="plain"), index=index) as ledger:
        fill(ledger)
        check_filled(ledger)
        assert store_behind(ledger).scratch.base == index
    assert found_in(index) >= {"message", "title"}
    assert found_in(tmp_path / "desk") == set()


def test_an_index_in_memory_by_name(location: str, in_memory: Path, tmp_path: Path) -> None:  # noqa: F811 - the fixture
    with chatledger.open(location, encryption=ENCRYPTION, index=in_memory / "mine") as ledger:
        fill(ledger)
        assert store_behind(ledger).scratch.base == in_memory / "mine"

    assert found_in(tmp_path) == set()
    assert (in_memory / "mine" / "CURRENT").exists()


def test_the_index_is_shared_and_private(location: str, in_memory: Path) -> None:  # noqa: F811 - the fixture
    """It stays for the next process of the same user, and only for that user."""
    with chatledger.open(location, encryption=ENCRYPTION) as ledger:
        fill(ledger)
        folder = index_folder(store_behind(ledger).log.identity)
    assert folder.is_relative_to(in_memory)
    assert (folder / "CURRENT").read_text() == "1\n"
    assert {oct(path.stat().st_mode & 0o077) for path in (folder, folder.parent)} == {"0o0"}
    with chatledger.open(location, encryption=ENCRYPTION) as ledger:
        check_filled(ledger)
    assert (folder / "CURRENT").read_text() == "1\n"


@pytest.mark.soak
@pytest.mark.parametrize("how", ["deleted", "made anew"])
def test_the_index_of_a_ledger_that_is_gone_is_removed(tmp_path: Path, in_memory: Path, how: str) -> None:  # noqa: F811 - the fixture
    """It holds messages in clear, so the next ledger that is opened removes it; not while somebody has it open."""
    gone, kept = tmp_path / "gone", tmp_path / "kept"
    for place in (gone, kept):
        with chatledger.open(place, encryption=ENCRYPTION) as ledger:
            fill(ledger)
    assert len(folders_in(in_memory)) == 2

    with chatledger.open(gone, encryption=ENCRYPTION) as ledger:
        shutil.move(gone / "witness", tmp_path / "moved")
        with chatledger.open(kept, encryption=ENCRYPTION) as other:
            check_filled(other)
        check_filled(ledger)
        shutil.move(tmp_path / "moved", gone / "witness")
    assert len(folders_in(in_memory)) == 2

    shutil.rmtree(gone)
    if how == "made anew":
        with chatledger.open(gone, encryption=ENCRYPTION) as ledger:
            fill(ledger)
    with chatledger.open(kept, encryption=ENCRYPTION) as ledger:
        check_filled(ledger)
        (folder,) = {index_folder(store_behind(ledger).log.identity)}

    assert folder in folders_in(in_memory)
    assert len(folders_in(in_memory)) == (2 if how == "made anew" else 1)


def folders_in(memory: Path) -> set[Path]:
    return {path.parent for path in memory.rglob("CURRENT")}


def test_a_restart_of_the_machine(location: str, in_memory: Path) -> None:  # noqa: F811 - the fixture
    """The index is built again from the log."""
    with chatledger.open(location, encryption=ENCRYPTION) as ledger:
        fill(ledger)
    shutil.rmtree(in_memory)
    in_memory.mkdir()
    with chatledger.open(location, encryption=ENCRYPTION) as ledger:
        check_filled(ledger)


def test_an_older_log_after_a_restart_of_the_machine(tmp_path: Path, in_memory: Path) -> None:  # noqa: F811 - the fixture
    """PS-24: a log that lost its end is noticed although the index that had seen it is gone too."""
    location, older = f"sqlite:///{tmp_path}/ledger.db", tmp_path / "older"
    with chatledger.open(location, encryption=ENCRYPTION) as ledger:
        fill(ledger)
    shutil.copy(tmp_path / "ledger.db", older)
    with chatledger.open(location, encryption=ENCRYPTION) as ledger:
        ledger.append("c", [user("acknowledged")])
    shutil.rmtree(in_memory)
    in_memory.mkdir()
    shutil.copy(older, tmp_path / "ledger.db")
    for _ in range(2):
        with pytest.raises(LogRegressedError, match="position 6 was already seen"):
            chatledger.open(location, encryption=ENCRYPTION)


def test_deleting_a_chat(location: str, tmp_path: Path, in_memory: Path) -> None:  # noqa: F811 - the fixture
    """An erasure takes the content from the index in memory as well, and the rest stays readable."""
    with chatledger.open(location, encryption=ENCRYPTION) as ledger:
        fill(ledger)
        ledger.create_chat("d", "u")
        ledger.append("d", [user("stays")])
        before = sum(1 for _ in ledger.history())
        assert ledger.delete_chat("c")
        assert sum(1 for _ in ledger.history()) == before - 5 + 1
        ledger.rebuild()
        assert texts(ledger, "d") == ["stays"]
    with chatledger.open(location, encryption=ENCRYPTION) as ledger:
        assert ledger.get_chat("c") is None
        assert texts(ledger, "d") == ["stays"]
    assert found_in(tmp_path) | found_in(in_memory) == set()


# The command line


@pytest.mark.soak
def test_the_command_line(tmp_path: Path) -> None:
    """The key comes from the environment; without it, and with another one, the verbs say so."""
    data = tmp_path / "data"
    with chatledger.open(data, encryption=ENCRYPTION) as ledger:
        fill(ledger)

    def show(**environment: str) -> tuple[int, str, str]:
        return finish(start("--location", str(data), "show", "c", start_new_session=False, **environment))

    code, out, err = show(CHATLEDGER_ENCRYPTION_KEY=KEY)
    assert (code, err) == (0, "")
    assert SECRETS["message"] in out
    refused = {
        "Open it with its key": show(),
        "is not set": show(CHATLEDGER_ENCRYPTION_KEY=""),
        "needs the key 'k1'": show(CHATLEDGER_ENCRYPTION_KEY=Encryption.new_key("k2")),
        "number 1 is malformed": show(CHATLEDGER_ENCRYPTION_KEY="swordfish"),
    }
    for reason, (code, out, err) in refused.items():
        assert (code, out) == (1, "")
        assert reason in err
        assert "swordfish" not in err
        assert err.count("\n") == 1


def test_the_key_stays_in_this_process(
    in_memory: Path,  # noqa: F811 - the fixture
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server that a directory starts is given the key neither as an argument nor in its environment nor in a file."""
    monkeypatch.setenv("CHATLEDGER_ENCRYPTION_KEY", KEY)
    secret = KEY.partition(":")[2].encode()
    with chatledger.open(tmp_path / "data", encryption=Encryption.from_environment()) as ledger:
        fill(ledger)
        servers = 0
        for process in Path("/proc").glob("[0-9]*"):
            try:
                arguments, environment = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
            except OSError:
                continue
            assert secret not in arguments
            assert secret not in environment
            servers += str(tmp_path / "data").encode() in arguments
        assert servers == 1
        for folder in (tmp_path, in_memory):
            assert not [file for file in folder.rglob("*") if file.is_file() and secret in file.read_bytes()]


# What is derived from an encrypted log for a while


def test_an_engine_to_try_things_with(tmp_path: Path, in_memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811 - the fixture
    """A forked context engine keeps what it saves in memory too."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with (
        chatledger.open(tmp_path / "data", encryption=ENCRYPTION) as ledger,
        ContextEngine(ledger, "c", "u").fork() as engine,
    ):
        engine.set(user(SECRETS["message"])).save()
        assert found_in(tmp_path) == set()
        assert found_in(in_memory) == {"message"}
    assert found_in(in_memory) == set()


async def _try_things(data: Path) -> None:
    async with (
        chatledger.open_async(data, encryption=ENCRYPTION) as ledger,
        AsyncContextEngine(ledger, "c", "u").fork() as engine,
    ):
        await engine.set(user(SECRETS["message"])).save()


def test_an_async_engine_to_try_things_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    asyncio.run(_try_things(tmp_path / "data"))

    assert found_in(tmp_path) == set()


def test_time_travel_and_proof(location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views of the past and the check of a whole log leave nothing on the disk."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    folders: list[str] = []
    real: Any = tempfile.mkdtemp

    def watched(*args: Any, **kwargs: Any) -> str:
        folder: str = real(*args, **kwargs)
        folders.append(folder)
        return folder

    monkeypatch.setattr("tempfile.mkdtemp", watched)
    with chatledger.open(location, encryption=ENCRYPTION) as ledger:
        fill(ledger)
        with ledger.as_of(2) as view:
            assert [message.text for message in view.get_messages("c")] == [SECRETS["message"]]
            assert found_in(tmp_path) == set()
        ledger.verify()
    assert found_in(tmp_path) == set()
    assert folders
    assert not [folder for folder in folders if Path(folder).is_relative_to(tmp_path)]


# Several processes, and servers elsewhere


def test_a_stream_of_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is in memory, the witness in the user's cache, and the server's files hold no content."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with running(tmp_path / "server") as server:
        location = f"nats://{TOKEN}@127.0.0.1:{server.port}/secrets"
        with chatledger.open(location, encryption=ENCRYPTION, create=True) as ledger:
            fill(ledger)
        with pytest.raises(CorruptStateError):
            chatledger.open(location, encryption=OTHER)
        with chatledger.open(location, encryption=ENCRYPTION) as ledger:
            check_filled(ledger)
    assert found_in(tmp_path) == set()
    assert [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()] == ["1"]


WRITER = """
import sys
import chatledger
with chatledger.open(sys.argv[1], encryption=chatledger.Encryption.from_environment()) as ledger:
    for number in range(20):
        ledger.append("c", [chatledger.user(f"{sys.argv[2]} {number}")])
"""


@pytest.mark.soak
def test_several_processes(location: str, tmp_path: Path) -> None:
    """They share the log and the index in memory."""
    with chatledger.open(location, encryption=ENCRYPTION) as ledger:
        fill(ledger)
        environment = os.environ | {"CHATLEDGER_ENCRYPTION_KEY": KEY}
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, location, name], env=environment) for name in ("a", "b")
        ]
        for writer in writers:
            assert writer.wait(60) == 0
        ledger.sync()
        assert len(ledger.get_messages("c")) == 42
        check_chat(ledger, "c")
    assert found_in(tmp_path) == set()


def test_a_witness_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was acknowledged stays so; the log of the program says what is missing."""
    (tmp_path / "ledger.db-witness").write_text("in the way")
    location = f"sqlite:///{tmp_path}/ledger.db"
    with chatledger.open(location, encryption=ENCRYPTION) as ledger:
        fill(ledger)
    assert "cannot be written" in caplog.text
    with chatledger.open(location, encryption=ENCRYPTION) as ledger:
        check_filled(ledger)
