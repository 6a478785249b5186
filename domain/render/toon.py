"""Fragments as TOON: https://github.com/toon-format/spec."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ..errors import ConfigurationError
from .plain import Plain, plain_data
from .prepared import Named, Renderer

MAX_LIBRARY_LEVELS: Final = 32
"""A level takes up to five calls, so the library needs 160 of the 1,000 that Python allows, whoever calls."""

_INDENT: Final = "  "


class _Part(NamedTuple):
    """A field of an object or, without a key, an item of an array. `on_hyphen`: the first field of such an item."""

    key: str | None
    value: Plain
    depth: int
    on_hyphen: bool = False


def toon_document(data: dict[str, Plain], dumps: Callable[[Any], str]) -> str:
    """The TOON document of a tree of any depth; `dumps` is the library's."""
    levels = _levels(data)

    def is_deep(value: Plain) -> bool:
        return levels.get(id(value), 0) > MAX_LIBRARY_LEVELS

    if not is_deep(data):
        return dumps(data)
    lines: list[str] = []
    pending = _fields(data, depth=0)
    while pending:
        part = pending.pop()
        if is_deep(part.value):
            lines += _opening(part, dumps)
            pending += _inner(part)
        else:
            lines += _written(part, dumps)
    return "\n".join(lines)


def _written(part: _Part, dumps: Callable[[Any], str]) -> list[str]:
    """The lines of a part, by the library."""
    margin = _INDENT * part.depth
    if part.key is None:
        # An array that begins with an empty one has a line per item, whatever its other items are: below the header
        # and the empty array stands this item, one level deep.
        _header, _empty, *lines = dumps([[], part.value]).split("\n")
        return [margin + line.removeprefix(_INDENT) for line in lines]
    first, *rest = dumps({part.key: part.value}).split("\n")
    return [_margin(part) + first, *(margin + line for line in rest)]


def _opening(part: _Part, dumps: Callable[[Any], str]) -> list[str]:
    """The line above what a deep part contains. An object in an array has none: its first field stands on the hyphen."""
    if part.key is None and isinstance(part.value, dict):
        return []
    key = "" if part.key is None else dumps({part.key: {}}).removesuffix(":")
    length = f"[{len(part.value)}]" if isinstance(part.value, list) else ""
    return [f"{_margin(part)}{key}{length}:"]


def _inner(part: _Part) -> list[_Part]:
    """The parts of a deep part, last first."""
    if isinstance(part.value, dict):
        return _fields(part.value, depth=part.depth + 1, on_hyphen=part.key is None)
    assert isinstance(part.value, list), "scalars are not deep"
    return [_Part(None, item, part.depth + 1) for item in reversed(part.value)]


def _fields(entries: dict[str, Plain], *, depth: int, on_hyphen: bool = False) -> list[_Part]:
    first = next(iter(entries))
    return [_Part(key, value, depth, on_hyphen and key == first) for key, value in reversed(entries.items())]


def _margin(part: _Part) -> str:
    if part.on_hyphen:
        return _INDENT * (part.depth - 1) + "- "
    return _INDENT * part.depth + ("- " if part.key is None else "")


def _levels(data: dict[str, Plain]) -> dict[int, int]:
    """How many levels each object and array of a tree has, by its id."""
    found: list[dict[str, Plain] | list[Plain]] = []
    pending: list[Plain] = [data]
    while pending:
        value = pending.pop()
        if isinstance(value, dict | list):
            found.append(value)
            pending += value.values() if isinstance(value, dict) else value
    levels: dict[int, int] = {}
    for value in reversed(found):  # what is inside of others was found after them
        inside = value.values() if isinstance(value, dict) else value
        levels[id(value)] = 1 + max((levels.get(id(each), 0) for each in inside), default=0)
    return levels


@dataclass(frozen=True, kw_only=True)
class ToonRenderer(Renderer):
    """
    Writes fragments as a TOON document; see `Renderer`.

    Names are keys, and names that repeat are arrays: see `plain_data`. As this groups fragments of one name already,
    `group_fragments` changes nothing. It needs `pip install 'chatledger[toon]'`.
    """

    def _document(self, fragments: Sequence[Named]) -> str:
        try:
            import toon_format
        except ImportError as error:
            msg = "rendering TOON needs the library toon-format; pip install 'chatledger[toon]'"
            raise ConfigurationError(msg) from error
        return toon_document(plain_data(fragments), toon_format.dumps)
