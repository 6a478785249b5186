"""Pruning down to the last checkpoints: what is kept reads as before, whatever the history was."""

# pyright: reportPrivateUsage=false

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Command
from tests.support.cli_world import ask, fails, run
from tests.support.langgraph_programs import asking
from tests.support.langgraph_world import open_calls
from tests.support.soak import examples

import chatledger
from chatledger.errors import InvalidValueError
from chatledger.infra.log.envelope import clock_ms
from chatledger.infra.testing.savers import Calls, config, thread
from chatledger.langgraph import LedgerSaver
from chatledger.projections.versioned.rows import PIECE

NAMESPACES = ("", "memory", "call:1", "call:2")
STEPS = st.lists(
    st.fixed_dictionaries(
        {
            "namespace": st.sampled_from(NAMESPACES),
            "parent": st.integers(0, 3),
            "is_delta": st.booleans(),
            "has_snapshot": st.booleans(),
            "writes": st.integers(0, 2),
        }
    ),
    min_size=1,
    max_size=16,
)


def build(saver: Calls, steps: list[dict[str, Any]]) -> dict[str, list[str]]:
    """A thread `t` of such steps: below one of the newest four of the namespace, with a plain channel and one of deltas."""
    made: dict[str, list[str]] = {name: list[str]() for name in NAMESPACES}
    for number, step in enumerate(steps):
        name = str(step["namespace"])
        known = made[name]
        values: dict[str, Any] = {"plain": [f"text {at}" for at in range(number)]}
        if step["has_snapshot"]:
            values["log"] = _DeltaSnapshot([f"seed {number}"])
        metadata: dict[str, Any] = {"parents": {"": made[""][-1]}} if name and made[""] else {}
        if step["is_delta"]:
            metadata["counters_since_delta_snapshot"] = {"log": [1, 1]}
        back = int(step["parent"])
        parent = known[-1 - back] if back < len(known) else None
        versions = {"plain": number + 1, "log": number + 1}
        known.append(saver.put("t", values, parent=parent, ns=name, versions=versions, metadata=metadata))
        for task in range(step["writes"]):
            saver.writes("t", known[-1], [("log", [f"write {number}"]), ("plain", task)], f"task {task}", ns=name)
    return made


def all_read(saver: Calls) -> dict[tuple[str, str], tuple[CheckpointTuple, Any]]:
    """Every checkpoint that is listed, as it reads by its id, with what its deltas are made of."""
    found: dict[tuple[str, str], tuple[CheckpointTuple, Any]] = {}
    for one in saver.list(thread("t")):
        place = one.config.get("configurable", {})
        key = (place["checkpoint_ns"], place["checkpoint_id"])
        # A checkpoint that has the value itself, or no deltas, is not read by its history.
        counted = (one.metadata.get("counters_since_delta_snapshot") or {}).keys()
        channels = [name for name in counted if name not in one.checkpoint["channel_values"]]
        history = saver("get_delta_channel_history", config=one.config, channels=channels)
        found[key] = (saver.at("t", key[1], key[0]), history)
    return found


@settings(max_examples=examples(60))
@given(steps=STEPS, keep_last=st.integers(1, 5))
def test_what_is_kept_reads_as_before(steps: list[dict[str, Any]], keep_last: int) -> None:
    """In each namespace the newest are kept, equal in all but a parent that is gone; repeating it writes nothing."""
    with open_calls("unbound sync") as saver:
        made = build(saver, steps)
        before = all_read(saver)
        saver("prune", ["t"], keep_last=keep_last)
        after = all_read(saver)
        position = saver.saver.ledger.last_position()
        saver("prune", ["t"], keep_last=keep_last)

        assert saver.saver.ledger.last_position() == position
        roots = made[""][-keep_last:]
        for name in NAMESPACES:
            kept = sorted(checkpoint_id for namespace, checkpoint_id in after if namespace == name)
            newest = made[name][-keep_last:]
            if name == "memory":
                was = [[one for one in made[name] if one < root][-1:] for root in roots[:-1]]
                newest = sorted({*newest, *(one for found in was for one in found)})
            elif ":" in name:
                started = {one: before[name, one][0].metadata.get("parents", {}).get("") for one in newest}
                newest = [one for one in newest if started[one] is None or started[one] in roots]
            assert kept == newest
        for key, (found, history) in after.items():
            expected, expected_history = before[key]
            assert history == expected_history
            if found.parent_config is None or expected.parent_config is None:
                assert found._replace(parent_config=None) == expected._replace(parent_config=None)
            else:
                assert found == expected
        saver.saver.ledger.rebuild()
        assert all_read(saver) == after


@settings(max_examples=examples(40), deadline=None)
@given(rounds=st.lists(STEPS, min_size=1, max_size=3), keep_last=st.integers(1, 4))
def test_a_rule_keeps_what_pruning_keeps(rounds: list[list[dict[str, Any]]], keep_last: int) -> None:
    """However often it is swept in between: the same checkpoints read as before, and no more content is left than of a pruned copy."""
    with open_calls("unbound sync") as saver:
        ledger, threads = saver.saver.ledger, saver.saver._threads
        ledger.set_retention("steps", kind="thread", keep_days=1, keep_last=keep_last, erases="versions")
        for number, steps in enumerate(rounds):
            build(saver, steps)
            before, copy = all_read(saver), f"copy {number}"
            threads.copy("t", copy)
            saver("prune", [copy], keep_last=keep_last)
            in_2_days = clock_ms() + 2 * 86_400_000
            due = ledger.sweep(now=in_2_days, dry_run=True)
            assert ledger.sweep(now=in_2_days) == due
            assert ledger.sweep(now=in_2_days).versions == 0
            after = all_read(saver)

            assert after == {key: before[key] for key in after}
            assert sorted(saver.ids(thread("t"))) == sorted(saver.ids(thread(copy)))
            with threads.reading("t") as thinned, threads.reading(copy) as pruned:
                assert {digest for digest, _ in thinned.stored_pieces()} == {
                    digest for digest, _ in pruned.stored_pieces()
                }
        ledger.rebuild()
        assert all_read(saver) == after
        ledger.verify()


@pytest.mark.parametrize("wrong", [0, -1, True, "2", 1.5], ids=repr)
def test_no_number_of_checkpoints_is_refused(saver: Calls, wrong: Any) -> None:
    saver.put("t", {"a": 1})
    with pytest.raises(InvalidValueError, match="keep_last"):
        saver("prune", ["t"], keep_last=wrong)
    assert len(saver.ids(thread("t"))) == 1


def test_both_ways_keep_as_many(saver: Calls) -> None:
    parent: str | None = None
    for number in range(5):
        parent = saver.put("t", {"n": number}, parent=parent)
    saver("prune", ["t", "unknown"], keep_last=3)

    assert [4, 3, 2] == [found.checkpoint["channel_values"]["n"] for found in saver.list(thread("t"))]
    parents = [found.parent_config is not None for found in saver.list(thread("t"))]
    assert parents == [True, True, False]


def test_a_graph_goes_back_within_what_was_kept(ledger: chatledger.Ledger) -> None:
    saver = LedgerSaver(ledger)
    graph = asking(saver)
    where: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke({"log": ["start"]}, where)
    graph.invoke(Command(resume="one"), where)
    expected = [(state.config, state.values, state.next) for state in graph.get_state_history(where)][:2]
    saver.prune(["t"], keep_last=2)

    assert [(state.config, state.values, state.next) for state in graph.get_state_history(where)] == expected
    assert graph.invoke(Command(resume="two"), where)["log"][-1] == "it ended after 2"


def test_content_that_nothing_needs_leaves_the_index(ledger: chatledger.Ledger) -> None:
    saver = Calls(LedgerSaver(ledger), is_async=False)
    for number in range(4):
        saver.put("t", {"text": f"{number}" * 1_000})
    saver("prune", ["t"], keep_last=2)

    with saver.saver._threads.reading("t") as found:
        stored = [bytes(value) for key, value in found._txn.cursor(found._tables.versioned) if key[8:9] == PIECE]
    assert [any(str(number).encode() * 1_000 in one for one in stored) for number in range(4)] == [
        False,
        False,
        True,
        True,
    ]


def test_the_command_line_prunes(tmp_path: Any) -> None:
    with chatledger.open(tmp_path) as ledger:
        saver = Calls(LedgerSaver(ledger), is_async=False)
        for number in range(4):
            saver.put("t", {"n": number})

    assert "Pruned thread t: 2 checkpoints removed." in run("prune", "t", "--keep-last", "2", at=tmp_path).stdout
    assert ask("prune", "t", at=tmp_path) == {"pruned": {"t": 1}}
    assert "'u'" in fails(1, "prune", "u", at=tmp_path)
    fails(2, "prune", "t", "--keep-last", "0", at=tmp_path)
    with chatledger.open(tmp_path) as ledger:
        assert [3] == [one.checkpoint["channel_values"]["n"] for one in LedgerSaver(ledger).list(config("t"))]
