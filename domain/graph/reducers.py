"""
Reducers: what becomes of one field of a state when a node returns a value for it.

A reducer takes the old and the new value and returns the value of the next state. None stands for an absent value and counts as
empty. Reducers are pure, linear in the sizes of their inputs, and leave both as they are. What merges makes a new list or
object, whose items are those of its inputs. The same functions are reducers of LangGraph: `docs: Annotated[list[Document], merge_docs]`.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, Literal, TypedDict, TypeVar, cast

from ..errors import InvalidValueError
from ..limits import check_id, same_json
from ..wire import Value


def check_object(value: Any, field: str) -> Mapping[str, Any]:
    """An object with text keys; an absent one is empty."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        msg = f"{field} must be an object, not {type(value).__name__}"
        raise InvalidValueError(msg)
    for key in cast("Mapping[Any, Any]", value):
        if not isinstance(key, str):
            msg = f"{field} has a key of type {type(key).__name__}; keys must be text"
            raise InvalidValueError(msg)
    return cast("Mapping[str, Any]", value)


def check_list(value: Any, field: str) -> list[Any]:
    """A list; an absent one is empty."""
    if value is None:
        return []
    if not isinstance(value, list):
        msg = f"{field} must be a list, not {type(value).__name__}"
        raise InvalidValueError(msg)
    return cast("list[Any]", value)


def check_objects(value: Any, field: str) -> list[Mapping[str, Any]]:
    """A list of objects; an absent one is empty."""
    items = check_list(value, field)
    for index, item in enumerate(items):
        if not isinstance(item, Mapping):
            msg = f"{field}[{index}] must be an object, not {type(item).__name__}"
            raise InvalidValueError(msg)
    return items


Reducer = Callable[[Any, Any], Any]
"""`(old, new) -> next`; either may be None, which stands for an absent value."""

_COUNTERS: Final = ("node_timings", "token_counts")
_ERRORS: Final = "errors"


def last_write(old: Any, new: Any) -> Any:  # noqa: ARG001 - the signature of reducers
    """The new value, None included: what holds for every field without another reducer."""
    return new


def merge_docs(old: list[Any] | None, new: list[Any] | None) -> list[Any]:
    """
    Merge documents by `id`.

    A later document takes the place of the first one with its id; new ids follow in their order. The result holds no id twice,
    whether the documents came in one batch or in several.

    Raises:
        InvalidValueError: A value is no list, or a document is no object with an `id`.
    """
    return _merge_by_id(old, new, "docs", needs_id=True)


def append_messages(old: list[Any] | None, new: list[Any] | None) -> list[Any]:
    """
    Append new messages; one with a known `id` replaces the old one at its place.

    A message without an id is always appended: nothing tells whether it is the same remark or the same words once more.

    Raises:
        InvalidValueError: A value is no list, a message is no object, or its `id` is not text.
    """
    return _merge_by_id(old, new, "messages", needs_id=False)


def merge_tasks(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> dict[str, Any]:
    """
    The old fields and the new ones; of a field in both, the new value.

    Raises:
        InvalidValueError: A value is no object.
    """
    return {**check_object(old, "tasks"), **check_object(new, "tasks")}


def merge_metadata(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> dict[str, Any]:
    """
    As `merge_tasks`, but `node_timings` and `token_counts` are merged by key, and `errors` are appended.

    A new list of errors that begins with the old one is taken as it is: it comes from a node that returned the whole state.

    Raises:
        InvalidValueError: A value is no object, or `errors` is no list of objects.
    """
    before, after = check_object(old, "metadata"), check_object(new, "metadata")
    merged = {**before, **after}
    for name in _COUNTERS:
        if name in after:
            field = f"metadata.{name}"
            merged[name] = {**check_object(before.get(name), field), **check_object(after[name], field)}
    if _ERRORS in after:
        earlier = check_objects(before.get(_ERRORS), "metadata.errors")
        added = check_objects(after[_ERRORS], "metadata.errors")
        is_whole = len(added) >= len(earlier) and all(map(same_json, earlier, added))
        merged[_ERRORS] = list(added) if is_whole else [*earlier, *added]
    return merged


def _merge_by_id(old: Any, new: Any, field: str, *, needs_id: bool) -> list[Any]:
    """Both lists in a row, without those items that a later one with the same id replaces."""
    merged: dict[str | int, Any] = {}  # in order of first occurrence, by id; without one by place, which no id equals
    for items in (check_objects(old, field), check_objects(new, field)):
        for index, item in enumerate(items):
            item_id = item.get("id")
            if item_id is None and needs_id:
                msg = f"{field}[{index}] has no id; give it one, so that it can be told from the others"
                raise InvalidValueError(msg)
            key = len(merged) if item_id is None else check_id(item_id, f"the id of {field}[{index}]")
            merged[key] = item
    return list(merged.values())


Reducers = Mapping[str, Reducer]
"""The reducer of each field; a field that is not there is overwritten."""

State = TypeVar("State", bound=Mapping[str, Any])
"""A JSON object: a `dict`, or a typed one such as `AgentState`."""

AGENT_REDUCERS: Final[Reducers] = MappingProxyType(
    {"docs": merge_docs, "tasks": merge_tasks, "metadata": merge_metadata}
)
"""The reducers of `AgentState`. With more: `{**AGENT_REDUCERS, "messages": append_messages}`."""


def reduce_state(
    state: State | None, update: Mapping[str, Any] | None, *, reducers: Reducers = AGENT_REDUCERS
) -> State:
    """
    The state after an update, as a new object. Fields that the update does not have keep their value.

    Args:
        state: The state so far, left as it is; the new one shares with it what did not change. None is an empty state.
        update: What a node returned: the changed fields, or a whole state. None changes nothing.
        reducers: The reducer of each field. Each is called with None for a value that is absent.

    Returns:
        A `dict`. Costs O(fields of the state) and what the reducers of the updated fields cost.

    Raises:
        InvalidValueError: State or update are no objects, a reducer is no function, or a field is not what its reducer takes.
    """
    before, changes = check_object(state, "state"), check_object(update, "update")
    if not isinstance(reducers, Mapping):
        msg = f"reducers must be an object of functions by field, not {type(reducers).__name__}"
        raise InvalidValueError(msg)
    after = dict(before)
    for field, value in changes.items():
        reducer = reducers.get(field, last_write)
        if not callable(reducer):
            msg = f"the reducer of {field} is not a function; give a function of the old and the new value"
            raise InvalidValueError(msg)
        after[field] = reducer(before.get(field), value)
    return cast("State", after)


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
