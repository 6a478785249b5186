"""The reducers of single fields, and the laws that they keep."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from tests.support.graph_state_values import counters, docs, errors, messages, metadata, metadata_without_errors, tasks
from tests.support.json_values import json_values

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.graph.reducers import append_messages, last_write, merge_docs, merge_metadata, merge_tasks


def doc(doc_id: str, body: str = "") -> dict[str, Any]:
    return {"id": doc_id, "body": body}


def is_associative(reduce: Callable[[Any, Any], Any], a: Any, b: Any, c: Any) -> bool:
    return bool(reduce(reduce(a, b), c) == reduce(a, reduce(b, c)))


def slowly_merged(old: list[Any], new: list[Any]) -> list[Any]:
    """Merging by id as one would do it by hand."""
    merged: list[Any] = []
    for item in [*old, *new]:
        same = [place for place, other in enumerate(merged) if "id" in item and other.get("id") == item["id"]]
        if same:
            merged[same[0]] = item
        else:
            merged.append(item)
    return merged


# Documents


def test_later_documents_win_in_place() -> None:
    """[1, 2] and [2', 3, 3'] give [1, 2', 3'], in this order (GS-6, acceptance GS 1)."""
    merged = merge_docs([doc("1"), doc("2")], [doc("2", "new"), doc("3"), doc("3", "new")])

    assert [doc("1"), doc("2", "new"), doc("3", "new")] == merged


@pytest.mark.parametrize("absent", [None, []], ids=["absent", "empty"])
def test_no_documents_change_nothing(absent: list[Any] | None) -> None:
    """An empty or absent new value keeps the old; an absent old one counts as empty (GS-6, GS-8)."""
    known = [doc("1"), doc("2")]

    assert known == merge_docs(known, absent)
    assert known == merge_docs(absent, known)
    assert [] == merge_docs(absent, absent)


def test_the_first_batch_has_no_duplicates() -> None:
    """Although there is nothing to merge it with; the source keeps both (GS-6)."""
    assert [doc("1", "new"), doc("2")] == merge_docs(None, [doc("1"), doc("2"), doc("1", "new")])


def test_a_document_is_replaced_as_a_whole() -> None:
    """The later document wins: fields of the earlier one do not shine through (GS-6)."""
    assert [{"id": "1"}] == merge_docs([doc("1", "old")], [{"id": "1"}])


@given(docs, docs)
def test_documents_by_hand(old: list[Any], new: list[Any]) -> None:
    """Merging agrees with the slow way, and no id is there twice (GS-6)."""
    merged = merge_docs(old, new)
    ids = [item["id"] for item in merged]

    assert slowly_merged(old, new) == merged
    assert len(ids) == len(set(ids))


@given(docs, docs, docs)
def test_laws_of_merge_docs(a: list[Any], b: list[Any], c: list[Any]) -> None:
    """Associative, with [] as identity, and idempotent: an update that is applied twice is applied once."""
    merged = merge_docs(a, b)

    assert is_associative(merge_docs, a, b, c)
    assert merged == merge_docs(merged, []) == merge_docs([], merged)
    assert merged == merge_docs(merged, b) == merge_docs(merged, merged)


# Messages


def test_messages_without_ids_are_appended() -> None:
    """Who says "yes" twice is heard twice: words are no identity."""
    yes = {"role": "user", "content": "yes"}

    assert [yes, yes] == append_messages([yes], [yes])
    assert [yes, {**yes, "id": None}] == append_messages([yes], [{**yes, "id": None}])


@given(messages, messages)
def test_messages_by_hand(old: list[Any], new: list[Any]) -> None:
    """Appending agrees with the slow way, with and without ids (NS-31)."""
    assert slowly_merged(old, new) == append_messages(old, new)


@given(messages, messages, messages)
def test_laws_of_append_messages(a: list[Any], b: list[Any], c: list[Any]) -> None:
    """Associative, with [] as identity; idempotent for messages that have ids."""
    merged = append_messages(a, b)
    named = [message for message in b if "id" in message]

    assert is_associative(append_messages, a, b, c)
    assert merged == append_messages(merged, []) == append_messages(None, merged)
    assert append_messages(a, named) == append_messages(append_messages(a, named), named)


# Tasks and other fields


def test_tasks_merge_at_the_top() -> None:
    """New values win, None included; deeper objects are replaced, not merged (GS-6)."""
    old = {"original_query": "q", "query_analysis": {"reason": "long", "is_complex": True}, "tool_to_run": "web"}
    new = {"query_analysis": {"reason": "short"}, "tool_to_run": None}

    assert {"original_query": "q", "query_analysis": {"reason": "short"}, "tool_to_run": None} == merge_tasks(old, new)


@given(tasks, tasks, tasks)
def test_laws_of_merge_tasks(a: dict[str, Any], b: dict[str, Any], c: dict[str, Any]) -> None:
    """Associative, with {} and None as identity, and idempotent."""
    assert is_associative(merge_tasks, a, b, c)
    assert a == merge_tasks(a, {}) == merge_tasks({}, a) == merge_tasks(a, None) == merge_tasks(None, a)
    assert merge_tasks(a, b) == merge_tasks(merge_tasks(a, b), b)


@given(json_values, json_values, json_values)
def test_laws_of_last_write(a: Any, b: Any, c: Any) -> None:
    """The new value, whatever it is: associative, idempotent, and without identity, since None is a value too."""
    assert b is last_write(a, b)
    assert None is last_write(a, None)
    assert is_associative(last_write, a, b, c)


# Metadata


def test_timings_are_kept() -> None:
    """{a: 1} and {b: 2} give both; the source's code loses the first (GS-6, acceptance GS 3)."""
    old = {"node_timings": {"a": 1.0}, "token_counts": {"prompt": 5, "docs": 1}, "trace_id": "t"}
    new = {"node_timings": {"b": 2.0}, "token_counts": {"docs": 7}, "trace_id": "u"}

    assert {
        "node_timings": {"a": 1.0, "b": 2.0},
        "token_counts": {"prompt": 5, "docs": 7},
        "trace_id": "u",
    } == merge_metadata(old, new)


def test_errors_are_appended() -> None:
    """New errors come after the old ones (GS-6)."""
    first, second = {"node": "a"}, {"node": "b"}

    assert {"errors": [first, second]} == merge_metadata({"errors": [first]}, {"errors": [second]})
    assert {"errors": [first]} == merge_metadata({"errors": [first]}, {})
    assert {"errors": [first]} == merge_metadata({"errors": [first]}, {"errors": []})


def test_errors_that_begin_with_the_old_ones_are_taken() -> None:
    """A whole list is no addition; the source's spread pattern doubles the list at every step (GS-7)."""
    first, second = {"node": "a"}, {"node": "b"}

    assert [first] == merge_metadata({"errors": [first]}, {"errors": [first]})["errors"]
    assert [first, second] == merge_metadata({"errors": [first]}, {"errors": [first, second]})["errors"]
    assert [first, second, second] == merge_metadata({"errors": [first, second]}, {"errors": [second]})["errors"]


def test_equal_errors_are_equal_json() -> None:
    """`true` is not `1`: a list that only Python takes for the old one is added to it (GS-7)."""
    merged = merge_metadata({"errors": [{"code": True}]}, {"errors": [{"code": 1}]})

    assert [True, 1] == [error["code"] for error in merged["errors"]]
    assert isinstance(merged["errors"][0]["code"], bool)


@given(errors, errors)
def test_whole_lists_of_errors(old: list[Any], more: list[Any]) -> None:
    """Whether a node returns only its errors or all of them, none is lost, and a whole list is not doubled (GS-7)."""
    whole = merge_metadata({"errors": old}, {"errors": [*old, *more]})["errors"]
    added = merge_metadata({"errors": old}, {"errors": more})["errors"]

    assert [*old, *more] == whole
    assert added in ([*old, *more], more)


@pytest.mark.parametrize("name", ["node_timings", "token_counts", "errors"])
def test_absent_sections_count_as_empty(name: str) -> None:
    """None is absent, on either side (GS-8)."""
    value: Any = [{"node": "a"}] if name == "errors" else {"a": 1}

    assert {name: value} == merge_metadata({name: None}, {name: value})
    assert {name: value} == merge_metadata({name: value}, {name: None})
    assert {name: value} == merge_metadata(None, {name: value})
    assert {name: value} == merge_metadata({name: value}, None)


@given(counters, counters, metadata_without_errors, metadata_without_errors)
def test_unknown_metadata_are_kept(a: dict[str, int], b: dict[str, int], old: Any, new: Any) -> None:
    """Every key of either side is in the result, the new value where both have one (GS-1, GS-6)."""
    merged = merge_metadata({**old, "node_timings": a}, {**new, "node_timings": b})

    assert {**a, **b} == merged["node_timings"]
    assert {**old, **new}.get("extra") == merged.get("extra")
    assert old.keys() | new.keys() | {"node_timings"} == merged.keys()


@given(metadata_without_errors, metadata_without_errors, metadata_without_errors)
def test_laws_of_merge_metadata(a: dict[str, Any], b: dict[str, Any], c: dict[str, Any]) -> None:
    """But for errors it is associative, with {} as identity, and idempotent."""
    assert is_associative(merge_metadata, a, b, c)
    assert a == merge_metadata(a, {}) == merge_metadata({}, a)
    assert merge_metadata(a, b) == merge_metadata(merge_metadata(a, b), b)


@given(metadata)
def test_metadata_are_idempotent_as_a_whole(whole: dict[str, Any]) -> None:
    """Metadata that come back as they are change nothing, errors included (GS-7)."""
    assert whole == merge_metadata(whole, whole)


def test_errors_are_not_associative() -> None:
    """
    Taking a whole list as it is costs associativity: what looks whole after one step does not look so before it.

    So updates are applied one by one, in their order; two of them are not joined first.
    """
    first, second = {"node": "a"}, {"node": "b"}
    a: dict[str, Any] = {"errors": [first]}
    b: dict[str, Any] = {"errors": [second]}
    c: dict[str, Any] = {"errors": [first, second]}

    assert [first, second] == merge_metadata(merge_metadata(a, b), c)["errors"]
    assert [first, second, first, second] == merge_metadata(a, merge_metadata(b, c))["errors"]
    assert not is_associative(merge_metadata, a, b, c)


# What all of them owe


@pytest.mark.parametrize(
    ("reducer", "old", "new"),
    [
        (merge_docs, [doc("1"), doc("2")], [doc("2", "new"), doc("3")]),
        (append_messages, [{"id": "1", "parts": [{"text": "a"}]}, {"content": "b"}], [{"id": "1"}, {"content": "c"}]),
        (merge_tasks, {"a": {"b": [1]}, "c": 1}, {"a": {"b": [2]}}),
        (
            merge_metadata,
            {"node_timings": {"a": 1}, "token_counts": {"x": 1}, "errors": [{"node": "a"}]},
            {"node_timings": {"b": 2}, "token_counts": {"x": 2}, "errors": [{"node": "b"}]},
        ),
        (last_write, [1], [2]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_inputs_are_left_as_they_are(reducer: Callable[[Any, Any], Any], old: Any, new: Any) -> None:
    """Neither value changes, and changing the result's own list or object changes neither (GS-4, GS-8)."""
    before = copy.deepcopy((old, new))
    result = reducer(old, new)

    assert before == (old, new)
    if reducer is not last_write:
        result.clear()
        assert before == (old, new)


def test_a_state_does_not_share_the_list_of_a_node() -> None:
    """A node that keeps its list and adds to it later does not change the state that took it."""
    errors_of_node: list[Any] = [{"node": "a"}]
    merged = merge_metadata(None, {"errors": errors_of_node})
    errors_of_node.append({"node": "b"})

    assert [{"node": "a"}] == merged["errors"]


HOSTILE: list[tuple[Callable[[Any, Any], Any], Any, str]] = [
    (merge_docs, {"id": "1"}, r"docs must be a list, not dict"),
    (merge_docs, ({"id": "1"},), r"docs must be a list, not tuple"),
    (merge_docs, "secret", r"docs must be a list, not str"),
    (merge_docs, [doc("1"), {"title": "secret"}], r"docs\[1\] has no id"),
    (merge_docs, [{"id": None}], r"docs\[0\] has no id"),
    (merge_docs, [{"id": 7}], r"the id of docs\[0\] must be text, not int"),
    (merge_docs, [{"id": ["secret"]}], r"the id of docs\[0\] must be text, not list"),
    (merge_docs, [{"id": ""}], r"the id of docs\[0\] must not be empty"),
    (merge_docs, [doc("1"), doc("2"), "secret"], r"docs\[2\] must be an object, not str"),
    (append_messages, "secret", r"messages must be a list, not str"),
    (append_messages, ["secret"], r"messages\[0\] must be an object, not str"),
    (append_messages, [{"id": 1}], r"the id of messages\[0\] must be text, not int"),
    (merge_tasks, ["secret"], r"tasks must be an object, not list"),
    (merge_tasks, {1: "secret"}, r"tasks has a key of type int"),
    (merge_metadata, "secret", r"metadata must be an object, not str"),
    (merge_metadata, {"node_timings": [1]}, r"metadata.node_timings must be an object, not list"),
    (merge_metadata, {"token_counts": 5}, r"metadata.token_counts must be an object, not int"),
    (merge_metadata, {"errors": {"node": "secret"}}, r"metadata.errors must be a list, not dict"),
    (merge_metadata, {"errors": "secret"}, r"metadata.errors must be a list, not str"),
    (merge_metadata, {"errors": [{}, "secret"]}, r"metadata.errors\[1\] must be an object, not str"),
]


@pytest.mark.parametrize(("reducer", "bad", "message"), HOSTILE)
def test_hostile_values_are_refused(reducer: Callable[[Any, Any], Any], bad: Any, message: str) -> None:
    """The error names the field and the place, never the content, and both values stay as they were (GS-20)."""
    before = copy.deepcopy(bad)
    with pytest.raises(InvalidValueError, match=message) as refused:
        reducer(None, bad)

    assert "secret" not in str(refused.value)
    assert before == bad


@pytest.mark.parametrize("bad", ["text", 5, True, object()], ids=["text", "number", "boolean", "object"])
@pytest.mark.parametrize("reducer", [merge_docs, append_messages, merge_tasks, merge_metadata])
def test_hostile_old_values_are_refused(reducer: Callable[[Any, Any], Any], bad: Any) -> None:
    """An old value of another type, which a state of elsewhere may have, is not taken for an empty one."""
    with pytest.raises(InvalidValueError):
        reducer(bad, None)
