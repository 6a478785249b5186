"""LangGraph's serializer, loading only the classes that are allowed or that a graph names."""

import dataclasses
import functools
import inspect
import logging
import threading
import types
import typing
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, cast

import ormsgpack
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.event_hooks import emit_serde_event
from langgraph.checkpoint.serde.jsonplus import (
    EXT_CONSTRUCTOR_KW_ARGS,
    EXT_CONSTRUCTOR_POS_ARGS,
    EXT_CONSTRUCTOR_SINGLE_ARG,
    EXT_DELTA_SNAPSHOT,
    EXT_PYDANTIC_V1,
    EXT_PYDANTIC_V2,
    JsonPlusSerializer,
    _msgpack_default,  # pyright: ignore[reportPrivateUsage]  # as the next one
    _msgpack_ext_hook,  # pyright: ignore[reportPrivateUsage]  # there under this name "in case anyone imported it"
    _option,  # pyright: ignore[reportPrivateUsage]  # as the next one
)
from langgraph.checkpoint.serde.types import SendProtocol, _DeltaSnapshot  # pyright: ignore[reportPrivateUsage]  # its only name
from typing_extensions import is_typeddict

from chatledger.domain.errors import ConfigurationError

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


_logger = logging.getLogger(__name__)
_MAX_TOLD: Final = 1_000
_INTEGER: Final = ("builtins", "int")

Names = Iterable[tuple[str, ...] | type]


class StateSerializer(JsonPlusSerializer):
    """
    LangGraph's own serializer, which loads a class only if a graph names it, or the caller does.

    It also loads what LangGraph knows to be safe. An object of any other class is returned as its data, with one line in the log
    for each class. Safe for threads.

    Args:
        allow: Classes that are loaded whatever the graphs name, or their modules and names.
    """

    def __init__(self, allow: Names = ()) -> None:
        self._allowed = set(map(_name_of, allow))
        self._graphs = weakref.WeakSet["Graph"]()
        self._learning = threading.Lock()
        self._told: set[tuple[str, str]] = set()
        super().__init__(allowed_msgpack_modules=list(self._allowed) or None, __unpack_ext_hook__=self._revive)

    def learn(self, on_more: Callable[[], None]) -> None:
        """
        Allow the classes of the calling graph, unless it was seen before.

        `on_more` is called when there are new classes, before other threads may decode with them.
        """
        graph = calling_graph()
        if graph is None or graph in self._graphs:
            return
        names = set(map(_name_of, classes_of(graph)))
        with self._learning:
            if not names <= self._allowed:
                self._allowed = self._allowed | names
                on_more()
            self._graphs.add(graph)

    def with_msgpack_allowlist(self, extra_allowlist: Names) -> "StateSerializer":
        """Return a serializer that loads these classes too; this one when it loads them already."""
        names = set(map(_name_of, extra_allowlist))
        return self if names <= self._allowed else StateSerializer([*self._allowed, *names])

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Dump a value; with integers beyond 64 bits, which LangGraph's own refuses."""
        try:
            return super().dumps_typed(obj)
        except ormsgpack.MsgpackEncodeError:
            try:
                return "msgpack", _pack_large(obj)
            except ormsgpack.MsgpackEncodeError:
                pass
            raise

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """
        Load a value.

        Raises:
            ConfigurationError: It has a form that only another serializer loads, such as `pickle`, or is an object of LangChain's
                older JSON form that may not be loaded.
        """
        try:
            return super().loads_typed(data)
        except NotImplementedError as error:
            msg = (
                f"a checkpoint has a value of the form {data[0]!r}, which the default serializer does not load; "
                "give the one that stored it: LedgerSaver(ledger, serde=...)"
            )
            raise ConfigurationError(msg) from error
        except Exception as error:
            if data[0] != "json":
                raise
            # LangChain raises ValueError, TypeError, or whatever a class raises that does not take its values.
            msg = (
                "a checkpoint has a value of LangChain's older JSON form that cannot be loaded, or may not be, as it names a class "
                "that is none of LangChain's; give the serializer that stored it: LedgerSaver(ledger, serde=...)"
            )
            raise ConfigurationError(msg) from error

    def _unpack(self, data: bytes) -> Any:
        return ormsgpack.unpackb(data, ext_hook=self._revive, option=ormsgpack.OPT_NON_STR_KEYS)

    def _revive(self, code: int, data: bytes) -> Any:
        """The object of an extension of msgpack; its data when its class may not be loaded, or does not take them."""
        if code == EXT_DELTA_SNAPSHOT:
            return _DeltaSnapshot(self._unpack(data))
        make = _MAKERS.get(code)
        if make is None:
            return _msgpack_ext_hook(code, data)  # it has no class of a user: an array, or a moment
        try:
            module, name, fields_, *_ = self._unpack(data)
        except (TypeError, ValueError):
            return None  # no serializer has written this; LangGraph's takes it so too
        if not self._may_load(module, name):
            return fields_
        try:
            return make(getattr(import_module(module), name), fields_)
        except Exception as error:  # noqa: BLE001 - a class may raise anything
            if self._is_first(module, name):
                what, why = f"{module}.{name}", type(error).__name__  # without the values that it may name
                _logger.warning("%r cannot be made from its data any more, which are given instead: %s", what, why)
            return fields_

    def _may_load(self, module: Any, name: Any) -> bool:
        if not (isinstance(module, str) and isinstance(name, str)):
            return False
        key = (module, name)
        if key in SAFE_MSGPACK_TYPES or key == _INTEGER or key in self._allowed:
            return True
        emit_serde_event({"kind": "msgpack_blocked", "module": module, "name": name})
        if self._is_first(module, name):
            _logger.warning(
                "a checkpoint has an object of %r, which is not loaded: neither the schema of a graph that used this saver "
                "names the class nor allow=; its data are given instead. To load it: LedgerSaver(ledger, allow=[%s])",
                f"{module}.{name}",
                name if name.isidentifier() else "...",
            )
        return False

    def _is_first(self, module: str, name: str) -> bool:
        """Whether nothing was said of this class yet."""
        if (module, name) in self._told or len(self._told) >= _MAX_TOLD:
            return False
        self._told.add((module, name))
        return True


def checked_classes(allow: Any) -> list[type]:
    """Return the classes of an `allow=`, which has to be a collection of them."""
    kind = cast("type[Any]", type(allow))
    is_single = issubclass(kind, str | bytes | type) or not hasattr(kind, "__iter__")
    listed: list[Any] = [allow] if is_single else [*allow]
    wrong = listed if is_single else [entry for entry in listed if not isinstance(entry, type)]
    if wrong:
        msg = f"allow takes a list of classes, as in allow=[Plan], not {wrong[0]!r}"
        raise ConfigurationError(msg)
    return listed


def _name_of(kind: tuple[str, ...] | type) -> tuple[str, ...]:
    return (kind.__module__, kind.__name__) if isinstance(kind, type) else tuple(kind)


def _make_from_values(kind: Any, values: Any) -> Any:
    # LangGraph stores the timeout of a packet in third place, and its class takes it by keyword only.
    if (kind.__module__, kind.__name__) == ("langgraph.types", "Send") and len(values) > 2:
        return kind(*values[:2], timeout=values[2])
    return kind(*values)


def _make_model(kind: Any, stored: Any) -> Any:
    """Make a model of Pydantic; without its checks where these refuse what was stored."""
    # A validator may have become stricter since: a thread must not become unreadable by that. LangGraph does the same.
    try:
        return kind(**stored)
    except Exception:  # noqa: BLE001 - validators may raise anything
        construct = kind.model_construct if hasattr(kind, "model_construct") else kind.construct
        return construct(**stored)


class _Large:
    """An integer beyond 64 bits, in an object: ormsgpack asks its `default` for objects, and refuses an `int`."""

    def __init__(self, value: int) -> None:
        self.value = value


def _pack_large(value: Any) -> bytes:
    return ormsgpack.packb(_with_large(value), default=_extension_of, option=_option)


def _with_large(value: Any) -> Any:
    kind = cast("type[Any]", type(value))
    if kind is int:
        return value if -(2**63) <= value < 2**64 else _Large(value)
    if kind in {list, tuple}:
        return [_with_large(item) for item in value]
    if kind is dict:
        return {key: _with_large(item) for key, item in value.items()}
    return value


def _extension_of(value: Any) -> Any:
    """Return what LangGraph makes of an object; where it may hold an integer beyond 64 bits, its values are packed by us."""
    if isinstance(value, _Large):
        return ormsgpack.Ext(EXT_CONSTRUCTOR_SINGLE_ARG, _pack_large([*_INTEGER, str(value.value)]))
    name = [type(value).__module__, type(value).__name__]
    if isinstance(value, _DeltaSnapshot):
        return ormsgpack.Ext(EXT_DELTA_SNAPSHOT, _pack_large(value.value))
    if callable(getattr(value, "model_dump", None)):
        return ormsgpack.Ext(EXT_PYDANTIC_V2, _pack_large([*name, value.model_dump(), "model_validate_json"]))
    if isinstance(value, set | frozenset | deque):
        return ormsgpack.Ext(EXT_CONSTRUCTOR_SINGLE_ARG, _pack_large([*name, list(cast("Iterable[Any]", value))]))
    if callable(getattr(value, "_asdict", None)):
        return ormsgpack.Ext(EXT_CONSTRUCTOR_KW_ARGS, _pack_large([*name, value._asdict()]))
    if is_dataclass(value) and not isinstance(value, SendProtocol):
        held = {field.name: getattr(value, field.name) for field in fields(value)}
        return ormsgpack.Ext(EXT_CONSTRUCTOR_KW_ARGS, _pack_large([*name, held]))
    return _msgpack_default(value)


_MAKERS: Final[dict[int, Callable[[Any, Any], Any]]] = {
    EXT_CONSTRUCTOR_SINGLE_ARG: lambda kind, value: kind(value),
    EXT_CONSTRUCTOR_POS_ARGS: _make_from_values,
    EXT_CONSTRUCTOR_KW_ARGS: lambda kind, stored: kind(**stored),
    EXT_PYDANTIC_V1: _make_model,
    EXT_PYDANTIC_V2: _make_model,
}
