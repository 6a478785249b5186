"""States that two lines of an agent made of the same one, merged by the reducers of their fields."""

import operator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatledger.domain.errors import InvalidValueError, MergeConflictError
from chatledger.domain.graph.merging import merge_states
from chatledger.domain.graph.reducers import AGENT_REDUCERS, append_messages, reduce_state

BASE: dict[str, Any] = {
    "query": "Riga?",
    "docs": [{"id": "d1", "title": "Riga"}],
    "tasks": {"search": "done"},
    "metadata": {"node_timings": {"search": 1.5}, "errors": [{"node": "search"}]},
}


def test_what_one_side_changed_is_as_there() -> None:
    ours, theirs = {**BASE, "query": "Tallinn?"}, {**BASE, "note": "late"}
    del theirs["tasks"]

    assert merge_states(BASE, ours, theirs) == {
        "query": "Tallinn?",
        "docs": BASE["docs"],
        "metadata": BASE["metadata"],
        "note": "late",
    }


def test_both_sides_are_reduced() -> None:
    """Each side's additions are there once, those of ours first, and nothing of the base is doubled."""
    ours = reduce_state(
        BASE,
        {
            "docs": [{"id": "d2"}],
            "tasks": {"write": "open"},
            "metadata": {"node_timings": {"write": 2.0}, "errors": [{"node": "write"}]},
        },
    )
    theirs = reduce_state(
        BASE,
        {
            "docs": [{"id": "d1", "title": "Rīga"}, {"id": "d3"}],
            "tasks": {"check": "open"},
            "metadata": {"node_timings": {"check": 3.0}, "errors": [{"node": "check"}]},
        },
    )
    before = (repr(BASE), repr(ours), repr(theirs))

    assert merge_states(BASE, ours, theirs) == {
        "query": "Riga?",
        "docs": [{"id": "d1", "title": "Rīga"}, {"id": "d2"}, {"id": "d3"}],
        "tasks": {"search": "done", "write": "open", "check": "open"},
        "metadata": {
            "node_timings": {"search": 1.5, "write": 2.0, "check": 3.0},
            "errors": [{"node": "search"}, {"node": "write"}, {"node": "check"}],
        },
    }
    assert before == (repr(BASE), repr(ours), repr(theirs))


@pytest.mark.parametrize(
    ("reducer", "base", "ours", "theirs", "merged"),
    [
        (operator.add, 5, 7, 9, 11),
        (max, 5, 7, 9, 9),
        (operator.add, [1], [1, 2], [1, 3], [1, 2, 3]),
        (operator.add, [1], [1, 2], [1, 1], [1, 2, 1]),
        (append_messages, [], [{"content": "a"}], [{"content": "b"}], [{"content": "a"}, {"content": "b"}]),
        (append_messages, None, [{"id": "a"}], [{"id": "b"}], [{"id": "a"}, {"id": "b"}]),
    ],
)
def test_a_reducer_gets_what_makes_theirs_of_the_base(
    reducer: Any, base: Any, ours: Any, theirs: Any, merged: Any
) -> None:
    assert merge_states({"x": base}, {"x": ours}, {"x": theirs}, reducers={"x": reducer}) == {"x": merged}


@pytest.mark.parametrize(
    ("ours", "theirs", "field"),
    [
        ({"query": "a"}, {"query": "b"}, "query"),
        ({"docs": []}, {"docs": [*BASE["docs"], {"id": "d2"}]}, None),
        ({"docs": [{"id": "d1"}, {"id": "d2"}]}, {"docs": []}, "docs"),
        ({"tasks": {"search": "failed"}}, {"tasks": {}}, "tasks"),
    ],
)
def test_what_no_reducer_makes_is_a_conflict(ours: dict[str, Any], theirs: dict[str, Any], field: str | None) -> None:
    """Without a reducer, or where theirs removed what reducers only add to."""
    mine, other = {**BASE, **ours}, {**BASE, **theirs}
    if field is None:
        assert merge_states(BASE, mine, other)["docs"] == [{"id": "d2"}]
        return
    with pytest.raises(MergeConflictError, match=repr(field)) as conflict:
        merge_states(BASE, mine, other)
    assert (conflict.value.field, conflict.value.base) == (field, BASE[field])
    assert (conflict.value.ours, conflict.value.theirs) == (mine[field], other[field])


def test_a_field_that_one_side_removed_and_the_other_changed_is_a_conflict() -> None:
    without = {key: value for key, value in BASE.items() if key != "docs"}
    with pytest.raises(MergeConflictError, match="docs") as conflict:
        merge_states(BASE, without, {**BASE, "docs": [{"id": "d9"}]})
    assert conflict.value.ours is None


def test_states_without_a_base() -> None:
    assert merge_states(None, {"docs": [{"id": "a"}]}, {"docs": [{"id": "b"}]}) == {"docs": [{"id": "a"}, {"id": "b"}]}
    with pytest.raises(InvalidValueError, match="theirs"):
        merge_states(None, {}, [])  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]


updates = st.fixed_dictionaries(
    {},
    optional={
        "docs": st.lists(st.integers(0, 5), max_size=3, unique=True).map(
            lambda numbers: [{"id": f"d{number}", "by": number} for number in numbers]
        ),
        "tasks": st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), max_size=3),
        "metadata": st.fixed_dictionaries({"errors": st.lists(st.integers(0, 3).map(lambda n: {"n": n}), max_size=2)}),
    },
)


@given(updates, updates, updates)
def test_a_merge_is_the_update_on_the_other_side(first: Any, ours: Any, theirs: Any) -> None:
    """Whatever nodes added on two sides: the merge has what a state has to which both were added in a row."""
    base: dict[str, Any] = reduce_state({}, first, reducers=AGENT_REDUCERS)
    mine, other = reduce_state(base, ours), reduce_state(base, theirs)
    merged = merge_states(base, mine, other)

    assert merge_states(base, mine, base) == mine
    assert merge_states(base, base, other) == other
    in_a_row = reduce_state(mine, theirs)
    for field in ("docs", "tasks"):
        assert _known(merged.get(field)) == _known(in_a_row.get(field))


def _known(value: Any) -> Any:
    return {item["id"] for item in value or ()} if isinstance(value, list) else set(value or ())
