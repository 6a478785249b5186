"""Fragments as JSON objects, and back: for storing and sending them."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

import msgspec

from ..errors import FragmentConversionError, InvalidValueError, ResolverError
from ..limits import MAX_JSON_DEPTH, check_id, json_copy
from .builders import BUILDERS, TYPE, encode_builder, serialized
from .fragments import Fragment, as_fragment, is_message_fragment


class _FragmentKind(msgspec.Struct, frozen=True):
    build: Callable[..., Fragment]
    nested: frozenset[str] = frozenset()


_BUILT: Final = tuple((build.__name__, _FragmentKind(build, frozenset({"policies"}))) for build in BUILDERS)


class Conversions:
    """
    The known types of fragments: those of the builders, and others.

    It never changes: `extended` gives another one.
    """

    def __init__(self) -> None:
        self._kinds = dict(_BUILT)

    def extended(self, name: str, build: Callable[..., Fragment], *, nested: Iterable[str] = ()) -> "Conversions":
        """
        Return conversions that also know fragments of this name.

        Args:
            name: Of the fragments, and the `type` that their codec encodes to.
            build: Makes one. Called with the fields of the serialized form as keyword arguments.
            nested: Fields whose value is a serialized fragment, or a list that has such in it.

        Raises:
            InvalidValueError: The name is taken.

        Example:
            conversions = Conversions().extended("ticket", ticket)
            conversions.to_fragment({"type": "ticket", "number": 7})
        """
        if check_id(name, "name of a fragment") in self._kinds:
            msg = f"fragments of the type {name!r} are known already; choose another name"
            raise InvalidValueError(msg)
        other = Conversions()
        other._kinds = {**self._kinds, name: _FragmentKind(build, frozenset(nested))}
        return other

    def to_fragment(self, value: Mapping[str, Any]) -> Fragment:
        """
        Return the fragment that a serialized form describes: the inverse of `from_fragment`.

        Raises:
            FragmentConversionError: It is no object with a text `type`, the type is unknown, fields are missing, unknown
                or of the wrong type, or it is nested more than 200 levels deep.
        """
        return self._fragment(value, 0)

    def from_fragment(self, fragment: Fragment) -> dict[str, Any]:
        """
        Return the serialized form of a fragment and of the fragments in it: `{"type": ..., ...}`, a JSON object.

        Raises:
            FragmentConversionError: It, or a fragment in it, is a message, has no codec or an unknown name, or its codec
                fails or gives no JSON object with a `type`.
        """
        try:
            checked = as_fragment(fragment)
            form = serialized(checked, self._encoded)
            return cast("dict[str, Any]", json_copy(form, f"the serialized form of fragment {checked.name!r}"))
        except FragmentConversionError:
            raise
        except InvalidValueError as error:
            raise FragmentConversionError(str(error)) from error

    def _fragment(self, value: Any, depth: int) -> Fragment:
        fields = dict(cast("Mapping[Any, Any]", value)) if isinstance(value, Mapping) else {}
        name = fields.pop(TYPE, None)
        if not isinstance(name, str):
            kind_of = "one without" if isinstance(value, Mapping) else type(value).__name__
            msg = f"expected an object with a text `type`, which names the builder, not {kind_of}"
            raise FragmentConversionError(msg)
        kind = self._kind(name, "type")
        for field in kind.nested.intersection(fields):
            fields[field] = self._nested(fields[field], depth + 1)
        built = _called(name, kind.build, fields)
        if not isinstance(built, Fragment) or built.name != name or is_message_fragment(built):
            msg = f"the builder for the type {name!r} made no context fragment of that name"
            raise FragmentConversionError(msg)
        return built

    def _nested(self, value: Any, depth: int) -> Any:
        if depth >= MAX_JSON_DEPTH and isinstance(value, list | tuple | Mapping):
            msg = f"a serialized fragment is nested more than {MAX_JSON_DEPTH} levels deep"
            raise FragmentConversionError(msg)
        if isinstance(value, list | tuple):
            items: list[Any] = []
            for item in cast("list[Any]", value):
                items.append(self._nested(item, depth + 1))  # noqa: PERF401 - a comprehension is one more frame per level
            return items
        return self._fragment(value, depth) if isinstance(value, Mapping) else value

    def _encoded(self, fragment: Fragment) -> Mapping[str, Any]:
        if is_message_fragment(fragment):
            msg = f"fragment {fragment.name!r} is a message; messages are stored in the conversation, not serialized"
            raise FragmentConversionError(msg)
        self._kind(fragment.name, "fragment name")
        if fragment.codec is None:
            msg = (
                f"fragment {fragment.name!r} has no codec, which gives its serialized form; make it by a builder such as "
                f"chatledger.fragments.hint, or give it one"
            )
            raise FragmentConversionError(msg)
        try:
            form = encode_builder(fragment)
        except ResolverError as error:
            msg = f"the codec of fragment {fragment.name!r} failed to encode: {type(error.__cause__).__name__}"
            raise FragmentConversionError(msg) from error.__cause__
        self._kind(form[TYPE], "type")
        return form

    def _kind(self, name: str, what: str) -> _FragmentKind:
        kind = self._kinds.get(name)
        if kind is None:
            msg = f"unknown {what} {name!r}; Conversions.extended makes conversions that know it"
            raise FragmentConversionError(msg)
        return kind


def to_fragment(value: Mapping[str, Any]) -> Fragment:
    """Return the fragment of a serialized form, of the types that have builders. See `Conversions.to_fragment`."""
    return DEFAULT.to_fragment(value)


def from_fragment(fragment: Fragment) -> dict[str, Any]:
    """Return the serialized form of a fragment that a builder made. See `Conversions.from_fragment`."""
    return DEFAULT.from_fragment(fragment)


def _called(name: str, build: Callable[..., Fragment], fields: dict[str, Any]) -> Any:
    try:
        inspect.signature(build).bind(**fields)
    except (TypeError, ValueError) as error:
        msg = f"the fields of type {name!r} do not fit: {error}"
        raise FragmentConversionError(msg) from error
    try:
        return build(**fields)
    except Exception as error:
        reason = (
            str(error) if isinstance(error, InvalidValueError) else f"its builder failed with {type(error).__name__}"
        )
        msg = f"no fragment of type {name!r} can be made: {reason}"
        raise FragmentConversionError(msg) from error


DEFAULT: Final = Conversions()
