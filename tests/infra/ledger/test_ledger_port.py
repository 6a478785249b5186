"""The port of a ledger: what each store has of it, and what those of one user and of one moment refuse."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, get_args

import pytest
from tests.contracts.store_world import anything

import chatledger
from chatledger import AccessDeniedError, Ledger, LedgerClosedError, user
from chatledger.domain.chat.events import Body
from chatledger.domain.versioned.keys import state_id
from chatledger.infra.ledger.port import AdminTask, LedgerLog, LedgerSnapshot, StorePort, store_of
from chatledger.infra.ledger.scopes.as_of import AsOfEvents, AsOfStore
from chatledger.infra.ledger.scopes.as_of.snapshot import AsOfSnapshot, AsOfSnapshotRefusals
from chatledger.infra.ledger.scopes.as_of.store import AsOfRefusals
from chatledger.infra.ledger.scopes.user_store import UserLog, UserRefusals, UserStore
from chatledger.infra.log.port import EventLog
from chatledger.infra.store.store import Store
from chatledger.projections.chat.lists import ALL_CHATS
from chatledger.projections.log.kinds import CHATS, STATES, THREADS
from chatledger.projections.snapshot import Snapshot
from chatledger.projections.user_snapshot import UserSnapshot

OF_ALL_USERS = "covers the chats of all users, and this ledger is limited to one; only the ledger of all of them has it"
OF_THE_PRESENT = (
    "is not for a view of an earlier moment, which only reads chats; use the ledger that the view was made from"
)


def stores(whole: Store, owned: UserStore, moment: AsOfStore, past: AsOfEvents) -> list[StorePort]:
    """For type checkers: each of them is one."""
    return [whole, owned, moment, past]


def logs(whole: EventLog, owned: UserLog) -> list[LedgerLog]:
    """For type checkers, too."""
    return [whole, owned]


def snapshots(whole: Snapshot, owned: UserSnapshot, moment: AsOfSnapshot) -> list[LedgerSnapshot]:
    """For type checkers, too."""
    return [whole, owned, moment]


def nothing(state: object, now: int) -> list[Body]:
    return []


CALLS: dict[str, Callable[[StorePort], Any]] = {
    "adopt": lambda store: [wait() for wait in store.adopt(CHATS, [("own", lambda _state: [])])],
    "begin": lambda store: [end() for end in store.begin(CHATS, [("own", nothing)])],
    "catch_up": lambda store: store.catch_up(None, 1.0),
    "check_open": lambda store: store.check_open(),
    "bytes_at": lambda store: store.bytes_at([1]),
    "events": lambda store: list(store.events(0)),
    "execute": lambda store: store.execute(CHATS, "own", nothing, kind=None),
    "erase_deleted": lambda store: store.erase_deleted(),
    "finish_erasures": lambda store: store.finish_erasures(),
    "live": lambda store: store.live.storage.list_keys(),
    "log": lambda store: store.log.last_position(),
    "meaning": lambda store: store.meaning,
    "page": lambda store: store.page(0),
    "redactor": lambda store: store.redactor,
    "scratch": lambda store: store.scratch,
    "search_later": lambda store: store.search_later().__enter__(),
    "snapshot": lambda store: store.snapshot().__enter__(),
    "submit": lambda store: store.submit("own", nothing, Body, lambda: None),
    "sweep_large": lambda store: store.sweep_large(),
    "task_writes": lambda store: store.task_writes,
    "user_id": lambda store: store.user_id,
    "whole": lambda store: store.whole("rebuild"),
}
SNAPSHOT_CALLS: dict[str, Callable[[LedgerSnapshot], Any]] = {
    "chat": lambda snapshot: snapshot.chat("own"),
    "chat_nos": lambda snapshot: snapshot.chat_nos(),
    "searched_chats": lambda snapshot: snapshot.searched_chats(),
    "searched_values": lambda snapshot: snapshot.searched_values(),
    "live": lambda snapshot: snapshot.live.user_id,
    "until": lambda snapshot: snapshot.until,
    "branch": lambda snapshot: snapshot.branch("b"),
    "find": lambda snapshot: snapshot.find("m"),
    "is_past": lambda snapshot: snapshot.is_past,
    "list_chats": lambda snapshot: snapshot.list_chats(),
    "count_chats": lambda snapshot: snapshot.count_chats(ALL_CHATS),
    "receipts": lambda snapshot: snapshot.receipts(),
    "refuse": lambda snapshot: snapshot.refuse("own"),
    "redacted_at": lambda snapshot: snapshot.redacted_at,
    "state": lambda snapshot: snapshot.state,
    "stream": lambda snapshot: snapshot.stream(THREADS, "t"),
    "tables": lambda snapshot: snapshot.tables,
    "txn": lambda snapshot: snapshot.txn,
    "user_id": lambda snapshot: snapshot.user_id,
}


@pytest.fixture
def whole() -> Iterator[Ledger]:
    """Ada has a chat, Bob another one."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("own", "ada")
        ledger.append("own", [user("leeks", id="m")])
        ledger.create_chat("theirs", "bob")
        yield ledger


def names(kind: type) -> set[str]:
    """The names that a class itself says something of, and that are for others."""
    return {name for name in vars(kind) if not name.startswith("_")}


def offered(one: object, *refusals: type) -> set[str]:
    """The members of an object, without those that a class of refusals gives it."""
    kinds = [kind for kind in type(one).__mro__ if kind not in refusals]
    return set[str]().union(*map(names, kinds), (name for name in vars(one) if not name.startswith("_")))


def refused_by(call: Callable[[], object]) -> str | None:
    """The words with which a call refuses."""
    try:
        call()
    except AccessDeniedError as error:
        return str(error)
    return None


def stores_of(ledger: Ledger) -> dict[str, tuple[StorePort, type | None]]:
    """A store of each kind, with the class that lists what it refuses."""
    moment = anything(ledger.for_user("ada").as_of(ledger.position))._as_of_store
    return {
        "whole": (store_of(ledger), None),
        "one user's": (store_of(ledger.for_user("ada")), UserRefusals),
        "one moment's": (moment, AsOfRefusals),
        "one moment's history": (AsOfEvents(moment), AsOfRefusals),
    }


KINDS = ["whole", "one user's", "one moment's", "one moment's history"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_has_each_member_or_lists_it_as_refused(whole: Ledger, kind: str) -> None:
    """Of every member of the port exactly one is true; and nothing else is listed."""
    store, refusals = stores_of(whole)[kind]
    listed = set[str]() if refusals is None else names(refusals)
    implemented = offered(store) if refusals is None else offered(store, refusals)

    assert names(StorePort) == CALLS.keys()
    assert names(StorePort) <= listed | implemented
    assert listed <= names(StorePort)
    assert set[str]() == listed & implemented


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_refuses_what_is_listed_and_nothing_else(whole: Ledger, kind: str) -> None:
    """Each refusal names what was refused, and says what to do."""
    store, refusals = stores_of(whole)[kind]
    listed = set[str]() if refusals is None else names(refusals)
    why = OF_ALL_USERS if kind == "one user's" else OF_THE_PRESENT
    refused = {name: said for name, call in CALLS.items() if (said := refused_by(partial(call, store)))}
    shown = {name: "rebuild" if name == "whole" and kind == "one user's" else name for name in listed}

    assert {name: f"{shown[name]} {why}" for name in listed} == refused


def test_a_store_of_one_user_offers_nothing_else(whole: Ledger) -> None:
    """So nobody reaches past it to what is everybody's."""
    store = store_of(whole.for_user("ada"))

    assert names(StorePort) == offered(store)
    assert names(LedgerLog) == offered(store.log)
    with store.snapshot() as snapshot:
        assert names(LedgerSnapshot) == offered(snapshot)


def test_snapshots_have_each_member_or_list_it_as_refused(whole: Ledger) -> None:
    """The same of what a store of a moment gives."""
    with stores_of(whole)["one moment's"][0].snapshot() as snapshot:
        refused = {name: said for name, call in SNAPSHOT_CALLS.items() if (said := refused_by(partial(call, snapshot)))}
        implemented = offered(snapshot, AsOfSnapshotRefusals) - {"missing"}  # which only its own store asks

    assert names(LedgerSnapshot) == SNAPSHOT_CALLS.keys() == implemented | names(AsOfSnapshotRefusals)
    assert set[str]() == implemented & names(AsOfSnapshotRefusals)
    assert {name: f"{name} {OF_THE_PRESENT}" for name in names(AsOfSnapshotRefusals)} == refused
    with store_of(whole.for_user("ada")).snapshot() as owned:
        assert all(refused_by(partial(call, owned)) is None for call in SNAPSHOT_CALLS.values())


@pytest.mark.parametrize("task", get_args(AdminTask))
def test_what_concerns_all_users_is_refused_by_its_name(whole: Ledger, task: AdminTask) -> None:
    """Only the store of a whole ledger gives itself away."""
    with pytest.raises(AccessDeniedError) as refused:
        store_of(whole.for_user("ada")).whole(task)

    assert f"{task} {OF_ALL_USERS}" == str(refused.value)
    assert store_of(whole).whole(task) is store_of(whole)


def test_a_state_of_another_user_is_refused(whole: Ledger) -> None:
    """Whose it is stands in its id, which the error does not show."""
    with pytest.raises(AccessDeniedError, match="belongs to another user") as refused:
        store_of(whole.for_user("ada")).execute(STATES, state_id("bob", "theirs"), nothing)

    assert "bob" not in str(refused.value)


def test_a_closed_ledger_gives_no_store(whole: Ledger) -> None:
    """Neither its own nor that of the ledger that it was made from."""
    ada = whole.for_user("ada")
    ada.close()
    with pytest.raises(LedgerClosedError):
        store_of(ada)
    other = whole.for_user("ada")
    whole.close()
    for ledger in (whole, other):
        with pytest.raises(LedgerClosedError):
            store_of(ledger)
