"""The classes that a graph names: those of its state, of what its nodes are given, and of the tasks that its functions call."""

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, cast

from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES
from typing_extensions import is_typeddict

if TYPE_CHECKING:
    from langgraph.pregel import Pregel

    Graph = Pregel[Any, Any, Any, Any]

_PREGEL: Final = "langgraph.pregel"
_TASKS: Final = "langgraph.func"
_ANSWERS: Final = "langchain.agents.structured_output"
_ROOTS: Final = frozenset({"abc", "builtins", "collections", "enum", "pydantic", "typing", "typing_extensions"})
"""Libraries of base classes: a state that names one of these does not mean all classes derived from it."""


def calling_graph() -> "Graph | None":
    """
    The graph that asks for checkpoints here; None where none does.

    LangGraph does not pass the graph to its saver. `compile` passes the classes of a graph, but only if
    `LANGGRAPH_STRICT_MSGPACK` is set, and not for a graph that gets its saver later, as under `langgraph dev`. So the graph is
    looked for among the callers.
    """
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_varnames[:1] == ("self",) and frame.f_globals.get("__name__", "").startswith(_PREGEL):
            from langgraph.pregel import Pregel

            caller = frame.f_locals.get("self")
            if isinstance(caller, Pregel):
                return cast("Graph", caller)
        frame = frame.f_back
    return None


def classes_of(graph: "Graph") -> set[type]:
    """
    The classes of the values that a graph declares.

    These are the classes in its schemas, as `compile` collects them, in what its functions return and the tasks that they call,
    the `response_format` of LangChain's `create_agent`, and classes derived from all of these. Tasks that are reached through
    attributes or data structures are not found.
    """
    annotations: list[Any] = []
    builder: Any = getattr(graph, "builder", None)
    if builder is not None:
        annotations += [builder.state_schema, builder.input_schema, builder.output_schema]
        annotations += [node.input_schema for node in builder.nodes.values()]
        annotations += [branch.input_schema for by_name in builder.branches.values() for branch in by_name.values()]
    channels: dict[str, Any] = vars(graph)["channels"]
    for channel in channels.values():
        annotations += [getattr(channel, "ValueType", None), getattr(channel, "UpdateType", None)]
    runnables: list[Any] = [node.bound for node in graph.nodes.values()]
    functions = [getattr(runnable, name, None) for runnable in runnables for name in ("func", "afunc")]
    if builder is None:
        annotations += [hint for function in functions for hint in _hints_of(_inner(function)).values()]
    return _named_by([*annotations, *_returned(functions)])


def _named_by(annotations: Iterable[Any]) -> set[type]:
    """The classes that annotations name, at any depth."""
    waiting, seen = list(annotations), dict[int, Any]()
    classes: set[type] = set()
    while waiting:
        annotation = waiting.pop()
        if id(annotation) in seen:
            continue
        seen[id(annotation)] = annotation  # kept, as the id of an annotation that is gone may be given to another
        if not isinstance(annotation, type) or typing.get_origin(annotation) is not None:
            waiting += _parts(annotation)
            continue
        is_known = (annotation.__module__, annotation.__name__) in SAFE_MSGPACK_TYPES
        if is_typeddict(annotation) or (not is_known and _is_data(annotation)):
            waiting += _fields(annotation)
        if _is_data(annotation):
            classes.add(annotation)
        if annotation.__module__.partition(".")[0] not in _ROOTS:
            waiting += type.__subclasses__(annotation)
    return classes


def _parts(annotation: Any) -> list[Any]:
    """The parts of an annotation that is not a class, e.g. of `list[Plan] | None`."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return [arguments[0]]
    if origin is Literal:
        return [type(value) for value in arguments if isinstance(value, Enum)]
    if origin is not None:
        nested = [part for argument in arguments if isinstance(argument, list) for part in cast("list[Any]", argument)]
        return [origin, *nested, *(argument for argument in arguments if not isinstance(argument, list))]
    if isinstance(annotation, TypeVar):
        return [_value_of(annotation, "__bound__"), *(_value_of(annotation, "__constraints__") or ())]
    return [_value_of(annotation, name) for name in ("__supertype__", "__value__")]


def _value_of(annotation: Any, name: str) -> Any:
    """An attribute of an annotation, which Python 3.12 evaluates when it is read; None where a name in it cannot be resolved."""
    try:
        return getattr(annotation, name, None)
    except Exception:  # noqa: BLE001 - as for hints: a name that only type checkers know must not stop a graph
        return None


def _is_data(kind: Any) -> bool:
    """Whether its objects are stored by the name of their class and are made from their fields alone."""
    if issubclass(kind, Enum) or dataclasses.is_dataclass(kind):
        return True
    if hasattr(kind, "_fields") and tuple in kind.__mro__:
        return True
    return any(base.__module__.partition(".")[0] == "pydantic" for base in kind.__mro__)


def _fields(kind: Any) -> list[Any]:
    """The annotations of the fields of a class."""
    hints = _hints_of(kind)
    if hints:
        return list(hints.values())
    if dataclasses.is_dataclass(kind):
        return [field.type for field in dataclasses.fields(kind)]
    fields: Mapping[str, Any] = getattr(kind, "model_fields", None) or {}
    return [field.annotation for field in fields.values()]


def _hints_of(kind: Any) -> dict[str, Any]:
    """The annotations of a class or function; none where a name in them cannot be resolved."""
    scope = vars(kind) if isinstance(kind, type) else None
    try:
        return typing.get_type_hints(kind, localns=dict(scope or {}), include_extras=True)
    except Exception:  # noqa: BLE001 - they are evaluated, and may raise anything
        return {}


def _returned(functions: Iterable[Any]) -> list[Any]:
    """The annotations of what tasks and agents return that these functions call, themselves or through others of their module."""
    waiting, seen = [_inner(function) for function in functions], set[int]()
    annotations: list[Any] = []
    while waiting:
        function = waiting.pop()
        if function is None or id(function) in seen:
            continue
        seen.add(id(function))
        used = [function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__]
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # a variable of a function around it that is not assigned yet
                used.append(cell.cell_contents)
        for value in used:
            kind = cast("type[Any]", type(value))  # not `isinstance`, as objects may stand in for others
            if kind.__module__ == _ANSWERS:
                annotations.append(getattr(value, "schema", None))
            elif kind.__module__ == _TASKS:
                waiting.append(_inner(value))
                annotations.append(_hints_of(waiting[-1]).get("return"))
            elif kind is types.FunctionType and value.__module__ == function.__module__:
                waiting.append(_inner(value))
    return annotations


def _inner(function: Any) -> types.FunctionType | None:
    """The function that is called in the end; None when there is none that Python can look into."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    unwrapped = inspect.unwrap(function) if callable(function) else None
    inner = getattr(unwrapped, "__func__", unwrapped)
    return inner if isinstance(inner, types.FunctionType) else None
