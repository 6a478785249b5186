"""
The table that describes a form of messages.

A form has one reader, which gives items; text, search fields, UIMessage parts and every other form are derived from them.
"""

import re
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, cast

import msgspec

from .items import ASSISTANT, SYSTEM, TOOL, USER, Call, File, FormItem, Json, Piece, Reasoning, Refusal, Text, What
from .plain import base64_of, compact, media_type_of, object_at, text_at
from .writing import Writer

Read = Callable[[Any, str, Any], list[FormItem]]
"""A reader: `(data, name, source) -> items`, for any JSON value; it does not raise. `name` is the role where the data have none."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """
    Rules of a form that `arrange` follows.

    Args:
        ids: Ids of calls that are allowed.
        names: Names of tools that are allowed.
        needs_ids: Whether each call needs one.
        blank: The texts that are left out: `empty`, `blank` (of nothing but white space), or `kept` for none.
    """

    ids: re.Pattern[str]
    names: re.Pattern[str]
    needs_ids: bool = True
    blank: str = "empty"


ANY: Final = re.compile(r".+", re.DOTALL)
TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The names of tools that all APIs allow, but for Gemini's, which wants no digit or dash at the beginning."""


FormName = Literal[
    "ui",
    "openai",
    "responses",
    "anthropic",
    "google",
    "langchain",
    "claude-code",
    "pydantic-ai",
    "llamaindex",
    "agent-framework",
    "strands",
    "adk",
]
"""The names of the forms that a chain can be told in, whatever is installed."""

UI: Final = "ui"
SPEAKERS: Final = {"human": USER, "ai": ASSISTANT}
"""Other names that messages of a known role go by: LangChain's."""
_ROLES: Final = {**SPEAKERS, "chatbot": ASSISTANT, "model": ASSISTANT, "system": SYSTEM, "function": TOOL, "tool": TOOL}


def role_in(data: Any) -> str | None:
    """Return the role that the data of a message of nothing say in most forms; None where they say none."""
    fields = object_at(data)
    role = text_at(fields, "role") or text_at(object_at(fields, "data"), "role")
    return _ROLES.get(role, role) if role else _ROLES.get(text_at(fields, "type") or "")


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """
    A form of messages: how they are read, and how a chain is written in it.

    Args:
        name: What it is called, such as `openai`.
        read: The reader.
        write: The class of writers; None where nothing is translated into it.
        rules: For `arrange`.
        blocks: The form whose blocks its messages consist of, if it is another one's: they are given to that as they came.
        role: Finds the role of a message that has no items.
        unsaid: The name of messages that nobody said, if there are such.
        searched_output: Number of characters at each end of an output of a tool that can be searched; all when None.
        decode: Makes objects of a library of messages of this form, all at once; None where messages are JSON values.
    """

    name: str
    read: Read
    write: type[Writer] | None = None
    rules: Rules = Rules(ids=ANY, names=ANY)
    blocks: str | None = None
    role: Callable[[Any], str | None] = role_in
    unsaid: str = ""
    searched_output: int | None = None
    decode: Callable[[list[Any]], list[Any]] | None = None


class Formless(NamedTuple):
    """A message whose data are not as its form says; to a translation it is of no form."""

    id: str
    name: str
    form: None
    data: Any


def any_json(data: Any, name: str, source: Any) -> list[FormItem]:
    """Read data of no form: text by `name`, or compact JSON."""
    if data is None:
        return []
    if source is not None and source.form is not None:
        source = Formless(source.id, source.name, None, data)
    role = SPEAKERS.get(name, name)
    return [FormItem(role, Text(data if isinstance(data, str) else compact(data)), source)]


def call_of(call_id: str | None, name: str | None, arguments: Any) -> Call:
    """Return the call with arguments that are the text which a model wrote, or JSON."""
    return (
        Call(call_id, name or "", raw=arguments) if isinstance(arguments, str) else Call(call_id, name or "", arguments)
    )


def contents_of(content: Any, read: Callable[[Any], What]) -> str | list[Piece]:
    """Return the content of a result: a text, a list of blocks, or another value."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else [Json(content)]
    whats = map(read, content)
    return [Text(what.text) if isinstance(what, Refusal | Reasoning) else cast("Piece", what) for what in whats]


def file_of(url: str, media_type: str, name: str | None = None) -> File:
    """Return the file at a URL, which may be a data URL; `media_type` counts where that does not say its own."""
    data = base64_of(url)
    if data is None:
        return File(media_type, url=url, name=name)
    return File(media_type_of(url) or media_type, data=data, name=name)
