"""
Fragments: the units of context.

A fragment has a name and data, and data nest: text, numbers, lists, objects, and fragments again. Context fragments are
rendered into the system prompt; message fragments carry a codec and are stored in the conversation.
"""

import dataclasses
import math
from collections.abc import AsyncIterable, Awaitable, Callable, Generator, ItemsView, Iterable, Mapping
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import partial
from types import NoneType
from typing import Any, Final, Literal, Protocol, TypeGuard, cast

import msgspec
from msgspec import UNSET

from ..errors import ChatledgerError, InvalidValueError, MissingCodecError, ResolverError
from ..limits import check_id

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


FragmentData = Any
"""
`str | int | float | bool | None | Fragment | list[FragmentData] | dict[str, FragmentData]`, and what stands for such: tuples,
sets, pydantic models, dataclasses, `msgspec.Struct`, enumerations, dates, times, UUIDs and decimals.
"""


class Codec(Protocol):
    """Two forms of one value: the one that is stored, and the one that a model or a program takes."""

    def encode(self) -> Any:
        """The storage form: a JSON value."""
        ...

    def decode(self) -> Any:
        """The model form."""
        ...


class Lazy(msgspec.Struct, frozen=True):
    """A placeholder for a fragment whose id is not known yet; see `last_assistant_message`."""

    type: str
    content: Any


class _FragmentContent(Unit, frozen=True):
    name: str
    data: FragmentData = UNSET


class Fragment(_FragmentContent, frozen=True, kw_only=True):
    """
    A named unit of context: `Fragment(name, data, *, ...)`.

    Args:
        name: The tag: `hint`, `role`, `user`, ...
        data: Text, number, boolean, None, fragment, or lists and objects of them, nested at will.
        id: Of a message: its id in the chat. Of a context fragment: what `ContextEngine.unset` removes it by.
        type: `fragment` for context, `message` for what is stored in the conversation.
        persist: Whether a save stores it. True for messages.
        codec: Where the data come from instead. Messages need one.
        metadata: For programs; never rendered and not stored.
        lazy: Set while the fragment waits to be resolved.
        has_new_id: Of a message: whether its id was made for it, as none was given; a live stream puts its own in the place.

    Raises:
        InvalidValueError: The name is no name, or there is neither data nor codec.
    """

    id: str | None = None
    type: Literal["fragment", "message"] = "fragment"
    persist: bool = False
    codec: Codec | None = None
    metadata: dict[str, Any] = {}
    lazy: Lazy | None = None
    has_new_id: bool = False

    def __eq__(self, other: object) -> bool:
        """Whether both say the same, wherever their ids come from: data that were stored turn back into what they came from."""
        if not isinstance(other, Fragment):
            return NotImplemented
        names = [name for name in self.__struct_fields__ if name != "has_new_id"]
        return all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]  # its metadata have none

    def with_id(self, fragment_id: str) -> "Fragment":
        """Return the fragment under an id, by which `ContextEngine.unset` removes it and another one replaces it."""
        return msgspec.structs.replace(self, id=check_id(fragment_id, "fragment_id"), has_new_id=False)

    def with_metadata(self, **metadata: Any) -> "Fragment":
        """
        Return the fragment with more metadata, which are never rendered.

        `volatile=True` says that it may differ from one request to the next: `ContextEngine.resolve(cache=...)` puts it last.
        `markdown=True` says that its text is Markdown of the author's own, which `MarkdownRenderer` keeps as it is.
        """
        return msgspec.structs.replace(self, metadata={**self.metadata, **metadata})

    def __post_init__(self) -> None:
        check_id(self.name, "name of a fragment")
        if self.data is UNSET and self.codec is None and self.lazy is None:
            msg = f"fragment {self.name!r} has neither data nor codec; give it data, None included"
            raise InvalidValueError(msg)


def fragment(name: str, *children: FragmentData) -> Fragment:
    """
    Return a fragment whose data are the list of these children.

    Example:
        fragment("database", hint("Postgres 17"), fragment("tables", "users", "trips"))
    """
    return Fragment(name, list(children))


def is_fragment(value: Any) -> TypeGuard[Fragment]:
    """Whether this is a `Fragment`. A mapping with the same fields is data; `as_fragment` makes a fragment of it."""
    return isinstance(value, Fragment)


def is_fragment_object(value: Any) -> TypeGuard[Mapping[Any, Any]]:
    """Whether this is a mapping: neither a list nor a fragment nor a scalar."""
    return isinstance(value, Mapping)


def is_message_fragment(value: Any) -> bool:
    """Whether this is a fragment that a save stores in the conversation."""
    return isinstance(value, Fragment) and value.type == "message"


def is_lazy_fragment(value: Any) -> bool:
    """Whether this fragment waits to be resolved."""
    return isinstance(value, Fragment) and isinstance(value.lazy, Lazy)


def as_fragment(value: Fragment | Mapping[str, Any]) -> Fragment:
    """
    Make the fragment of a mapping of its fields: `as_fragment({"name": "hint", "data": "Use UTC"})`.

    What takes fragments, such as `Renderer.render`, takes mappings in their place and does this. Inside of data, a mapping is
    an object, whatever its keys.

    Args:
        value: A mapping with a text `name`, with `data` or a `codec`, and no keys but the fields of `Fragment`. A fragment
            is returned as it is.

    Raises:
        InvalidValueError: It is neither.
    """
    if isinstance(value, Fragment):
        return value
    mapping: Mapping[Any, Any] = cast("Mapping[Any, Any]", value) if isinstance(value, Mapping) else {}
    if not isinstance(mapping.get("name"), str) or ("data" not in mapping and "codec" not in mapping):
        msg = f"expected a fragment, not {type(value).__name__}; chatledger.fragments has helpers that make them"
        raise InvalidValueError(msg)
    others = [key for key in mapping if key not in Fragment.__struct_fields__]
    if others:
        msg = f"expected a fragment, not a mapping with the key {others[0]!r}; put the data below the key 'data'"
        raise InvalidValueError(msg)
    codec = mapping.get("codec")
    if codec is not None and not callable(getattr(codec, "decode", None)):
        msg = f"the codec of fragment {mapping['name']!r} cannot decode; give it one with encode() and decode()"
        raise InvalidValueError(msg)
    return Fragment(**mapping)


def content_of(value: Fragment) -> Any:
    """
    The data of a fragment in the form that is rendered: of its codec if it has one.

    Raises:
        MissingCodecError: The fragment is still lazy, or a message without a codec.
    """
    if isinstance(value.lazy, Lazy) or (value.codec is None and value.type == "message"):
        raise MissingCodecError(value.name, fragment_id=value.id)
    return value.data if value.codec is None else value.codec.decode()


def stored_form(value: Fragment) -> Any:
    """
    The data of a fragment in the form that is stored.

    Raises:
        MissingCodecError: There is no codec, or the fragment is still lazy.
        ResolverError: The codec raised; its error is chained.
    """
    if value.codec is None or isinstance(value.lazy, Lazy):
        raise MissingCodecError(value.name, fragment_id=value.id)
    with foreign_errors("codec", value.name, value.id):
        return value.codec.encode()


@contextmanager
def foreign_errors(what: str, name: str, fragment_id: str | None) -> Generator[None]:
    """Raise `ResolverError` for what code of users raises, such as a codec, with the fragment or message it was about."""
    try:
        yield
    except ChatledgerError:
        raise
    except Exception as error:
        path = name if fragment_id is None else f"{name} {fragment_id!r}"
        raise ResolverError(path, f"raised {type(error).__name__}", what=what) from error


def copied(fragment: Fragment) -> Fragment:
    """
    The fragment with its own lists and objects, so that later changes by the caller have no effect.

    Shared references stay shared and cycles stay cycles. Models, dataclasses and sets become objects and lists; anything
    else is taken as it is, also what will be refused when it is rendered. Nothing recurses, so any depth will do.
    """
    copies: dict[int, Any] = {}
    forms: list[Any] = []  # kept, since what is in them is known by its id
    pending: list[Callable[[], None]] = []

    def copy(value: Any) -> Any:
        """The copy of a value, whose items may still be to come."""
        chain: list[Fragment] = []
        while isinstance(value, Fragment) and id(value) not in copies:
            chain.append(value)
            value = value.data
        form = value if id(value) in copies else _plain(value)
        result = copies[id(value)] if id(value) in copies else _container(form)
        if result is not value and id(value) not in copies:
            forms.append((value, form))
            copies[id(value)] = result
            pending.append(partial(_fill, result, form, copy))
        for outer in reversed(chain):
            result = msgspec.structs.replace(outer, data=result, metadata=dict(outer.metadata))
            copies[id(outer)] = result
        return result

    whole = copy(fragment)
    while pending:
        pending.pop()()
    return cast("Fragment", whole)


def _plain(value: Any) -> Any:
    try:
        return plain_form(value)
    except InvalidValueError:  # a renderer knows the path to it
        return value


def _container(value: Any) -> Any:
    """An empty list or object for one to be copied; the value itself when it is neither."""
    if isinstance(value, list | tuple):
        return []
    return {} if isinstance(value, Mapping) else value


def _fill(target: Any, source: Any, copy: Callable[[Any], Any]) -> None:
    if isinstance(target, list):
        cast("list[Any]", target).extend(copy(item) for item in source)
    elif isinstance(target, dict):
        cast("dict[Any, Any]", target).update(
            (key, copy(item)) for key, item in cast("Mapping[Any, Any]", source).items()
        )
