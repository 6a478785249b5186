"""LangGraph's serializer, loading only the classes that are allowed or that a graph names."""

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

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

from chatledger.domain.errors import ConfigurationError

from .classes import calling_graph, classes_of

if TYPE_CHECKING:
    from .classes import Graph

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
    """
    The classes of an `allow=`.

    Raises:
        ConfigurationError: It is not a collection of classes.
    """
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
