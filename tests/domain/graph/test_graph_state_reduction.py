"""Updates of whole states."""

import copy
import json
from collections.abc import Mapping
from functools import reduce
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.graph_state_values import updates, updates_without_errors

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.graph.reducers import (
    AGENT_REDUCERS,
    Reducers,
    append_messages,
    merge_docs,
    merge_metadata,
    merge_tasks,
    reduce_state,
)

STATE: dict[str, Any] = {
    "user_id": "ada",
    "messages": [{"role": "user", "content": "Why?"}],
    "docs": [{"id": "1", "body": "a"}, {"id": "2", "body": "b"}],
    "tasks": {"original_query": "Why?"},
    "metadata": {"node_timings": {"start": 1.0}, "errors": [{"node": "start", "message": "late", "timestamp": 1}]},
    "mood": {"kept": ["as", "it", "is"]},
}


def test_each_field_has_its_reducer() -> None:
    """`docs`, `tasks` and `metadata` merge, other fields are overwritten, fields that are not returned stay (GS-5, GS-6)."""
    after = reduce_state(
        STATE,
        {
            "docs": [{"id": "2", "body": "B"}, {"id": "3", "body": "c"}],
            "tasks": {"rewritten_query": "Why so?"},
            "metadata": {"node_timings": {"search": 2.0}},
            "messages": [{"role": "user", "content": "Why so?"}],
            "generated_text": "Because.",
        },
    )

    assert {
        "user_id": "ada",
        "messages": [{"role": "user", "content": "Why so?"}],
        "docs": [{"id": "1", "body": "a"}, {"id": "2", "body": "B"}, {"id": "3", "body": "c"}],
        "tasks": {"original_query": "Why?", "rewritten_query": "Why so?"},
        "metadata": {
            "node_timings": {"start": 1.0, "search": 2.0},
            "errors": [{"node": "start", "message": "late", "timestamp": 1}],
        },
        "mood": {"kept": ["as", "it", "is"]},
        "generated_text": "Because.",
    } == after


@pytest.mark.parametrize("update", [None, {}, {"docs": []}, {"docs": None, "tasks": None, "metadata": None}])
def test_an_empty_update_changes_nothing(update: Any) -> None:
    """Nothing, no fields, or empty values of fields that merge: the state is the same, in another object (acceptance GS 1)."""
    after = reduce_state(STATE, update)

    assert STATE == after
    assert STATE is not after


def test_none_overwrites_where_the_last_write_wins() -> None:
    """Without a reducer None is a value like any other: a node can take back the text (GS-6)."""
    assert {"generated_text": None} == reduce_state({"generated_text": "Because."}, {"generated_text": None})


def test_absent_values_count_as_empty() -> None:
    """A field of which neither side has a value becomes an empty one (GS-8)."""
    assert {"docs": [], "tasks": {}, "metadata": {}} == reduce_state(
        {"docs": None}, {"docs": None, "tasks": None, "metadata": None}
    )
    assert {"docs": [{"id": "1"}]} == reduce_state(None, {"docs": [{"id": "1"}, {"id": "1"}]})


def test_messages_may_be_appended() -> None:
    """`append_messages` can be chosen; then a node returns only what was said since (GS-6, NS-31)."""
    reducers: Reducers = {**AGENT_REDUCERS, "messages": append_messages}
    answer = {"id": "m2", "role": "assistant", "content": "Because."}

    assert [*STATE["messages"], answer] == reduce_state(STATE, {"messages": [answer]}, reducers=reducers)["messages"]


def test_whole_states_with_a_new_error_each() -> None:
    """The documented spread pattern, errors and all, lists each error once; the source has 1, 3, 7 of them (GS-7)."""

    def node(state: dict[str, Any], name: str) -> dict[str, Any]:
        metadata: dict[str, Any] = state.get("metadata", {})
        return {**state, "metadata": {**metadata, "errors": [*metadata.get("errors", []), {"node": name}]}}

    after: dict[str, Any] = {}
    for name in "abc":
        after = reduce_state(after, node(after, name))

    assert [{"node": "a"}, {"node": "b"}, {"node": "c"}] == after["metadata"]["errors"]


def test_other_states_have_other_reducers() -> None:
    """Any JSON state is reduced by the same means; the names of the ready-made schema mean nothing there (GS-1)."""

    def add(old: int | None, new: int | None) -> int:
        return (old or 0) + (new or 0)

    state: dict[str, Any] = {"steps": 2, "docs": "none yet", "metadata": 5}
    after = reduce_state(state, {"steps": 3, "docs": "some", "metadata": 6, "more": [1]}, reducers={"steps": add})

    assert {"steps": 5, "docs": "some", "metadata": 6, "more": [1]} == after
    assert {"steps": 3} == reduce_state(None, {"steps": 3}, reducers={"steps": add})


def test_states_may_be_read_only() -> None:
    """A view that cannot be changed is as good as a dictionary; the new state is a dictionary."""
    view: Mapping[str, Any] = MappingProxyType(STATE)
    after: Any = reduce_state(view, MappingProxyType({"tasks": MappingProxyType({"a": 1})}))

    assert {**STATE, "tasks": {"original_query": "Why?", "a": 1}} == after
    assert type(after) is dict


def test_what_does_not_change_is_shared() -> None:
    """Fields that an update does not have, and documents that it does not replace, are not copied."""
    after = reduce_state(STATE, {"docs": [{"id": "2", "body": "B"}]})

    assert after["mood"] is STATE["mood"]
    assert after["metadata"] is STATE["metadata"]
    assert after["docs"][0] is STATE["docs"][0]


@given(updates, updates)
def test_the_old_state_is_never_modified(state: dict[str, Any], update: dict[str, Any]) -> None:
    """State and update are after a reduction what they were before, at every depth, key order included (GS-4, GS-8)."""
    before = json.dumps([state, update])
    reduce_state(state, update)

    assert before == json.dumps([state, update])


@given(updates)
def test_a_whole_state_is_no_change(state: dict[str, Any]) -> None:
    """A node that returns the state as it got it changes nothing (GS-5, GS-7)."""
    whole: dict[str, Any] = reduce_state({}, state)

    assert whole == reduce_state(whole, whole)


@given(updates, updates)
def test_transitions_are_additive(state: dict[str, Any], update: dict[str, Any]) -> None:
    """No field disappears, and fields that the update does not have keep their value (GS-5)."""
    after = reduce_state(state, update)

    assert state.keys() | update.keys() == after.keys()
    assert {name: value for name, value in state.items() if name not in update} == {
        name: value for name, value in after.items() if name not in update
    }
    assert {doc["id"] for doc in state.get("docs", [])} <= {doc["id"] for doc in after.get("docs", [])}


@given(st.lists(updates, max_size=5))
def test_replaying_stored_updates_gives_the_stored_state(run: list[dict[str, Any]]) -> None:
    """Updates that went through their stored form give the same states, byte by byte, however often (GS-8)."""
    states: list[dict[str, Any]] = [{}]
    written = ["{}"]
    for update in run:
        states.append(reduce_state(states[-1], update))
        written.append(json.dumps(states[-1]))

    assert written == [json.dumps(state) for state in states], "no later step changes a stored state"
    for _ in range(2):
        replayed = reduce(reduce_state, [json.loads(json.dumps(update)) for update in run], dict[str, Any]())
        assert written[-1] == json.dumps(replayed)


@given(updates_without_errors, updates_without_errors, updates_without_errors)
def test_updates_without_errors_can_be_joined(state: dict[str, Any], a: dict[str, Any], b: dict[str, Any]) -> None:
    """Where no errors are among them, two updates may be joined into one and give the same state."""
    assert reduce_state(reduce_state(state, a), b) == reduce_state(state, reduce_state(a, b))


def test_the_ready_made_reducers() -> None:
    """The fields that merge are these, and the table cannot be changed."""
    assert {"docs": merge_docs, "tasks": merge_tasks, "metadata": merge_metadata} == dict(AGENT_REDUCERS)
    with pytest.raises(TypeError):
        AGENT_REDUCERS["docs"] = merge_tasks  # type: ignore[index]  # pyright: ignore[reportIndexIssue]


@pytest.mark.parametrize(
    ("state", "update", "message"),
    [
        (STATE, {"docs": [{"id": "9"}, {"title": "secret"}]}, r"docs\[1\]"),
        (STATE, {"generated_text": "x", "metadata": {"errors": "secret"}}, "metadata.errors"),
        (STATE, {"tasks": ["secret"]}, "tasks"),
        (STATE, ["secret"], "update must be an object, not list"),
        (STATE, "secret", "update must be an object, not str"),
        (STATE, {1: "secret"}, "update has a key of type int"),
        (["secret"], {}, "state must be an object, not list"),
        ({"docs": "secret"}, {"docs": [{"id": "1"}]}, "docs must be a list, not str"),
    ],
)
def test_hostile_updates_change_nothing(state: Any, update: Any, message: str) -> None:
    """One bad field refuses the whole update: no field of it arrives, and the error holds no content."""
    before = copy.deepcopy((state, update))
    with pytest.raises(InvalidValueError, match=message) as refused:
        reduce_state(state, update)

    assert before == (state, update)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("reducers", [{"a": "last"}, {"a": None}, "last", None], ids=repr)
def test_reducers_are_functions(reducers: Any) -> None:
    with pytest.raises(InvalidValueError, match="reducer"):
        reduce_state({"a": 1}, {"a": 2}, reducers=reducers)


def test_an_error_of_an_own_reducer_comes_through() -> None:
    """It is the caller's, and nothing has changed."""

    def refuse(old: Any, new: Any) -> Any:
        msg = "no more"
        raise LookupError(msg)

    state = {"a": 1, "b": 1}
    with pytest.raises(LookupError, match="no more"):
        reduce_state(state, {"b": 2, "a": 2}, reducers={"a": refuse})
    assert {"a": 1, "b": 1} == state
