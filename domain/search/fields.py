"""The fields of a message that can be searched, and their texts: what it says, what its tools took and gave, its reasoning."""

import re
from typing import Any, Final, Literal, cast

from ..forms.items import Call, Json, Reasoning, Refusal, Result, Text
from ..forms.reading import known_form, text_of, without_instructions
from ..forms.writing import input_of
from ..values import Message

SearchField = Literal["text", "tools", "reasoning"]

TEXT: Final[SearchField] = "text"
TOOLS: Final[SearchField] = "tools"
REASONING: Final[SearchField] = "reasoning"
FIELDS: Final[tuple[SearchField, ...]] = (TEXT, TOOLS, REASONING)
"""In this order: where two of them match equally well, the snippet is from the first."""

_ENCODED: Final = re.compile(r"(?:data:[^,\s]{0,200},)?[A-Za-z0-9+/_\r\n-]{1000}")
"""The beginning of base64, such as a screenshot that a tool returned: it has letters, but no words."""


def field_text(message: Message, field: SearchField) -> str:
    """The text of one field of a message, empty if it has none; see `search_texts`."""
    return message.text if field == TEXT else search_texts(message.form, message.data, message.name).get(field, "")


def leaf_texts(value: Any) -> list[str]:
    """The strings and numbers in a JSON value, in order, without keys and without base64."""
    leaves: list[str] = []
    pending: list[Any] = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            leaves += [] if _ENCODED.match(value) else [value]
        elif isinstance(value, dict):
            pending.extend(reversed(cast("dict[str, Any]", value).values()))
        elif isinstance(value, list):
            pending.extend(reversed(cast("list[Any]", value)))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            leaves.append(repr(value))
    return leaves


def _ends(leaves: list[str], most: int | None) -> list[str]:
    """The leaves, each long one without its middle."""
    if most is None:
        return leaves
    return [leaf if len(leaf) <= 2 * most else f"{leaf[:most]}\n\u2026\n{leaf[-most:]}" for leaf in leaves]


def search_texts(form: str | None, data: Any, name: str) -> dict[SearchField, str]:
    """
    The texts of a message by field, of the fields that have any: what it says, what its tools took and gave, its reasoning.

    Of a tool call, all strings and numbers in its arguments and its result, in order, without keys. Strings of base64 are left
    out, and files. Of the transcripts of coding agents, a long result has its two ends only. A message of no known form has text only. `name` is the role of a message whose data have none. The texts of several parts are joined by line breaks.
    """
    registered = known_form(form)
    if registered is None or isinstance(data, str):
        text = text_of(form, data)
        return {TEXT: text} if text else {}
    texts: dict[SearchField, list[str]] = {TEXT: [], TOOLS: [], REASONING: []}
    for item in without_instructions(registered.read(data, name, None)):
        what = item.what
        if isinstance(what, Text | Refusal):
            texts[TEXT].append(what.text)
        elif isinstance(what, Call):
            texts[TOOLS] += leaf_texts(input_of(what))
        elif isinstance(what, Result):
            content: Any = what.content
            if not isinstance(content, str):  # files among it have no words
                parts = [part for part in content if isinstance(part, Text | Json)]
                content = [part.text if isinstance(part, Text) else part.value for part in parts]
            texts[TOOLS] += _ends(leaf_texts(content), registered.searched_output)
        elif isinstance(what, Reasoning) and what.text:
            texts[REASONING].append(what.text)
    return {field: "\n".join(of_field) for field, of_field in texts.items() if of_field}
