"""Values remembered between reads: never other values than those that were put, and never more than it may take."""

import copy
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot  # pyright: ignore[reportPrivateUsage]  # its only name
from tests.support.encrypted_world import found_in
from tests.support.soak import examples

import chatledger
from chatledger.infra.testing.savers import Calls
from chatledger.langgraph import LedgerSaver
from chatledger.projections.lmdb.cache import Remembered

_texts = st.text("ab", max_size=3)
_integers = st.integers(-(2**63), 2**63 - 1)
_messages: st.SearchStrategy[Any] = st.one_of(
    st.builds(HumanMessage, _texts, id=_texts),
    st.builds(AIMessage, _texts, id=_texts, response_metadata=st.dictionaries(_texts, _integers, max_size=2)),
    st.builds(
        ToolMessage,
        _texts,
        tool_call_id=_texts,
        artifact=st.none() | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=2),
    ),
)
_plain: st.SearchStrategy[Any] = st.none() | _integers | _texts | st.binary(max_size=3) | st.sets(_integers, max_size=2)
_elements: st.SearchStrategy[Any] = st.recursive(
    _messages | _plain,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4) | st.builds(_DeltaSnapshot, inner)
    ),
    max_leaves=6,
)
_step = st.tuples(st.integers(0, 12), st.lists(_elements, max_size=6))
"""The number of elements of the list before that stay, and those that are added to it."""


def _at(thread_id: str, checkpoint_id: str | None = None) -> Any:
    named = {} if checkpoint_id is None else {"checkpoint_id": checkpoint_id}
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": "", **named}}


def _put(saver: LedgerSaver, parent_id: str | None, number: int, values: dict[str, Any]) -> str:
    versions: dict[str, Any] = dict.fromkeys(values, f"{number:032}.1")
    checkpoint: Any = {
        "v": 4,
        "id": str(uuid6(clock_seq=number)),
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": versions,
        "versions_seen": {},
        "updated_channels": None,
    }
    metadata: Any = {"source": "loop", "step": number, "parents": {}}
    saver.put(_at("t", parent_id), checkpoint, metadata, versions)
    return str(checkpoint["id"])


def _spoil(value: Any) -> None:
    """Change everything that can be changed."""
    if isinstance(value, list):
        elements = cast("list[Any]", value)
        for element in elements:
            _spoil(element)
        elements.append("spoilt")
    elif isinstance(value, dict):
        items = cast("dict[str, Any]", value)
        for item in items.values():
            _spoil(item)
        items["spoilt"] = True
    elif isinstance(value, set):
        cast("set[Any]", value).add("spoilt")
    elif isinstance(value, _DeltaSnapshot):
        _spoil(value.value)
    elif isinstance(value, HumanMessage | AIMessage | ToolMessage):
        value.content = "spoilt"
        value.additional_kwargs["spoilt"] = True
        value.response_metadata["spoilt"] = True


@settings(max_examples=examples(25), deadline=None)
@given(
    steps=st.lists(_step, min_size=1, max_size=8), order=st.lists(st.integers(0, 7), max_size=12), lists=st.booleans()
)
def test_every_read_gives_what_was_put_whatever_was_read_before(
    steps: list[tuple[int, list[Any]]], order: list[int], *, lists: bool
) -> None:
    """Lists that grow, shrink and change, read in any order, by readers that change what they get."""
    with chatledger.open("memory:") as ledger:
        saver = LedgerSaver(ledger)
        held: list[Any] = []
        ids: list[str] = []
        expected: list[Any] = []
        for number, (keep, more) in enumerate(steps):
            held = [*held[:keep], *copy.deepcopy(more)]
            ids.append(_put(saver, ids[-1] if ids else None, number, {"all": held, "first": held[:1]}))
            expected.append(copy.deepcopy({"all": held, "first": held[:1]}))
        if lists:
            for one in saver.list(_at("t")):
                _spoil(one.checkpoint["channel_values"])
        for at in [*order, *range(len(ids))]:
            number = at % len(ids)
            found = saver.get_tuple(_at("t", ids[number]))
            assert found is not None
            assert found.checkpoint["channel_values"] == expected[number]
            _spoil(found.checkpoint["channel_values"])
        assert [found.checkpoint["channel_values"] for found in LedgerSaver(ledger).list(_at("t"))] == expected[::-1]


def test_lists_longer_than_what_grows_out_of_one_another(ledger: chatledger.Ledger) -> None:
    """The chain of lists that grew ends somewhere; reading goes across that, whole or with a part of it known."""
    saver = LedgerSaver(ledger)
    ids: list[str] = []
    for number in range(200):
        messages = [HumanMessage(f"m{at}", id=str(at)) for at in range(number - number // 7)]
        ids.append(_put(saver, ids[-1] if ids else None, number, {"messages": messages}))
    readers: list[Callable[[], LedgerSaver]] = [lambda: saver, lambda: LedgerSaver(ledger)]
    for reader in readers:
        for number in (199, 70, 63, 64, 65, 0, 150):
            found = reader().get_tuple(_at("t", ids[number]))
            assert found is not None
            texts = [message.content for message in found.checkpoint["channel_values"]["messages"]]
            assert texts == [f"m{at}" for at in range(number - number // 7)]


@pytest.mark.soak
def test_a_list_that_is_kept_is_not_collected_again_and_again() -> None:
    """The collector looks at what is new meanwhile; for the consumer, and after the list, all is as it was."""
    before = gc.get_threshold()
    collections: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            collections.append(info["generation"])

    with chatledger.open("memory:") as ledger:
        saver = LedgerSaver(ledger)
        ids: list[str] = []
        for number in range(70):
            messages = [HumanMessage("m", id=str(at)) for at in range(number * 10)]
            ids.append(_put(saver, ids[-1] if ids else None, number, {"messages": messages}))
        expected = [saver.get_tuple(_at("t", checkpoint_id)) for checkpoint_id in reversed(ids)]
        gc.collect()
        gc.callbacks.append(note)
        try:
            kept = list(saver.list(_at("t")))
        finally:
            gc.callbacks.remove(note)
        for _ in saver.list(_at("t"), limit=3):
            assert gc.get_threshold() == before

    assert kept == expected
    assert gc.get_threshold() == before
    assert collections.count(1) > 5 * (len(collections) - collections.count(1))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 30))))
def test_what_is_remembered_is_bounded_and_never_wrong(calls: list[tuple[int, int]]) -> None:
    remembered: Remembered[int, tuple[int, int]] = Remembered(max_bytes=100, max_count=8)
    put: dict[int, tuple[int, int]] = {}
    for key, size in calls:
        found = remembered.get(key)
        assert found is None or found == put[key]
        put[key] = key, size
        remembered.put(key, put[key], size)
        assert remembered.get(key) == put[key]
        kept = [found for found in map(remembered.get, range(10)) if found is not None]
        assert len(kept) <= 8
        assert sum(size for _, size in kept) <= 100


def test_what_is_asked_for_stays_longer_than_what_is_not() -> None:
    remembered: Remembered[int, int] = Remembered(max_count=20)
    remembered.put(0, 0, 1)
    for key in range(1, 100):
        assert remembered.get(0) == 0
        remembered.put(key, key, 1)
    assert remembered.get(1) is None


def test_a_serializer_that_is_set_later_serializes_everything(tmp_path: Path) -> None:
    """As LangGraph's own savers are encrypted: nothing of the values is stored in clear text."""
    with chatledger.open(tmp_path) as ledger:
        saver = LedgerSaver(ledger)
        saver.serde = EncryptedSerializer.from_pycryptodome_aes(key=b"1234567890123456")
        calls = Calls(saver, is_async=False)
        calls.put("t", {"a": ["swordfish " * 80]}, metadata={"secret": "of elsinore"})
        calls.writes("t", calls.at("t").checkpoint["id"], [("a", "swordfish")])

        assert calls.at("t").checkpoint["channel_values"] == {"a": ["swordfish " * 80]}
        assert found_in(tmp_path, {"value": "swordfish", "metadata": "of elsinore"}) == set()
