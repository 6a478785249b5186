"""The contract of a storage of live streams, on every kind of log."""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from eventsourcing.persistence import JSONTranscoder
from tests.contracts.store_world import together
from tests.support.alchemy_world import ALCHEMY_KINDS, new_alchemy_location
from tests.support.encrypted_world import found_in
from tests.support.jetstream_world import TOKEN, connected, running

from chatledger.domain.chat.live import LiveKey, LiveStart, live_key
from chatledger.infra.log.live import LiveStreams
from chatledger.infra.log.live_storage import (
    LiveAbsentError,
    LiveChangedError,
    LiveReading,
    LiveStorage,
    MemoryLiveStorage,
    StoredEntry,
)
from chatledger.infra.log.mapper import StructMapper
from chatledger.infra.log.nats import live, subscription
from chatledger.infra.log.nats.live import JetStreamLiveStorage
from chatledger.infra.store.opening.locations import log_at
from chatledger.infra.store.opening.options import LogOnly
from chatledger.jetstream import JetStreamClient
from chatledger.testing import EventLog, MemoryLog

RECORDS = [f"record {number}".encode() for number in range(300)]


@pytest.fixture(
    scope="module",
    params=[
        *("memory", "embedded", "nats", "sqlite", "sqlite+pysqlite", "mysql+pymysql"),
        *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("postgresql", "postgresql+psycopg", "mssql+pyodbc")),
    ],
)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, EventLog]]:
    """A log of one kind, and the folder with its files."""
    base = tmp_path_factory.mktemp(request.param)
    with contextlib.ExitStack() as stack:
        match request.param:
            case "memory":
                yield base, MemoryLog()
                return
            case "nats":
                server = stack.enter_context(running(base / "server"))
                options = LogOnly(f"nats://{TOKEN}@127.0.0.1:{server.port}/live", create=True)
            case "postgresql":
                options = LogOnly(request.getfixturevalue("new_postgres_database")())
            case kind if kind in ALCHEMY_KINDS:
                options = LogOnly(new_alchemy_location(request, kind, base)())
            case "sqlite":
                options = LogOnly(f"sqlite:///{base}/log.db")
            case _:
                options = LogOnly(base / "data", durability="fast")
        yield base, stack.enter_context(log_at(options))


@pytest.fixture
def storage(place: tuple[Path, EventLog]) -> LiveStorage:
    return place[1].live.storage


@pytest.fixture
def key() -> LiveKey:
    return live_key(uuid.uuid4().hex, "stream")


def fill(storage: LiveStorage, key: LiveKey, records: list[bytes]) -> list[int]:
    """The positions of the records of a new stream."""
    positions = [storage.create(key, records[0])]
    for record in records[1:]:
        positions.append(storage.add(key, record, expected=positions[-1]))
    return positions


def read(storage: LiveStorage, key: LiveKey, count: int, *, after: int = 0) -> list[StoredEntry]:
    found: list[StoredEntry] = []
    reading = storage.open(key, after=after)
    while len(found) < count:
        page = reading.next(10.0)
        assert page, "entries that are there arrive"
        found += page
    reading.close()
    return found


def test_entries_are_read_in_order_from_any_position(storage: LiveStorage, key: LiveKey) -> None:
    """Also when there are more than fit into a page."""
    positions = fill(storage, key, RECORDS)
    whole = list(map(StoredEntry, positions, RECORDS))

    assert whole == read(storage, key, len(whole))
    assert whole[150:] == read(storage, key, len(whole) - 150, after=positions[149])


def test_an_entry_is_added_behind_the_last_one_only(storage: LiveStorage, key: LiveKey) -> None:
    """Whoever expects another one changes nothing; the same record again, after a lost answer, is there once."""
    first, second = fill(storage, key, [b"one", b"two"])

    with pytest.raises(LiveChangedError):
        storage.add(key, b"other", expected=first)
    with pytest.raises(LiveChangedError):
        storage.create(key, b"other")
    assert [b"one", b"two"] == [entry.record for entry in read(storage, key, 2)]
    ends = storage.ends(key)
    assert ends is not None
    assert (StoredEntry(first, b"one"), StoredEntry(second, b"two")) == (ends.first, ends.last)
    assert 0 <= ends.idle_s < 60


def test_a_record_is_added_once_however_often_it_is_sent(place: tuple[Path, EventLog], key: LiveKey) -> None:
    """As after an answer that was lost."""
    storage = place[1].live.storage
    if isinstance(storage, MemoryLiveStorage):
        return  # no answer gets lost there
    first = storage.create(key, b"one")

    positions = [storage.add(key, b"two", expected=first) for _ in range(3)]

    assert 1 == len(set(positions))
    assert 2 == len(read(storage, key, 2))


def test_of_several_at_the_same_place_one_wins(storage: LiveStorage, key: LiveKey) -> None:
    """The others are told, and wrote nothing."""
    at = storage.create(key, b"first")

    def add(number: int) -> int:
        with contextlib.suppress(LiveChangedError):
            storage.add(key, f"by {number}".encode(), expected=at)
            return 1
        return 0

    assert 1 == sum(together(4, add))
    assert 2 == len(read(storage, key, 2))


def test_a_reader_waits_for_what_comes(storage: LiveStorage, key: LiveKey) -> None:
    """It gets each entry once, while they are added."""
    at = storage.create(key, RECORDS[0])
    found: list[StoredEntry] = []
    thread = threading.Thread(target=lambda: found.extend(read(storage, key, 100)), daemon=True)
    thread.start()
    for record in RECORDS[1:100]:
        at = storage.add(key, record, expected=at)
    thread.join(20)

    assert RECORDS[:100] == [entry.record for entry in found]


def await_nothing(reading: LiveReading) -> None:
    """Wait for entries, of which there are none."""
    for _ in range(100):
        assert [] == list(reading.next(0.1))


def test_a_dropped_stream_is_gone(place: tuple[Path, EventLog], key: LiveKey, monkeypatch: pytest.MonkeyPatch) -> None:
    """For writers, readers and the files; another one under the same key begins anew."""
    monkeypatch.setattr(live, "GONE_S", 0.1)
    base, log = place
    storage = log.live.storage
    secret = f"secret {uuid.uuid4().hex}"
    at = fill(storage, key, [secret.encode(), b"more"])[-1]
    reading = storage.open(key, after=at)
    storage.drop(key)
    storage.drop(key)

    with pytest.raises(LiveAbsentError):
        storage.add(key, b"late", expected=at)
    with pytest.raises(LiveAbsentError):
        await_nothing(reading)
    reading.close()
    assert storage.ends(key) is None
    assert set() == found_in(base, {"chunk": secret})
    storage.create(key, b"anew")
    assert [b"anew"] == [entry.record for entry in read(storage, key, 1)]


def test_an_absent_stream_is_not_made_by_adding(storage: LiveStorage, key: LiveKey) -> None:
    """Only `create` makes one."""
    with pytest.raises(LiveAbsentError):
        storage.add(key, b"late", expected=3)
    assert storage.ends(key) is None
    assert [] == storage.list_keys(key.chat)


def test_streams_are_listed_by_chat(storage: LiveStorage) -> None:
    """And all together."""
    chat, other = uuid.uuid4().hex, uuid.uuid4().hex
    keys = [live_key(chat, "a"), live_key(chat, "b"), live_key(other, "a")]
    for key in keys:
        storage.create(key, b"x")

    assert set(keys[:2]) == set(storage.list_keys(keys[0].chat))
    assert set(keys) <= set(storage.list_keys())


def test_a_closed_reading_gives_nothing(storage: LiveStorage, key: LiveKey) -> None:
    """A waiting reader comes back, too."""
    storage.create(key, b"x")
    reading = storage.open(key, after=0)
    assert [b"x"] == [entry.record for entry in reading.next(10)]
    threading.Timer(0.05, reading.close).start()

    assert [] == list(reading.next(20))
    assert [] == list(reading.next(20))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[JetStreamClient, JetStreamLiveStorage]]:
    """A storage on a server, and its connection."""
    with running(tmp_path / "server") as server, connected(server.endpoint) as client:
        yield client, JetStreamLiveStorage(client, "log", replicas=1, is_shared=True, max_bytes=1_000_000)


def test_a_slow_reader_does_not_gather_everything(
    served: tuple[JetStreamClient, JetStreamLiveStorage], key: LiveKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is fetched ahead is limited in size; nothing of the rest is lost."""
    monkeypatch.setattr(subscription, "WANTED_BYTES", 400_000)
    _, storage = served
    records = [bytes([number]) * 100_000 for number in range(40)]
    fill(storage, key, records)
    reading = storage.open(key, after=0)
    found = list(reading.next(10.0))
    time.sleep(0.3)
    ahead = reading.next(10.0)

    assert 0 < sum(len(entry.record) for entry in ahead) <= 3 * 400_000
    found += ahead
    while len(found) < len(records):
        found += reading.next(10.0)
    assert records == [entry.record for entry in found]
    reading.close()


def test_closing_a_reading_does_not_wait_for_the_loop(
    served: tuple[JetStreamClient, JetStreamLiveStorage], key: LiveKey
) -> None:
    """A finaliser closes it in whatever thread runs, which may have what the loop waits for."""
    client, storage = served
    storage.create(key, b"x")
    reading = storage.open(key, after=0)
    assert [b"x"] == [entry.record for entry in reading.next(10.0)]
    is_over = threading.Event()
    client.loop.signal(is_over.wait, 20.0)
    closing = threading.Thread(target=reading.close, daemon=True)
    closing.start()
    closing.join(5.0)
    was_waiting = closing.is_alive()
    is_over.set()

    assert not was_waiting


def test_a_stream_that_was_made_anew_is_not_read_on(
    served: tuple[JetStreamClient, JetStreamLiveStorage], key: LiveKey
) -> None:
    """Whoever read the one before is told that it is gone."""
    streams = LiveStreams(served[1], StructMapper(JSONTranscoder()))
    start = LiveStart(uuid.uuid4().hex, "s", "assistant", None, 0, 60.0, 1, "m")
    key, _ = streams.begin(start)
    reading = streams.read(key)
    assert 1 == len(reading.next(10.0))
    streams.drop([key])
    streams.begin(start)

    with pytest.raises(LiveAbsentError):
        reading.next(10.0)
    reading.close()


@pytest.mark.soak
def test_an_entry_on_its_way_into_postgresql_does_not_outlive_its_stream(
    new_postgres_database: Callable[[], str], key: LiveKey
) -> None:
    """A drop waits for those who add an entry, and takes that too."""
    import psycopg

    location = new_postgres_database()
    with log_at(LogOnly(location)) as log:
        storage = log.live.storage
        at = fill(storage, key, [b"one", b"two"])[-1]
        dropping = threading.Thread(target=storage.drop, args=(key,), daemon=True)
        with psycopg.connect(location) as adding:
            adding.execute("UPDATE chatledger_live SET at = at WHERE chat = %s AND stream = %s AND number = 1", key)
            adding.execute("INSERT INTO chatledger_live VALUES (%s, %s, %s, 0, 'three')", (*key, at + 1))
            dropping.start()
            dropping.join(0.5)
        dropping.join(20)

        assert storage.ends(key) is None
        with pytest.raises(LiveAbsentError):
            storage.add(key, b"four", expected=at + 1)
