"""The state that a graph starts with, and its schema."""

from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.json_values import ids, json_values, times

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.graph.reducers import AGENT_REDUCERS, reduce_state
from chatledger.domain.graph.schema import DEFAULT_OPTIONS, AgentState, initial_state

DOCUMENT: dict[str, Any] = {
    "id": "d1",
    "title": "Riga",
    "body": "A city.",
    "metadata": {"source": "atlas", "created_at": 1, "relevance_score": 0.5, "url": None, "page": 7},
}
COMPLETE: dict[str, Any] = {
    "user_id": "ada",
    "messages": [
        {"role": "user", "content": "Why?", "timestamp": 1},
        {"role": "assistant", "content": "So.", "id": "m"},
    ],
    "options": {**DEFAULT_OPTIONS, "model_id": "m-1"},
    "tasks": {
        "original_query": "Why?",
        "rewritten_query": "Why so?",
        "required_tools": ["web"],
        "tool_results": [{"tool_name": "web", "input": {"q": [1]}, "output": None, "execution_time_ms": 3}],
        "needs_widening": False,
        "widening_attempts": 0,
        "query_analysis": {"is_complex": False, "should_split": False, "reason": "short", "suggested_queries": []},
        "tool_to_run": "web",
    },
    "docs": [DOCUMENT],
    "generated_text": None,
    "metadata": {
        "start_time": 1,
        "node_timings": {"search": 1.5},
        "token_counts": {"prompt": 5},
        "current_node": "search",
        "is_final_state": False,
        "errors": [{"node": "search", "message": "late", "timestamp": 2}],
        "trace_id": "t",
        "span_id": None,
        "execution_time_ms": 1.5,
    },
}


def test_the_initial_state() -> None:
    """One message with the query, the default options, and when it began (GS-3)."""
    assert {
        "user_id": "ada",
        "messages": [{"role": "user", "content": "Why?", "timestamp": 1_700_000_000_000}],
        "options": {
            "enhance_with_context": True,
            "max_context_items": 5,
            "include_source_info": True,
            "max_tokens": 1000,
            "temperature": 0.7,
        },
        "metadata": {"start_time": 1_700_000_000_000, "node_timings": {}, "token_counts": {}},
    } == initial_state("ada", "Why?", now=1_700_000_000_000)


def test_the_caller_gives_the_trace_id() -> None:
    """It is in the metadata if there is one (GS-2)."""
    metadata = initial_state("ada", "Why?", now=1, trace_id="t-1").get("metadata")

    assert {"start_time": 1, "node_timings": {}, "token_counts": {}, "trace_id": "t-1"} == metadata


def test_single_options_can_be_replaced() -> None:
    """The others keep their defaults; further ones are kept (GS-1, GS-3)."""
    options = initial_state(
        "ada", "Why?", now=1, options={"max_tokens": 0, "temperature": None, "model_id": "m-1", "tone": ["dry"]}
    )["options"]

    assert {**DEFAULT_OPTIONS, "max_tokens": 0, "temperature": None, "model_id": "m-1", "tone": ["dry"]} == options


def test_two_initial_states_share_nothing() -> None:
    """Neither with each other, nor with the options of the caller, nor with the defaults (GS-4)."""
    options: dict[str, Any] = {"tone": ["dry"]}
    first, second = (initial_state("ada", "Why?", now=1, options=options) for _ in range(2))
    options["tone"].append("wry")
    first["options"]["max_tokens"] = 1
    first["messages"].clear()

    assert {**DEFAULT_OPTIONS, "tone": ["dry"]} == second["options"]
    assert len(second["messages"]) == 1
    with pytest.raises(TypeError):
        DEFAULT_OPTIONS["max_tokens"] = 1  # type: ignore[index]  # pyright: ignore[reportIndexIssue]


@given(ids, st.text(st.characters(codec="utf-8")), times)
def test_an_initial_state_is_json(user_id: str, query: str, now: int) -> None:
    """It can be stored as it is."""
    state = initial_state(user_id, query, now=now)

    assert state == msgspec.json.decode(msgspec.json.encode(state))
    assert query == state["messages"][0]["content"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"user_id": ""}, "user_id must not be empty"),
        ({"user_id": None}, "user_id must be text"),
        ({"query": None}, "query must be text, not NoneType"),
        ({"query": b"secret"}, "query must be text, not bytes"),
        ({"query": "secret\ud800"}, "query contains a lone surrogate"),
        ({"now": 1.5}, "now must be whole milliseconds"),
        ({"trace_id": ""}, "trace_id must not be empty"),
        ({"options": ["secret"]}, "options must be an object, not list"),
        ({"options": {1: 2}}, "options has a key of type int"),
        ({"options": {"enhance_with_context": "yes"}}, "options.enhance_with_context must be true or false, not str"),
        ({"options": {"include_source_info": 1}}, "options.include_source_info must be true or false, not int"),
        ({"options": {"max_context_items": -1}}, "options.max_context_items"),
        ({"options": {"max_tokens": 1.5}}, "options.max_tokens"),
        ({"options": {"max_tokens": None}}, "options.max_tokens"),
        ({"options": {"temperature": "hot"}}, "options.temperature must be a number or None, not str"),
        ({"options": {"temperature": True}}, "options.temperature must be a number or None, not bool"),
        ({"options": {"temperature": float("nan")}}, "options contains nan"),
        ({"options": {"model_id": 5}}, "options.model_id must be text"),
        ({"options": {"tone": {"secret"}}}, "options contains a set"),
    ],
)
def test_hostile_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    """The error names the argument, and never the user or what was asked (GS-20)."""
    good: dict[str, Any] = {"user_id": "secret", "query": "secret", "now": 1}
    with pytest.raises(InvalidValueError, match=message) as refused:
        initial_state(**good | arguments)

    assert "secret" not in str(refused.value)


# The schema


def test_a_complete_state_is_of_the_schema() -> None:
    """A state with every field is what the types say, and unknown fields are no error (GS-1)."""
    assert AgentState.__required_keys__ == {"user_id", "messages", "options"}
    assert COMPLETE.keys() == AgentState.__annotations__.keys()
    assert msgspec.convert({**COMPLETE, "unknown": 1}, AgentState)["user_id"] == "ada"


@pytest.mark.parametrize(
    "bad",
    [
        {"docs": [{"id": "d1"}]},
        {"metadata": {"start_time": 1}},
        {"tasks": {"widening_attempts": "two"}},
        {"messages": [{"role": "robot", "content": "x"}]},
        {"options": {}},
        {"generated_text": 5},
    ],
    ids=lambda bad: next(iter(bad)),
)
def test_other_states_are_not_of_the_schema(bad: dict[str, Any]) -> None:
    """The types are those of the requirements, nested ones included (GS-1)."""
    with pytest.raises(msgspec.ValidationError, match=next(iter(bad))):
        msgspec.convert({**COMPLETE, **bad}, AgentState)


@given(st.dictionaries(st.sampled_from(["mood", "plan", "x"]), json_values, max_size=3))
def test_unknown_fields_are_kept(unknown: dict[str, Any]) -> None:
    """At the top, in documents, in tasks and in metadata (GS-1)."""
    state = reduce_state(
        {**COMPLETE, **unknown},
        {
            "docs": [{**DOCUMENT, "id": "d2", **unknown}],
            "tasks": {"more": unknown},
            "metadata": {"node_timings": {"answer": 1.0}, "more": unknown},
        },
    )

    assert unknown.items() <= state.items()
    assert [DOCUMENT, {**DOCUMENT, "id": "d2", **unknown}] == state["docs"]
    assert {**COMPLETE["tasks"], "more": unknown} == state["tasks"]
    assert unknown == state["metadata"]["more"]


def test_the_annotations_name_the_reducers() -> None:
    """The schema and `AGENT_REDUCERS` agree: a framework that reads the annotations reduces as we do (GS-6)."""
    hints = get_type_hints(AgentState, include_extras=True)
    annotated: dict[str, Callable[..., Any]] = {}
    for field, hint in hints.items():
        inner = next(iter(get_args(hint)), None) if field in AgentState.__optional_keys__ else hint
        if get_origin(inner) is Annotated:
            annotated[field] = get_args(inner)[-1]

    assert annotated == dict(AGENT_REDUCERS)
