"""Outcomes in a form that two servers can agree on, and the differences between two of them, a line each."""

import json
import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, Final, TypeAlias, cast

Json: TypeAlias = Any
"""A JSON value: mappings, lists, texts, numbers, booleans and None."""

_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?")
_NOTHING: Final = object()


class Names:
    """
    Names for the ids of one outcome: `<thread_id 1>` is the first id that appears as a `thread_id`, wherever it appears again.

    So a name depends on the ids of its own kind only, and says whether two ids are the same.

    Args:
        constant: Names of ids that the program chose, or was told, such as that of the assistant.
        url: The address of the server, which is `<url>`.
    """

    def __init__(self, constant: Mapping[str, str], url: str) -> None:
        self._names, self._counts = dict(constant), dict[str, int]()
        self._url = url

    def replaced(self, text: str, key: str) -> str:
        """Return a text with names in the place of ids, times and the address."""
        text = _ID.sub(lambda match: self.of(match[0], key), text.replace(self._url, "<url>"))
        return _TIME.sub("<time>", text)

    def of(self, value: str, key: str) -> str:
        """Return the name of an id; `key` is the one under which it stands."""
        if value not in self._names:
            self._counts[key] = self._counts.get(key, 0) + 1
            self._names[value] = f"<{key} {self._counts[key]}>"
        return self._names[value]


def canonical(value: Json, names: Names, key: str = "id") -> Json:
    """Return a value as JSON with sorted keys, and names in the place of what is random."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[Any, Json]", value)
        return {
            canonical(str(name), names, key): canonical(fields[name], names, str(name))
            for name in sorted(fields, key=_place)
        }
    if isinstance(value, list | tuple):
        return [canonical(element, names, key) for element in cast("list[Json]", value)]
    if isinstance(value, str):
        if key == "assistant_id":
            return names.of(value, key)
        return names.replaced(value, key)
    return value


def _place(key: str) -> tuple[bool, str]:
    # What only one of the servers says is mostly in `metadata`, and would change the numbers of all ids after it.
    return key == "metadata", key


def differences(left: Json, right: Json, path: str = "") -> Iterator[str]:
    """
    Yield each difference as `path: left | right`, where `-` stands for nothing.

    Elements of a list have no number in the path. Those that are equal are paired, the others between them in their order.
    """
    if isinstance(left, dict) and isinstance(right, dict):
        fields, others = cast("dict[str, Json]", left), cast("dict[str, Json]", right)
        for name in sorted(fields.keys() | others.keys()):
            yield from differences(fields.get(name, _NOTHING), others.get(name, _NOTHING), f"{path}.{name}".lstrip("."))
    elif isinstance(left, list) and isinstance(right, list):
        elements, rest = cast("list[Json]", left), cast("list[Json]", right)
        pairing = SequenceMatcher(None, [*map(text_of, elements)], [*map(text_of, rest)], autojunk=False)
        for kind, start, end, other_start, other_end in pairing.get_opcodes():
            if kind != "equal":
                for pair in zip_longest(elements[start:end], rest[other_start:other_end], fillvalue=_NOTHING):
                    yield from differences(*pair, f"{path}[]")
    elif left != right or type(left) is not type(right):
        yield f"{path}: {text_of(left)} | {text_of(right)}"


def text_of(value: Json) -> str:
    """Return JSON in a line."""
    return "-" if value is _NOTHING else json.dumps(value, ensure_ascii=False, sort_keys=True)
