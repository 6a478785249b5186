"""Each kind of streams: its row in the table has all columns, and one of its streams passes what any stream has to."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.agent_threads import put
from tests.support.ledger_world import store_behind

import chatledger
from chatledger import AccessDeniedError, InvalidValueError, Ledger
from chatledger.domain.chat.events import Body, StreamDeleted
from chatledger.domain.versioned.keys import item_id, state_id
from chatledger.errors import QuarantinedError
from chatledger.graph_state import StateStore
from chatledger.infra.admin.doctor.salvaging import REFITTINGS
from chatledger.infra.ledger.port import store_of
from chatledger.infra.ledger.threads import Threads
from chatledger.items import ItemStore
from chatledger.projections.log.entries import living_stream
from chatledger.projections.log.kinds import CHATS, ITEMS, STATES, STREAM_KINDS, THREADS, StreamKind, kind_of

CHAT = "c"
KEYS: dict[str, str] = {
    CHATS.name: CHAT,
    THREADS.name: CHAT,
    STATES.name: state_id("ada", CHAT),
    ITEMS.name: item_id("ada", (CHAT,), "k"),
}
"""By kind, the key of a stream that belongs to the chat."""
WRITES: dict[str, Callable[[Ledger], object]] = {
    CHATS.name: lambda ledger: ledger.upsert_chat(CHAT, "ada", title="greens"),
    THREADS.name: lambda ledger: put(Threads(ledger), CHAT, "1", {"messages": ["leeks"]}),
    STATES.name: lambda ledger: StateStore(ledger).put(KEYS[STATES.name], {"step": "leeks"}),
    ITEMS.name: lambda ledger: ItemStore(ledger.for_user("ada")).put((CHAT,), "k", {"step": "leeks"}),
}
"""By kind, how something is written to it."""


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """Ada's chat, with a stream of each other kind."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat(CHAT, "ada")
        for write in WRITES.values():
            write(ledger)
        yield ledger


of_each_kind = pytest.mark.parametrize("kind", STREAM_KINDS, ids=lambda kind: kind.name)


def test_a_stream_is_of_one_kind() -> None:
    """All but that of chats have a prefix, none of which another one begins with, and no chat may have."""
    prefixes = [kind.prefix for kind in STREAM_KINDS]

    assert prefixes.index("") == len(prefixes) - 1
    for kind in STREAM_KINDS[:-1]:
        assert [kind.prefix] == [one for one in prefixes if one and kind.prefix.startswith(one)]
        with chatledger.open("memory:") as ledger, pytest.raises(InvalidValueError, match="must not begin with"):
            ledger.create_chat(f"{kind.prefix}x", "ada")


def test_each_kind_can_be_repaired_and_is_tested_here() -> None:
    """Who adds a kind finds the two tables beside this one by this test."""
    names = {kind.name for kind in STREAM_KINDS}

    assert names == KEYS.keys() == WRITES.keys() == REFITTINGS.keys()
    assert len(names) == len(STREAM_KINDS)


@of_each_kind
def test_a_stream_is_written_and_read(ledger: Ledger, kind: StreamKind[Any]) -> None:
    """Its events are on the log under its id, and in the index under the position of the first one; also in one built anew."""
    store, key = store_behind(ledger), KEYS[kind.name]
    stream = kind.stream_of(key)
    events = list(store.events(0, stream_id=stream))

    assert kind_of(stream) is kind
    for _ in range(2):
        with store.snapshot() as snapshot:
            found = snapshot.stream(kind, key)
            assert (stream, events[0].position, "ada") == (found.stream_id, found.stream_no, found.owner)
            assert (events[-1].position, events[-1].hash) == (found.record.head.position, found.record.head.hash)
            assert stream == living_stream(snapshot.txn, snapshot.tables, found.stream_no)
        ledger.rebuild()
    ledger.verify()


@of_each_kind
def test_a_stream_is_its_owners(ledger: Ledger, kind: StreamKind[Any]) -> None:
    """Nobody else reads it, hears of it or writes to it."""
    ada, bob = (store_of(ledger.for_user(user_id)) for user_id in ("ada", "bob"))
    key = KEYS[kind.name]
    stream = kind.stream_of(key)

    def copy(state: Any, _now: int) -> list[Body]:
        return [recorded.body for recorded in events if state.record is None]

    events = list(ada.events(0, stream_id=stream))
    assert list(store_behind(ledger).events(0, stream_id=stream)) == events
    assert list(bob.events(0, stream_id=stream)) == []
    with ada.snapshot() as snapshot:
        assert snapshot.stream(kind, key).record is not None
    with contextlib.suppress(AccessDeniedError), bob.snapshot() as snapshot:
        assert snapshot.stream(kind, key).record is None
    with pytest.raises(chatledger.ChatledgerError):
        bob.execute(kind, key, copy)
    assert ada.execute(kind, key, copy) == []


@of_each_kind
def test_a_quarantined_stream_is_refused(
    ledger: Ledger, kind: StreamKind[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not read, and takes no commands."""
    store, key = store_behind(ledger), KEYS[kind.name]
    lost = kind.stream_of(key)

    def refuse(stream: str) -> None:
        if stream == lost:
            raise QuarantinedError(kind.describe(stream), chat_id=stream)

    def nothing(_state: object, _now: int) -> list[Body]:
        return []

    monkeypatch.setattr(store.index, "refuse", refuse)
    with pytest.raises(QuarantinedError, match=kind.name), store.snapshot() as snapshot:
        snapshot.stream(kind, key)
    with store.snapshot() as snapshot:
        assert snapshot.stream(kind, key, even_quarantined=True).record is not None
    with pytest.raises(QuarantinedError):
        WRITES[kind.name](ledger)
    with pytest.raises(QuarantinedError):
        store.execute(kind, key, nothing)


@of_each_kind
def test_a_stream_of_which_nothing_is_left_is_refused_to_users_too(
    ledger: Ledger, kind: StreamKind[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can begin it anew before it is given up."""
    key = {STATES.name: state_id("ada", "lost"), ITEMS.name: item_id("ada", ("a",), "lost")}.get(kind.name, "lost")

    def refuse(stream: str) -> None:
        assert stream == kind.stream_of(key)
        raise QuarantinedError(kind.describe(stream), chat_id=stream)

    monkeypatch.setattr(store_behind(ledger).index, "refuse", refuse)
    with pytest.raises(QuarantinedError), store_of(ledger.for_user("ada")).snapshot() as snapshot:
        snapshot.stream(kind, key)


@pytest.mark.parametrize("kind", [kind for kind in STREAM_KINDS if kind is not ITEMS], ids=lambda kind: kind.name)
def test_a_stream_goes_with_its_chat(ledger: Ledger, kind: StreamKind[Any]) -> None:
    """What is left of it on the log is the tombstone."""
    ledger.delete_chat(CHAT)
    store, key = store_behind(ledger), KEYS[kind.name]

    (left,) = store.log.read_stream(kind.stream_of(key), after=0)
    assert isinstance(left.body, StreamDeleted)
    with store.snapshot() as snapshot:
        found = snapshot.stream(kind, key)
        assert (None, None) == (found.record, found.stream_no)
        assert found.tombstone is not None
    ledger.verify()
