"""
Decoded values that are given out again and again: each reader gets a copy, and may change it.

What is known of a value is worked out once, so that copies are cheap: of a message in 1 us instead of the 25 us of its
own `__copy__`.
"""

from collections.abc import Callable
from typing import Any, Final, cast

from pydantic import BaseModel

Maker = Callable[[], Any]
"""Makes a copy that shares nothing which can be changed."""

_IMMUTABLE: Final = frozenset({str, bytes, int, float, bool, complex, type(None)})
_new: Final[Callable[[Any], Any]] = object.__new__


def _setter(name: str) -> Callable[[Any, Any], None]:
    """What sets an attribute of a model, past the model's own checks and without looking for it each time."""
    setter: Callable[[Any, Any], None] = vars(BaseModel)[name].__set__
    return setter


_set_fields, _set_given, _set_extra, _set_private = map(
    _setter, ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


class UncopiableError(Exception):
    """A value that is neither immutable nor of a kind that is copied here; it is decoded for each reader."""


def maker_of(value: Any) -> Maker:
    """
    What makes copies of a value, which may be changed afterwards.

    Raises:
        UncopiableError: Of such a value none is made.
    """
    kind = cast("type[Any]", type(value))
    if kind in _IMMUTABLE:
        return lambda: value
    if kind is list:
        return _list_maker(value) if value else list
    if kind is dict:
        return _dict_maker(value) if value else dict
    if kind is tuple:
        return _tuple_maker(value)
    if is_message(kind):
        return _message_maker(value)
    raise UncopiableError


def _list_maker(value: list[Any]) -> Maker:
    if all(type(element) in _IMMUTABLE for element in value):
        return list(value).copy
    makers = [maker_of(element) for element in value]
    return lambda: [make() for make in makers]


def _tuple_maker(value: tuple[Any, ...]) -> Maker:
    makers = [maker_of(element) for element in value]
    return lambda: tuple(make() for make in makers)


def _parted(value: dict[Any, Any]) -> tuple[dict[Any, Any], list[tuple[Any, Maker]]]:
    """A dict as what can be shared, with places for the rest, and what makes the rest."""
    changing = [(key, maker_of(item)) for key, item in value.items() if type(item) not in _IMMUTABLE]
    return value | {key: None for key, _ in changing}, changing


def _dict_maker(value: dict[Any, Any]) -> Maker:
    fixed, changing = _parted(value)
    if not changing:
        return fixed.copy

    def make() -> dict[Any, Any]:
        fresh = fixed.copy()
        for key, make_item in changing:
            fresh[key] = make_item()
        return fresh

    return make


def _message_maker(message: Any) -> Maker:
    kind = cast("type[Any]", type(message))
    if message.__pydantic_private__ is not None:
        raise UncopiableError
    fixed, changing = _parted(message.__dict__)
    make_extra = maker_of(message.__pydantic_extra__)
    given = set(message.__pydantic_fields_set__)
    # Pydantic only ever adds to this set, and to a full one nothing: so copies share it, which halves the garbage
    # collector's work on long lists of messages.
    is_full = given >= kind.model_fields.keys()

    def make() -> Any:
        fresh, fields = _new(kind), fixed.copy()
        for key, make_item in changing:
            fields[key] = make_item()
        _set_fields(fresh, fields)
        _set_given(fresh, given if is_full else given.copy())
        _set_extra(fresh, make_extra())
        _set_private(fresh, None)
        return fresh

    return make


_MESSAGES: Final[dict[type, bool]] = {}


def is_message(kind: type) -> bool:
    """Whether it is one of LangChain's own classes of messages; of others it is not known what they keep where."""
    known = _MESSAGES.get(kind)
    if known is None:
        from langchain_core.messages import BaseMessage

        known = _MESSAGES[kind] = issubclass(kind, BaseMessage) and kind.__module__.startswith("langchain_core.")
    return known
