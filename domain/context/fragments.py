"""
Fragments: the units of context.

A fragment has a name and data, and data nest: text, numbers, lists, objects, and fragments again. Context fragments are
rendered into the system prompt; message fragments carry a codec and are stored in the conversation.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, Protocol, TypeGuard, cast

import msgspec
from msgspec import UNSET

from ..errors import InvalidValueError, MissingCodecError
from ..limits import check_id

FragmentData = Any
"""`str | int | float | bool | None | Fragment | list[FragmentData] | dict[str, FragmentData]`."""


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


class _FragmentContent(msgspec.Struct, frozen=True):
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

    Raises:
        InvalidValueError: The name is no name, or there is neither data nor codec.
    """

    id: str | None = None
    type: Literal["fragment", "message"] = "fragment"
    persist: bool = False
    codec: Codec | None = None
    metadata: dict[str, Any] = {}
    lazy: Lazy | None = None

    def with_id(self, fragment_id: str) -> "Fragment":
        """Return the fragment under an id, by which `ContextEngine.unset` removes it and another one replaces it."""
        return msgspec.structs.replace(self, id=check_id(fragment_id, "fragment_id"))

    def with_metadata(self, **metadata: Any) -> "Fragment":
        """
        Return the fragment with more metadata, which are never rendered.

        `volatile=True` says that it may differ from one request to the next: `ContextEngine.resolve(cache=...)` puts it last.
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


def is_fragment(value: Any) -> bool:
    """Whether this is a `Fragment`, or a mapping of its shape: a text `name`, and `data` or a `codec`."""
    return isinstance(value, Fragment) or _is_fragment_shaped(value)


def is_fragment_object(value: Any) -> TypeGuard[Mapping[Any, Any]]:
    """Whether this is a plain mapping: neither a list nor a fragment nor a scalar."""
    return isinstance(value, Mapping) and not _is_fragment_shaped(value)


def is_message_fragment(value: Any) -> bool:
    """Whether this is a fragment that a save stores in the conversation."""
    return is_fragment(value) and _field(value, "type") == "message"


def is_lazy_fragment(value: Any) -> bool:
    """Whether this fragment waits to be resolved."""
    return isinstance(value, Fragment | Mapping) and isinstance(_field(value, "lazy"), Lazy)


def as_fragment(value: Any) -> Fragment:
    """
    The fragment that a value is or, being a mapping of that shape, describes.

    Raises:
        InvalidValueError: It is neither.
    """
    if isinstance(value, Fragment):
        return value
    if not _is_fragment_shaped(value):
        msg = f"expected a fragment, not {type(value).__name__}; chatledger.fragments has helpers that make them"
        raise InvalidValueError(msg)
    fields = {key: value[key] for key in Fragment.__struct_fields__ if key in value}
    return Fragment(**fields)


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
    """
    if value.codec is None or isinstance(value.lazy, Lazy):
        raise MissingCodecError(value.name, fragment_id=value.id)
    return value.codec.encode()


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Fragment):
        return getattr(value, name)
    return cast("Mapping[str, Any]", value).get(name)


def _is_fragment_shaped(value: Any) -> TypeGuard[Mapping[str, Any]]:
    if not isinstance(value, Mapping):
        return False
    mapping = cast("Mapping[Any, Any]", value)
    return isinstance(mapping.get("name"), str) and ("data" in mapping or "codec" in mapping)


def copied(fragment: Fragment) -> Fragment:
    """
    The fragment with its own lists and objects, so that later changes by the caller have no effect.

    Shared references stay shared and cycles stay cycles; anything that is no list, object or fragment is taken as it is.
    Nothing recurses, so any depth will do.
    """
    copies: dict[int, Any] = {}
    pending: list[Callable[[], None]] = []

    def copy(value: Any) -> Any:
        """The copy of a value, whose items may still be to come."""
        chain: list[Fragment] = []
        while isinstance(value, Fragment) and id(value) not in copies:
            chain.append(value)
            value = value.data
        result = copies[id(value)] if id(value) in copies else _container(value)
        if result is not value and id(value) not in copies:
            copies[id(value)] = result
            pending.append(partial(_fill, result, value, copy))
        for outer in reversed(chain):
            result = msgspec.structs.replace(outer, data=result, metadata=dict(outer.metadata))
            copies[id(outer)] = result
        return result

    whole = copy(fragment)
    while pending:
        pending.pop()()
    return cast("Fragment", whole)


def _container(value: Any) -> Any:
    """An empty list or object for one to be copied; the value itself when it is neither."""
    if isinstance(value, list | tuple):
        return []
    return {} if isinstance(value, Mapping) else value


def _fill(target: Any, source: Any, copy: Callable[[Any], Any]) -> None:
    if isinstance(target, list):
        cast("list[Any]", target).extend(copy(item) for item in source)
    else:
        target.update((key, copy(item)) for key, item in cast("Mapping[Any, Any]", source).items())
