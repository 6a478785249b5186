"""JSON values of messages: what stands under a key, arguments of calls, URLs of files."""

import json
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

_OBJECTS: Final = (dict, Mapping)
"""Nearly all are dicts, which is seen in a tenth of the time."""


def object_at(value: Any, *path: str) -> Mapping[str, Any]:
    """Return the object at the end of a path of keys; an empty one where there is none."""
    for key in path:
        value = cast("Mapping[str, Any]", value).get(key) if isinstance(value, _OBJECTS) else None
    return cast("Mapping[str, Any]", value) if isinstance(value, _OBJECTS) else {}


def text_at(fields: Mapping[str, Any], key: str) -> str | None:
    """Return the text under a key, or None."""
    value = fields.get(key)
    return value if isinstance(value, str) else None


def list_at(fields: Mapping[str, Any], key: str) -> list[Any]:
    """Return the list under a key; an empty one where there is none."""
    value = fields.get(key)
    return cast("list[Any]", value) if isinstance(value, list) else []


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
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


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
    """Return the media type that a data URL names."""
    return url[5:].partition(",")[0].partition(";")[0] or None if url.startswith("data:") else None


def base64_of(url: str) -> str | None:
    """Return the Base64 text of a data URL; None of any other."""
    head, comma, data = url.partition(",")
    return data if comma and head.startswith("data:") and head.endswith(";base64") else None
