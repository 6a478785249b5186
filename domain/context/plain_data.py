"""Python values as the data that they stand for: models and dataclasses as objects, sets as lists, dates as text."""

import dataclasses
import math
from collections.abc import AsyncIterable, Awaitable, ItemsView, Iterable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from types import NoneType
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET

from ..errors import InvalidValueError

_AS_THEY_ARE: Final = frozenset({str, int, float, bool, NoneType, list, tuple, dict})
_WRITTEN: Final = (datetime, date, time)
_DUMP: Final = "model_dump"


class Unit(msgspec.Struct, frozen=True):
    """The base of structs that are more than the object of their fields: `plain_form` leaves them as they are."""


def plain_form(value: Any) -> Any:
    """
    The JSON-like form of a Python value, of which inner values keep theirs; the value itself where it has no other form.

    - A pydantic model is what its `model_dump()` gives. A dataclass and a `msgspec.Struct` are the object of their fields,
      unless they can be called, awaited or iterated over: then they compute a value.
    - A `set` and a `frozenset` are lists in a fixed order: numbers, texts, then whatever else there is.
    - A member of an `Enum` is its value. Dates and times are ISO 8601, UUIDs and decimals their text.

    Raises:
        InvalidValueError: A model cannot be dumped, or a set holds what has no order. The message begins with a verb: it
            completes `<path> ...`.
    """
    untyped: Any = value
    if type(untyped) in _AS_THEY_ARE:
        return untyped
    if isinstance(untyped, Enum):
        return plain_form(untyped.value)
    if isinstance(value, str | int | float | Mapping | Unit):
        return untyped
    if isinstance(value, set | frozenset):
        try:
            return sorted(cast("set[Any]", value), key=_rank)
        except RecursionError as error:
            msg = "is a set of values that are nested too deeply; give a list"
            raise InvalidValueError(msg) from error
    if isinstance(value, _WRITTEN):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if is_model(value):
        return plain_form(_dumped(value))
    return _fields(value)


def is_model(value: Any) -> bool:
    """Whether this is a value that dumps itself, as pydantic's models do; one that can be called is a function."""
    return not callable(value) and callable(getattr(cast("type[Any]", type(value)), _DUMP, None))


def why_not_items(value: Any) -> str | None:
    """The reason why the items of an iterable are not what it says; None if they are. It completes `<path> ...`."""
    name = type(value).__name__
    if isinstance(value, ItemsView):
        return f"is a {name}, of which the items are pairs; give the mapping itself"
    if hasattr(value, "read"):
        return f"is a {name}, an open file; read it, or give a function that does"
    if hasattr(value, "keys") and not isinstance(value, Mapping):
        return f"is a {name}, which has keys but is no mapping; convert it to a dict"
    return None


def _dumped(model: Any) -> Any:
    try:
        return model.model_dump()
    except Exception as error:
        msg = f"is a {type(model).__name__} whose {_DUMP}() raised {type(error).__name__}"
        raise InvalidValueError(msg) from error


def _fields(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        names: Iterable[str] = value.__struct_fields__
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
    else:
        # The text of a UUID or a duration; anything else as it is.
        untyped: Any = value
        if callable(value) or isinstance(value, bytes | bytearray | memoryview):
            return untyped
        try:
            form = msgspec.to_builtins(value)
        except (TypeError, ValueError, RecursionError):
            return untyped
        return form if isinstance(form, str) else untyped
    if callable(value) or isinstance(value, Awaitable | Iterable | AsyncIterable):
        return value
    fields = {name: getattr(value, name, None) for name in names}
    return {name: field for name, field in fields.items() if field is not UNSET}


def _rank(value: Any) -> tuple[Any, ...]:
    """The place of a value in a set: ranks begin with a number for the kind, so that no two kinds are compared."""
    form = plain_form(value)
    if form is None:
        return (0,)
    if isinstance(form, int | float):
        return (1, math.isnan(form), 0 if math.isnan(form) else form)
    if isinstance(form, str):
        return (2, str.__str__(form))
    if isinstance(form, list | tuple):
        return (3, [_rank(item) for item in cast("list[Any]", form)])
    if isinstance(form, Mapping):
        return (4, sorted((_rank(key), _rank(item)) for key, item in cast("Mapping[Any, Any]", form).items()))
    msg = f"is a set that holds a {type(form).__name__}, which has no place in an order; give a list"
    raise InvalidValueError(msg)
