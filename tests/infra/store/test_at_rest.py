"""Directories at rest: their index answers without a server, and whatever happened to them since is noticed."""

import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults.matrix import ANOTHER_BOOT
from tests.support.backup_world import block, changed, kill_a_writer, rot
from tests.support.soak import IS_SOAK, examples

import chatledger
from chatledger import AccessDeniedError, ChatledgerError, Ledger, user
from chatledger.errors import LedgerLockedError
from chatledger.infra.ledger.at_rest import open_to_read
from chatledger.infra.log.nats_server.directory import DataDirectory
from chatledger.infra.log.nats_server.server import EmbeddedServer
from chatledger.infra.log.witness import Witness
from chatledger.infra.store.opening import STREAM
from chatledger.infra.store.opening.at_rest import NOTE_FILE, RestNote
from chatledger.infra.store.opening.encryption import Encryption
from chatledger.infra.store.opening.locations import SharedStore, open_shared
from chatledger.infra.store.opening.options import OpenOptions

COUNT = 20


class Reading(NamedTuple):
    """A ledger opened to be read; `opened` has an item for each time that the whole directory was opened for it."""

    ledger: Ledger
    opened: list[str]

    def texts(self) -> list[str]:
        return [message.text for message in self.ledger.get_messages("c")]


def reading(path: Path) -> Reading:
    opened: list[str] = []

    def open_whole() -> SharedStore:
        opened.append("whole")
        return open_shared(OpenOptions(path))

    return Reading(open_to_read(path, open_whole), opened)


def write(path: Path, *texts: str) -> None:
    with chatledger.open(path) as ledger:
        ledger.append("c", [user(text) for text in texts])


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("at-rest") / "data"
    with chatledger.open(path) as ledger:
        ledger.create_chat("c", "ada")
        for number in range(COUNT):
            ledger.append("c", [user(f"number {number}")])
        ledger.delete_chat(ledger.create_chat("gone", "bob").id)
    return path


def at_rest(template: Path, folder: Path) -> Path:
    """A directory at rest; a copy is not, before it was opened once."""
    path = shutil.copytree(template, folder / "data")
    with chatledger.open(path):
        pass
    return path


@pytest.fixture
def data(template: Path, tmp_path: Path) -> Path:
    return at_rest(template, tmp_path)


def answer(ledger: Ledger) -> object:
    """All that these tests ask."""
    return (
        [(chat.id, chat.user_id, chat.message_count) for chat in ledger.list_chats()],
        [message.text for message in ledger.get_messages("c")],
        [branch.name for branch in ledger.list_branches("c")],
        [hit.message.text for hit in ledger.search("number")],
        ledger.for_user("bob").list_chats(),
    )


def outcome(open_it: Callable[[], Ledger], path: Path) -> object:
    """Return the answers of a ledger, or how it refuses to be opened or read."""
    try:
        with open_it() as ledger:
            return answer(ledger)
    except ChatledgerError as error:
        return type(error), str(error).replace(str(path), "")


def test_reads_need_no_server(data: Path) -> None:
    """They answer as the whole ledger does; nothing starts, and the directory stays at rest."""
    seals = (data / "seals").stat().st_ctime_ns
    answers: list[object] = []
    for _ in range(2):
        found = reading(data)
        with found.ledger as ledger:
            answers.append(answer(ledger))

        assert not found.opened
        assert seals == (data / "seals").stat().st_ctime_ns
    with chatledger.open(data) as whole:
        assert [answer(whole)] * 2 == answers


def test_what_the_index_does_not_know_opens_the_directory(data: Path) -> None:
    """The log, an earlier moment, a write: the same handle goes on, and reads what it wrote."""
    found = reading(data)
    with found.ledger as ledger:
        assert len(ledger.get_messages("c")) == COUNT
        assert not found.opened
        assert sum(1 for _ in ledger.history("c")) == COUNT + 1
        ledger.append("c", [user("one more")])
        with ledger.as_of(2) as view:
            assert ["number 0"] == [message.text for message in view.get_messages("c")]

        assert "one more" == found.texts()[-1]
        assert ["whole"] == found.opened
    with reading(data).ledger as ledger:
        assert "one more" == ledger.get_messages("c")[-1].text


def test_closed_handles_answer_no_more(data: Path) -> None:
    """Also before the directory was opened as a whole."""
    ledger = reading(data).ledger
    ledger.close()
    ledger.close()

    with pytest.raises(chatledger.LedgerClosedError):
        ledger.list_chats()
    write(data, "still writable")


@pytest.mark.guard
def test_readers_do_not_keep_writers_out(data: Path) -> None:
    """Others open the directory, write and close it while somebody reads; the reader sees that moment or a later one."""
    program = "import sys, chatledger\nwith chatledger.open(sys.argv[1]) as ledger: ledger.append('c', [chatledger.user('meanwhile')])"
    found = reading(data)
    with found.ledger:
        before = found.texts()
        subprocess.run([sys.executable, "-c", program, data], check=True, timeout=60)
        after = found.texts()
    with reading(data).ledger as ledger:
        assert "meanwhile" == ledger.get_messages("c")[-1].text

    assert not found.opened
    assert after in (before, [*before, "meanwhile"])


def test_one_who_has_it_open_is_joined(data: Path) -> None:
    """Also in the same process: what was just written there is read."""
    with chatledger.open(data) as writer:
        writer.append("c", [user("just now")])
        found = reading(data)
        with found.ledger:
            assert "just now" == found.texts()[-1]

    assert ["whole"] == found.opened


@pytest.mark.parametrize("options", [{"index": "index elsewhere"}, {"encryption": Encryption(Encryption.new_key())}])
def test_an_index_elsewhere_is_not_vouched_for(tmp_path: Path, options: dict[str, object]) -> None:
    """A directory whose index is not inside is never at rest."""
    path = tmp_path / "data"
    given = {name: tmp_path / value if isinstance(value, str) else value for name, value in options.items()}
    with chatledger.open(path, **given) as ledger:  # type: ignore[arg-type]
        ledger.create_chat("c", "ada")

    assert not (path / NOTE_FILE).exists()


def by_an_older_version(data: Path) -> None:
    """Leave what a version without notes leaves: the log has an event that the index lacks, and the old note."""
    note, index = (data / NOTE_FILE).read_bytes(), shutil.copytree(data / "index", data.with_name("old index"))
    write(data, "written by an older version")
    shutil.rmtree(data / "index")
    shutil.copytree(index, data / "index")
    (data / NOTE_FILE).write_bytes(note)


def start_a_server(data: Path) -> None:
    with EmbeddedServer.acquire(DataDirectory(data), durability="always", stream=STREAM):
        pass


def copy_back_the_log(data: Path) -> None:
    """An old log under a newer index, with all times and sizes as they were."""
    old = shutil.copytree(data, data.with_name("old"))
    write(data, "newer")
    for name in ("log", "seals"):
        (shutil.rmtree if name == "log" else os.unlink)(data / name)
        (shutil.copytree if name == "log" else shutil.copy2)(old / name, data / name)


def copy_back_all(data: Path) -> None:
    old = shutil.copytree(data, data.with_name("old"))
    write(data, "newer")
    shutil.rmtree(data)
    shutil.copytree(old, data)


def damage_the_log(data: Path) -> None:
    raw = bytearray(block(data).read_bytes())
    raw[len(raw) // 2] ^= 1
    rot(block(data), bytes(raw))


def cut_the_log(data: Path) -> None:
    with changed(block(data)) as raw:
        del raw[-40:]


def remove_a_block(data: Path) -> None:
    block(data).unlink()


def damage_the_index(data: Path) -> None:
    (file,) = data.glob("index/0*/data.mdb")
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2 :] = bytes(len(raw) - len(raw) // 2)
    rot(file, bytes(raw))


def remove_the_index(data: Path) -> None:
    shutil.rmtree(data / "index")


def restart_the_machine(data: Path) -> None:
    note = msgspec.msgpack.decode((data / NOTE_FILE).read_bytes(), type=RestNote)
    (data / NOTE_FILE).write_bytes(msgspec.msgpack.encode(msgspec.structs.replace(note, boot=ANOTHER_BOOT)))


def damage_the_note(data: Path) -> None:
    (data / NOTE_FILE).write_bytes(b"\x00 not a note")


def witness_a_later_event(data: Path) -> None:
    note = msgspec.msgpack.decode((data / NOTE_FILE).read_bytes(), type=RestNote)
    witness = Witness(data / "witness", identity=note.identity, is_synced=True)
    witness.note(note.state.position + 1, bytes(32))
    witness.close()


def begin_an_erasure(data: Path) -> None:
    (data / "erasing-0123456789abcdef").touch(mode=0o600)


def set_a_chat_aside(data: Path) -> None:
    (data / "quarantine" / "20260101T000000Z").mkdir(parents=True)
    (data / "quarantine" / "20260101T000000Z" / "note.json").write_text(
        '{"format":1,"made_at":1,"why":"test","kept_as":"","streams":[{"id":"c","kept":1,"seen":9}]}'
    )


def be_of_a_newer_format(data: Path) -> None:
    (data / "format.json").write_text('{"format": 99}')


CHANGES = [
    by_an_older_version,
    kill_a_writer,
    start_a_server,
    copy_back_the_log,
    copy_back_all,
    damage_the_log,
    cut_the_log,
    remove_a_block,
    damage_the_index,
    remove_the_index,
    restart_the_machine,
    damage_the_note,
    witness_a_later_event,
    begin_an_erasure,
    set_a_chat_aside,
    be_of_a_newer_format,
]


@pytest.mark.matrix
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_whatever_changed_is_noticed(template: Path, tmp_path: Path, change: Callable[[Path], None]) -> None:
    """It is opened as a whole, and answers or refuses just as `chatledger.open` does where the same was done."""
    data, twin = at_rest(template, tmp_path / "a"), at_rest(template, tmp_path / "b")
    for path in (data, twin):
        change(path)
    opened: list[str] = []

    def open_whole() -> SharedStore:
        opened.append("whole")
        return open_shared(OpenOptions(data))

    found = outcome(lambda: open_to_read(data, open_whole), data)

    assert ["whole"] == opened
    assert outcome(lambda: chatledger.open(twin), twin) == found


def test_a_moved_directory_stays_at_rest(data: Path) -> None:
    """The note says nothing of where it is."""
    moved = data.rename(data.with_name("moved"))
    found = reading(moved)
    with found.ledger:
        assert COUNT == len(found.texts())

    assert not found.opened


READER = """
import sys
from chatledger.infra.ledger.at_rest import open_to_read
from chatledger.infra.store.opening.locations import open_shared
from chatledger.infra.store.opening.options import OpenOptions
with open_to_read(sys.argv[1], lambda: open_shared(OpenOptions(sys.argv[1]))) as ledger:
    print(len(ledger.get_messages("c")))
"""


@pytest.mark.guard
def test_a_reader_who_was_killed_does_no_harm(data: Path) -> None:
    """The pages of the index are checked, as after any death, and the directory is still at rest."""
    program = READER.replace("print", "import os; os.kill(os.getpid(), 9); print")
    died = subprocess.run([sys.executable, "-c", program, data], check=False, timeout=60)
    found = reading(data)
    with found.ledger:
        assert COUNT == len(found.texts())

    assert -9 == died.returncode
    assert not found.opened


@pytest.mark.soak
def test_the_last_one_to_close_leaves_it_at_rest(data: Path) -> None:
    """While another process has it open, the owner's end says nothing."""
    program = "import sys, chatledger\nwith chatledger.open(sys.argv[1]) as ledger:\n    print(1, flush=True)\n    sys.stdin.read()"
    note = (data / NOTE_FILE).read_bytes()
    with chatledger.open(data) as owner:
        other = subprocess.Popen([sys.executable, "-c", program, data], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with other:
            assert other.stdout is not None
            assert other.stdout.readline().strip() == b"1"
            owner.append("c", [user("by the owner")])
            owner.close()

            assert note == (data / NOTE_FILE).read_bytes()
            other.communicate(b"", timeout=60)
    found = reading(data)
    with found.ledger:
        assert "by the owner" == found.texts()[-1]


@pytest.mark.soak
@settings(max_examples=examples(20), deadline=None)
@given(steps=st.lists(st.sampled_from(["write", "read", "read and write", "delete", "damage note"]), max_size=6))
def test_reads_agree_with_a_model(template: Path, steps: list[str]) -> None:
    """Whatever happened before, what is read is what was written."""
    path = Path(shutil.copytree(template, template.with_name(f"model-{random.SystemRandom().randrange(2**64)}")))
    texts = [f"number {number}" for number in range(COUNT)]
    try:
        for number, step in enumerate(steps):
            if step == "write":
                write(path, f"text {number}")
                texts.append(f"text {number}")
            elif step == "damage note":
                (path / NOTE_FILE).write_bytes(b"nothing")
            else:
                with reading(path).ledger as ledger:
                    assert texts == [message.text for message in ledger.get_messages("c")]
                    if step == "read and write":
                        ledger.append("c", [user(f"text {number}")])
                        texts.append(f"text {number}")
                        assert f"text {number}" == ledger.get_messages("c")[-1].text
                    elif step == "delete":
                        ledger.delete_chat("c")
                        assert ledger.get_chat("c") is None
                        ledger.create_chat("c", "ada")
                        texts.clear()
        with reading(path).ledger as ledger:
            assert texts == [message.text for message in ledger.get_messages("c")]
    finally:
        shutil.rmtree(path)


@pytest.mark.soak
def test_readers_beside_one_who_opens_and_closes(data: Path) -> None:
    """Each reader sees all that was acknowledged before it began, and no more than was begun before it ended."""
    rounds = 30 if IS_SOAK else 3
    written = begun = COUNT
    over = threading.Event()
    faults: list[object] = []

    def read() -> None:
        while not over.is_set():
            least = written
            found = subprocess.run(
                [sys.executable, "-c", READER, data], capture_output=True, text=True, timeout=60, check=False
            )
            if found.returncode or not least <= int(found.stdout) <= begun:
                faults.append((least, begun, found))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(rounds):
        begun += 1
        write(data, f"round {number}")
        written += 1
    over.set()
    for thread in threads:
        thread.join()

    assert not faults, faults


def test_leaves_nothing_open(data: Path) -> None:
    """Neither files nor locks of a directory that is not at rest after all."""

    def descriptors() -> Iterator[str]:
        for entry in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # the folder that is being listed
                if str(data) in (target := str(entry.readlink())):
                    yield target

    with reading(data).ledger:
        assert any("data.mdb" in name for name in descriptors())

    assert [] == list(descriptors())


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A closed directory, seen through a mount for reading only."""
    data, place = tmp_path / "data", tmp_path / "mounted"
    with chatledger.open(data) as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [user("a"), user("b" * 300_000)])
    place.mkdir()
    for options in (["--bind", str(data)], ["-o", "remount,ro,bind"]):
        if subprocess.run(["mount", *options, str(place)], check=False, capture_output=True).returncode:
            pytest.skip("nothing can be mounted here, which takes root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_directory_that_can_only_be_read(read_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that reads works, on a copy that is gone afterwards; what writes is refused, as it would be lost."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with reading(read_only).ledger as ledger:
        assert ["a", "b" * 300_000] == [message.text for message in ledger.get_messages("c")]
    with chatledger.open(read_only) as ledger:
        assert [1, 2] == [recorded.position for recorded in ledger.history()]
        assert "a" == ledger.search("a")[0].message.text
        assert 2 == ledger.verify().event_count
        ledger.backup(tmp_path / "backup")
        refused: list[Callable[[], object]] = [
            lambda: ledger.append("c", [user("c")]),
            lambda: ledger.append("c", [user("c" * 300_000)]),
            lambda: ledger.create_chat("d", "ada"),
            lambda: ledger.delete_chat("c"),
            lambda: list(ledger.feed(name="f", follow=False)),
        ]
        for act in refused:
            with pytest.raises(AccessDeniedError, match=r"read-only file system.*nothing was written"):
                act()
    assert [] == list(scratch.iterdir())


def test_a_directory_that_can_only_be_read_and_is_in_use(read_only: Path, tmp_path: Path) -> None:
    """Its files change under a reader."""
    with chatledger.open(tmp_path / "data"), pytest.raises(LedgerLockedError, match=r"has .*mounted open"):
        chatledger.open(read_only)
    with chatledger.open(read_only) as ledger:
        assert 2 == ledger.last_position()
