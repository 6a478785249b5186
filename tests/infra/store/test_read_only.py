"""`open(read_only=True)`: the index alone is read, and whatever it may lack is said."""

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.backup_world import kill_a_writer, rot
from tests.support.jetstream_world import eventually

import chatledger
from chatledger import AccessDeniedError, ChatledgerError, ConfigurationError, Encryption, Ledger, user
from chatledger.errors import LogRegressedError
from chatledger.infra.log.nats_server.directory import OwnerLock

COUNT = 5
AT_ONCE = "this ledger was opened with read_only=True; nothing was written"
ON_THE_LOG = "answered from the log"


def located(kind: str, folder: Path) -> str:
    return str(folder / "data") if kind == "directory" else f"sqlite:///{folder / 'chats.db'}"


def filled(location: str, **options: Any) -> str:
    with chatledger.open(location, **options) as ledger:
        ledger.create_chat("free", "ada")
        ledger.create_chat("c", "ada")
        ledger.append("c", [user(f"number {number}", id=f"m{number}") for number in range(COUNT)])
        ledger.append("c", [user("large " + "b" * 300_000)])
        ledger.set_checkpoint("c", "begin", "m0")
        ledger.hold("user", "zoe", reason="a case")
    return location


@pytest.fixture(params=["directory", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return filled(located(request.param, tmp_path))


def reading(location: str, **options: Any) -> Ledger:
    return chatledger.open(location, read_only=True, **options)


def answer(ledger: Ledger) -> object:
    """Reads that an index answers."""
    return (
        [(chat.id, chat.user_id, chat.message_count) for chat in ledger.list_chats()],
        [message.text for message in ledger.get_messages("c")],
        [branch.name for branch in ledger.list_branches("c")],
        [hit.message.text for hit in ledger.search("number")],
        ledger.get_checkpoint("c", "begin"),
        ledger.get_context("c", "m1"),
        ledger.for_user("bob").list_chats(),
        ledger.holds(),
        ledger.retention(),
        len(list(ledger.export_user("ada"))),
        ledger.position,
        ledger.last_position(),
        ledger.sync(),
    )


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """The files that have what was said, and when they were last written."""
    parts = ("log", "chats.db")
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file() and any(part in path.parts for part in parts)
    }


def test_reads_answer_as_ever(place: str, tmp_path: Path) -> None:
    """Twice, by two ledgers of the process at once; no file of the log is touched."""
    with chatledger.open(place) as whole:
        expected = answer(whole)
    before = files(tmp_path)
    with reading(place) as ledger, reading(place) as other:
        answers = [answer(ledger), answer(other)]
    with reading(place) as ledger:
        answers.append(answer(ledger))

    assert before
    assert before == files(tmp_path)
    assert [expected] * 3 == answers


def test_a_directory_needs_no_server_and_no_client_of_one(tmp_path: Path) -> None:
    place = filled(located("directory", tmp_path))
    seals = Path(place, "seals").stat().st_ctime_ns
    program = (
        "import sys, chatledger\n"
        "with chatledger.open(sys.argv[1], read_only=True) as ledger: print(len(ledger.get_messages('c')))\n"
        "assert not {'anyio', 'asyncio', 'nats', 'numpy', 'sqlalchemy', 'ssl'} & set(sys.modules)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program, place], check=True, capture_output=True, text=True, timeout=60
    ).stdout

    assert f"{COUNT + 1}\n" == printed
    assert seals == Path(place, "seals").stat().st_ctime_ns


WRITES: list[Callable[[Ledger], object]] = [
    lambda ledger: ledger.create_chat("d", "ada"),
    lambda ledger: ledger.append("c", [user("more")]),
    lambda ledger: ledger.append("c", [user("c" * 300_000)]),
    lambda ledger: ledger.start_run("c", "r"),
    lambda ledger: ledger.annotate("c", "m1", hidden=True),
    lambda ledger: ledger.import_chat(ledger.export_chat("c"), chat_id="d"),
    lambda ledger: ledger.fork("c", "m1"),
    lambda ledger: ledger.set_checkpoint("c", "k", "m1"),
    lambda ledger: ledger.delete_chat("free"),
    lambda ledger: ledger.erase_user("ada"),
    lambda ledger: ledger.release("user", "zoe"),
    lambda ledger: ledger.sweep(),
    lambda ledger: ledger.redact("m1"),
    lambda ledger: ledger.rebuild(),
    lambda ledger: ledger.for_user("ada").append("c", [user("more")]),
]
OF_THE_LOG: list[Callable[[Ledger], object]] = [
    lambda ledger: list(ledger.history("c")),
    lambda ledger: ledger.as_of(2).get_messages("c"),
    lambda ledger: list(ledger.feed(follow=False)),
    lambda ledger: ledger.verify(),
    lambda ledger: ledger.backup("copy"),
    lambda ledger: ledger.feeds(),
]


def test_writes_are_refused(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In words, each time, and what is only on the log too; the ledger goes on reading, and nothing has changed."""
    monkeypatch.chdir(tmp_path)
    with reading(place) as ledger:
        before = answer(ledger)
        for write in WRITES:
            with pytest.raises(AccessDeniedError, match=AT_ONCE):
                write(ledger)
        for read in OF_THE_LOG:
            with pytest.raises(AccessDeniedError, match=ON_THE_LOG):
                read(ledger)
        assert before == answer(ledger)
    with chatledger.open(place) as whole:
        assert before == answer(whole)


WRITER = """
import sys, chatledger
with chatledger.open(sys.argv[1]) as ledger:
    print("open", flush=True)
    for line in sys.stdin:
        ledger.append("c", [chatledger.user(line.strip())])
        print(ledger.position, flush=True)
"""


def test_others_write_meanwhile(place: str) -> None:
    """What another process commits is read as soon as its call has returned; it may end, and its ledger is at rest again."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert b"open" == writer.stdout.readline().strip()
        with reading(place) as ledger:
            for number in range(3):
                writer.stdin.write(f"meanwhile {number}\n".encode())
                writer.stdin.flush()
                position = int(writer.stdout.readline())

                assert position == ledger.sync(position)
                assert f"meanwhile {number}" == ledger.get_messages("c")[-1].text
                with reading(place) as another:
                    assert position == another.position
            assert not ledger.wait(position, timeout_s=0.05)
            writer.stdin.close()
            assert 0 == writer.wait(60)
            assert "meanwhile 2" == ledger.get_messages("c")[-1].text
    with reading(place) as ledger:
        assert "meanwhile 2" == ledger.get_messages("c")[-1].text


def test_a_position_that_does_not_come(place: str) -> None:
    with reading(place) as ledger, pytest.raises(chatledger.LogUnavailableError, match="99 did not come"):
        ledger.sync(99, timeout_s=0.05)


def test_one_place_in_one_process(place: str) -> None:
    """A reader stands on the ledger that the process writes with; a writer does not stand on a reader."""
    with chatledger.open(place) as whole, reading(place) as ledger:
        whole.append("c", [user("just now")])

        assert "just now" == ledger.get_messages("c")[-1].text
        with pytest.raises(AccessDeniedError, match=AT_ONCE):
            ledger.append("c", [user("more")])
    with reading(place) as ledger:
        with pytest.raises(ConfigurationError, match="open in this process with read_only=True; close it first"):
            chatledger.open(place)
        assert "just now" == ledger.get_messages("c")[-1].text
    with chatledger.open(place) as whole:
        whole.append("c", [user("and again")])


def test_closed_ledgers_answer_no_more(place: str) -> None:
    ledger = reading(place)
    ledger.close()
    ledger.close()

    with pytest.raises(chatledger.LedgerClosedError):
        ledger.list_chats()


def test_asyncio(place: str) -> None:
    async def read() -> list[str]:
        async with chatledger.open_async(place, read_only=True) as ledger:
            with pytest.raises(AccessDeniedError, match=AT_ONCE):
                await ledger.append("c", [user("more")])
            return [message.text for message in await ledger.get_messages("c")][:1]

    assert ["number 0"] == asyncio.run(read())


def test_who_had_it_open_was_killed(tmp_path: Path) -> None:
    """Whether the index has everything is not known until somebody opens it."""
    data = Path(filled(located("directory", tmp_path)))
    kill_a_writer(data)
    # Its server outlives it for a moment, and knows the end of the log.
    eventually(lambda: OwnerLock.try_take(data / "lock")).release()

    with pytest.raises(ConfigurationError, match=r"not at rest.*Open it without read_only once"):
        reading(str(data))
    with chatledger.open(data):
        pass
    with reading(str(data)) as ledger:
        assert "written by one who was killed" == ledger.get_messages("c")[-1].text


def test_a_copy_is_not_at_rest(tmp_path: Path) -> None:
    data = filled(located("directory", tmp_path))
    copy = shutil.copytree(data, tmp_path / "copy")

    with pytest.raises(ConfigurationError, match="not at rest"):
        reading(str(copy))


@pytest.mark.guard
def test_an_index_elsewhere(tmp_path: Path) -> None:
    """The one beside an SQLite file is behind then, which is noticed; the other one is read if it is named."""
    place, index = filled(located("file", tmp_path)), tmp_path / "elsewhere"
    with chatledger.open(place, index=index) as ledger:
        ledger.append("c", [user("noted elsewhere")])

    with pytest.raises(ConfigurationError, match=r"index of .* is at position \d+, and its log ends at \d+"):
        reading(place)
    with reading(place, index=index) as ledger:
        assert "noted elsewhere" == ledger.get_messages("c")[-1].text
    with pytest.raises(ConfigurationError, match="leave out index="):
        reading(filled(located("directory", tmp_path)), index=index)


def test_an_index_that_is_gone_or_damaged(place: str, tmp_path: Path) -> None:
    (file,) = tmp_path.glob("*/**/0*/data.mdb")
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2 :] = bytes(len(raw) - len(raw) // 2)
    rot(file, bytes(raw))

    with pytest.raises(ChatledgerError):
        reading(place)
    shutil.rmtree(file.parent.parent)
    with pytest.raises(ConfigurationError, match=r"not at rest|has no index"):
        reading(place)
    assert not file.parent.parent.exists()


def test_a_file_that_was_put_back(tmp_path: Path) -> None:
    """An old log under a newer index, or under a newer witness."""
    place = filled(located("file", tmp_path))
    old = shutil.copytree(tmp_path, tmp_path.with_name("old"))
    with chatledger.open(place) as ledger:
        ledger.append("c", [user("lost with the file")])
    shutil.copy(old / "chats.db", tmp_path / "chats.db")

    with pytest.raises(LogRegressedError):
        reading(place)
    shutil.rmtree(tmp_path / "chats.db-index")
    shutil.copytree(old / "chats.db-index", tmp_path / "chats.db-index")
    with pytest.raises(LogRegressedError):
        reading(place)


def test_encrypted_logs(tmp_path: Path) -> None:
    """An index in memory is not read; one in clear is, by who has the keys."""
    key, index = Encryption.new_key(), tmp_path / "index"
    keys, plain = Encryption(key), Encryption(key, index_at_rest="plain")
    place = filled(located("file", tmp_path), encryption=plain, index=index)

    with reading(place, encryption=plain, index=index) as ledger:
        assert "number 0" == ledger.get_messages("c")[0].text
    for options in ({}, {"encryption": keys}):
        with pytest.raises(ConfigurationError):
            reading(place, **options)
    with pytest.raises(ConfigurationError, match="encrypted"):
        reading(place, index=index)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"create": True}, "create= is of no use with read_only=True"),
        ({"sweep_every_s": 5}, "sweep_every_s= is of no use"),
        ({"embed": len}, "embed"),
        ({"read_only": "yes"}, "read_only must be True or False"),
    ],
)
def test_options_that_do_not_go_with_it(place: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ChatledgerError, match=words):
        chatledger.open(place, **{"read_only": True, **options})


@pytest.mark.parametrize(
    "location", ["memory:", "nats://localhost:1/s", "postgresql://localhost/x", "sqlite+x:///f.db"]
)
def test_other_places(location: str) -> None:
    with pytest.raises(ConfigurationError, match=r"read_only=True is for directories and sqlite:///file\.db"):
        reading(location)


@pytest.mark.parametrize("kind", ["directory", "file"])
def test_what_is_not_there_is_not_made(kind: str, tmp_path: Path) -> None:
    place = located(kind, tmp_path)

    with pytest.raises(ConfigurationError, match="there is no ledger at"):
        reading(place)
    assert [] == list(tmp_path.iterdir())
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "foreign").touch()
    if kind == "directory":
        with pytest.raises(ConfigurationError):
            reading(place)
        assert ["foreign"] == [path.name for path in (tmp_path / "data").iterdir()]


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A closed directory, seen through a mount for reading only."""
    data, place = filled(located("directory", tmp_path)), tmp_path / "mounted"
    place.mkdir()
    for options in (["--bind", data], ["-o", "remount,ro,bind"]):
        if subprocess.run(["mount", *options, str(place)], check=False, capture_output=True).returncode:
            pytest.skip("nothing can be mounted here, which takes root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_directory_that_cannot_be_written(mounted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its index is read from a copy, which is gone afterwards."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with reading(str(mounted)) as ledger:
        assert "number 0" == ledger.get_messages("c")[0].text
        assert ["data.mdb"] == [path.name for path in scratch.rglob("data.mdb")]
    assert [] == list(scratch.iterdir())
