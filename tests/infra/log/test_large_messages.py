"""Messages with large data: stored once beside the log, whole for everybody, and erased with their last chat (GS-29, PS-25)."""

# White-box: what is stored is looked at and damaged, and processes die where no public method reaches.
# pyright: reportPrivateUsage=false

import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.encrypted_world import in_memory
from tests.support.files_in_clear import in_clear
from tests.support.ledger_world import store_behind

import chatledger
from chatledger import ConfigurationError, CorruptStateError, Encryption, Ledger, NewMessage, user
from chatledger.errors import PayloadTooLargeError
from chatledger.infra.log import port
from chatledger.infra.log.blob_storage import CHUNK_BYTES
from chatledger.infra.log.blobs import LEASE_MS, MissingBlobError
from chatledger.infra.log.nats.event_log import JetStreamLog
from chatledger.infra.log.nats.stream import delete_stream
from chatledger.infra.store import erasure

pytestmark = pytest.mark.guard

__all__ = ["in_memory"]

SECRET: Final = "the password is swordfish"
KEY: Final = Encryption.new_key("k1")
KINDS: Final = ["memory", "sqlite", "path", "encrypted"]
Open = Callable[..., Ledger]


class Killed(BaseException):
    """The process died here."""


def words(count: int, seed: int = 0) -> str:
    """So many words of a vocabulary of 4,096, each of 11 characters, with a secret at both ends."""
    chosen = random.Random(seed)
    return " ".join([SECRET, *(f"w{chosen.getrandbits(12) * 268_435_399:010x}" for _ in range(count)), SECRET])


@pytest.fixture(params=KINDS)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the same ledger again and again; that in memory has nothing to be opened again."""
    kind: str = request.param
    options: dict[str, Any] = {}
    if kind == "encrypted":
        request.getfixturevalue("in_memory")
        options = {"encryption": Encryption(KEY), "compression": "zstd"}
    location = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/log.db"}.get(kind, str(tmp_path / "data"))

    def open_again(**more: Any) -> Ledger:
        return chatledger.open(location, **options, **more)

    return open_again


@pytest.fixture
def ledger(opener: Open) -> Iterator[Ledger]:
    with opener() as opened:
        for chat in "abc":
            opened.create_chat(chat, "ada")
        yield opened


def same(is_same: bool) -> bool:  # noqa: FBT001 - of large texts, which pytest would take minutes to compare and show
    """Whether they were."""
    return is_same


def stored_names(ledger: Ledger) -> list[str]:
    return store_behind(ledger).log.blobs.names()


def files_with(folder: Path, text: str) -> list[str]:
    return [str(file) for file in folder.rglob("*") if file.is_file() and text.encode() in in_clear(file.read_bytes())]


def later(monkeypatch: pytest.MonkeyPatch, ledger: Ledger) -> None:
    """The time at which dead writers are not waited for any more."""
    storage = store_behind(ledger).log.blobs._storage
    now = storage.now_ms() + LEASE_MS + 1
    monkeypatch.setattr(storage, "now_ms", lambda: now)


@pytest.mark.soak
@pytest.mark.parametrize("size", [262_140, 300_000, 2_300_000])
def test_large_messages_come_back_whole(ledger: Ledger, size: int) -> None:
    """Whoever reads sees whole messages: chains, history, feed, export; a rebuilt index equals the one that was kept up."""
    data = {"role": "user", "parts": [{"type": "text", "text": words(size // 12)}, {"n": [1, 1.5, None, True]}]}
    small = NewMessage("user", "small")
    (message,) = ledger.append("a", [NewMessage("user", data)])
    ledger.append("b", [small, NewMessage("user", data), small])

    def check() -> None:
        # Not compared by `assert` itself, which would take minutes to show how such texts differ.
        is_whole = ledger.get_messages("a")[0].data == data
        is_whole &= [one.data for one in ledger.get_messages("b")] == ["small", data, "small"]
        is_whole &= ledger.get_message(message.id) == message
        assert is_whole

    check()
    appended = [recorded for recorded in ledger.history("a") if recorded.type == "message_appended"]
    is_whole = appended[0].to_dict()["payload"]["messages"][0]["data"] == data
    assert is_whole
    found = [recorded.position for recorded in ledger.feed(0, follow=False)]
    assert found == sorted(found)
    assert ledger.verify().message_count == 4
    ledger.rebuild()
    check()
    assert ledger.verify().message_count == 4


@pytest.mark.soak
def test_equal_data_are_stored_once(ledger: Ledger, tmp_path: Path) -> None:
    """In one chat and in others; the disk shows it, the index aside."""
    text = words(100_000)
    ledger.append("a", [user(text)])
    assert len(stored_names(ledger)) == 1
    once = _log_bytes(tmp_path)
    for chat in "abcabc":
        ledger.append(chat, [user(text)])

    assert len(stored_names(ledger)) == 1
    assert _log_bytes(tmp_path) - once < len(text) / 4
    ledger.append("a", [user(text + ".")])
    assert len(stored_names(ledger)) == 2


def _log_bytes(folder: Path) -> int:
    """Bytes that the log takes: all files but those of an index."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and "index" not in str(file))


@pytest.mark.soak
def test_data_go_with_their_last_chat(ledger: Ledger, tmp_path: Path) -> None:
    """As long as one chat has them they stay; then they are gone from the log, from the index and from each file."""
    text, other = words(60_000), words(60_000, seed=1)
    ledger.append("a", [user(text), user(text + "!")])
    ledger.append("b", [user(text)])
    ledger.append("c", [user(other)])
    assert len(stored_names(ledger)) == 3
    ledger.delete_chat("a")
    assert len(stored_names(ledger)) == 2
    assert same(ledger.get_messages("b")[0].text == text)
    ledger.rebuild()
    assert same(ledger.get_messages("b")[0].text == text)
    ledger.delete_chat("b")
    assert len(stored_names(ledger)) == 1
    ledger.verify()
    ledger.delete_chat("c")
    assert stored_names(ledger) == []
    assert files_with(tmp_path, SECRET) == []
    ledger.close()
    assert files_with(tmp_path, SECRET) == []


@pytest.mark.matrix
def test_a_chat_made_again_has_its_data(ledger: Ledger) -> None:
    """The same data after an erasure are stored anew."""
    text = words(40_000)
    for _ in range(3):
        ledger.append("a", [user(text)])
        ledger.delete_chat("a")
        assert stored_names(ledger) == []
        ledger.create_chat("a", "ada")
    ledger.append("a", [user(text)])
    ledger.rebuild()

    assert same(ledger.get_messages("a")[0].text == text)


def test_a_writer_that_dies_before_its_event(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it stored is found by `sweep` an hour later, not before, and what others refer to is left alone."""
    text, lost = words(40_000), words(40_000, seed=1)
    ledger.append("a", [user(text)])
    with monkeypatch.context() as patch:
        patch.setattr(type(store_behind(ledger).log), "_append", _die)
        for content in (text, lost):
            with pytest.raises(Killed):
                ledger.append("b", [user(content)])
    assert ledger.get_messages("b") == []
    ledger.sweep()
    assert len(stored_names(ledger)) == 2
    later(monkeypatch, ledger)
    ledger.sweep()
    assert len(stored_names(ledger)) == 1
    assert same(ledger.get_messages("a")[0].text == text)
    ledger.delete_chat("a")
    assert stored_names(ledger) == []


def _die(*_: Any, **__: Any) -> Any:
    raise Killed


def _half_deleted(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Die in a deletion after the events are erased, before the large data are."""
    if store_behind(ledger).log.identity.startswith("memory"):
        pytest.skip("a log in memory dies with its process")
    ledger.create_chat("a", "ada")
    ledger.append("a", [user(words(40_000))])
    with monkeypatch.context() as patch:
        patch.setattr(erasure.LargeDataEraser, "finish", _die)
        with pytest.raises(Killed):
            ledger.delete_chat("a")


def test_an_append_that_is_refused_leaves_nothing_in_use(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its data go with the next sweep, without waiting for an hour."""

    def refuse(*_: Any, **__: Any) -> Any:
        msg = "refused"
        raise ConfigurationError(msg)

    with monkeypatch.context() as patch:
        patch.setattr(type(store_behind(ledger).log), "_append", refuse)
        with pytest.raises(ConfigurationError):
            ledger.append("b", [user(words(40_000))])
    assert len(stored_names(ledger)) == 1
    ledger.sweep()
    assert stored_names(ledger) == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the follower may die there too
def test_what_a_crash_left_of_a_deletion(opener: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies after the events are erased: the data are erased when the ledger is opened again."""
    with opener() as ledger:
        _half_deleted(ledger, monkeypatch)
        assert len(stored_names(ledger)) == 1
    with opener() as again:
        assert stored_names(again) == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the follower may die there too
def test_data_are_gone_with_a_lost_index(opener: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that is built anew does not know what was to be erased; it looks at what is stored."""
    with opener() as ledger:
        _half_deleted(ledger, monkeypatch)
        root = (
            store_behind(ledger).index._generations.root
            if hasattr(store_behind(ledger).index._generations, "root")
            else None
        )
    folders = [root] if root is not None else [path for path in tmp_path.rglob("*index*") if path.is_dir()]
    for folder in folders:
        for file in sorted(folder.rglob("*"), reverse=True):
            if file.is_file():
                file.unlink()
    with opener() as again:
        again.sweep()
        assert stored_names(again) == []


KILLED: Final = """
import os, signal, sys
import chatledger
from chatledger.infra.log.nats.event_log import JetStreamLog
from chatledger.infra.log.port import EventLog
location, text = sys.argv[1], sys.stdin.read()
kind = EventLog if location.startswith("sqlite:") else JetStreamLog
whole = kind._append

def die(*args):
    if sys.argv[2] == "after":
        whole(*args)
    print("dying", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

with chatledger.open(location) as ledger:
    ledger.append("a", [chatledger.user("first" + text)])
    kind._append = die
    ledger.append("a", [chatledger.user(text)])
"""


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["sqlite", "path"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_kill_9_beside_the_append(kind: str, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the event nothing happened and the data are swept; after it, it is there whole, also after another deletion."""
    location = f"sqlite:///{tmp_path}/log.db" if kind == "sqlite" else str(tmp_path / "data")
    text = words(60_000)
    with chatledger.open(location) as ledger:
        ledger.create_chat("a", "ada")
    run = subprocess.run(
        [sys.executable, "-c", KILLED, location, moment], input=text, capture_output=True, text=True, check=False
    )
    assert run.stdout == "dying\n", run.stderr
    assert run.returncode == -signal.SIGKILL
    with chatledger.open(location) as ledger:
        ledger.sync()
        expected = ["first" + text] + ([text] if moment == "after" else [])
        assert same([one.text for one in ledger.get_messages("a")] == expected)
        later(monkeypatch, ledger)
        ledger.sweep()
        assert len(stored_names(ledger)) == len(expected)
        ledger.verify()
        ledger.delete_chat("a")
        assert stored_names(ledger) == []


def test_limits(opener: Open) -> None:
    """A message may be larger than an event; what is too large is refused and leaves nothing (PS-25)."""
    with opener(max_event_bytes=64 * 1024, max_message_bytes=1_000_000) as ledger:
        ledger.create_chat("a", "ada")
        ledger.append("a", [user("x" * 999_000)])
        for text, limit in (("x" * 1_000_001, 1_000_000), ("x" * 100_000, 64 * 1024)):
            with pytest.raises(PayloadTooLargeError) as caught:
                ledger.append("a", [user("small"), user(text)])
            assert caught.value.limit_bytes == limit
        assert len(ledger.get_messages("a")) == 1
        assert len(stored_names(ledger)) == 1


@pytest.mark.parametrize("limit", [0, 1000, 2**31, "many"])
def test_nonsense_limits_are_refused(limit: Any) -> None:
    """The limit of messages is a number that an index can hold, and at least what is stored by reference."""
    with pytest.raises(ConfigurationError, match="max_message_bytes"):
        chatledger.open("memory:", max_message_bytes=limit)


@pytest.mark.soak
def test_writers_of_the_same_data_while_it_is_erased(ledger: Ledger) -> None:
    """Chats with the same data are made and deleted at the same time: those that are there have it whole."""
    text = words(40_000)

    def work(number: int) -> None:
        for turn in range(6):
            chat = f"chat {number}"
            ledger.create_chat(chat, "ada")
            ledger.append(chat, [user(text)])
            if turn < 5 or number % 2:
                ledger.delete_chat(chat)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert len(stored_names(ledger)) == 1
    ledger.rebuild()
    assert [ledger.get_messages(f"chat {number}")[0].text == text for number in (0, 2)] == [True, True]
    ledger.verify()
    for number in (0, 2):
        ledger.delete_chat(f"chat {number}")
    ledger.sweep()
    assert stored_names(ledger) == []


@pytest.mark.matrix
def test_verify_names_the_event_without_its_data(ledger: Ledger) -> None:
    """Missing and altered data are found, by `verify` and by a rebuild."""
    ledger.append("a", [user("x"), user(words(40_000))])
    at = ledger.position
    ledger.append("b", [user("small")])
    storage = store_behind(ledger).log.blobs._storage
    (name,) = stored_names(ledger)
    last = storage.last(name)
    assert last is not None
    storage.erase(name, until=last.position)
    for call in (ledger.verify, ledger.rebuild, lambda: list(ledger.history("a"))):
        with pytest.raises(CorruptStateError, match=r"large data, with SHA-256 .* are missing") as caught:
            call()
        assert (caught.value.chat_id, caught.value.position) == ("a", at)
    assert len(ledger.get_messages("a")) == 2  # the index still has them


def test_a_lost_stream_of_data_is_found(tmp_path: Path) -> None:
    """Deleting the stream beside the log by hand."""
    with chatledger.open(tmp_path) as ledger:
        ledger.create_chat("a", "ada")
        ledger.append("a", [user(words(40_000))])
        log = store_behind(ledger).log
        assert isinstance(log, JetStreamLog)
        delete_stream(log._client, "chatledger-blobs")
        with pytest.raises(CorruptStateError, match="missing") as caught:
            ledger.verify()
        assert caught.value.position == 2


@pytest.mark.soak
def test_pages_of_large_events_are_small(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page ends when it takes too much memory; readers, repetitions and moments in between do not mind."""
    monkeypatch.setattr(port, "READ_PAGE_BYTES", 1_000_000)
    texts = [words(50_000, seed=number) for number in range(6)]
    with ledger.context(command_id="once"):
        ledger.append("a", [user(text, id=str(number)) for number, text in enumerate(texts)])
    middle = ledger.position - 2
    with ledger.context(command_id="once"):
        assert ledger.append("a", [user(text, id=str(number)) for number, text in enumerate(texts)])[0].id == "0"
    assert len(store_behind(ledger).log.read(0)) < 8
    assert same([one.text for one in ledger.get_messages("a")] == texts)
    ledger.rebuild()
    ledger.append("a", [user("more")])

    assert same([one.text for one in ledger.get_messages("a")][:-1] == texts)
    assert ledger.verify().message_count == 7
    assert ledger.as_of(middle).get_messages("a") == []


def test_events_that_are_erased_while_they_are_read(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader has the records of events whose chat is deleted before it asks for the data: they are passed over."""
    ledger.append("a", [user(words(40_000))])
    ledger.append("b", [user("small")])
    log = store_behind(ledger).log
    whole = log._mapper.read
    is_first = [True]

    def read(notification: Any) -> Any:
        if is_first.pop() if is_first else False:
            ledger.delete_chat("a")
        return whole(notification)

    monkeypatch.setattr(log._mapper, "read", read)
    assert "a" not in {one.chat_id for one in log.read(4) if one.type == "message_appended"}


@pytest.mark.soak
def test_large_texts_are_searched(ledger: Ledger) -> None:
    """Their words are found; the memory that indexing takes is that of one of them, as none wait for others."""
    for number in range(3):
        ledger.append("a", [user(words(200_000, seed=number) + f" needle{number}")])
    for number in range(3):
        (hit,) = ledger.search(f"needle{number}")
        assert hit.message.text.endswith(f"needle{number}")
    ledger.rebuild()
    assert len(ledger.search("swordfish")) == 3


@pytest.mark.soak
def test_a_key_that_was_replaced(in_memory: Path, tmp_path: Path) -> None:
    """Data are found under the key that they were stored with, and erased under all."""
    del in_memory
    new, text = Encryption.new_key("k2"), words(40_000)
    with chatledger.open(tmp_path, encryption=Encryption(KEY)) as ledger:
        ledger.create_chat("a", "ada")
        ledger.append("a", [user(text)])
    with chatledger.open(tmp_path, encryption=Encryption([new, KEY])) as ledger:
        ledger.create_chat("b", "ada")
        ledger.append("b", [user(text)])
        assert len(stored_names(ledger)) == 2
        ledger.rebuild()
        assert [ledger.get_messages(chat)[0].text == text for chat in "ab"] == [True, True]
        ledger.delete_chat("a")
        ledger.sweep()
        assert same(ledger.get_messages("b")[0].text == text)
        ledger.delete_chat("b")
        assert stored_names(ledger) == []


def test_the_error_of_missing_data_is_not_shown_as_it_is() -> None:
    """Users see `CorruptStateError`, which names the event."""
    assert not issubclass(MissingBlobError, chatledger.ChatledgerError)
    assert CHUNK_BYTES * 4 // 3 < 1024 * 1024
