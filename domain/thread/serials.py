"""Values of channels that are serialized as a whole, and what of their bytes is stored."""

from typing import Any, Final, cast

_PLAIN: Final = frozenset({str, bytes, int, float, bool, type(None)})
_PLAIN_DEPTH: Final = 4
_HEADERS: Final = {"[": (0x90, 0xDC, 0xDD), "{": (0x80, 0xDE, 0xDF)}
"""The first bytes of lists and of maps: of up to 15 elements, of up to 65,535, and of more."""


def bare(type_name: str, data: bytes) -> tuple[str, bytes]:
    """Return a list or map in msgpack without its header, whose form says how long it is: with it, an append changes the beginning too."""
    first = data[0] if type_name == "msgpack" and data else 0
    for bracket, (fixed, short, long) in _HEADERS.items():
        if fixed <= first <= fixed | 0x0F:
            return f"msgpack{bracket}{first & 0x0F}", data[1:]
        if first in {short, long}:
            size = 2 if first == short else 4
            return f"msgpack{bracket}{int.from_bytes(data[1 : size + 1])}", data[size + 1 :]
    return type_name, data


def with_header(type_name: str, data: bytes) -> tuple[str, bytes]:
    """Return what `bare` was given."""
    name, bracket = type_name[: len("msgpack")], type_name[len("msgpack") : len("msgpack") + 1]
    if name != "msgpack" or bracket not in _HEADERS:
        return type_name, data
    (fixed, short, long), count = _HEADERS[bracket], int(type_name[len("msgpack") + 1 :])
    if count <= 0x0F:
        return name, bytes((fixed | count,)) + data
    return name, (bytes((short,)) + count.to_bytes(2) if count <= 0xFFFF else bytes((long,)) + count.to_bytes(4)) + data


def is_plain(value: Any, depth: int = _PLAIN_DEPTH) -> bool:
    """
    Whether a value seems to be plain data, which are serialized quickly: the first, the middle and the last element are.

    A wrong guess costs time only.
    """
    kind = cast("type[Any]", type(value))
    if kind in _PLAIN or not depth:
        return kind in _PLAIN
    if kind is dict:
        elements = list(cast("dict[Any, Any]", value).values())
    elif kind is list:
        elements = cast("list[Any]", value)
    else:
        return False
    size = len(elements)
    return all(is_plain(elements[at], depth - 1) for at in {0, size // 2, size - 1}) if size else True
