"""The codecs of built fragments: values, so that fragments compare by what they say."""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec

from ..errors import FragmentConversionError, InvalidValueError
from ..limits import MAX_JSON_DEPTH
from .fragments import Fragment, stored_form

TYPE: Final = "type"
"""The key of a serialized fragment that names its builder."""


class BuiltCodec(msgspec.Struct, frozen=True):
    """The base of all builders' codecs: a serialized form `{"type": <builder>, ...fields}`."""

    type: str

    def shallow(self) -> dict[str, Any]:
        """The serialized form, with the fragments in it as they are."""
        raise NotImplementedError

    def decode(self) -> Any:
        """The data, made anew at each call."""
        raise NotImplementedError

    def encode(self) -> dict[str, Any]:
        """
        The serialized form, fragments in it included.

        Raises:
            MissingCodecError: A fragment in it has no codec.
            FragmentConversionError: A fragment in it has no serialized form, or the form would be too deep.
        """
        return cast("dict[str, Any]", serialized(self.shallow(), encode_builder))


class TextCodec(BuiltCodec, frozen=True):
    """Data that are one text, serialized as one field."""

    field: str
    text: str

    def shallow(self) -> dict[str, Any]:
        """The text under the name of its field."""
        return {TYPE: self.type, self.field: self.text}

    def decode(self) -> str:
        """The text."""
        return self.text


class ObjectCodec(BuiltCodec, frozen=True):
    """Data that are an object. Lists are kept as tuples: nobody else can change them."""

    fields: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, builder: str, data: Mapping[str, Any]) -> "ObjectCodec":
        """The codec of these fields."""
        return cls(builder, tuple((name, _frozen(value)) for name, value in data.items()))

    def shallow(self) -> dict[str, Any]:
        """The fields."""
        return {TYPE: self.type, **self.decode()}

    def decode(self) -> dict[str, Any]:
        """The fields as an object."""
        return {name: _thawed(value) for name, value in self.fields}


class GlossaryCodec(BuiltCodec, frozen=True):
    """Data that are a list of terms, serialized as an object."""

    entries: tuple[tuple[str, str], ...]

    def shallow(self) -> dict[str, Any]:
        """The expressions by their terms."""
        return {TYPE: self.type, "entries": dict(self.entries)}

    def decode(self) -> list[dict[str, str]]:
        """One object per term."""
        return [{"term": term, "expression": expression} for term, expression in self.entries]


def encode_builder(fragment: Fragment) -> Mapping[str, Any]:
    """
    Return the serialized form of a fragment; for a built one with fragments in it unchanged.

    Raises:
        MissingCodecError: It has no codec, or is still lazy.
        FragmentConversionError: The codec gives no object with a text `type`.
    """
    codec = fragment.codec
    form = codec.shallow() if isinstance(codec, BuiltCodec) and fragment.lazy is None else stored_form(fragment)
    if not isinstance(form, Mapping) or not isinstance(cast("Mapping[Any, Any]", form).get(TYPE), str):
        msg = f"the codec of fragment {fragment.name!r} encodes to no object with a text `type`"
        raise FragmentConversionError(msg)
    return cast("Mapping[str, Any]", form)


def serialized(value: Any, encode: Callable[[Fragment], Any], depth: int = 0) -> Any:
    """
    A copy of a value with each fragment in it, at any depth, replaced by what `encode` gives for it.

    Raises:
        FragmentConversionError: The copy would be nested too deep for JSON.
    """
    if isinstance(value, Fragment):
        value = encode(value)
    if not isinstance(value, Mapping | list | tuple):
        return value
    if depth >= MAX_JSON_DEPTH:
        msg = f"the serialized form of a fragment would be nested more than {MAX_JSON_DEPTH} levels deep"
        raise FragmentConversionError(msg)
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value).items()
        return {key: serialized(item, encode, depth + 1) for key, item in entries}
    return [serialized(item, encode, depth + 1) for item in cast("list[Any]", value)]


def check_holds_no_message(fragment: Fragment) -> None:
    """
    Refuse a context fragment that holds a message, at whatever depth.

    Raises:
        InvalidValueError: It does.
    """
    seen: dict[int, Any] = {}  # with the values: the id of what is gone is given again
    pending: list[Any] = [fragment]
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, Fragment):
            if value.type == "message":
                msg = (
                    f"fragment {fragment.name!r} holds message {value.name!r}, which would become part of the system prompt; "
                    "set messages by themselves, or put their text into the fragment"
                )
                raise InvalidValueError(msg)
            pending.append(value.codec.decode() if isinstance(value.codec, BuiltCodec) else value.data)
        elif isinstance(value, Mapping):
            pending.extend(cast("Mapping[Any, Any]", value).values())
        elif isinstance(value, list | tuple):
            pending.extend(cast("list[Any]", value))


def _frozen(value: Any) -> Any:
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value


def _thawed(value: Any) -> Any:
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value
