"""Deleting chats: what is erased, and what a crash in between leaves."""

# White-box: an erasure is interrupted where no public method reaches.
# pyright: reportPrivateUsage=false

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.files_in_clear import files_with, in_clear, pieces_of_frames
from tests.support.jetstream_world import eventually
from tests.support.ledger_world import store_behind
from tests.support.soak import examples

import chatledger
from chatledger import Ledger, NewMessage
from chatledger.infra.log.memory import MemoryLog
from chatledger.infra.log.nats.event_log import JetStreamLog
from chatledger.infra.log.port import EventLog
from chatledger.projections.lmdb.page_check import PageError
from chatledger.projections.lmdb.scrub import PageFile

FILE = "x" * 300_000
"""It is stored by reference."""
SECRET = "the password is swordfish"
LONG_SECRET = b"the other: (dogfish), is the password"
"""The search index has its words, and not this text."""
WORD = re.compile(rb"w[0-9]{4}zz")


class Crash(Exception):  # noqa: N818 - not an error, an event
    """The process dies here."""


def _half_erased(log: EventLog, chat_id: str, positions: list[int]) -> None:
    """Erase some events only, as an erasure that is interrupted does."""
    for position in positions:
        if isinstance(log, JetStreamLog):
            log._stream_recorder.erase_events(chat_id, after=position - 1, before=position + 1)
        else:
            assert isinstance(log, MemoryLog)
            log._events.erase(chat_id, first=position, before=position + 1)


def _fill(ledger: Ledger) -> None:
    ledger.create_chat("doomed", "ada")
    for number in range(9):
        ledger.append("doomed", [NewMessage("user", f"{SECRET} {number}")])
    call = {"type": "tool-x", "toolCallId": "1", "input": {"a": SECRET}, "output": [SECRET]}
    ledger.append("doomed", [NewMessage("assistant", {"parts": [call, {"type": "reasoning", "text": SECRET}]})])
    ledger.create_chat("other", "ada")
    ledger.append("other", [NewMessage("user", "kept")])


def _long(secret: str) -> NewMessage:
    """Of more than 4 KiB: compressed in the index as well."""
    words = " ".join(f"{number * 2_654_435_761 % 2**32:x}" for number in range(300))
    return NewMessage("tool", {"output": f"{words} {secret} {words} {words}"})


@pytest.fixture(params=["memory:", "path"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory:" else str(tmp_path)


@pytest.mark.matrix
@pytest.mark.parametrize("erased", [[], [11], [4, 6, 9], [1, 2, 3], list(range(2, 12))], ids=str)
def test_rebuild_after_an_interrupted_erasure(
    location: str, erased: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever part of a deleted chat is still on the log, a rebuild does not show it, and then finishes erasing it."""
    with chatledger.open(location, durability="fast") as ledger:
        _fill(ledger)
        store = store_behind(ledger)

        def crash(chat_id: str, *, first_position: int, before: int) -> None:
            _half_erased(store.log, chat_id, erased)
            raise Crash

        with monkeypatch.context() as patch:
            patch.setattr(store.log, "erase", crash)
            with pytest.raises(Crash):
                ledger.delete_chat("doomed")
        ledger.rebuild()

        assert ledger.get_chat("doomed") is None
        assert ["kept"] == [message.text for message in ledger.get_messages("other")]

        store.finish_erasures()

        assert [12, 13, 14] == [recorded.position for recorded in store.log.read(0)]
        ledger.rebuild()
        assert ["other"] == [chat.id for chat in ledger.list_chats()]


@pytest.fixture(params=["path", "sqlite"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A ledger all of whose files lie below `tmp_path`."""
    return str(tmp_path / "data") if request.param == "path" else f"sqlite:///{tmp_path}/log.db"


def _all_bytes(folder: Path) -> bytes:
    return b"\0".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_no_file_has_the_text_any_more(stored: str, tmp_path: Path) -> None:
    """When `delete_chat` returns, neither the text nor the ids of messages are in any file, and later writes bring nothing back."""
    with chatledger.open(stored, durability="fast") as ledger:
        _fill(ledger)
        ledger.append("doomed", [_long(LONG_SECRET.decode())])
        ids = [message.id for message in ledger.get_messages("doomed")]
        before = files_with(tmp_path, b"swordfish")
        long_before, raw = files_with(tmp_path, LONG_SECRET), _all_bytes(tmp_path)
        ledger.delete_chat("doomed")
        after = files_with(tmp_path, b"swordfish")
        for number in range(20):
            ledger.append("other", [NewMessage("user", f"kept {number}")])

        assert len(before) > 1
        assert len(long_before) > 1
        assert LONG_SECRET not in raw, "it stands in frames only"
        pieces, left = pieces_of_frames(raw, LONG_SECRET), _all_bytes(tmp_path)
        assert len(pieces) > 20
        assert not any(piece in left for piece in pieces)
        assert [] == after == files_with(tmp_path, b"swordfish") == files_with(tmp_path, LONG_SECRET)
        for message_id in ids:
            assert [] == files_with(tmp_path, message_id.encode())
            assert [] == files_with(tmp_path, bytes.fromhex(message_id.replace("-", "")))
    assert [] == files_with(tmp_path, b"swordfish")


@given(
    st.lists(
        st.tuples(st.just("append"), st.integers(0, 3), st.integers(1, 30), st.integers(1, 9000))
        | st.tuples(st.just("delete"), st.integers(0, 3), st.just(0), st.just(0))
        | st.tuples(st.just("reopen"), st.just(0), st.just(0), st.just(0)),
        min_size=4,
        max_size=16,
    )
)
@settings(max_examples=examples(25), deadline=None)
def test_files_have_the_living_chats_only(story: list[tuple[str, int, int, int]]) -> None:
    """Chats of any size, written and deleted in any order: after each deletion the files have the words of living chats only."""
    with TemporaryDirectory() as folder:
        place = f"sqlite:///{folder}/log.db"
        ledger, living = chatledger.open(place), dict[str, set[bytes]]()
        for number, (action, chat, count, size) in enumerate(story):
            name = f"c{chat}"
            if action == "append":
                word = f"w{number:04d}zz"
                ledger.upsert_chat(name, "ada")
                said = f"{word} " * (size // 9 + 1)
                tools = {"parts": [{"type": "tool-x", "output": said}, {"type": "reasoning", "text": said}]}
                ledger.append(name, [NewMessage("user", said if number % 2 else tools) for _ in range(count)])
                living.setdefault(name, set()).add(word.encode())
            elif action == "delete":
                assert ledger.delete_chat(name) == (living.pop(name, None) is not None)
                found = {
                    word
                    for path in Path(folder).rglob("*")
                    if path.is_file()
                    for word in WORD.findall(in_clear(path.read_bytes()))
                }
                assert found == {word for words in living.values() for word in words}
            else:
                ledger.close()
                ledger = chatledger.open(place)
        ledger.close()


@pytest.mark.soak
def test_what_a_reader_holds_goes_when_it_ends(tmp_path: Path) -> None:
    """A snapshot that is older than the deletion delays the end of the erasure, not the deletion; then it happens by itself."""
    with chatledger.open(f"sqlite:///{tmp_path}/log.db") as ledger:
        _fill(ledger)
        with store_behind(ledger).snapshot() as snapshot, ThreadPoolExecutor(1) as thread:
            assert thread.submit(ledger.delete_chat, "doomed").result()

            assert files_with(tmp_path, b"swordfish") == ["data.mdb"]
            assert len(snapshot.chat("doomed").chains.all_messages()) == 10
        eventually(lambda: not files_with(tmp_path, b"swordfish"), within_s=120)


def test_generations_that_do_not_serve_are_removed(tmp_path: Path) -> None:
    """What a killed rebuild left behind is removed by a deletion."""
    with chatledger.open(f"sqlite:///{tmp_path}/log.db") as ledger:
        _fill(ledger)
        (index,) = (path for path in tmp_path.rglob("CURRENT"))
        wreck = index.parent / "000007"
        wreck.mkdir()
        (wreck / "data.mdb").write_bytes(b"swordfish")
        ledger.delete_chat("doomed")

        assert files_with(tmp_path, b"swordfish") == []


def test_without_knowing_the_pages_the_index_is_built_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where LMDB is not the known one, a deletion costs a rebuild; the text is gone all the same."""

    def refuse(*_: object) -> None:
        msg = "LMDB 7"
        raise PageError(msg)

    monkeypatch.setattr(PageFile, "snapshot", refuse)
    with chatledger.open(f"sqlite:///{tmp_path}/log.db") as ledger:
        _fill(ledger)
        ledger.delete_chat("doomed")

        assert files_with(tmp_path, b"swordfish") == []
        assert ["kept"] == [message.text for message in ledger.get_messages("other")]


KILLED = """
import os, sys
import chatledger
from chatledger.projections.lmdb.scrub import PageFile
left = int(sys.argv[2])
overwrite = PageFile._overwrite
def counted(self, at, found, wanted):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), 9)
    overwrite(self, at, found, wanted)
PageFile._overwrite = counted
chatledger.open(sys.argv[1], durability="fast").delete_chat("doomed")
"""


@pytest.mark.soak
@pytest.mark.parametrize("at", [1, 3, 6])
def test_killed_in_the_middle_of_an_erasure(stored: str, tmp_path: Path, at: int) -> None:
    """The next process that opens the ledger finishes what a killed one began (its server is gone with it)."""
    with chatledger.open(stored, durability="fast") as ledger:
        _fill(ledger)
    child = subprocess.run([sys.executable, "-c", KILLED, stored, str(at)], check=False, capture_output=True)
    assert child.returncode == -9, child.stderr
    with chatledger.open(stored, durability="fast") as ledger:
        assert files_with(tmp_path, b"swordfish") == []
        assert ["kept"] == [message.text for message in ledger.get_messages("other")]


def test_a_server_killed_before_keeps_nothing(tmp_path: Path) -> None:
    """A JetStream server that was stopped uncleanly leaves no second copy: after the deletion no file has the text."""
    with chatledger.open(tmp_path, durability="fast") as ledger:
        _fill(ledger)
        os.kill(json.loads((tmp_path / "endpoint.json").read_bytes())["server_pid"], signal.SIGKILL)
        ledger.append("doomed", [NewMessage("user", SECRET)])
        ledger.delete_chat("doomed")
        assert files_with(tmp_path, b"swordfish") == []


def test_lost_events_are_not_taken_for_erased_ones(location: str) -> None:
    """A hole that no deleted chat accounts for stops a rebuild, and the old index goes on serving."""
    with chatledger.open(location, durability="fast") as ledger:
        _fill(ledger)
        ledger.create_chat("later", "ada")
        _half_erased(store_behind(ledger).log, "other", [13])
        with pytest.raises(chatledger.ChainIntegrityError):
            ledger.rebuild()

        assert ["kept"] == [message.text for message in ledger.get_messages("other")]


@pytest.fixture
def with_a_file(location: str) -> Iterator[Ledger]:
    """A ledger with two chats of the same large file: `doomed`, which is about to be deleted, and `second`."""
    with chatledger.open(location, durability="fast") as ledger:
        for chat_id in ("doomed", "second"):
            ledger.create_chat(chat_id, "ada")
            ledger.append(chat_id, [NewMessage("user", FILE)])
        ledger.delete_chat("second")
        yield ledger


def _file(ledger: Ledger) -> list[str]:
    return store_behind(ledger).log.blobs.names()


def test_large_data_go_after_the_events_that_refer_to_them(
    with_a_file: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads an event that is still being erased must find its data: else the log would look damaged."""
    store = store_behind(with_a_file)
    with monkeypatch.context() as patch:
        patch.setattr(store.log, "erase", _crash)
        with pytest.raises(Crash):
            with_a_file.delete_chat("doomed")
        store._eraser.large.finish()

        assert _file(with_a_file)
        assert 3 == len([recorded for recorded in store.log.read(0) if recorded.chat_id == "doomed"])
    store.finish_erasures()
    assert [] == _file(with_a_file)


def test_large_data_are_dropped_when_nothing_else_is_to_be_erased(
    with_a_file: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An erasure that ended between the events and their data goes on with the data alone."""
    store = store_behind(with_a_file)
    with monkeypatch.context() as patch:
        patch.setattr(store.log.blobs, "drop", _crash)
        with pytest.raises(Crash):
            with_a_file.delete_chat("doomed")

    assert _file(with_a_file)
    store.finish_erasures()
    assert [] == _file(with_a_file)


def _crash(*_: object, **__: object) -> None:
    raise Crash
