import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.store_world import together
from tests.support.ledger_world import internals

import chatledger
from chatledger import importers
from chatledger.domain.errors import InvalidValueError, PayloadTooLargeError, StateConflictError
from chatledger.domain.versioned.content import Leaf
from chatledger.domain.versioned.events import VersionPut
from chatledger.items import AsyncItemStore, ItemPut, ItemStore

NAMESPACE = ("memories", "ada")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time in ms, to be set."""
    moment = [1_700_000_000_000]
    for module in ("ledger.items.item_store", "ledger.graph.stored", "ledger.graph.state_store", "store.group_commit"):
        monkeypatch.setattr(f"chatledger.infra.{module}.clock_ms", lambda: moment[0])
    return moment


def said(ledger: chatledger.Ledger) -> bytes:
    """The content of all versions that are on the log."""
    puts = [recorded.body for recorded in ledger.history() if isinstance(recorded.body, VersionPut)]
    return b" ".join(piece.content.data for put in puts for piece in put.pieces if isinstance(piece.content, Leaf))


def test_namespaces_are_in_the_order_of_their_labels(ledger: chatledger.Ledger) -> None:
    """Shorter ones first, whatever the characters; also those that differ beyond the bytes that a key of the index has."""
    items, long = ItemStore(ledger), "é" * 400
    wanted = [
        ("a",),
        ("a", "z"),
        ("a!",),
        ("aa",),
        (long,),
        (long, "1"),
        (long, "1", "x"),
        (long, "2"),
        ("\U0001f600",),
    ]
    for namespace in (*wanted[::2], *wanted[1::2]):
        items.put(namespace, "k", {})

    assert sorted(wanted) == wanted == items.namespaces()
    assert [(long, "1"), (long, "1", "x")] == items.namespaces((long, "1"))
    assert [("a", "z"), ("a!",)] == items.namespaces(limit=2, offset=1)
    assert [] == items.namespaces(("a", "zz"))


def test_an_item_has_a_history(ledger: chatledger.Ledger) -> None:
    items = ItemStore(ledger)
    items.put(NAMESPACE, "food", {"text": "vegetarian"})
    before = ledger.position
    items.put(NAMESPACE, "food", {"text": "vegan"})
    assert items.end(NAMESPACE, "food")
    assert not items.end(NAMESPACE, "food")
    assert items.get(NAMESPACE, "food") is None
    assert [(one.version, one.value) for one in items.history(NAMESPACE, "food")] == [
        (3, None),
        (2, {"text": "vegan"}),
        (1, {"text": "vegetarian"}),
    ]
    assert [one.version for one in items.history(NAMESPACE, "food", limit=1, before=3)] == [2]
    then = items.as_of(before).get(NAMESPACE, "food")
    assert then is not None
    assert (then.version, then.value, then.expires_at) == (1, {"text": "vegetarian"}, None)


def test_deleting_an_item_erases_all_of_it(ledger: chatledger.Ledger) -> None:
    items = ItemStore(ledger)
    items.put(NAMESPACE, "food", {"text": "vegetarian"})
    assert b"vegetarian" in said(ledger)
    items.end(NAMESPACE, "food")
    assert not items.delete(NAMESPACE, "food"), "it had ended"
    assert items.history(NAMESPACE, "food") == []
    assert b"vegetarian" not in said(ledger)
    assert items.put(NAMESPACE, "food", {"text": "new"}, expected_version=0) == 1


def test_of_two_who_delete_an_item_one_did(ledger: chatledger.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    items, store = ItemStore(ledger), internals(ledger)
    items.put(NAMESPACE, "food", {"likes": "fish"})
    execute = store.execute

    def overtaken(*args: Any) -> Any:
        monkeypatch.undo()
        assert items.delete(NAMESPACE, "food")
        return execute(*args)

    monkeypatch.setattr(store, "execute", overtaken)
    assert not items.delete(NAMESPACE, "food")


def test_an_item_expires_unless_it_is_refreshed(ledger: chatledger.Ledger, clock: list[int]) -> None:
    items = ItemStore(ledger)
    items.put(NAMESPACE, "food", {}, ttl_seconds=10)
    items.put(NAMESPACE, "name", {})
    clock[0] += 6_000
    items.refresh(NAMESPACE, "food")
    items.refresh(NAMESPACE, "name")
    items.refresh(NAMESPACE, "absent")
    clock[0] += 6_000
    found = items.get(NAMESPACE, "food")
    assert found is not None
    assert found.expires_at == clock[0] + 4_000
    clock[0] += 6_000
    assert items.get(NAMESPACE, "food") is None
    assert [one.key for one in items.list()] == ["name"]
    assert items.history(NAMESPACE, "food") == []
    assert items.put(NAMESPACE, "food", {"a": 1}, expected_version=0) == 1
    assert not any(recorded.body.__class__.__name__ == "VersionsExpirySet" for recorded in ledger.history()), (
        "it was erased"
    )


def test_states_are_cleaned_up_and_items_are_not(ledger: chatledger.Ledger, clock: list[int]) -> None:
    from chatledger.graph_state import StateStore, state_id

    items, states = ItemStore(ledger), StateStore(ledger)
    items.put(NAMESPACE, "name", {})
    items.put(NAMESPACE, "food", {}, ttl_seconds=10)
    states.put(state_id("ada", "trip"), {})
    clock[0] += 60_000
    assert [one.conversation_id for one in states.list()] == ["trip"], "items are no states of conversations"
    assert states.cleanup(30) == 2
    assert [one.key for one in items.list()] == ["name"]
    assert states.list() == []


def test_of_writers_at_the_same_moment_one_wins(ledger: chatledger.Ledger) -> None:
    items = ItemStore(ledger)

    def count_up(_number: int) -> int:
        conflicts = 0
        while True:
            item = items.get(NAMESPACE, "count")
            value, version = (0, 0) if item is None else (item.value["n"], item.version)
            try:
                items.put(NAMESPACE, "count", {"n": value + 1}, expected_version=version)
            except StateConflictError:
                conflicts += 1
            else:
                return conflicts

    together(8, count_up)
    found = items.get(NAMESPACE, "count")
    assert found is not None
    assert (found.value, found.version) == ({"n": 8}, 8)


def test_a_user_sees_no_items_of_others(ledger: chatledger.Ledger) -> None:
    ada, bob, nobody = ItemStore(ledger.for_user("ada")), ItemStore(ledger.for_user("bob")), ItemStore(ledger)
    ada.put(NAMESPACE, "food", {"text": "vegan"})
    assert bob.put(NAMESPACE, "food", {}, expected_version=0) == 1
    assert nobody.get(NAMESPACE, "food") is None
    assert (nobody.list(), nobody.namespaces()) == ([], [])
    assert not nobody.delete(NAMESPACE, "food")
    assert [recorded.chat_id for recorded in ledger.for_user("bob").history()] != []
    assert b"vegan" not in said(ledger.for_user("bob"))
    assert b"vegan" in said(ledger.for_user("ada"))


@pytest.mark.parametrize(
    ("namespace", "key", "value"),
    [
        ((), "k", {}),
        ("memories", "k", {}),
        (("a", ""), "k", {}),
        (("a",) * 33, "k", {}),
        (("a",), "", {}),
        (("a",), "k" * 2048, {}),
        (("a",), "k", []),
        (("a",), "k", {"n": float("nan")}),
    ],
)
def test_wrong_values_are_refused(ledger: chatledger.Ledger, namespace: Any, key: str, value: Any) -> None:
    items = ItemStore(ledger)
    with pytest.raises(InvalidValueError):
        items.put(namespace, key, value)
    assert ledger.position == 0


def test_other_wrong_values_are_refused(ledger: chatledger.Ledger) -> None:
    items = ItemStore(ledger, max_value_bytes=100)
    with pytest.raises(PayloadTooLargeError):
        items.put(("a",), "k", {"text": "x" * 200})
    with pytest.raises(InvalidValueError, match="two changes of one item"):
        items.write([ItemPut(namespace=("a",), key="k", value={}), ItemPut(namespace=("a",), key="k", value=None)])
    with pytest.raises(InvalidValueError):
        items.list(limit=-1)
    assert ledger.position == 0


def test_items_are_exported_and_imported(ledger: chatledger.Ledger, tmp_path: Path) -> None:
    items = ItemStore(ledger)
    items.put(NAMESPACE, "food", {"text": "vegetarian"})
    items.put(NAMESPACE, "food", {"text": "vegan"})
    with (tmp_path / "all.jsonl").open("wb") as file:
        importers.write_all(file, ledger.export_all())
    with chatledger.open("memory:") as other:
        for one in importers.read_all(tmp_path / "all.jsonl", on_problem=lambda problem: pytest.fail(str(problem))):
            other.import_value(one)  # type: ignore[arg-type] # there is nothing else
        copies = ItemStore(other)
        assert copies.list() == items.list()
        assert [one.value for one in copies.history(NAMESPACE, "food")] == [{"text": "vegan"}, {"text": "vegetarian"}]
        other.verify()


def test_an_asynchronous_store_does_the_same() -> None:
    async def use() -> None:
        async with chatledger.open_async("memory:") as ledger:
            items = AsyncItemStore(ledger.for_user("ada"))
            await items.put(NAMESPACE, "food", {"text": "vegan"})
            position = await ledger.position
            await items.put(NAMESPACE, "food", {"text": "all"})
            then = await items.as_of(position)
            assert [one.value for one in await then.list()] == [{"text": "vegan"}]
            assert await items.namespaces() == [NAMESPACE]
            assert await items.end(NAMESPACE, "food")
            assert await items.delete(NAMESPACE, "food") is False
            assert await items.history(NAMESPACE, "food") == []

    asyncio.run(use())
