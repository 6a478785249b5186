"""The fields of a message that can be searched, and their texts: what it says, what its tools took and gave, its reasoning."""

import re
from typing import Any, Final, Literal, cast

from ..context.formats.parts import is_tool_part
from ..forms.model import Call, Json, Reasoning, Refusal, Result, Text, input_of
from ..forms.reading import items_of, known_form, text_of
from ..values import plain_text

SearchField = Literal["text", "tools", "reasoning"]

TEXT: Final[SearchField] = "text"
TOOLS: Final[SearchField] = "tools"
REASONING: Final[SearchField] = "reasoning"
FIELDS: Final[tuple[SearchField, ...]] = (TEXT, TOOLS, REASONING)
"""In this order: where two of them match equally well, the snippet is from the first."""

_ENCODED: Final = re.compile(r"(?:data:[^,\s]{0,200},)?[A-Za-z0-9+/_\r\n-]{1000}")
"""The beginning of base64, such as a screenshot that a tool returned: it has letters, but no words."""


def field_text(data: Any, field: SearchField) -> str:
    """The text of one field of a message, empty if it has none; see `plain_text` and `other_texts`."""
    return plain_text(data) if field == TEXT else other_texts(data).get(field, "")


def other_texts(data: Any) -> dict[SearchField, str]:
    """
    The texts of tools and of reasoning in a message, of those that it has: only a UIMessage, an object with `parts`, has any.

    Of a tool call, all strings and numbers in its input and output, in order, without keys, and the text of an error. Strings
    of base64 are left out. Of reasoning its text. The texts of several parts are joined by line breaks.
    """
    parts: Any = cast("dict[str, Any]", data).get("parts") if isinstance(data, dict) else None
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


def search_texts(form: str | None, data: Any) -> dict[SearchField, str]:
    """
    The texts of a message by field, of the fields that have any: what it says, what its tools took and gave, its reasoning.

    Of a tool call, all strings and numbers in its arguments and its result, in order, without keys. Strings of base64 are left
    out, and files. A message of no known form has text only. The texts of several parts are joined by line breaks.
    """
    if known_form(form) is None or isinstance(data, str):
        text = text_of(form, data)
        return {TEXT: text} if text else {}
    said: dict[SearchField, list[str]] = {TEXT: [], TOOLS: [], REASONING: []}
    for item in items_of(form, data):
        what = item.what
        if isinstance(what, Text | Refusal):
            said[TEXT].append(what.text)
        elif isinstance(what, Call):
            said[TOOLS] += leaf_texts(input_of(what))
        elif isinstance(what, Result):
            said[TOOLS] += leaf_texts(what.content) if isinstance(what.content, str) else _of_result(what.content)
        elif isinstance(what, Reasoning) and what.text:
            said[REASONING].append(what.text)
    return {field: "\n".join(texts) for field, texts in said.items() if texts}


def _of_result(content: list[Any]) -> list[str]:
    values = [one.text if isinstance(one, Text) else one.value for one in content if isinstance(one, Text | Json)]
    return leaf_texts(values)
