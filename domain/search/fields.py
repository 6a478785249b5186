"""The fields of a message that can be searched, and their texts: what it says, what its tools took and gave, its reasoning."""

import re
from typing import Any, Final, Literal, cast

from ..context.formats.parts import is_tool_part
from ..context.formats.stored import CODECS, as_ui_message
from ..values import UI, Message

SearchField = Literal["text", "tools", "reasoning"]

TEXT: Final[SearchField] = "text"
TOOLS: Final[SearchField] = "tools"
REASONING: Final[SearchField] = "reasoning"
FIELDS: Final[tuple[SearchField, ...]] = (TEXT, TOOLS, REASONING)
"""In this order: where two of them match equally well, the snippet is from the first."""

_ENCODED: Final = re.compile(r"(?:data:[^,\s]{0,200},)?[A-Za-z0-9+/_\r\n-]{1000}")
"""The beginning of base64, such as a screenshot that a tool returned: it has letters, but no words."""


def field_text(message: Message, field: SearchField) -> str:
    """The text of one field of a message, empty if it has none; see `Message.text` and `other_texts`."""
    return message.text if field == TEXT else other_texts(message.data, message.form).get(field, "")


def other_texts(data: Any, form: str | None) -> dict[SearchField, str]:
    """
    The texts of tools and of reasoning in a message, of those that it has: only a UIMessage or a message of an API has any.

    Of a tool call, all strings and numbers in its input and output, in order, without keys, and the text of an error. Strings
    of base64 are left out. Of reasoning its text. The texts of several parts are joined by line breaks.
    """
    if form != UI and form not in CODECS:
        return {}
    parts: Any = cast("dict[str, Any]", data).get("parts") if form == UI else as_ui_message("", data, form)["parts"]
    if not isinstance(parts, list):
        return {}
    tools: list[str] = []
    reasoning: list[str] = []
    for one in cast("list[Any]", parts):
        if not isinstance(one, dict):
            continue
        part = cast("dict[str, Any]", one)
        kind = part.get("type")
        if kind == TEXT:
            continue
        if kind == REASONING:
            text: Any = part.get("text")
            reasoning += [text] if isinstance(text, str) else []
        elif isinstance(kind, str) and is_tool_part(part):
            tools += _of_call(part)
    found: dict[SearchField, str] = {}
    if tools:
        found[TOOLS] = "\n".join(tools)
    if reasoning:
        found[REASONING] = "\n".join(reasoning)
    return found


def _of_call(part: dict[str, Any]) -> list[str]:
    given = part.get("input")
    if given is None:
        given = part.get("rawInput")
    return leaf_texts([given, part.get("output"), part.get("errorText")])


def leaf_texts(value: Any) -> list[str]:
    """The strings and numbers in a JSON value, in order, without keys and without base64."""
    found: list[str] = []
    pending: list[Any] = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            found += [] if _ENCODED.match(value) else [value]
        elif isinstance(value, dict):
            pending.extend(reversed(cast("dict[str, Any]", value).values()))
        elif isinstance(value, list):
            pending.extend(reversed(cast("list[Any]", value)))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append(repr(value))
    return found
