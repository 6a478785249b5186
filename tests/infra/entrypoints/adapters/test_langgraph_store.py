"""LangGraph's store on a ledger: as LangGraph's own stores, with history, words and users besides."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Required, TypedDict, cast

import pytest

pytest.importorskip("langgraph")

from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.config import get_store
from langgraph.graph import START, StateGraph
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore
from tests.support.soak import examples

import chatledger
from chatledger.errors import AccessDeniedError, ConfigurationError, InvalidValueError
from chatledger.langgraph import LedgerBaseStore

PLACE = ("memories", "ada")


@pytest.fixture
def ledger() -> Iterator[chatledger.Ledger]:
    with chatledger.open("memory:") as ledger:
        yield ledger


def letters(texts: Sequence[str]) -> list[list[float]]:
    """Vectors of texts: how often each letter is in them, and a one, so that none is zero."""
    return [[float(text.count(letter)) for letter in "abcdefgh"] + [1.0] for text in texts]


LETTERS: Any = {"embed": letters, "dims": 9, "fields": ["text", "more"]}


def nothing(texts: Sequence[str]) -> list[list[float]]:
    del texts
    return []


def with_letters(**changes: Any) -> Any:
    return {**LETTERS, **changes}


LABELS = st.sampled_from(["a", "b", "*x", "ü"])
NAMESPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
KEYS = st.sampled_from(["k", "l", "m/n", "o:p%"])
TEXTS = st.text("abc dé", min_size=1, max_size=6)
OTHERS = st.text("fgh", min_size=1, max_size=6)
VALUES: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"text": TEXTS, "n": st.integers(0, 3)},
    optional={
        "more": OTHERS,
        "tags": st.lists(st.sampled_from("xy"), max_size=2),
        "in": st.fixed_dictionaries({"a": st.booleans()}),
    },
)
CONDITIONS: st.SearchStrategy[Any] = st.one_of(
    st.integers(0, 3),
    st.dictionaries(
        st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]), st.integers(0, 3), min_size=1, max_size=2
    ),
)
FILTERS: st.SearchStrategy[Any] = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "n": CONDITIONS,
        "tags": st.lists(st.sampled_from("xy"), max_size=2),
        "in": st.fixed_dictionaries({"a": st.booleans()}),
        "absent": st.none() | st.just(1),
    },
)
PUTS = st.builds(PutOp, NAMESPACES, KEYS, VALUES | st.none(), st.sampled_from([None, False, ["text"]]), ttl=st.none())
MATCHES = st.lists(
    st.builds(
        MatchCondition,
        st.sampled_from(["prefix", "suffix"]),
        st.lists(LABELS | st.just("*"), min_size=1, max_size=2).map(tuple),
    ),
    max_size=2,
).map(tuple)
READS = st.one_of(
    st.builds(GetOp, NAMESPACES, KEYS),
    st.builds(SearchOp, st.just(()) | NAMESPACES, FILTERS, st.just(100), st.just(0), st.none() | TEXTS),
    st.builds(ListNamespacesOp, MATCHES, st.none() | st.integers(1, 2), st.just(100), st.just(0)),
)


def plain(result: Any) -> Any:
    """A result without times, in an order of its own."""
    if not isinstance(result, list):
        return None if result is None else (result.namespace, result.key, result.value)
    several = cast("list[Any]", result)
    if several and isinstance(several[0], tuple):
        return several
    scored = [(one.namespace, one.key, one.score is None, round(one.score or 0, 4) + 0.0) for one in several]
    return sorted(scored)


def read_reference(reference: InMemoryStore, op: Any) -> Any:
    """The answer of the reference, which would also list each namespace that was ever read or emptied."""
    for namespace in [name for name, items in reference._data.items() if not items]:
        del reference._data[namespace]
    return reference.batch([op])[0]


@settings(max_examples=examples(60))
@given(st.lists(st.lists(PUTS | READS, max_size=6), max_size=6), st.booleans())
def test_batches_do_what_they_do_in_memory(batches: list[list[Any]], has_vectors: bool) -> None:  # noqa: FBT001
    """All operations, in any batches; without vectors no queries, which the reference does not answer."""
    index = LETTERS if has_vectors else None
    reference = InMemoryStore(index=index)
    with chatledger.open("memory:") as ledger:
        store = LedgerBaseStore(ledger, index=index)
        for batch in batches:
            ops = [op._replace(query=None) if isinstance(op, SearchOp) and not has_vectors else op for op in batch]
            puts = [op for op in ops if isinstance(op, PutOp)]
            reads = [op for op in ops if not isinstance(op, PutOp)]
            found = [result for op, result in zip(ops, store.batch(ops), strict=True) if op in reads]
            for op, actual in zip(reads, found, strict=True):
                assert plain(actual) == plain(read_reference(reference, op)), op
            for op in puts:  # one by one: the reference counts vectors wrongly where two items have the same text,
                reference.batch([op._replace(value=None)])  # and keeps those of the value before
                reference.batch([op])
        items = [
            [(one.namespace, one.key, one.value) for one in any_.search((), limit=1000)] for any_ in (store, reference)
        ]
        assert sorted(items[0], key=repr) == sorted(items[1], key=repr)


def test_a_batch_reads_before_it_writes_and_the_last_put_counts(ledger: chatledger.Ledger) -> None:
    store = LedgerBaseStore(ledger)
    store.put(PLACE, "k", {"n": 1})
    ops: list[Op] = [
        PutOp(PLACE, "k", {"n": 2}),
        GetOp(PLACE, "k"),
        SearchOp(("memories",)),
        PutOp(PLACE, "k", {"n": 3}),
        GetOp(PLACE, "l"),
    ]
    first, read, found, last, absent = store.batch(ops)
    assert (first, last, absent) == (None, None, None)
    assert read.value == {"n": 1}  # type: ignore[union-attr]
    assert [item.value for item in found] == [{"n": 1}]  # type: ignore[union-attr]
    assert [version.value for version in store.history(PLACE, "k")] == [{"n": 3}, {"n": 1}]


def test_what_is_wrong_leaves_nothing_behind(ledger: chatledger.Ledger) -> None:
    store = LedgerBaseStore(ledger)
    before = ledger.position
    for wrong in (
        GetOp(("a.b",), "k"),
        PutOp(("a", ""), "k", {}),
        SearchOp(("a",), {"$or": [{"a": 1}]}),
        SearchOp(("a",), {"n": {"$regex": "x"}}),
        SearchOp(("a",), limit=-1),
        PutOp(("a",), "k", {"n": float("nan")}),
        PutOp(("a",), "k", {"n": 1}, index=True),  # type: ignore[arg-type]
    ):
        with pytest.raises((InvalidNamespaceError, InvalidValueError)):
            store.batch([PutOp(PLACE, "k", {"n": 1}), wrong])
    with pytest.raises(InvalidNamespaceError, match="langgraph"):
        store.put(("langgraph", "x"), "k", {})
    assert ledger.position == before


def test_values_are_stored_as_json_has_them(ledger: chatledger.Ledger) -> None:
    store = LedgerBaseStore(ledger)
    store.put(PLACE, "k", {"pair": (1, (2, 3)), "none": None})
    found = store.get(PLACE, "k")
    assert found is not None
    assert found.value == {"pair": [1, [2, 3]], "none": None}


def test_words_are_found_in_any_form_and_the_best_first(ledger: chatledger.Ledger) -> None:
    store = LedgerBaseStore(ledger)
    store.put(PLACE, "food", {"text": "Ada is eating vegetables", "kind": "fact"})
    store.put(PLACE, "team", {"text": "Ada leads the ledger team", "tags": ["work"]})
    store.put(PLACE, "hidden", {"text": "Ada eats"}, index=False)
    store.put(PLACE, "part", {"text": "nothing", "more": "eats"}, index=["text"])
    assert [item.key for item in store.search(("memories",), query="what does she eat?")] == ["food"]
    both = store.search(("memories",), query="ada vegetable")
    assert [item.key for item in both] == ["food", "team"]
    assert both[0].score is not None
    assert both[1].score is not None
    assert both[0].score > both[1].score > 0
    assert [item.key for item in store.search((), query="ada NOT vegetable")] == ["team"]
    assert [item.key for item in store.search((), query='"ledger team"')] == ["team"]
    assert store.search((), query="ada", filter={"kind": "other"}) == []
    assert store.search((), query="nowhere") == []
    assert len(store.search((), query="ada", limit=1, offset=1)) == 1


def test_fields_of_an_index_without_vectors_say_which_words_count(ledger: chatledger.Ledger) -> None:
    store = LedgerBaseStore(ledger, index={"fields": ["text"]})
    store.put(PLACE, "k", {"text": "tea", "more": "coffee"})
    assert [item.key for item in store.search((), query="tea")] == ["k"]
    assert store.search((), query="coffee") == []


def test_vectors_are_stored_with_the_item_and_erased_with_it(ledger: chatledger.Ledger) -> None:
    calls: list[list[str]] = []

    def counted(texts: Sequence[str]) -> list[list[float]]:
        calls.append(list(texts))
        return letters(texts)

    index: Any = {**LETTERS, "embed": counted}
    LedgerBaseStore(ledger, index=index).put(PLACE, "a", {"text": "aaa"})
    position = ledger.position
    store = LedgerBaseStore(ledger, index=index)
    store.put(PLACE, "a", {"text": "bbb"})
    calls.clear()
    assert store.get(PLACE, "a").value == {"text": "bbb"}  # type: ignore[union-attr]
    now, then = store.search((), query="aaa"), store.as_of(position).search((), query="aaa")
    assert calls == [["aaa"], ["aaa"]], "only the query: vectors of items are read"
    assert then[0].score == pytest.approx(1.0)
    assert now[0].score is not None
    assert now[0].score < 0.5
    store.delete(PLACE, "a")
    assert store.search((), query="aaa") == []


def test_a_model_that_answers_wrongly_is_refused(ledger: chatledger.Ledger) -> None:
    with pytest.raises(ConfigurationError, match="dims=4"):
        LedgerBaseStore(ledger, index=with_letters(dims=4)).put(PLACE, "k", {"text": "a"})
    with pytest.raises(ConfigurationError, match="0 vectors for 1 texts"):
        LedgerBaseStore(ledger, index=with_letters(embed=nothing)).put(PLACE, "k", {"text": "a"})
    assert ledger.position == 0


def test_an_earlier_moment_can_be_read_and_not_written(ledger: chatledger.Ledger) -> None:
    store = LedgerBaseStore(ledger)
    store.put(PLACE, "food", {"text": "vegetarian"})
    tuesday = ledger.position
    store.put(PLACE, "food", {"text": "fish"})
    store.put((*PLACE, "new"), "k", {})
    then = store.as_of(tuesday)
    assert then.get(PLACE, "food").value == {"text": "vegetarian"}  # type: ignore[union-attr]
    assert then.list_namespaces() == [PLACE]
    assert [item.value for item in asyncio.run(then.asearch((), query="vegetarians"))] == [{"text": "vegetarian"}]
    with pytest.raises(InvalidValueError, match="cannot be written"):
        then.put(PLACE, "food", {})


def test_a_delete_erases_unless_what_is_deleted_is_kept(ledger: chatledger.Ledger) -> None:
    store, keeping = LedgerBaseStore(ledger), LedgerBaseStore(ledger, keep_deleted=True)
    store.put(PLACE, "a", {"n": 1})
    keeping.put(PLACE, "b", {"n": 1})
    store.delete(PLACE, "a")
    keeping.delete(PLACE, "b")
    assert store.search(()) == []
    assert store.history(PLACE, "a") == []
    assert [version.value for version in keeping.history(PLACE, "b")] == [None, {"n": 1}]
    store.delete(PLACE, "never")


def test_users_have_items_of_their_own(ledger: chatledger.Ledger) -> None:
    store = LedgerBaseStore(ledger)
    ada, bob = store.for_user("ada"), LedgerBaseStore(ledger.for_user("bob"))
    ada.put(PLACE, "k", {"n": 1})
    assert bob.get(PLACE, "k") is None
    assert (bob.list_namespaces(), store.list_namespaces()) == ([], [])
    assert LedgerBaseStore(ledger, user_id="ada").get(PLACE, "k") is not None
    with pytest.raises(AccessDeniedError):
        bob.for_user("ada")


def test_what_is_read_lives_longer(ledger: chatledger.Ledger) -> None:
    store = LedgerBaseStore(ledger, ttl={"default_ttl": 1.0})
    store.put(PLACE, "k", {"n": 1})
    written = ledger.position
    store.get(PLACE, "k")
    assert ledger.position == written, "it lives nearly as long anyway"
    assert store.sweep_ttl() == 0
    store.put(PLACE, "k", {"n": 1}, ttl=0.0001)
    assert store.get(PLACE, "k", refresh_ttl=False) is not None or store.search(()) == []


async def _use(store: LedgerBaseStore) -> list[Any]:
    await asyncio.gather(*(store.aput(PLACE, f"k{number}", {"n": number}) for number in range(5)))
    found = await store.asearch(PLACE, filter={"n": {"$gte": 3}})
    await store.adelete(PLACE, "k0")
    versions = await store.ahistory(PLACE, "k1")
    earlier = await store.aas_of(versions[0].position)
    return [
        sorted(item.key for item in found),
        await store.aget(PLACE, "k0"),
        (await earlier.aget(PLACE, "k1")) is not None,
    ]


def test_it_stands_on_any_ledger(tmp_path: Any) -> None:
    wanted = [["k3", "k4"], None, True]

    async def on_async() -> None:
        async with chatledger.open_async("memory:") as ledger:
            assert await _use(LedgerBaseStore(ledger)) == wanted

    async def on_location() -> None:
        async with LedgerBaseStore.from_conn_string(tmp_path / "ledger") as store:
            assert await _use(store) == wanted
        with LedgerBaseStore(tmp_path / "ledger") as store:
            assert len(store.search(PLACE)) == 4

    asyncio.run(on_async())
    asyncio.run(on_location())
    with pytest.raises(ConfigurationError, match="LedgerBaseStore"):
        LedgerBaseStore(7)  # type: ignore[arg-type]


class State(TypedDict, total=False):
    said: Required[str]
    known: list[str]


def test_a_graph_remembers_in_it(ledger: chatledger.Ledger) -> None:
    def remember(state: State) -> State:
        store = get_store()
        known = [item.value["text"] for item in store.search(PLACE)]
        store.put(PLACE, str(len(known)), {"text": state["said"]})
        return {"said": state["said"], "known": known}

    builder: Any = StateGraph(State)
    builder.add_node("remember", remember)
    builder.add_edge(START, "remember")
    graph = builder.compile(store=LedgerBaseStore(ledger))
    assert graph.invoke({"said": "I like tea"})["known"] == []
    assert asyncio.run(graph.ainvoke({"said": "x"}))["known"] == ["I like tea"]
