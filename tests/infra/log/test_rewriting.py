"""`EventLog.rewrite`: content that is taken away from events leaves the files of every kind of log, and nothing else does."""

# White-box: steps are interrupted where no public method reaches.
# pyright: reportPrivateUsage=false

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from eventsourcing.persistence import StoredEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults.deaths import kill_server
from tests.support.files_in_clear import in_clear
from tests.support.jetstream_world import TOKEN, Server, running
from tests.support.ledger_world import store_behind
from tests.support.log_world import LoggedChat, hashes, open_log
from tests.support.soak import examples

import chatledger
from chatledger import admin, user
from chatledger.domain.chat.events import MessagesAppended
from chatledger.domain.errors import ConfigurationError, CorruptStateError
from chatledger.domain.log.parts import COMMITTED, event_hash, take_apart, without
from chatledger.infra.log.memory import MemoryLog
from chatledger.infra.log.nats import event_log, reading
from chatledger.infra.log.nats.event_log import JetStreamLog
from chatledger.infra.log.nats.rewritten import RewrittenRecords
from chatledger.infra.log.nats.stream import delete_stream
from chatledger.infra.log.nats_server.directory import DataDirectory
from chatledger.infra.log.nats_server.erasures import MARK, find_unfinished
from chatledger.testing import EventLog

SECRET = "swordfish"
KINDS = ["path", "sqlite", "sqlite+pysqlite"]


def location_of(kind: str, folder: Path) -> str:
    return str(folder / "data") if kind == "path" else f"{kind}:///{folder}/log.db"


def files_with(folder: Path, content: bytes) -> list[str]:
    """The files that have some bytes, compressed or not."""
    return [
        path.name for path in sorted(folder.rglob("*")) if path.is_file() and content in in_clear(path.read_bytes())
    ]


def slots_left(log: EventLog, position: int) -> set[int]:
    """The slots of an event that have content."""
    state = log.event_bytes(position)
    assert state is not None
    head, parts = take_apart(state)
    slots = [slot for part in (head, *parts) for slot in part[1:]]
    return {number for number, slot in enumerate(slots) if slot[:1] != b"\xc0" and not slot.startswith(COMMITTED)}


@given(st.data())
@settings(max_examples=examples(40), deadline=None)
def test_any_slots_in_any_order_and_groups(data: st.DataObject) -> None:
    log = MemoryLog()
    chat = LoggedChat(log)
    position = chat.append(*data.draw(st.lists(st.text(max_size=40), min_size=1, max_size=6)))
    chat.end()
    state = chat.events[position].state
    slots = range(2 * len(take_apart(state).parts) + 2)
    taken: set[int] = set()
    for group in data.draw(st.lists(st.sets(st.sampled_from(slots)), max_size=6)):
        assert log.rewrite(position, group)
        taken |= group
        assert log.event_bytes(position) == without(state, taken)
        recorded = log.event_at(position)
        assert recorded is not None
        assert recorded.hash == event_hash(state)


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["clear", "encrypted"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_byte_is_left(kind: str, tmp_path: Path, *, is_encrypted: bool) -> None:
    """Of small and of long ones, compressed and encrypted, however often; what was not named stays, and reads as before."""
    with open_log(location_of(kind, tmp_path), is_encrypted=is_encrypted) as log:
        chat = LoggedChat(log)
        long = " ".join(f"{number * 2_654_435_761 % 2**32:x}" for number in range(900))
        positions = [chat.append(f"{SECRET} {number}", f"kept {number}") for number in range(20)]
        positions.append(chat.append(f"{long} {SECRET} {long}", "kept 20"))
        chat.end()
        records = {record.id: record.state for record in log.stored(0)}
        before = hashes(log)
        for position in positions:
            log.rewrite(position, [3])
        assert before == hashes(log)
        for position in positions:
            old = records[position]
            # Ciphertext has no text that could be looked for.
            pieces = [old[at : at + 24] for at in range(len(old) // 4, len(old) - 24, 24)] if is_encrypted else []
            raw = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
            assert not any(piece in raw for piece in pieces)
            assert 5 in slots_left(log, position)
            assert 3 not in slots_left(log, position)
        assert [] == files_with(tmp_path, SECRET.encode())
        assert is_encrypted or files_with(tmp_path, b"kept 7")
        for position in positions:
            log.rewrite(position, [5])
    assert [] == files_with(tmp_path, SECRET.encode()) == files_with(tmp_path, b"kept")
    with open_log(location_of(kind, tmp_path), is_encrypted=is_encrypted) as log:
        assert before == hashes(log)


@pytest.mark.parametrize("kind", KINDS)
def test_a_chat_that_is_deleted_afterwards(kind: str, tmp_path: Path) -> None:
    """What was left of its events goes with it, that of others stays, and the log opens as before."""
    with open_log(location_of(kind, tmp_path)) as log:
        gone, stays = LoggedChat(log, "gone"), LoggedChat(log, "stays")
        positions = [(gone.append(SECRET, "of one"), stays.append(SECRET, "of another")) for _ in range(5)]
        gone.end()
        stays.end()
        for pair in positions:
            for position in pair:
                log.rewrite(position, [3])
        gone.delete()
        assert [] == files_with(tmp_path, SECRET.encode()) == files_with(tmp_path, b"of one")
        left = hashes(log)
        assert log.count() in {None, len(left)}
    with open_log(location_of(kind, tmp_path)) as log:
        assert left == hashes(log)
        assert not any(log.event_at(position) for position, _ in positions)
        assert all(slots_left(log, position) == {5} for _, position in positions)


@pytest.mark.parametrize("kind", ["sqlite", "sqlite+pysqlite"])
def test_records_that_grow(kind: str, tmp_path: Path) -> None:
    """A commitment is longer than a short text, so SQLite moves the rows beside it. The copies that it leaves behind go, too."""
    rng = random.Random(11)  # with this seed it left some
    with open_log(location_of(kind, tmp_path), compression="none", timeout_s=30) as log:
        short, secret = LoggedChat(log, "short"), LoggedChat(log, "secret")
        positions = list[int]()
        for _ in range(60):
            positions.append(short.append(*["ok"] * rng.choice([1, 20])))
            secret.append(SECRET * rng.choice([10, 60, 100]))
        short.end()
        with log.erasing():
            for position in rng.sample(positions, len(positions)):
                log.rewrite(position, range(50))
        secret.delete()
        assert [] == files_with(tmp_path, SECRET.encode())


def test_large_data_that_a_record_carries(tmp_path: Path) -> None:
    """A restored record in a database has them with it: those that no slot refers to any more go, and the others stay."""
    with open_log(str(tmp_path / "data")) as log:
        chat = LoggedChat(log)
        large = ["".join(random.Random(seed).choices("0123456789abcdef", k=300_000)) for seed in (1, 2)]
        position = chat.append(*large)
        chat.end()
        records = log.stored(0)
    with open_log(f"sqlite:///{tmp_path}/log.db") as log:
        log.restore([records])
        assert files_with(tmp_path, large[0][-50:].encode())
        log.rewrite(position, [3])
        recorded = log.event_at(position)
        assert recorded is not None
        assert isinstance(recorded.body, MessagesAppended)
        assert large[1] == recorded.body.messages[1].text
        (tmp_path / "data").rename(tmp_path.with_name("elsewhere"))
        assert [] == files_with(tmp_path, large[0][-50:].encode())
        log.rewrite(position, range(9))
        assert [] == files_with(tmp_path, large[1][-50:].encode())


def test_what_is_no_event() -> None:
    log = MemoryLog()
    chat = LoggedChat(log)
    position = chat.append("text")
    chat.end()
    assert not log.rewrite(99, [3])
    for topic in ("of others", chat.events[position].topic):
        log._events._stored_events[position - 1] = StoredEvent(chat.id, 2, topic, b"text")
        with pytest.raises(CorruptStateError):
            log.rewrite(position, [3])


class Crash(Exception):  # noqa: N818 - not an error, an event
    """The process dies here."""


STEPS: dict[str, tuple[Any, str, bool]] = {
    "before the new record": (RewrittenRecords, "_append", True),
    "after the new record": (RewrittenRecords, "_append", False),
    "after it was read back": (JetStreamLog, "_is_put", False),
    "after the old record": (event_log, "erase_all", False),
    "before older ones": (RewrittenRecords, "erase_older", True),
    "after older ones": (RewrittenRecords, "erase_older", False),
}


@pytest.mark.guard
@pytest.mark.parametrize("is_again", [False, True], ids=["first", "again"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("durability", ["fast", "always"])
def test_a_server_that_is_killed(
    step: str, durability: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_again: bool
) -> None:
    """Whenever it dies, all events are there with their hashes, nothing that was taken away is back, and the next call finishes it."""
    if not is_again and "older" in step:
        pytest.skip("there are none")
    data = tmp_path / "data"
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(open_log(str(data), durability=durability))
        chat = LoggedChat(log)
        position = chat.append(f"{SECRET} 1", f"{SECRET} 2", "kept")
        chat.end()
        before = hashes(log)
        if is_again:
            log.rewrite(position, [3])
        patch = stack.enter_context(monkeypatch.context())
        patch.setattr(*_dying(step, data))
        with pytest.raises(Crash):
            log.rewrite(position, [5])
    for _ in range(2):
        with open_log(str(data), durability=durability) as log:
            assert before == hashes(log)
            left = slots_left(log, position)
            assert left in ([{5, 7}, {7}] if is_again else [{3, 5, 7}, {3, 7}])
    with open_log(str(data), durability=durability) as log:
        assert log.rewrite(position, [5])
        assert slots_left(log, position) == ({7} if is_again else {3, 7})
        assert [] == files_with(tmp_path, f"{SECRET} 2".encode())
        assert before == hashes(log)
        assert log.count() == len(before)
        log.rewrite(position, [3])
    assert [] == files_with(tmp_path, SECRET.encode())
    assert [] == list(data.glob(f"{MARK}*"))


def _dying(step: str, data: Path) -> tuple[Any, str, Callable[..., Any]]:
    owner, name, is_before = STEPS[step]
    whole = getattr(owner, name)

    def dying(*args: Any, **kwargs: Any) -> Any:
        result = None if is_before else whole(*args, **kwargs)
        del result
        kill_server(data)
        raise Crash

    return owner, name, dying


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with running(tmp_path / "server") as server:
        yield server


@pytest.fixture
def place(server: Server) -> str:
    return f"nats://{TOKEN}@127.0.0.1:{server.port}/log"


@pytest.mark.guard
def test_writers_at_the_same_time(place: str, tmp_path: Path) -> None:
    """Each takes other slots away from the same events, with a connection of its own: nothing comes back."""
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(open_log(place)) for _ in range(3)]
        chat = LoggedChat(logs[0])
        positions = [chat.append(*[f"{SECRET} {number}" for number in range(6)]) for _ in range(12)]
        chat.end()
        before = hashes(logs[0])
        errors: list[BaseException] = []
        begin = threading.Barrier(3)

        def work(number: int) -> None:
            try:
                for position in positions:
                    begin.wait(30)
                    for slot in (3 + 4 * number, 5 + 4 * number):
                        assert logs[number].rewrite(position, [slot])
            except BaseException as error:
                errors.append(error)
                begin.abort()
                raise

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        for log in logs:
            assert before == hashes(log)
            assert [set()] * len(positions) == [slots_left(log, position) for position in positions]
            assert log.count() == len(before)
    assert [] == files_with(tmp_path / "server", SECRET.encode())


def test_another_rewrites_it_between_two_questions(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not there any more, and what stands in for it was not asked for yet: it is not taken for erased."""
    with open_log(place) as log, open_log(place) as other:
        chat = LoggedChat(log)
        position = chat.append(SECRET, SECRET)
        chat.end()
        ask, others = reading.at, [other]

        def asked_late(*args: Any) -> Any:
            while others:
                assert others.pop().rewrite(position, [3])
            return ask(*args)

        monkeypatch.setattr(event_log, "message_at", asked_late)
        assert log.rewrite(position, [5])
        assert set() == slots_left(log, position)


@pytest.mark.parametrize("when", ["put", "_is_put"])
def test_a_chat_that_is_deleted_meanwhile(
    when: str, place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its events are erased before or after the new record is written; neither is there in the end."""
    with open_log(place) as log:
        chat = LoggedChat(log)
        position = chat.append(SECRET, "kept")
        chat.end()
        owner: Any = RewrittenRecords if when == "put" else JetStreamLog
        whole = getattr(owner, when)

        def deleting(*args: Any, **kwargs: Any) -> Any:
            monkeypatch.setattr(owner, when, whole)
            chat.delete()
            return whole(*args, **kwargs)

        monkeypatch.setattr(owner, when, deleting)
        assert not log.rewrite(position, [3])
        assert log.event_at(position) is None
        assert [] == files_with(tmp_path / "server", b"kept") == files_with(tmp_path / "server", SECRET.encode())


def test_a_follower_that_is_behind(place: str) -> None:
    """It looked for what was rewritten before; it misses no event that was rewritten since, however it reads."""
    with open_log(place) as log, open_log(place) as other:
        gone, chat = LoggedChat(log, "gone"), LoggedChat(log)
        gone.append("text")
        positions = [chat.append(f"a {number}", f"b {number}") for number in range(30)]
        chat.end()
        gone.delete()  # leaves holes that are none of a redaction
        log.rewrite(positions[0], [3])
        seen = other.read(0, 5)
        of_chat = other.read_stream(chat.id, after=0, limit=5)
        before = log.read(0)
        for position in positions[10:20]:
            log.rewrite(position, [3])
        while page := other.read(seen[-1].position, 7):
            seen += page
        while page := other.read_stream(chat.id, after=of_chat[-1].position, limit=7):
            of_chat += page
        assert [recorded.hash for recorded in before] == [recorded.hash for recorded in seen]
        assert [recorded.hash for recorded in seen if recorded.chat_id == chat.id] == [
            recorded.hash for recorded in of_chat
        ]
        assert log.count() == other.count() == len(before)
        # The same events again: those of which the list knows already.
        for position in positions[10:20]:
            log.rewrite(position, [5])
        bodies = [recorded.body for recorded in other.read(positions[9], 11)]
        texts = [message.text for body in bodies if isinstance(body, MessagesAppended) for message in body.messages]
        assert not {"a 12", "b 12"} & set(texts)
        assert "a 20" in texts


def test_a_share(place: str) -> None:
    """Between the events of a share stand those of others: what was rewritten in it is found all the same, and nothing else."""
    with open_log(place, share=(0, 1)) as log:
        chats = [LoggedChat(log, name) for name in ("one", "other")]
        positions = [chat.append("a", "b") for chat in chats for _ in range(3)]
        for chat in chats:
            chat.end()
        with open_log(place, share=(0, 2)) as even, open_log(place, share=(1, 2)) as odd:
            before = [hashes(even), hashes(odd)]
            counts = [even.count(), odd.count()]
            for position in positions:
                log.rewrite(position, [3])
            assert before == [hashes(even), hashes(odd)]
            assert counts == [even.count(), odd.count()]
            assert len(hashes(log)) == log.count() == 10


def test_what_it_costs_without_redactions(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks about redactions where no event is missing; where chats were deleted, once for a page, however many."""
    asked = 0
    refresh = RewrittenRecords.refresh

    def counted(self: RewrittenRecords) -> None:
        nonlocal asked
        asked += 1
        refresh(self)

    with open_log(place) as log:
        chats = [LoggedChat(log, f"chat {number}") for number in range(20)]
        for number in range(200):
            chats[number % 20].append("text")
        monkeypatch.setattr(RewrittenRecords, "refresh", counted)
        log.read(0)
        page = log.read_stream("chat 3", after=0, limit=4)
        log.read_stream("chat 3", after=page[-1].position)
        assert log.event_at(17)
        assert log.news(3) == []
        assert asked == 0
        for chat in chats[5:15]:
            chat.delete()
        asked = 0
        assert len(log.read(0)) == 10 * 11 + 10
        assert asked == 1
        log.read_stream("chat 3", after=0)
        assert asked == 1


def test_records_of_another_log(place: str) -> None:
    """A stream that is left of a log which was here before fills no holes of the next one, and is not written to."""
    with open_log(place) as log:
        chat = LoggedChat(log)
        position = chat.append("text")
        chat.end()
        log.rewrite(position, [3])
        assert isinstance(log, JetStreamLog)
        records = log.stored(0)
        delete_stream(log._client, "log")
    with open_log(place) as log:
        with pytest.raises(ConfigurationError, match="log-redacted"):
            log.restore([records])
        chat = LoggedChat(log)
        position = chat.append("text")
        chat.end()
        with pytest.raises(ConfigurationError, match="log-redacted"):
            log.rewrite(position, [3])


@pytest.mark.parametrize("kind", KINDS)
def test_a_ledger_on_what_was_rewritten(kind: str, tmp_path: Path) -> None:
    """It is built anew and diagnosed with the events as they are now; its records restored, no event stands elsewhere any more."""
    location = location_of(kind, tmp_path)
    with chatledger.open(location) as ledger:
        ledger.create_chat("chat", "ada")
        ledger.append("chat", [user(f"{SECRET} 1", id="m1"), user("kept", id="m2")])
        ledger.append("chat", [user(f"{SECRET} 2", id="m3")])
        ledger.append("chat", [user("end", id="m4")])
        before = [recorded.hash for recorded in ledger.history()]
        log = store_behind(ledger).log
        assert log.rewrite(2, [3])
        assert log.rewrite(3, [3])
        ledger.rebuild()
        assert ["[redacted]", "kept", "[redacted]", "end"] == [message.text for message in ledger.get_messages("chat")]
        assert before == [recorded.hash for recorded in ledger.history()]
        assert before == [recorded.hash for recorded in ledger.history("chat")]
        records = log.stored(0)
    assert admin.diagnose(location).is_healthy
    assert [] == files_with(tmp_path, SECRET.encode())
    with open_log(str(tmp_path / "restored")) as log:
        log.restore([records])
        assert before == hashes(log)
    assert not list(tmp_path.glob("restored/log/**/*-redacted"))
    with chatledger.open(tmp_path / "restored") as ledger:
        assert before == [recorded.hash for recorded in ledger.history("chat")]


def test_bytes_that_a_server_left_are_overwritten_at_the_next_start(tmp_path: Path) -> None:
    """Also those of records that were rewritten once more."""
    data = tmp_path / "data"
    with open_log(str(data), compression="none") as log:
        chat = LoggedChat(log)
        position = chat.append("first", SECRET)
        chat.end()
        log.rewrite(position, [3])
    block = data / "log" / "jetstream" / "$G" / "streams" / "chatledger-redacted" / "msgs" / "1.blk"
    before = block.read_bytes()
    with open_log(str(data), compression="none") as log:
        log.rewrite(position, [5])
    raw = bytearray(block.read_bytes())
    length = int.from_bytes(before[:4], "little") & 0x7FFFFFFF
    assert SECRET.encode() in before[:length]
    raw[:length] = before[:length]
    block.write_bytes(raw)
    (data / f"{MARK}killed").touch()
    assert [leftovers.file for leftovers in find_unfinished(DataDirectory(data))] == [block]
    with open_log(str(data), compression="none") as log:
        assert [] == files_with(tmp_path, SECRET.encode())
        assert slots_left(log, position) == set()
