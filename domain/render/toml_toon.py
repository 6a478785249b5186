"""
Fragments as TOML 1.0, https://toml.io/en/v1.0.0, and as TOON, https://github.com/toon-format/spec.

Libraries write what `plain_data` returns, objects, arrays and scalars, so a parser of either format reads the same data back.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import repeat
from typing import Final, TypeAlias

from ..errors import InvalidValueError
from ..extras import needing
from ..limits import MAX_JSON_DEPTH
from .prepared import Named, Renderer, Value, scalar_text

Plain: TypeAlias = "str | int | float | bool | Decimal | list[Plain] | dict[str, Plain]"

_TOML_INDENT: Final = 2
_MAX_EXACT_INTEGER: Final = 2**53
"""Up to here each whole number is a float of its own."""
_TOO_LONG: Final = 10**4300
"""Python reads integers of up to 4,300 digits; so do parsers that are written in it."""


def plain_data(fragments: Iterable[Named], number: Callable[[float], float | Decimal] = float) -> dict[str, Plain]:
    """
    Return the object that prepared fragments stand for.

    - A fragment is an entry, its name is the key. Keys that repeat in one object are one entry: an array, in their order.
    - A list of fragments only is an object of them. In any other list a fragment is an object with one entry.
    - A fragment in an entry of an object stands under its own name; the key of the entry is dropped, as in XML.
    - An integer of more than 4,300 digits is text, for no parser would read it.

    The result is a tree: nothing in it occurs twice or is shared with the input.

    Args:
        fragments: As `prepare` returns them.
        number: Converts each float to what the library of the format is given.

    Raises:
        InvalidValueError: An entry has more than 200 levels of arrays and objects.
    """
    return _Conversion(number).object_of([(each.name, each.value) for each in fragments], 0)


def document_of(
    fragments: Iterable[Named],
    dumps: Callable[[dict[str, Plain]], str],
    number: Callable[[float], float | Decimal] = float,
) -> str:
    """
    Return the document that `dumps`, of the library of a format, makes of `plain_data`.

    Raises:
        InvalidValueError: As `plain_data`; or Python's stack is too full already for the levels that there are.
    """
    try:
        return dumps(plain_data(fragments, number))
    except InvalidValueError:
        raise
    except (RecursionError, ValueError) as error:  # toon-format makes the one of the other
        msg = "the fragments are nested too deeply for a caller so deep in calls; render them as XML"
        raise InvalidValueError(msg) from error


class _Conversion:
    def __init__(self, number: Callable[[float], float | Decimal]) -> None:
        self._number = number

    def object_of(self, entries: list[tuple[str, Value]], depth: int) -> dict[str, Plain]:
        by_key: dict[str, list[Value]] = {}
        for key, value in entries:
            by_key.setdefault(key, []).append(value)
        return {
            key: self._value(values[0], depth) if len(values) == 1 else self._array(values, depth)
            for key, values in by_key.items()
        }

    def _value(self, value: Value, depth: int) -> Plain:
        """Convert a value inside of `depth` arrays and objects."""
        if isinstance(value, Named):
            return self.object_of([(value.name, value.value)], _inside(depth))
        if isinstance(value, dict):
            return self.object_of(
                [((each.name, each.value) if isinstance(each, Named) else (key, each)) for key, each in value.items()],
                _inside(depth),
            )
        if isinstance(value, list):
            fragments = [each for each in value if isinstance(each, Named)]
            if fragments and len(fragments) == len(value):
                return self.object_of([(each.name, each.value) for each in fragments], _inside(depth))
            return self._array(value, depth)
        if isinstance(value, float):
            return self._number(value)
        return scalar_text(value) if isinstance(value, int) and abs(value) >= _TOO_LONG else value

    def _array(self, items: list[Value], depth: int) -> list[Plain]:
        return list(map(self._value, items, repeat(_inside(depth))))


def _inside(depth: int) -> int:
    """The depth of what an array or object at this depth contains."""
    if depth >= MAX_JSON_DEPTH:
        msg = f"the fragments are nested more than {MAX_JSON_DEPTH} levels deep, too deep for TOML and TOON; render them as XML"
        raise InvalidValueError(msg)
    return depth + 1


@dataclass(frozen=True, kw_only=True)
class TomlRenderer(Renderer):
    """
    Writes fragments as a TOML document; see `Renderer`.

    Names are keys, objects are tables, and names that repeat are arrays: see `plain_data`. As this groups fragments of
    one name already, `group_fragments` changes nothing. It needs `pip install 'chatledger[toml]'`.

    At most 200 levels of arrays and tables are rendered; beyond that, `InvalidValueError` is raised.
    """

    def document(self, fragments: Sequence[Named]) -> str:
        """See `Renderer.document`."""
        with needing("toml", "rendering TOML"):
            import tomli_w
        return document_of(fragments, partial(tomli_w.dumps, indent=_TOML_INDENT), _number).removesuffix("\n")


def _number(value: float) -> float | Decimal:
    """Return what tomli-w writes as ECMAScript does, but not as an integer that a parser would read as another number."""
    if value.is_integer() and abs(value) <= _MAX_EXACT_INTEGER:
        return int(value)
    return Decimal(scalar_text(value))


@dataclass(frozen=True, kw_only=True)
class ToonRenderer(Renderer):
    """
    Writes fragments as a TOON document; see `Renderer`.

    Names are keys, and names that repeat are arrays: see `plain_data`. As this groups fragments of one name already,
    `group_fragments` changes nothing. It needs `pip install 'chatledger[toon]'`.

    At most 200 levels of arrays and objects are rendered; beyond that, `InvalidValueError` is raised.
    """

    def document(self, fragments: Sequence[Named]) -> str:
        """See `Renderer.document`."""
        with needing("toon", "rendering TOON"):
            import toon_format
        return document_of(fragments, toon_format.dumps)
