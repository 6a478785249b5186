"""Large data beside the log: what each log stores, and that no order of steps of writers and erasers loses what is used."""

# White-box: what is stored is looked at, and damaged.
# pyright: reportPrivateUsage=false

import os
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from eventsourcing.persistence import JSONTranscoder
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.ledger_world import store_behind
from tests.support.soak import examples

import chatledger
from chatledger import CorruptStateError
from chatledger.infra.log import blobs as blobs_module
from chatledger.infra.log.blob_storage import BlobChangedError, BlobEntry, BlobStorage, MemoryBlobStorage
from chatledger.infra.log.blobs import LEASE_MS, NAMES_STRAND, Blobs, MissingBlobError
from chatledger.infra.log.cipher import RecordCipher, new_key, read_keys
from chatledger.infra.log.mapper import StructMapper, ZstdCompressor

PLAIN = StructMapper(JSONTranscoder())


def digest_of(data: bytes) -> bytes:
    return sha256(data).digest()


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture(params=["memory", "sqlite", "path", "alchemy"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlobStorage]:
    """The storage of each kind of log."""
    location = {
        "memory": "memory:",
        "sqlite": f"sqlite:///{tmp_path}/log.db",
        "path": str(tmp_path / "ledger"),
        "alchemy": f"sqlite+pysqlite:///{tmp_path}/log.db",
    }[request.param]
    with chatledger.open(location) as ledger:
        yield store_behind(ledger).log.blobs._storage


# --- ObjectStore


def test_entries_are_compared_before_they_grow(storage: BlobStorage) -> None:
    """An entry follows the one that is named, or is refused; names do not see each other."""
    assert storage.last("ab") is None
    assert storage.names() == []
    first = storage.add("ab", b"one", expected=0)
    for expected in (0, first + 1):
        with pytest.raises(BlobChangedError):
            storage.add("ab", b"lost", expected=expected)
    other = storage.add("cd", b"other", expected=0)
    second = storage.add("ab", b"two", expected=first)

    assert storage.last("ab") == BlobEntry(second, b"two")
    assert list(storage.read("ab", after=0, until=second)) == [BlobEntry(first, b"one"), BlobEntry(second, b"two")]
    assert list(storage.read("ab", after=first, until=second)) == [BlobEntry(second, b"two")]
    assert list(storage.read("ab", after=0, until=first)) == [BlobEntry(first, b"one")]
    assert list(storage.read("cd", after=0, until=other)) == [BlobEntry(other, b"other")]
    assert sorted(storage.names()) == ["ab", "cd"]


def test_positions_are_not_used_again(storage: BlobStorage) -> None:
    """Who knows a position before an erasure cannot add behind what came after it."""
    first = storage.add("ab", b"one", expected=0)
    second = storage.add("ab", b"two", expected=first)
    storage.remove("ab", first)
    storage.remove("ab", first)
    assert list(storage.read("ab", after=0, until=second)) == [BlobEntry(second, b"two")]
    storage.erase("ab", until=second)
    storage.erase("ab", until=second)

    assert storage.last("ab") is None
    assert storage.names() == []
    with pytest.raises(BlobChangedError):
        storage.add("ab", b"lost", expected=second)
    assert storage.add("ab", b"three", expected=0) > second


def test_an_erasure_ends_where_it_was_told_to(storage: BlobStorage) -> None:
    """What is added meanwhile stays, and more entries than a page has are read and erased."""
    position = 0
    positions = [position := storage.add("ab", b"%d" % number, expected=position) for number in range(40)]
    assert [stored.entry for stored in storage.read("ab", after=0, until=position)] == [b"%d" % n for n in range(40)]
    storage.erase("ab", until=positions[34])

    assert [stored.position for stored in storage.read("ab", after=0, until=position)] == positions[35:]


# --- Data


@pytest.mark.matrix
@pytest.mark.parametrize("size", [1, 524_288, 524_289, 3_000_000])
def test_data_come_back_as_they_were(storage: BlobStorage, size: int) -> None:
    """Whatever the size, and whatever the chunks begin with; storing them again stores nothing."""
    data = (b"\xc1Z\xc1E\xc1R" + os.urandom(17)) * (size // 23 + 1)
    data = data[:size]
    blobs = Blobs(storage, PLAIN)
    for _ in range(3):
        hold = blobs.hold(digest_of(data), memoryview(data))
        blobs.release(hold)

    assert blobs.get(digest_of(data), size) == data
    last = storage.last(hold.name)
    assert last is not None
    entries = list(storage.read(hold.name, after=0, until=last.position))
    assert len(entries) == -(-size // storage.chunk_bytes) + 1


def test_what_is_unknown_is_missing(storage: BlobStorage) -> None:
    """No data, or not all of them."""
    blobs, data = Blobs(storage, PLAIN), os.urandom(1_500_000)
    with pytest.raises(MissingBlobError, match="missing"):
        blobs.get(digest_of(data), len(data))
    hold = blobs.hold(digest_of(data), memoryview(data))
    storage.remove(hold.name, hold.upload.last)
    with pytest.raises(MissingBlobError, match="1 of 3 parts"):
        blobs.get(digest_of(data), len(data))


def test_what_was_altered_is_found() -> None:
    """One changed byte of a chunk in clear."""
    storage = MemoryBlobStorage(chunk_bytes=1000)
    blobs, data = Blobs(storage, PLAIN), os.urandom(2500)
    hold = blobs.hold(digest_of(data), memoryview(data))
    entries = storage._blobs[hold.name]
    raw = bytearray(entries[hold.upload.first])
    raw[-1] ^= 1
    entries[hold.upload.first] = bytes(raw)
    with pytest.raises(CorruptStateError, match="altered"):
        blobs.get(digest_of(data), len(data))


def test_encrypted_data_show_neither_content_nor_equality() -> None:
    """Names and chunks depend on the key, chunks stand in no other place, and old keys still find and drop them."""
    old, new = new_key("old"), new_key("new")
    data = b"the password is swordfish" * 1000
    digest = digest_of(data)
    storage = MemoryBlobStorage(chunk_bytes=10_000)

    def of(*keys: str) -> Blobs:
        mapper = StructMapper(JSONTranscoder(), compressor=ZstdCompressor(), cipher=RecordCipher(read_keys(list(keys))))
        return Blobs(storage, mapper)

    blobs = of(old)
    hold = blobs.hold(digest, memoryview(data))
    blobs.release(hold)
    stored = repr(storage._blobs).encode()
    assert b"swordfish" not in stored
    assert digest.hex().encode() not in stored

    both = of(new, old)
    assert both.get(digest, len(data)) == data
    with pytest.raises(MissingBlobError):
        of(new).get(digest, len(data))
    assert list(of(new).unreferenced([])) == []
    assert list(both.unreferenced([digest])) == []
    both.release(both.hold(digest, memoryview(data)))
    assert len(storage.names()) == 2
    entries = storage._blobs[hold.name]
    first, second = sorted(entries)[:2]
    entries[first], entries[second] = entries[second], entries[first]
    with pytest.raises(MissingBlobError):
        of(old).get(digest, len(data))
    assert both.drop(digest, is_used=lambda: False)
    assert storage.names() == []


def test_names_are_those_of_one_ledger() -> None:
    """Known data are not recognised by their names, which another ledger and another process of the same one show."""
    data = b"a file that everybody has"
    digest, storage, other = digest_of(data), MemoryBlobStorage(chunk_bytes=1000), MemoryBlobStorage(chunk_bytes=1000)
    names = [Blobs(place, PLAIN).hold(digest, memoryview(data)).name for place in (storage, storage, other)]

    assert names[0] == names[1] != names[2]
    assert digest.hex() not in repr(storage._blobs)
    assert bytes(digest) not in b"".join(entry for entries in storage._blobs.values() for entry in entries.values())
    assert Blobs(storage, PLAIN).get(digest, len(data)) == data


def test_a_storage_that_was_lost_and_made_anew() -> None:
    """A process that knew the secret of the lost one finds what others store, and takes nothing of theirs for unused."""
    data = b"once more"
    digest, storage = digest_of(data), MemoryBlobStorage(chunk_bytes=1000)
    here, there = Blobs(storage, PLAIN), Blobs(storage, PLAIN)
    here.release(here.hold(digest, memoryview(data)))
    storage._blobs.clear()
    with pytest.raises(MissingBlobError):
        here.get(digest, len(data))
    there.release(there.hold(digest, memoryview(data)))

    assert here.get(digest, len(data)) == data
    storage._blobs.pop(NAMES_STRAND)
    anew = Blobs(storage, PLAIN)
    hold = anew.hold(digest_of(b"other"), memoryview(b"other"))
    assert list(anew.unreferenced([])) == [hold.name]
    assert len(anew.names()) == 2


# --- Erasing


def test_data_are_erased_unless_they_are_used_or_about_to_be(
    storage: BlobStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data that a writer holds stay; a writer that is not heard of for an hour is taken for dead."""
    clock, data = Clock(), os.urandom(600_000)
    digest = digest_of(data)
    monkeypatch.setattr(storage, "now_ms", clock)
    blobs = Blobs(storage, PLAIN)
    hold = blobs.hold(digest, memoryview(data))
    assert not blobs.drop(digest, is_used=lambda: False)
    other = blobs.hold(digest, memoryview(data))
    blobs.release(hold)
    assert not blobs.drop(digest, is_used=lambda: False)
    blobs.release(other)
    assert blobs.drop(digest, is_used=lambda: True)
    assert blobs.get(digest, len(data)) == data
    blobs.hold(digest, memoryview(data))
    clock.now += LEASE_MS + 1
    assert blobs.drop(digest, is_used=lambda: False)
    assert blobs.names() == []
    assert blobs.drop(digest, is_used=lambda: False)


def test_a_client_whose_clock_is_hours_ahead_takes_no_writer_for_dead(
    storage: BlobStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one whose clock is behind: there is one clock for all of them."""
    data, now_ns = os.urandom(600_000), time.time_ns()
    digest, blobs = digest_of(data), Blobs(storage, PLAIN)
    for writer_ms, eraser_ms in ((0, 2 * LEASE_MS), (-2 * LEASE_MS, 0)):
        monkeypatch.setattr(time, "time_ns", lambda ahead_ms=writer_ms: now_ns + ahead_ms * 1_000_000)
        hold = blobs.hold(digest, memoryview(data))
        monkeypatch.setattr(time, "time_ns", lambda ahead_ms=eraser_ms: now_ns + ahead_ms * 1_000_000)
        assert not blobs.drop(digest, is_used=lambda: False)
        blobs.release(hold)
        assert blobs.drop(digest, is_used=lambda: False)


def test_an_erasure_that_was_interrupted_is_finished(storage: BlobStorage) -> None:
    """A crash after the mark: the data are erased by whoever comes next, or stored anew."""
    data = os.urandom(1_200_000)
    digest, blobs = digest_of(data), Blobs(storage, PLAIN)

    def interrupted() -> None:
        blobs.release(blobs.hold(digest, memoryview(data)))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(storage), "erase", _die)
            with pytest.raises(Killed):
                blobs.drop(digest, is_used=lambda: False)

    interrupted()
    assert blobs.drop(digest, is_used=lambda: False)
    assert blobs.names() == []
    interrupted()
    hold = blobs.hold(digest, memoryview(data))
    assert blobs.get(digest, len(data)) == data
    last = storage.last(hold.name)
    assert last is not None
    assert next(iter(storage.read(hold.name, after=0, until=last.position))).position == hold.upload.first


def test_a_dead_writers_parts_are_replaced(storage: BlobStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who finds half of the data stores all of them, and removes the half."""
    monkeypatch.setattr(blobs_module, "_STALLED_S", 0.1)
    data = os.urandom(1_200_000)
    digest, clock = digest_of(data), Clock()
    monkeypatch.setattr(storage, "now_ms", clock)
    blobs = Blobs(storage, PLAIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Blobs, "_use", _die)
        with pytest.raises(Killed):
            blobs.hold(digest, memoryview(data))
    with pytest.raises(MissingBlobError):
        blobs.get(digest, len(data))
    (name,) = blobs.unreferenced([])
    assert not blobs.drop_name(name, is_used=lambda: False)
    blobs.release(blobs.hold(digest, memoryview(data)))
    assert blobs.get(digest, len(data)) == data
    last = storage.last(name)
    assert last is not None
    assert len(list(storage.read(name, after=0, until=last.position))) == 4


class Killed(BaseException):
    """The process died here."""


def _die(*_: Any, **__: Any) -> Any:
    raise Killed


# --- Every order of steps


class Stage:
    """Runs functions in threads, one step of one of them at a time, in an order that is given."""

    def __init__(self, choices: list[int], kills: dict[int, int]) -> None:
        self._choices, self._kills = iter(choices), dict(kills)
        self._turn = threading.Condition()
        self._running: int | None = None
        self._waiting: set[int] = set()
        self._alive: set[int] = set()
        self._local = threading.local()

    def step(self) -> None:
        """Wait for one's turn; raises `Killed` when it is the last one."""
        number = getattr(self._local, "number", None)
        if number is None:
            return
        left = self._kills.get(number)
        if left is not None:
            if left == 0:
                raise Killed
            self._kills[number] = left - 1
        with self._turn:
            self._waiting.add(number)
            self._running = None
            self._turn.notify_all()
            assert self._turn.wait_for(lambda: self._running == number, timeout=30)
            self._waiting.discard(number)

    def run(self, actors: list[Callable[[], None]]) -> None:
        self._alive = set(range(len(actors)))
        threads = [threading.Thread(target=self._act, args=(number, actor)) for number, actor in enumerate(actors)]
        for thread in threads:
            thread.start()
        while True:
            with self._turn:
                assert self._turn.wait_for(lambda: self._running is None and self._waiting == self._alive, timeout=30)
                if not self._alive:
                    break
                alive = sorted(self._alive)
                self._running = alive[next(self._choices, 0) % len(alive)]
                self._turn.notify_all()
        for thread in threads:
            thread.join()

    def _act(self, number: int, actor: Callable[[], None]) -> None:
        self._local.number = number
        try:
            self.step()
            actor()
        except Killed:
            pass
        finally:
            with self._turn:
                self._alive.discard(number)
                self._waiting.discard(number)
                self._running = None
                self._turn.notify_all()


class SteppedBlobStorage(MemoryBlobStorage):
    """ObjectStore of which every step is one of a stage."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(chunk_bytes=10)
        self._stage = stage

    def last(self, name: str) -> BlobEntry | None:
        self._stage.step()
        return super().last(name)

    def add(self, name: str, entry: bytes, *, expected: int) -> int:
        self._stage.step()
        return super().add(name, entry, expected=expected)

    def read(self, name: str, *, after: int, until: int) -> Iterator[BlobEntry]:
        self._stage.step()
        return super().read(name, after=after, until=until)

    def erase(self, name: str, *, until: int) -> None:
        """Entry by entry, as logs do that have no transactions."""
        for stored in list(super().read(name, after=0, until=until)):
            self._stage.step()
            super().remove(name, stored.position)

    def remove(self, name: str, position: int) -> None:
        self._stage.step()
        super().remove(name, position)


class World:
    """Chats that refer to the same data: writers add references, erasers take one away and drop the data."""

    data = b"0123456789" * 2 + b"x"

    def __init__(self, choices: list[int], kills: dict[int, int]) -> None:
        self.stage = Stage(choices, kills)
        self.storage = SteppedBlobStorage(self.stage)
        self.clock = Clock()
        self.storage.now_ms = self.clock  # type: ignore[method-assign]
        self.blobs = Blobs(self.storage, PLAIN)
        self.digest = digest_of(self.data)
        self.references: set[str] = set()

    def write(self, chat: str) -> Callable[[], None]:
        def append() -> None:
            self.stage.step()
            self.references.add(chat)
            self.stage.step()

        return lambda: self.blobs.referring([(self.digest, memoryview(self.data))], append)

    def erase(self, chat: str) -> Callable[[], None]:
        def drop() -> None:
            self.references.discard(chat)
            self.stage.step()
            self.blobs.drop(self.digest, is_used=self._is_used)

        return drop

    def _is_used(self) -> bool:
        self.stage.step()
        return bool(self.references)


@pytest.fixture(autouse=True, scope="module")
def _no_waiting() -> Iterator[None]:
    """A writer whose turn does not come is overtaken at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blobs_module, "_PAUSE_S", 0)
        patch.setattr(blobs_module, "_STALLED_S", -1)
        yield


def check_world(world: World) -> None:
    """Check that all is there that events refer to; all else can be erased an hour later at the latest."""
    if world.references:
        assert world.blobs.get(world.digest, len(world.data)) == world.data
    world.clock.now += LEASE_MS + 1
    for name in list(world.blobs.unreferenced([world.digest] if world.references else [])):
        assert world.blobs.drop_name(name, is_used=lambda: False)
    assert bool(world.blobs.names()) <= bool(world.references)


def play(turns: list[tuple[int, int]], actors: list[str], kills: dict[int, int], *, is_there: bool) -> None:
    """Writers (w) and erasers (e) of chats, who take turns of some steps each."""
    world = World([actor for actor, steps in turns for _ in range(steps)], kills)
    if is_there:
        world.write("chat 9")()
    work = {"w": world.write, "e": world.erase}
    world.stage.run([work[actor[0]](f"chat {actor[1]}") for actor in actors])
    check_world(world)


@pytest.mark.matrix
@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("actors", [["w0", "e9"], ["e9", "w0"], ["w0", "w1"], ["e9", "e8"]], ids=" ".join)
def test_no_two_lose_what_is_used(actors: list[str], is_there: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Two of them: one is interrupted after each of its steps, by the other one for each number of its steps."""
    for before in range(15):
        for between in range(1, 15):
            play([(0, before), (1, between), (0, 30), (1, 30)], actors, {}, is_there=is_there)


@settings(max_examples=examples(150), deadline=None)
@given(
    turns=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 14)), max_size=24),
    actors=st.lists(st.sampled_from(["w0", "w1", "e0", "e1", "e9"]), min_size=2, max_size=4),
    kills=st.dictionaries(st.integers(0, 3), st.integers(0, 25), max_size=2),
    is_there=st.booleans(),
)
def test_no_order_of_steps_loses_what_is_used(
    turns: list[tuple[int, int]], actors: list[str], kills: dict[int, int], *, is_there: bool
) -> None:
    """Writers and erasers of the same data step by step in any order, some of them killed."""
    play(turns, actors, kills, is_there=is_there)
