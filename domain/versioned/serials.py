"""Values of channels that are serialized as a whole, and what of their bytes is stored."""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

import msgspec

from ..errors import CorruptStateError
from .content import Content, Leaf, Parts, Serial, split_digests

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


VALUE: Final = "msgpack"
"""The form of a value by itself; that of a list or map also says how long it is."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode


class Encoded(msgspec.Struct, frozen=True):
    """A value as it is stored, and how much it takes encoded."""

    serial: Serial
    size_bytes: int


def encoded(value: Any) -> Encoded:
    """Encode a JSON value, which was checked."""
    data = _encode(value)
    return Encoded(Serial(*bare(VALUE, data)), len(data))


def decoded(leaf: Leaf) -> Any:
    """Return the value of a leaf. Raises `CorruptStateError` for other forms, and what msgspec says of bytes that are none."""
    form, data = with_header(leaf.type, leaf.data)
    if form != VALUE:
        msg = f"a value has the form {form!r}, which no state has"
        raise CorruptStateError(msg)
    return _decode(data)


def join(digest: bytes, content_of: Callable[[bytes], Content]) -> Any:
    """The value of a piece, made anew. Raises as `decoded` does."""
    content = content_of(digest)
    if isinstance(content, Parts):
        parts = map(content_of, split_digests(content.children))
        content = Leaf(content.type, b"".join(part.data for part in parts if isinstance(part, Leaf)))
    if not isinstance(content, Leaf):
        msg = "a value is made of others, which none of a state is"
        raise CorruptStateError(msg)
    return decoded(content)


_decode_plain: Final = msgspec.msgpack.decode
_SINGLE, _POSITIONAL, _NAMED, _METHOD, _PYDANTIC_V1, _PYDANTIC, _ARRAY, _SNAPSHOT = range(8)
"""The extensions of msgpack in which LangGraph writes objects: how each is made again from what follows its module and name."""


class UnreadValue(NamedTuple):
    """A value in a form that only another serializer reads, such as `pickle`: the name of the form, and how many bytes it takes."""

    form: str
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.size_bytes:,} bytes of {self.form}"


def plain_value(form: str, data: bytes) -> Any:
    """
    Return a serialized value as dicts with text keys, lists, text, numbers and None.

    Sets and tuples are lists, a message is a dict with `type` and `content`, other objects are dicts of their fields, or what
    they are made from. An `UnreadValue` stands for what cannot be told.
    """
    form, data = with_header(form, data)
    try:
        match form:
            case "null":
                return None
            case "msgpack":
                return _plain(_decode_plain(data))
            case "json":
                return _plain(msgspec.json.decode(data))
            case _:
                return UnreadValue(form, len(data))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return UnreadValue(form, len(data))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in cast("list[Any]", value)]
    if isinstance(value, msgspec.msgpack.Ext):
        return _object(value.code, bytes(value.data))
    if isinstance(value, bytes):
        return UnreadValue("bytes", len(value))
    return value if isinstance(value, str | int | float | bool | type(None)) else str(value)


def _object(code: int, data: bytes) -> Any:
    if code == _SNAPSHOT:
        return _plain(_decode_plain(data))
    parts: Any = _decode_plain(data) if _SINGLE <= code < _ARRAY else None
    if not isinstance(parts, list) or len(cast("list[Any]", parts)) < 3:
        return UnreadValue("array" if code == _ARRAY else f"msgpack extension {code}", len(data))
    module, name, made_from = cast("list[Any]", parts)[:3]
    if code == _POSITIONAL and (module, name) == ("langgraph.types", "Send"):
        return dict(zip(("node", "arg"), map(_plain, made_from), strict=False))
    if code == _POSITIONAL and isinstance(made_from, list) and len(cast("list[Any]", made_from)) == 1:
        return _plain(made_from[0])
    return _plain(made_from)


def is_message(value: Any) -> bool:
    """Whether plain data are a message: LangChain's, or a dict with `role` and `content`."""
    if not isinstance(value, dict):
        return False
    fields = cast("dict[str, Any]", value)
    return isinstance(fields.get("role", fields.get("type")), str) and isinstance(fields.get("content"), str | list)
