"""Values that a parser of TOML and TOON must read back (CE-54, CE-55), straight from the fragments; and how to compare them."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from chatledger.domain.context.fragments import as_fragment, is_fragment


def specified_data(fragments: Iterable[Any]) -> dict[str, Any]:
    """Plainly recursive, and independent of the renderers: None stands for what is absent."""
    return _object([_entry(each, ()) for each in fragments])


def is_same(expected: Any, actual: Any) -> bool:
    """Whether two values are equal. `true` is not 1, 3 is 3.0, NaN is NaN; the order of keys does not count."""
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, dict) and isinstance(actual, dict):
        left, right = cast("dict[str, Any]", expected), cast("dict[str, Any]", actual)
        return left.keys() == right.keys() and all(is_same(value, right[key]) for key, value in left.items())
    if isinstance(expected, list) and isinstance(actual, list):
        ours, theirs = cast("list[Any]", expected), cast("list[Any]", actual)
        return len(ours) == len(theirs) and all(map(is_same, ours, theirs))
    if isinstance(expected, float) and isinstance(actual, float) and math.isnan(expected):
        return math.isnan(actual)
    return bool(expected == actual)


def _entry(value: Any, outer: tuple[int, ...]) -> tuple[str, Any]:
    """Name and data of a fragment."""
    fragment = as_fragment(value)
    data = fragment.data if fragment.codec is None else fragment.codec.decode()
    return fragment.name, None if id(value) in outer else _value(data, (*outer, id(value)))


def _value(value: Any, outer: tuple[int, ...]) -> Any:
    if id(value) in outer:
        return None
    if is_fragment(value):
        return _object([_entry(value, outer)]) or None
    outer = (*outer, id(value))
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, Any]", value).items()
        return _object(
            [_entry(each, outer) if is_fragment(each) else (key, _value(each, outer)) for key, each in entries]
        )
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    if not isinstance(value, list | tuple):
        return value
    items = [
        (is_fragment(item), *(_entry(item, outer) if is_fragment(item) else ("", _value(item, outer))))
        for item in cast("list[Any]", value)
    ]
    present = [(named, name, each) for named, name, each in items if each is not None]
    if present and all(named for named, _, _ in present):
        return _object([(name, each) for _, name, each in present])
    return [{name: each} if named else each for named, name, each in present]


def _object(entries: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, value in entries if value is not None]
    found = {name: [value for each, value in entries if each == name and value is not None] for name in names}
    return {name: values if len(values) > 1 else values[0] for name, values in found.items()}
