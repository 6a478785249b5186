"""Checkpoints stay as they are stored, and parents lead to a root: puts that would change that are refused, and reading always ends."""

# White-box: a cycle, which no saver lets in any more, is put on the log directly.
# pyright: reportPrivateUsage=false

from typing import Any

import msgspec
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

import chatledger
from chatledger.domain.errors import CheckpointExistsError, InvalidValueError
from chatledger.domain.versioned.events import VersionPut
from chatledger.infra.testing.savers import Calls, config, thread
from chatledger.langgraph import LedgerSaver
from chatledger.projections.log.kinds import THREADS


def log_of(saver: Calls, checkpoint_id: str) -> list[Any]:
    """The writes of the delta channel `log`."""
    history = saver("get_delta_channel_history", config=config("t", checkpoint_id), channels=["log"])
    return [value for *_, value in history["log"]["writes"]]


COUNTERS: dict[str, Any] = {"counters_since_delta_snapshot": {"log": (1, 1)}, "step": 1}


def grow(saver: Calls, *, count: int = 3, **metadata: Any) -> None:
    """Checkpoints in a line, each of which is made from the writes of those before."""
    for number in range(count):
        parent = str(number - 1) if number else None
        saver.put("t", {}, id=str(number), parent=parent, versions={"log": number}, metadata={**COUNTERS, **metadata})
        saver.writes("t", str(number), [("log", f"w{number}")])


class TestChanges:
    @pytest.mark.parametrize(
        "change",
        [
            {"values": {"a": 2}},
            {"values": {}},
            {"values": {"a": 1, "b": 2}},
            {"parent": None},
            {"parent": "other"},
            {"versions": {"a": 2}},
            {"metadata": {"again": True}},
        ],
        ids=str,
    )
    def test_a_stored_checkpoint_does_not_change(self, saver: Calls, change: dict[str, Any]) -> None:
        saver.put("t", {}, id="0")
        saver.put("t", {}, id="other")
        given: dict[str, Any] = {"values": {"a": 1}, "parent": "0", "versions": {"a": 1}, "metadata": {"step": 7}}
        saver.put("t", id="1", **given)
        before, position = saver.at("t", "1"), saver.saver.ledger.last_position()
        changed: dict[str, Any] = {**given, **change}
        with pytest.raises(CheckpointExistsError, match="'1'") as caught:
            saver.put("t", id="1", **changed)

        assert (caught.value.thread_id, caught.value.checkpoint_id) == ("t", "1")
        assert saver.at("t", "1") == before
        assert saver.saver.ledger.last_position() == position

    def test_what_is_repeated_is_harmless(self, saver: Calls) -> None:
        values = {"a": [HumanMessage("hi", id="h")], "b": {1, 2, 3}}
        saver.put("t", {"c": 1}, id="0", versions={"c": 1})
        for _ in range(3):
            saver.put("t", values, id="1", parent="0", versions={"a": 1, "b": 1, "c": 1}, metadata={"step": 1})

        assert saver.at("t", "1").checkpoint["channel_values"] == {**values}
        assert len(list(saver.saver.ledger.history())) == 2

    def test_what_is_repeated_without_its_unchanged_values_is_harmless(self, saver: Calls) -> None:
        """Also after the parent, which has them, was removed."""
        saver.put("t", {"a": 1, "b": 1}, id="0", versions={"a": 1, "b": 1}, metadata={"run_id": "r", "step": 0})
        for _ in range(2):
            saver.put("t", {"b": 2}, id="1", parent="0", versions={"a": 1, "b": 2}, changed=["b"], metadata={"step": 1})
        saver("delete_for_runs", ["r"])
        saver.put("t", {"b": 2}, id="1", parent="0", versions={"a": 1, "b": 2}, changed=["b"], metadata={"step": 1})

        assert saver.at("t", "1").checkpoint["channel_values"] == {"a": 1, "b": 2}

    def test_what_is_repeated_is_harmless_though_it_is_serialized_differently(self, ledger: chatledger.Ledger) -> None:
        """An encrypting serializer gives other bytes each time."""
        serde = EncryptedSerializer.from_pycryptodome_aes(key=b"1234567890123456")
        saver = Calls(LedgerSaver(ledger, serde=serde), is_async=False)
        for _ in range(2):
            saver.put("t", {"a": ["x", {"y": 1}]}, id="1", versions={"a": 1}, metadata={"step": 1})
        with pytest.raises(CheckpointExistsError):
            saver.put("t", {"a": ["x", {"y": 2}]}, id="1", versions={"a": 1}, metadata={"step": 1})

        assert saver.at("t").checkpoint["channel_values"] == {"a": ["x", {"y": 1}]}

    def test_an_id_is_free_again_after_the_thread_is_deleted(self, saver: Calls) -> None:
        saver.put("t", {"a": 1}, id="1")
        saver("delete_thread", "t")
        saver.put("t", {"a": 2}, id="1")

        assert saver.at("t", "1").checkpoint["channel_values"] == {"a": 2}

    def test_a_pruned_checkpoint_is_not_given_another_parent(self, saver: Calls) -> None:
        """It is still there for what later ones are made of."""
        grow(saver, count=4)
        saver("prune", ["t"])
        with pytest.raises(CheckpointExistsError):
            saver.put("t", {}, id="1", parent="3", versions={"log": 1}, metadata=COUNTERS)

        assert log_of(saver, "3") == ["w0", "w1", "w2"]


class TestCycles:
    def test_a_checkpoint_is_not_its_own_parent(self, saver: Calls) -> None:
        with pytest.raises(InvalidValueError, match="its own ancestor"):
            saver.put("t", {}, id="1", parent="1")

        assert saver.ids(thread("t")) == []

    @pytest.mark.parametrize("order", ["321", "123", "312", "231"])
    def test_a_put_that_closes_a_cycle_is_refused(self, saver: Calls, order: str) -> None:
        """Parents may come after their children, as in imports; whichever is the last one makes the cycle."""
        parents = {"1": "3", "2": "1", "3": "2"}
        for number in order[:-1]:
            saver.put("t", {}, id=number, parent=parents[number])
        last = order[-1]
        with pytest.raises(InvalidValueError, match="its own ancestor"):
            saver.put("t", {}, id=last, parent=parents[last])
        saver.put("t", {}, id=last)

        assert sorted(saver.ids(thread("t"))) == ["1", "2", "3"]

    def test_other_namespaces_and_threads_are_others(self, saver: Calls) -> None:
        saver.put("t", {}, id="1", parent="2")
        saver.put("t", {}, id="2", parent="1", ns="sub")
        saver.put("u", {}, id="2", parent="1")
        with pytest.raises(InvalidValueError, match="its own ancestor"):
            saver.put("t", {}, id="2", parent="1")

    def test_a_copy_knows_what_its_source_waits_for(self, saver: Calls) -> None:
        saver.put("t", {}, id="1", parent="2")
        saver("copy_thread", "t", "u")
        saver.saver.ledger.rebuild()
        for thread_id in "tu":
            with pytest.raises(InvalidValueError, match="its own ancestor"):
                saver.put(thread_id, {}, id="2", parent="1")

    def test_a_removed_parent_that_comes_again_is_none_any_more(self, saver: Calls) -> None:
        """So it may go below what was its child."""
        saver.put("t", {}, id="1", metadata={"run_id": "r"})
        saver.writes("t", "1", [("log", "w1")])
        saver.put("t", {}, id="2", parent="1")
        saver.writes("t", "2", [("log", "w2")])
        saver("delete_for_runs", ["r"])
        saver.put("t", {}, id="1", parent="2")

        assert log_of(saver, "2") == []
        assert log_of(saver, "1") == ["w2"]
        assert saver.at("t", "2").parent_config is None

    def test_cycles_that_are_stored_already_end(self, ledger: chatledger.Ledger) -> None:
        """Earlier versions took them: reading, pruning, removing and migrating come to an end."""
        saver = Calls(LedgerSaver(ledger), is_async=False)
        for number in range(3):
            metadata = {**COUNTERS, "assistant_id": "a" if number == 2 else "b", "run_id": f"r{number}"}
            parent = str(number - 1) if number else None
            saver.put("t", {}, id=str(number), parent=parent, versions={"log": number}, metadata=metadata)
            saver.writes("t", str(number), [("log", f"w{number}")])
        close_the_cycle(ledger, "0", parent_id="2")

        assert log_of(saver, "2") == ["w0", "w1"]
        assert saver.saver.migrate_namespace("t").migrated.keys() <= {"a", "b"}
        saver("delete_for_runs", ["r1"])
        saver("prune", ["t"])
        assert saver.ids(config("t")) == ["2"]


def close_the_cycle(ledger: chatledger.Ledger, checkpoint_id: str, *, parent_id: str) -> None:
    """Store a checkpoint again with another parent, as an event that no decision makes."""
    first = next(
        recorded.event.body
        for recorded in ledger.history()
        if isinstance(recorded.event.body, VersionPut) and recorded.event.body.id == checkpoint_id
    )
    again = msgspec.structs.replace(first, parent=parent_id)
    ledger._store.execute(THREADS, "t", lambda _state, _now: [again])


class TestPrunedParents:
    def test_a_checkpoint_that_needs_a_pruned_parent_names_it(self, saver: Calls) -> None:
        """A copy goes below it, and is made from the same writes."""
        grow(saver)
        saver("prune", ["t"])
        found = saver.at("t", "2")

        assert found.parent_config == config("t", "1")
        assert saver.get("t", "1") is None
        saver.put("t", {}, id="3", parent="1", versions={"log": 2}, metadata={**COUNTERS, "source": "fork"})
        assert log_of(saver, "3") == log_of(saver, "2") == ["w0", "w1"]

    def test_what_is_made_from_pruned_checkpoints_is_not_migrated_without_them(self, ledger: chatledger.Ledger) -> None:
        """Nor is what is made from those that are left."""
        saver = Calls(LedgerSaver(ledger), is_async=False)
        grow(saver, assistant_id="a")
        saver("prune", ["t"])
        saver.put("t", {}, id="3", parent="2", versions={"log": 3}, metadata={**COUNTERS, "assistant_id": "a"})

        assert saver.saver.migrate_namespace("t").left == [("", "2"), ("", "3")]


class TestSeeds:
    def test_none_is_no_seed(self, saver: Calls) -> None:
        """The channel starts empty there: what was written before does not count."""
        saver.put("t", {"log": ["old"]}, id="0", versions={"log": 1})
        saver.writes("t", "0", [("log", "w0")])
        saver.put("t", {"log": None}, id="1", parent="0", versions={"log": 2})
        saver.writes("t", "1", [("log", "w1")])
        saver.put("t", {}, id="2", parent="1", versions={"log": 3})

        history = saver("get_delta_channel_history", config=config("t", "2"), channels=["log"])
        assert history == {"log": {"writes": [("task", "log", "w1")]}}

    def test_a_snapshot_of_none_is_one(self, saver: Calls) -> None:
        saver.put("t", {"log": _DeltaSnapshot(None)}, id="0", versions={"log": 1})
        saver.put("t", {}, id="1", parent="0", versions={"log": 2})

        history = saver("get_delta_channel_history", config=config("t", "1"), channels=["log"])
        assert history == {"log": {"writes": [], "seed": _DeltaSnapshot(None)}}
