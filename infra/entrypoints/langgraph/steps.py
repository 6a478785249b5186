"""The steps of a graph as its configs and checkpoints describe them: how durable they are to be, and which nodes ran."""

from collections.abc import Mapping
from typing import Any, Final

from langchain_core.runnables import RunnableConfig

NULL_TASK_ID: Final = "00000000-0000-0000-0000-000000000000"
"""The task of writes that come from outside of the graph."""
_DURABILITY: Final = "__pregel_durability"
"""Private to LangGraph, whose own name of it has moved between versions."""
_NO_NODES: Final = {"__input__", "__interrupt__"}


def may_ride(config: RunnableConfig) -> bool:
    """Whether writes may wait for the next checkpoint: the `durability` is async, as by default, or exit, and none that is not known."""
    return config.get("configurable", {}).get(_DURABILITY, "async") in {"async", "exit"}


def nodes_run(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the nodes that ran between two checkpoints, from the versions that each node has seen."""
    return [node for node, seen in after.items() if node not in _NO_NODES and before.get(node) != seen]
