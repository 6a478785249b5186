"""The forms of LangGraph's answers, as a development server of LangGraph's gives them: what is there may not be missing here."""

from collections.abc import Mapping
from types import NoneType
from typing import Any, Final, cast

Shape = Any
"""A type, a tuple of types, a mapping of names to shapes, or a list with the shape of its elements."""

ASSISTANT: Final[Shape] = {
    "assistant_id": str,
    "graph_id": str,
    "config": dict,
    "context": dict,
    "metadata": dict,
    "name": str,
    "created_at": str,
    "updated_at": str,
    "version": int,
    "description": (str, NoneType),
}
ASSISTANT_VERSION: Final[Shape] = {name: kind for name, kind in ASSISTANT.items() if name != "updated_at"}
GRAPH: Final[Shape] = {"nodes": [{"id": str}], "edges": [{"source": str, "target": str}]}
SCHEMAS: Final[Shape] = {
    "graph_id": str,
    "input_schema": (dict, NoneType),
    "output_schema": (dict, NoneType),
    "state_schema": (dict, NoneType),
    "config_schema": (dict, NoneType),
    "context_schema": (dict, NoneType),
}
THREAD: Final[Shape] = {
    "thread_id": str,
    "created_at": str,
    "updated_at": str,
    "state_updated_at": str,
    "metadata": dict,
    "status": str,
    "config": dict,
    "values": (dict, NoneType),
}
INTERRUPT: Final[Shape] = {"id": str, "value": object}
THREAD_THAT_RAN: Final[Shape] = {**THREAD, "error": (dict, NoneType), "interrupts": dict}
CHECKPOINT: Final[Shape] = {"checkpoint_id": str, "thread_id": str, "checkpoint_ns": str}
EMPTY_STATE: Final[Mapping[str, Any]] = {
    "values": {},
    "next": [],
    "tasks": [],
    "metadata": None,
    "created_at": None,
    "checkpoint": None,
    "parent_checkpoint": None,
    "interrupts": [],
    "checkpoint_id": None,
    "parent_checkpoint_id": None,
}
TASK: Final[Shape] = {
    "id": str,
    "name": str,
    "path": list,
    "error": (str, NoneType),
    "interrupts": [INTERRUPT],
    "checkpoint": (dict, NoneType),
    "state": (dict, NoneType),
    "result": (dict, NoneType),
}
STATE: Final[Shape] = {
    "values": dict,
    "next": [str],
    "tasks": [TASK],
    "metadata": {"source": str, "step": int, "parents": dict},
    "created_at": str,
    "checkpoint": CHECKPOINT,
    "parent_checkpoint": (dict, NoneType),
    "interrupts": [INTERRUPT],
    "checkpoint_id": str,
    "parent_checkpoint_id": (str, NoneType),
}
HUMAN: Final[Shape] = {
    "content": str,
    "additional_kwargs": dict,
    "response_metadata": dict,
    "type": str,
    "name": NoneType,
    "id": str,
}
AI: Final[Shape] = {**HUMAN, "tool_calls": list, "invalid_tool_calls": list, "usage_metadata": NoneType}
UPDATED: Final[Shape] = {"checkpoint": CHECKPOINT, "configurable": CHECKPOINT, "checkpoint_id": str}
ITEM: Final[Shape] = {"namespace": [str], "key": str, "value": dict, "created_at": str, "updated_at": str}
INFO: Final[Shape] = {
    "version": str,
    "langgraph_py_version": str,
    "flags": {"assistants": bool, "crons": bool, "langsmith": bool},
    "host": dict,
}


def check_shape(answer: Any, shape: Shape, at: str = "answer") -> None:
    """Fail unless an answer has all that a shape has, each of its type."""
    if isinstance(shape, dict):
        assert isinstance(answer, dict), f"{at} is {answer!r}"
        for name, inner in cast("dict[str, Any]", shape).items():
            assert name in answer, f"{at} has no {name!r}, only {sorted(cast('dict[str, Any]', answer))}"
            check_shape(answer[name], inner, f"{at}.{name}")
    elif isinstance(shape, list):
        assert isinstance(answer, list), f"{at} is {answer!r}"
        for number, one in enumerate(cast("list[Any]", answer)):
            check_shape(one, shape[0], f"{at}[{number}]")
    else:
        assert isinstance(answer, shape), f"{at} is {answer!r}"
