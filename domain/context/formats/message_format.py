"""The forms that messages have for models, by name."""

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

import msgspec

from ..messages import UIMessage, is_ui_message
from .anthropic import anthropic_messages
from .exchanges import turns
from .google import google_contents
from .responses import responses_items
from .stored import all_stored, as_ui_message, told
from .to_openai import openai_messages


class MessageFormat(msgspec.Struct, frozen=True):
    """
    A form of messages: `MessageFormat(name, to_model)`.

    Args:
        name: What it is called, such as `openai`.
        to_model: Gives the messages of this form for the name and the data of one stored message: one, several where a stored
            message stands for several, or none where it has nothing that this form knows.
    """

    name: str
    to_model: Callable[[str, Any], list[Any]]


FormatName = Literal["ui", "openai", "responses", "anthropic", "google", "langchain"]
"""The names of the forms that are known."""

Format = FormatName | MessageFormat
"""A form of messages, by its name or as it is."""


def _unchanged(_name: str, data: Any) -> list[Any]:
    return [data]


def _from_stored(convert: Callable[[UIMessage], list[Any]]) -> Callable[[str, Any], list[Any]]:
    def to_model(name: str, data: Any) -> list[Any]:
        stored = as_ui_message(name, data, "ui" if is_ui_message(data) else None)
        return [message for turn in turns(stored) for message in convert(turn)]

    return to_model


UI: Final = MessageFormat("ui", _unchanged)
"""The stored data, unchanged: UIMessages, unless something else was stored."""

OPENAI: Final = MessageFormat("openai", _from_stored(openai_messages))
"""Messages of the OpenAI Chat Completions API."""

RESPONSES: Final = MessageFormat("responses", _from_stored(responses_items))
"""Items of the OpenAI Responses API."""

ANTHROPIC: Final = MessageFormat("anthropic", _from_stored(anthropic_messages))
"""Messages of the Anthropic API."""

GOOGLE: Final = MessageFormat("google", _from_stored(google_contents))
"""Contents of Google's Gemini API."""


def messages_in(form: MessageFormat, messages: Iterable[Any]) -> list[Any]:
    """Return messages in some form; see `to_openai`, which does it for one form."""
    return [message for stored in all_stored(messages) for message in form.to_model(stored.name, told(*stored))]


def to_openai(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """
    Return messages as the OpenAI Chat Completions API takes them.

    Args:
        messages: One or several: what a ledger gave, fragments, UIMessages, OpenAI messages, pairs of name and data, or text
            from the user.

    Returns:
        Messages of the API as they were appended. An assistant's UIMessage with results of tools becomes the calls and a
        `tool` message for each result, in the order in which they happened. Messages with nothing that the API knows are left
        out. A role that the API does not know becomes `user` with the role as its `name`; so does a `tool` message that does
        not say which call it answers.

    Raises:
        InvalidValueError: One of them is no message.
    """
    return messages_in(OPENAI, messages)


def to_responses(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """
    Return messages as input items for the OpenAI Responses API.

    Args:
        messages: One or several: what a ledger gave, fragments, UIMessages, messages of another API, pairs of name and data,
            or text from the user.

    Returns:
        Items of the API as they were appended. An assistant's UIMessage becomes its messages, calls and their outputs, in
        the order in which they happened. Reasoning is given back only to where it came from. Messages with nothing that the
        API knows are left out. A role that it does not know becomes `user`.

    Raises:
        InvalidValueError: One of them is no message.
    """
    return messages_in(RESPONSES, messages)


def to_anthropic(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """
    Return messages as the Anthropic API takes them.

    Args:
        messages: One or several: what a ledger gave, fragments, UIMessages, messages of another API, pairs of name and data,
            or text from the user.

    Returns:
        Messages of the API as they were appended, but for the fields that only answers of the API have. An assistant's
        UIMessage with results of tools becomes the calls and a user's message with the results, in the order in which they
        happened. Reasoning is given back only with the signature of the API. Messages with nothing that it knows are left out.
        A role that it does not know becomes `user`.

    Raises:
        InvalidValueError: One of them is no message.
    """
    return messages_in(ANTHROPIC, messages)


def to_google(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """
    Return messages as contents for Google's Gemini API.

    Args:
        messages: One or several: what a ledger gave, fragments, UIMessages, messages of another API, pairs of name and data,
            or text from the user.

    Returns:
        Contents of the API as they were appended. An assistant's UIMessage with results of tools becomes the calls and a
        user's content with the responses, in the order in which they happened. Reasoning is given back only to where it came
        from. Messages with nothing that the API knows are left out. Any role but the assistant's becomes `user`.

    Raises:
        InvalidValueError: One of them is no message.
    """
    return messages_in(GOOGLE, messages)
