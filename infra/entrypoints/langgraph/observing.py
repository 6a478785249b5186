"""Observing the state of a LangGraph graph: callbacks after each node, and the node that wrote last as part of the state."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.graph.reducers import Reducer, Reducers, Transition, get_state_diff, reduce_state, transition

from ...ledger.graph.observers import StateObservers

if TYPE_CHECKING:
    from langgraph.graph import StateGraph

_METADATA: Final = "metadata"
Update = Mapping[str, Any] | None


def observe(
    builder: "StateGraph[Any, Any, Any, Any]",
    observers: StateObservers | None = None,
    *,
    ends: Collection[str] | None = None,
) -> StateObservers:
    """
    Observe every node of a graph, however it is run: invoked or streamed, synchronously or not.

    What a node returns is completed by `metadata.current_node` and `metadata.is_final_state`, before reducers and checkpoints
    see it; a schema without `metadata` does without. Where nodes run beside each other, `metadata` needs a reducer, as it has in
    `AgentState`: LangGraph takes one value a step otherwise. Then the observers are called with what `transition` makes of it.
    Nodes of one step that run beside each other are observed each by itself, from the state before the step on.

    Args:
        builder: The graph, before `compile` and after `add_node`: its nodes are replaced.
        observers: The callbacks to invoke after each transition; new ones when None.
        ends: The end nodes. None: those with an edge to `END`.

    Returns:
        The observers; callbacks may be added at any time. Coroutine functions need `ainvoke` or `astream`.

    Raises:
        InvalidValueError: `builder` is no `StateGraph`, or has no nodes. While it runs: a node returns neither a dict nor a `Command` nor None.
    """
    from langgraph.graph import END, StateGraph

    if not isinstance(builder, StateGraph) or not builder.nodes:
        msg = "observe needs a StateGraph, before compile and with its nodes"
        raise InvalidValueError(msg)
    notified = StateObservers() if observers is None else observers

    def is_end(name: str) -> bool:
        return (name, END) in builder.edges if ends is None else name in ends

    for name, spec in builder.nodes.items():
        if not spec.is_error_handler:
            runnable = cast("Runnable[Any, Any]", spec.runnable)
            observed = _observed(name, runnable, notified, _reducers_of(builder), is_end)
            builder.nodes[name] = replace(spec, runnable=cast("Any", observed))
    return notified


def _observed(
    name: str, node: Runnable[Any, Any], notified: StateObservers, reducers: Reducers, is_end: Callable[[str], bool]
) -> Runnable[Any, Any]:
    """A node that notifies observers of its transition: a `RunnableLambda` around it, in which LangGraph finds subgraphs."""

    def run(state: Any, config: RunnableConfig) -> Any:
        returned, change = _step(state, node.invoke(state, config), name, reducers, is_end=is_end(name))
        if change is not None:
            notified.notify(change)
        return returned

    async def run_async(state: Any, config: RunnableConfig) -> Any:
        returned, change = _step(state, await node.ainvoke(state, config), name, reducers, is_end=is_end(name))
        if change is not None:
            await notified.notify_async(change)
        return returned

    return RunnableLambda(run, run_async, name="observed")


def _step(
    state: Any, returned: Any, node: str, reducers: Reducers, *, is_end: bool
) -> tuple[Any, Transition[dict[str, Any]] | None]:
    """The update of a node with its mark, and the transition; None where it wrote to another graph only."""
    updates = _updates(returned, node)
    if updates is None:
        return returned, None
    mark = {"current_node": node, "is_final_state": is_end}
    if is_dataclass(state):
        present = (field.name for field in fields(state) if hasattr(state, field.name))
        before: dict[str, Any] = {name: getattr(state, name) for name in present}
    else:  # a dict, or a model of Pydantic, which yields its fields
        before = dict(state)
    reduced = before
    for update in updates[:-1]:
        reduced = reduce_state(reduced, update, reducers=reducers)
    last = transition(reduced, updates[-1] if updates else None, node, is_end=is_end, reducers=reducers)
    change = Transition(old=before, new=last.new, node=node, diff=get_state_diff(before, last.new))
    # Without a reducer the mark takes the place of all metadata, so it brings them along.
    return _marked(returned, mark if _METADATA in reducers else change.new[_METADATA]), change


def _updates(returned: Any, node: str) -> list[Update] | None:
    """The updates that a node returned, in order; None where all of them are for the parent of the graph."""
    from langgraph.types import Command

    if returned is None or isinstance(returned, Mapping):
        return [cast("Update", returned)]
    if isinstance(returned, Command):
        command = cast("Command[Any]", returned)
        if command.graph == Command.PARENT:
            return None
        update: Any = command.update
        if isinstance(update, list | tuple):
            return [{field: value} for field, value in cast("Sequence[tuple[str, Any]]", update)]
        return _updates(update, node)
    if isinstance(returned, list | tuple):
        by_part = [_updates(part, node) for part in cast("Sequence[Any]", returned)]
        own = [updates for updates in by_part if updates is not None]
        return [update for updates in own for update in updates] if own or not by_part else None
    msg = f"node {node!r} returned {type(returned).__name__}; a graph that is observed takes a dict, a Command or None"
    raise InvalidValueError(msg)


def _marked(returned: Any, mark: Mapping[str, Any]) -> Any:
    from langgraph.types import Command

    if isinstance(returned, Command):
        command = cast("Command[Any]", returned)
        return replace(command, update=_marked(command.update, mark))
    if isinstance(returned, list | tuple):
        parts = cast("Sequence[Any]", returned)
        is_of_pairs = all(isinstance(part, tuple) for part in parts)
        return [*parts, (_METADATA, dict(mark)) if is_of_pairs else {_METADATA: dict(mark)}]
    update: Mapping[str, Any] = returned or {}
    metadata: Mapping[str, Any] = update.get(_METADATA) or {}
    return {**update, _METADATA: {**metadata, **mark}}


def _reducers_of(builder: "StateGraph[Any, Any, Any, Any]") -> Reducers:
    from langgraph.channels import BinaryOperatorAggregate
    from langgraph.channels.delta import DeltaChannel

    reducers: dict[str, Reducer] = {}
    channels: Mapping[str, Any] = cast("Any", builder).channels
    for name, channel in channels.items():
        if isinstance(channel, BinaryOperatorAggregate):
            reducers[name] = _overwritable(cast("Any", channel).operator)
        elif isinstance(channel, DeltaChannel):
            reducers[name] = _overwritable(partial(_reduced_by, cast("Any", channel).reducer))
    return reducers


def _reduced_by(reducer: Callable[[Any, Sequence[Any]], Any], old: Any, new: Any) -> Any:
    return reducer(old, [new])


def _overwritable(reducer: Reducer) -> Reducer:
    """The reducer, except for values that LangGraph is told to take as they are."""
    from langgraph.types import Overwrite

    return lambda old, new: new.value if isinstance(new, Overwrite) else reducer(old, new)
