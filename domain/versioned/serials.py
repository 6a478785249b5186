"""Values of channels that are serialized as a whole, and what of their bytes is stored."""

import re
from typing import Any, Final, cast

from ..errors import CorruptStateError

_MSGPACK: Final = "msgpack"
_BARE: Final = re.compile(r"msgpack([\[{])([0-9]{1,10})")
_FEW, _SOME, _MOST = 0x0F, 0xFFFF, 0xFFFF_FFFF
_PLAIN: Final = frozenset({str, bytes, int, float, bool, type(None)})
_PLAIN_DEPTH: Final = 4
_HEADERS: Final = {"[": (0x90, 0xDC, 0xDD), "{": (0x80, 0xDE, 0xDF)}
"""The first bytes of lists and of maps: of up to 15 elements, of up to 65,535, and of more."""


def bare(type_name: str, data: bytes) -> tuple[str, bytes]:
    """Return a list or map in msgpack without its header, whose form says how long it is: with it, an append changes the beginning too."""
    first = data[0] if type_name == _MSGPACK and data else 0
    for bracket, (fixed, short, long) in _HEADERS.items():
        if fixed <= first <= fixed | _FEW:
            return f"{_MSGPACK}{bracket}{first & _FEW}", data[1:]
        if first in {short, long}:
            end = 3 if first == short else 5
            return f"{_MSGPACK}{bracket}{int.from_bytes(data[1:end])}", data[end:]
    return type_name, data


def with_header(type_name: str, data: bytes) -> tuple[str, bytes]:
    """Return what `bare` was given. Raises `CorruptStateError` when the form says a length that nothing has."""
    bare_form = _BARE.fullmatch(type_name)
    if bare_form is None:
        return type_name, data
    (fixed, short, long), count = _HEADERS[bare_form[1]], int(bare_form[2])
    if count <= _FEW:
        return _MSGPACK, bytes((fixed | count,)) + data
    if count <= _SOME:
        return _MSGPACK, bytes((short,)) + count.to_bytes(2) + data
    if count > _MOST:
        msg = f"a value has the form {type_name!r}, and nothing is as long"
        raise CorruptStateError(msg)
    return _MSGPACK, bytes((long,)) + count.to_bytes(4) + data


def is_plain(value: Any, depth: int = _PLAIN_DEPTH) -> bool:
    """
    Whether a value seems to be plain data, which are serialized quickly: the first, the middle and the last element are.

    A wrong guess costs time only.
    """
    kind = cast("type[Any]", type(value))
    if kind in _PLAIN or not depth:
        return kind in _PLAIN
    if kind is dict and type(cast("dict[Any, Any]", value).get("role")) is str:
        return False  # a message: lists of them grow, and a search looks at each once, for which they are pieces
    if kind is dict:
        elements = list(cast("dict[Any, Any]", value).values())
    elif kind is list:
        elements = cast("list[Any]", value)
    else:
        return False
    size = len(elements)
    return all(is_plain(elements[at], depth - 1) for at in {0, size // 2, size - 1}) if size else True
