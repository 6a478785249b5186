"""Checking what builders are given. Errors name the builder and the field."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Self, cast

from ..errors import InvalidValueError
from .builders_codecs import BuiltCodec, GlossaryCodec, ObjectCodec, TextCodec
from .fragment import Fragment, as_fragment, is_fragment


class Fields:
    """The fields of one fragment, checked and copied in the order in which they are added."""

    def __init__(self, builder: str) -> None:
        self._builder = builder
        self._data: dict[str, Any] = {}

    def texts(self, **given: str) -> Self:
        """Add fields that are text."""
        self._data.update({field: self._text(field, value) for field, value in given.items()})
        return self

    def lists(self, **given: Sequence[str]) -> Self:
        """Add fields that are lists of text."""
        self._data.update({field: self._list(field, value) for field, value in given.items()})
        return self

    def optional(self, **given: str | None) -> Self:
        """Add those fields that are text and not empty."""
        return self.texts(**_not_empty(given))

    def optional_lists(self, **given: Sequence[str] | None) -> Self:
        """Add those fields that are lists of text and not empty."""
        return self.lists(**_not_empty(given))

    def optional_rules(self, **given: str | Sequence[str] | None) -> Self:
        """Add those fields that are text, or lists of text, and not empty."""
        for field, value in _not_empty(given).items():
            self._data[field] = self._text(field, value) if isinstance(value, str) else self._list(field, value)
        return self

    def optional_policies(self, policies: Sequence[str | Fragment] | None) -> Self:
        """Add `policies`, a list of text and fragments, unless it is empty."""
        for field, value in _not_empty({"policies": policies}).items():
            items = self._items(field, value, "a list of text and fragments")
            self._data[field] = [self._policy(f"{field}[{place}]", item) for place, item in enumerate(items)]
        return self

    def fragment(self) -> Fragment:
        """The fragment of these fields."""
        return built(ObjectCodec.of(self._builder, self._data))

    def single(self, field: str, value: str) -> Fragment:
        """A fragment whose data are this text."""
        return built(TextCodec(self._builder, field, self._text(field, value)))

    def terms(self, field: str, value: Mapping[str, str]) -> Fragment:
        """A fragment whose data are a list of these terms."""
        if not isinstance(value, Mapping):
            self._refuse(field, "an object of text", value)
        entries = {self._text(f"a term in {field}", term): expression for term, expression in value.items()}
        return built(
            GlossaryCodec(
                self._builder,
                tuple((term, self._text(f"{field}[{term!r}]", expression)) for term, expression in entries.items()),
            )
        )

    def _text(self, field: str, value: Any) -> str:
        if not isinstance(value, str):
            self._refuse(field, "text", value)
        return str.__str__(value)

    def _list(self, field: str, value: Any) -> list[str]:
        items = self._items(field, value, "a list of text")
        return [self._text(f"{field}[{place}]", item) for place, item in enumerate(items)]

    def _items(self, field: str, value: Any, expected: str) -> Sequence[Any]:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray | memoryview):
            self._refuse(field, expected, value)
        return cast("Sequence[Any]", value)

    def _policy(self, field: str, value: Any) -> str | Fragment:
        if isinstance(value, str):
            return str.__str__(value)
        if not is_fragment(value):
            self._refuse(field, "text or a fragment", value)
        return as_fragment(value)

    def _refuse(self, field: str, expected: str, value: Any) -> NoReturn:
        msg = f"{field} of {self._builder}() must be {expected}, not {type(value).__name__}"
        raise InvalidValueError(msg)


def built(codec: BuiltCodec) -> Fragment:
    """The context fragment of a codec, named as its builder."""
    return Fragment(codec.type, codec.decode(), codec=codec)


def _not_empty(given: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in given.items() if not (value is None or _is_empty(value))}


def _is_empty(value: Any) -> bool:
    return isinstance(value, Sequence) and len(cast("Sequence[Any]", value)) == 0
