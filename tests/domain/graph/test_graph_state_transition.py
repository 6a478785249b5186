"""Transitions: the marks that a node leaves, and the diff."""

import copy
import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.graph_state_values import letters, updates
from tests.support.json_values import json_values

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.graph.reducers import Transition, append_messages, get_state_diff, merge_metadata, transition

STATE: dict[str, Any] = {
    "user_id": "ada",
    "docs": [{"id": "1"}],
    "metadata": {"start_time": 5, "node_timings": {"start": 1.0}, "current_node": "start", "is_final_state": False},
}


def tool_results(count: int) -> dict[str, Any]:
    return {"tool_results": [{"tool_name": "web"}] * count}


def test_a_transition_names_its_node() -> None:
    """The new state says who wrote it, before anybody stores or observes it (GS-2, GS-17)."""
    change = transition(STATE, {"docs": [{"id": "2"}], "metadata": {"node_timings": {"search": 2.0}}}, "search")

    assert {
        "user_id": "ada",
        "docs": [{"id": "1"}, {"id": "2"}],
        "metadata": {
            "start_time": 5,
            "node_timings": {"start": 1.0, "search": 2.0},
            "current_node": "search",
            "is_final_state": False,
        },
    } == change.new
    assert Transition(STATE, change.new, "search", {"docs_count": {"from": 1, "to": 2}}) == change
    assert change.old is STATE


def test_the_end_node_makes_the_final_state() -> None:
    """`is_final_state` is true after the end node, and false again when the graph goes on from there (GS-17)."""
    final = transition(STATE, {}, "answer", is_end=True).new
    resumed = transition(final, {}, "search").new

    assert {"current_node": "answer", "is_final_state": True}.items() <= final["metadata"].items()
    assert {"current_node": "search", "is_final_state": False}.items() <= resumed["metadata"].items()


def test_a_whole_state_does_not_keep_the_mark_of_the_node_before() -> None:
    """A node that returns the state as it got it still wrote it (GS-5, GS-17)."""
    whole = copy.deepcopy(STATE)

    assert "search" == transition(STATE, whole, "search").new["metadata"]["current_node"]


@pytest.mark.parametrize("update", [None, {}, {"metadata": None}])
def test_a_state_without_metadata_gets_some(update: Any) -> None:
    """The marks are there, whatever the state was (GS-17)."""
    empty: dict[str, Any] = {}

    assert {"metadata": {"current_node": "a", "is_final_state": True}} == transition(
        empty, update, "a", is_end=True
    ).new


def test_other_states_are_marked_too() -> None:
    """A state with reducers of its own keeps its metadata as those say, marks aside (GS-1, GS-17)."""
    state: dict[str, Any] = {"messages": [{"id": "1"}], "metadata": {"a": 1}, "docs": "a text", "tasks": ["a list"]}
    change = transition(
        state, {"messages": [{"id": "2"}], "metadata": {"b": 2}}, "n", reducers={"messages": append_messages}
    )

    assert {
        **state,
        "messages": [{"id": "1"}, {"id": "2"}],
        "metadata": {"b": 2, "current_node": "n", "is_final_state": False},
    } == change.new
    assert {} == change.diff


@given(updates, updates, letters, st.booleans())
def test_the_old_state_and_the_update_stay_as_they_are(
    state: dict[str, Any],
    update: dict[str, Any],
    node: str,
    is_end: bool,  # noqa: FBT001 (drawn)
) -> None:
    """The marks are in the new state only: the source's listener sets them in the state that was already passed on (GS-4, GS-17)."""
    before = json.dumps([state, update])
    change = transition(state, update, node, is_end=is_end)

    assert before == json.dumps([state, update])
    assert node == change.new["metadata"]["current_node"]
    assert is_end is change.new["metadata"]["is_final_state"]
    assert get_state_diff(state, change.new) == change.diff


@given(st.lists(st.tuples(updates, letters, st.booleans()), max_size=5))
def test_a_run_can_be_replayed(run: list[tuple[dict[str, Any], str, bool]]) -> None:
    """Updates, nodes and ends, applied again, give every stored state again (GS-8)."""

    def states() -> list[str]:
        state: dict[str, Any] = {}
        written: list[str] = []
        for update, node, is_end in run:
            state = transition(state, json.loads(json.dumps(update)), node, is_end=is_end).new
            written.append(json.dumps(state))
        return written

    assert states() == states()


@given(updates, updates, letters)
def test_marks_merge_like_the_rest(state: dict[str, Any], update: dict[str, Any], node: str) -> None:
    """The marks are what a node with `merge_metadata` would have returned itself: whoever replays needs no other rule."""
    marks = {"current_node": node, "is_final_state": False}
    change = transition(state, update, node)
    metadata = merge_metadata(merge_metadata(state.get("metadata"), update.get("metadata")), marks)

    assert metadata == change.new["metadata"]


HOSTILE: list[tuple[Any, Any, str]] = [
    ({}, "", "node must not be empty"),
    ({}, None, "node must be text"),
    ({"metadata": ["secret"]}, "a", "metadata must be an object"),
    ({"docs": [{}]}, "a", r"docs\[0\] has no id"),
    ("secret", "a", "update must be an object"),
]


@pytest.mark.parametrize(("update", "node", "message"), HOSTILE)
def test_hostile_transitions_change_nothing(update: Any, node: Any, message: str) -> None:
    """A refused transition leaves the state, and its error holds no content."""
    before = copy.deepcopy(STATE)
    with pytest.raises(InvalidValueError, match=message) as refused:
        transition(STATE, update, node)

    assert before == STATE
    assert "secret" not in str(refused.value)


def test_foreign_metadata_are_refused() -> None:
    """Where `metadata` is something else, there is no place for the marks, and it is not overwritten."""
    with pytest.raises(InvalidValueError, match="metadata must be an object, not int"):
        transition({"metadata": 5}, {"a": 1}, "n", reducers={})


def test_transitions_are_immutable() -> None:
    with pytest.raises(AttributeError):
        transition({}, {}, "a").node = "b"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


# The diff


DIFFS: list[tuple[Any, Any, Any]] = [
    ({}, {}, {}),
    (None, None, {}),
    ({}, {"docs": [{"id": "1"}]}, {"docs_count": {"from": 0, "to": 1}}),
    ({"docs": [{"id": "1"}]}, {"docs": None}, {"docs_count": {"from": 1, "to": 0}}),
    ({"docs": [{"id": "1"}]}, {"docs": [{"id": "2"}]}, {}),
    ({"docs": None}, {"docs": []}, {}),
    ({"tasks": None}, {"tasks": tool_results(2)}, {"tool_results_count": {"from": 0, "to": 2}}),
    ({"tasks": tool_results(2)}, {"tasks": tool_results(1)}, {"tool_results_count": {"from": 2, "to": 1}}),
    ({"tasks": {"tool_results": None}}, {"tasks": {}}, {}),
    ({}, {"generated_text": "Because."}, {"generated_text": True}),
    ({"generated_text": None}, {"generated_text": "Because."}, {"generated_text": True}),
    ({"generated_text": ""}, {"generated_text": "B"}, {"generated_text": True}),
    ({}, {"generated_text": ""}, {}),
    ({"generated_text": "B"}, {"generated_text": "Because."}, {}),
    ({"generated_text": "Because."}, {}, {}),
    (
        {"docs": [{}], "tasks": tool_results(1)},
        {"docs": [{}, {}], "tasks": tool_results(3), "generated_text": "B"},
        {"docs_count": {"from": 1, "to": 2}, "tool_results_count": {"from": 1, "to": 3}, "generated_text": True},
    ),
    ({"messages": [], "user_id": "a"}, {"messages": [{}], "user_id": "b"}, {}),
]


@pytest.mark.parametrize(("old", "new", "diff"), DIFFS)
def test_what_the_diff_says(old: Any, new: Any, diff: dict[str, Any]) -> None:
    """Counts that changed, the text when it appears first, and nothing else (GS-18)."""
    assert diff == get_state_diff(old, new)


@given(json_values, json_values, json_values)
def test_the_diff_of_any_state(docs: Any, tasks: Any, text: Any) -> None:
    """Fields of another schema do not stop a run: what is no list counts as empty (GS-1, GS-18)."""
    state = {"docs": docs, "tasks": tasks, "generated_text": text}
    count = len(cast("list[Any]", docs)) if isinstance(docs, list) else 0

    assert {} == get_state_diff(state, state)
    assert ({"from": 0, "to": count} if count else None) == get_state_diff({}, state).get("docs_count")


@given(updates, updates)
def test_the_diff_holds_no_content(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Numbers and `true`: all that may be logged (GS-19, GS-20)."""
    diff: dict[str, Any] = {**get_state_diff(old, new)}

    assert diff.keys() <= {"docs_count", "tool_results_count", "generated_text"}
    assert diff.pop("generated_text", True) is True
    assert all(type(number) is int for change in diff.values() for number in change.values())


@pytest.mark.parametrize(("old", "new"), [("secret", {}), ({}, ["secret"])])
def test_states_are_objects(old: Any, new: Any) -> None:
    with pytest.raises(InvalidValueError, match="state must be an object") as refused:
        get_state_diff(old, new)
    assert "secret" not in str(refused.value)
