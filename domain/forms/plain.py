"""JSON values of messages: what stands under a key, arguments of calls, URLs of files."""

import json
from collections.abc import Mapping
from typing import Any, Final, Protocol, cast, runtime_checkable

import msgspec

from ..errors import InvalidValueError
from ..limits import MAX_JSON_DEPTH, data_copy

_OBJECTS: Final = (dict, Mapping)
"""Nearly all are dicts, which is seen in a tenth of the time."""


def object_at(value: Any, *path: str) -> Mapping[str, Any]:
    """Return the object at the end of a path of keys; an empty one where there is none."""
    for key in path:
        value = cast("Mapping[str, Any]", value).get(key) if isinstance(value, _OBJECTS) else None
        if value is None:  # for which `isinstance` with an abstract class takes long
            return {}
    return cast("Mapping[str, Any]", value) if isinstance(value, _OBJECTS) else {}


def text_at(fields: Mapping[str, Any], key: str) -> str | None:
    value = fields.get(key)
    return value if isinstance(value, str) else None


def list_at(fields: Mapping[str, Any], key: str) -> list[Any]:
    """Return the list under a key; an empty one where there is none."""
    value = fields.get(key)
    return cast("list[Any]", value) if isinstance(value, list) else []


_LINE_BEGINS: Final = ('{"type":', '{"parentUuid":', '{"timestamp":')


def last_line(data: Any) -> Mapping[str, Any]:
    """
    Return the line of a transcript in which a message says something: its data, or the last of the lines that these are.

    A line that is text is parsed. Half a line may stand before a whole one in it, which a client wrote after it was killed.
    """
    line = cast("list[Any]", data)[-1] if isinstance(data, list) and data else data
    if not isinstance(line, str):
        return object_at(line)
    value, is_json = parsed(line)
    if not is_json:
        value, _ = parsed(line[max(line.rfind(begin) for begin in _LINE_BEGINS) :])
    return object_at(value)


def strings_in(value: Any) -> list[str]:
    """Return all strings in a JSON value, in order, without keys."""
    strings: list[str] = []
    pending: list[Any] = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            strings.append(value)
        elif isinstance(value, dict):
            pending.extend(reversed(cast("dict[str, Any]", value).values()))
        elif isinstance(value, list):
            pending.extend(reversed(cast("list[Any]", value)))
    return strings


def compact(value: Any) -> str:
    """Return a JSON value as text without blanks: how models write arguments."""
    # As most arguments are: this encoder takes a quarter of the time.
    if type(value) is dict and _SCALARS.issuperset(map(type, cast("dict[str, Any]", value).values())):
        try:
            return _encode_scalars(value).decode()
        except (OverflowError, UnicodeEncodeError):
            pass  # large integers, and halves of surrogate pairs
    return _encode(value)


_SCALARS: Final = frozenset({str, int, bool, type(None)})
"""The types that both encoders write alike; floats they do not."""
_encode_scalars: Final = msgspec.json.Encoder().encode
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def parsed(text: str) -> tuple[Any, bool]:
    """Return the JSON value in a text and True; the text itself and False where it holds none."""
    try:
        return msgspec.json.decode(text), True
    except (ValueError, RecursionError):
        pass
    try:  # NaN, halves of surrogate pairs, and integers beyond 64 bits, which msgspec reads as floats or not at all
        return json.loads(text), True
    except (ValueError, RecursionError):
        return text, False


ANY_IMAGE: Final = "image/*"
ANY_FILE: Final = "application/octet-stream"


def media_type_of(url: str) -> str | None:
    return url[5:].partition(",")[0].partition(";")[0] or None if url.startswith("data:") else None


def base64_of(url: str) -> str | None:
    """Return the Base64 text of a data URL; None of any other."""
    head, comma, data = url.partition(",")
    return data if comma and head.startswith("data:") and head.endswith(";base64") else None


@runtime_checkable
class Dumpable(Protocol):
    """An object of an SDK, or another pydantic model."""

    def model_dump(self, *, mode: str = ..., exclude_unset: bool = ...) -> dict[str, Any]: ...


def _unwrapped(value: Any, depth: int) -> Any:
    # What is too deep stays as it is: the copy refuses it.
    if depth > MAX_JSON_DEPTH or isinstance(value, str):
        return value
    if not isinstance(value, type) and callable(dump := getattr(value, "model_dump", None)):
        value = dump(mode="json", exclude_unset=True)  # as the SDK sends its own objects
    if isinstance(value, Mapping):
        return {key: _unwrapped(item, depth + 1) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_unwrapped(item, depth + 1) for item in cast("list[Any]", value)]
    return value


def plain_object(value: Any, what: str) -> dict[str, Any]:
    """
    A JSON copy of an object that may hold mappings, tuples, and objects with `model_dump()` such as those of the OpenAI SDK.

    Raises:
        InvalidValueError: It is no object, or there is something in it that JSON does not know.
    """
    copied = data_copy(_unwrapped(value, 0), what)
    if not isinstance(copied, dict):
        msg = f"{what} must be an object, not {type(value).__name__}"
        raise InvalidValueError(msg)
    return cast("dict[str, Any]", copied)
