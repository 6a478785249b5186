"""
The one data structure behind TOML and TOON: fragments as objects, arrays and scalars.

Both formats write what `plain_data` returns, so a parser of either reads the same data back.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

from .prepared import Named, Value, scalar_text

Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[str, Plain]"

_TOO_LONG: Final = 10**4300
"""Python reads integers of up to 4,300 digits; so do parsers that are written in it."""


def plain_data(fragments: Iterable[Named]) -> dict[str, Plain]:
    """
    The object that prepared fragments stand for.

    - A fragment is an entry, its name is the key. Keys that repeat in one object are one entry: an array, in their order.
    - A list of fragments only is an object of them. In any other list a fragment is an object with one entry.
    - A fragment in an entry of an object stands under its own name; the key of the entry is dropped, as in XML.
    - An integer of more than 4,300 digits is text, for no parser would read it.

    The result is a tree: nothing in it occurs twice or is shared with the input.
    """
    builder = _Builder()
    root = builder.object_of([(each.name, each.value) for each in fragments])
    builder.finish()
    return root


class _Builder:
    """Containers are made empty and filled later, so that no depth needs recursion."""

    def __init__(self) -> None:
        self._objects: list[tuple[dict[str, Plain], list[tuple[str, Value]]]] = []
        self._arrays: list[tuple[list[Plain], list[Value]]] = []

    def object_of(self, entries: list[tuple[str, Value]]) -> dict[str, Plain]:
        made: dict[str, Plain] = {}
        self._objects.append((made, entries))
        return made

    def finish(self) -> None:
        while self._objects or self._arrays:
            while self._objects:
                made, entries = self._objects.pop()
                made |= {key: self._repeated(values) for key, values in _by_key(entries).items()}
            while self._arrays:
                array, items = self._arrays.pop()
                array += [self._value(item) for item in items]

    def _repeated(self, values: list[Value]) -> Plain:
        return self._value(values[0]) if len(values) == 1 else self._array(values)

    def _value(self, value: Value) -> Plain:
        if isinstance(value, Named):
            return self.object_of([(value.name, value.value)])
        if isinstance(value, dict):
            return self.object_of([_entry(key, each) for key, each in value.items()])
        if not isinstance(value, list):
            return scalar_text(value) if isinstance(value, int) and abs(value) >= _TOO_LONG else value
        fragments = [each for each in value if isinstance(each, Named)]
        if fragments and len(fragments) == len(value):
            return self.object_of([(each.name, each.value) for each in fragments])
        return self._array(value)

    def _array(self, items: list[Value]) -> list[Plain]:
        array: list[Plain] = []
        self._arrays.append((array, items))
        return array


def _by_key(entries: list[tuple[str, Value]]) -> dict[str, list[Value]]:
    """The values of each key, both in order of appearance."""
    found: dict[str, list[Value]] = {}
    for key, value in entries:
        found.setdefault(key, []).append(value)
    return found


def _entry(key: str, value: Value) -> tuple[str, Value]:
    return (value.name, value.value) if isinstance(value, Named) else (key, value)
