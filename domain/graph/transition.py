"""Transitions: one step of a graph, from the state before a node to the state after it, and the difference between the two."""

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypedDict, cast

from ..limits import check_id
from ..wire import Value
from .reducers import AGENT_REDUCERS, Reducers, State, check_object, reduce_state

CountChange = TypedDict("CountChange", {"from": int, "to": int})
"""The numbers before and after."""


class StateDiff(TypedDict, total=False):
    """The changes of a transition, without any content. A field is absent where nothing changed."""

    docs_count: CountChange
    tool_results_count: CountChange
    generated_text: Literal[True]


class Transition(Value, Generic[State], frozen=True):
    """One step of a graph: the state before and after, the node that made it, and what it changed."""

    old: State
    new: State
    node: str
    diff: StateDiff


def transition(
    state: State,
    update: Mapping[str, Any] | None,
    node: str,
    *,
    is_end: bool = False,
    reducers: Reducers = AGENT_REDUCERS,
) -> Transition[State]:
    """
    Reduce what a node returned into a new state, which names the node that wrote it.

    `metadata.current_node` and `metadata.is_final_state` of the new state say who wrote last, and whether that was the end.
    They are part of the state before anybody stores or observes it.

    Args:
        state: The state before, left as it is.
        update: What the node returned: the changed fields, a whole state, or None.
        node: The name of the node.
        is_end: Whether it is the end node of the graph.
        reducers: The reducer of each field; the rest is overwritten.

    Raises:
        InvalidValueError: As `reduce_state`; or the node has no name, or `metadata` is no object.
    """
    check_id(node, "node")
    reduced = reduce_state(state, update, reducers=reducers)
    metadata = check_object(reduced.get("metadata"), "metadata")
    marked = {**metadata, "current_node": node, "is_final_state": is_end}
    new = cast("State", {**reduced, "metadata": marked})
    return Transition(old=state, new=new, node=node, diff=get_state_diff(state, new))


def get_state_diff(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> StateDiff:
    """
    Return the changes in the number of documents and tool results, and whether the text appeared; `{}` if there are none.

    Lists that are absent, or no lists in a state of another schema, count as empty; so does an empty or absent text.

    Raises:
        InvalidValueError: A state is no object.
    """
    before, after = check_object(old, "old state"), check_object(new, "new state")
    diff: StateDiff = {}
    docs = _change(before.get("docs"), after.get("docs"))
    if docs is not None:
        diff["docs_count"] = docs
    tool_results = _change(_tool_results(before), _tool_results(after))
    if tool_results is not None:
        diff["tool_results_count"] = tool_results
    if after.get("generated_text") and not before.get("generated_text"):
        diff["generated_text"] = True
    return diff


def _tool_results(state: Mapping[str, Any]) -> Any:
    tasks = state.get("tasks")
    return cast("Mapping[str, Any]", tasks).get("tool_results") if isinstance(tasks, Mapping) else None


def _change(old: Any, new: Any) -> CountChange | None:
    before, after = _count(old), _count(new)
    return None if before == after else {"from": before, "to": after}


def _count(value: Any) -> int:
    return len(cast("list[Any]", value)) if isinstance(value, list) else 0
