"""Plain text and previews of message data."""

import json
from typing import Any, cast

PREVIEW_LENGTH = 50


def plain_text(data: Any) -> str:
    """
    The text of a message: what a reader would read, without JSON syntax, keys or ids.

    A string is itself. Of a UIMessage, an object with `parts`, the parts of type `text` are joined by line breaks. Of
    anything else, all strings in it are joined by line breaks, in order, without keys.
    """
    if isinstance(data, str):
        return data
    parts = _text_parts(data)
    if parts is not None:
        return "\n".join(parts)
    return "\n".join(_strings(data))


def preview(data: Any) -> str:
    """At most 50 characters that show what `data` is: its text, else compact JSON; `...` marks a cut."""
    if isinstance(data, str):
        content = data
    else:
        parts = _text_parts(data)
        content = " ".join(parts) if parts else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return content if len(content) <= PREVIEW_LENGTH else content[:PREVIEW_LENGTH] + "..."


def _text_parts(data: Any) -> list[str] | None:
    """The texts of a UIMessage, or None when `data` is not one."""
    parts: Any = cast("dict[str, Any]", data).get("parts") if isinstance(data, dict) else None
    if not isinstance(parts, list):
        return None
    return [
        text
        for part in cast("list[Any]", parts)
        if isinstance(part, dict)
        and cast("dict[str, Any]", part).get("type") == "text"
        and isinstance(text := cast("dict[str, Any]", part).get("text"), str)
    ]


def _strings(data: Any) -> list[str]:
    found: list[str] = []
    pending: list[Any] = [data]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            pending.extend(reversed(cast("dict[str, Any]", value).values()))
        elif isinstance(value, list):
            pending.extend(reversed(cast("list[Any]", value)))
    return found
