"""The forms that messages have for models, by name, and the codec that stores a message of such a form as a UIMessage."""

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

import msgspec

from ...errors import InvalidValueError
from ..fragments import Fragment
from ..messages import StoredCodec, UIMessage, message_fragment
from .anthropic import anthropic_messages, ui_of_anthropic
from .exchanges import turns
from .from_openai import ui_of
from .google import google_contents, ui_of_content
from .responses import responses_items, ui_of_item
from .stored import all_stored, as_ui_message
from .to_openai import openai_messages


class MessageFormat(msgspec.Struct, frozen=True):
    """
    A form of messages: `MessageFormat(name, to_model, from_model=None)`.

    Args:
        name: What it is called, such as `openai`.
        to_model: Gives the messages of this form for the name and the data of one stored message: one, several where a stored
            message stands for several, or none where it has nothing that this form knows.
        from_model: Gives the UIMessage to store for a message of this form and its id; None where none is made of it.
    """

    name: str
    to_model: Callable[[str, Any], list[Any]]
    from_model: Callable[[Any, str], UIMessage] | None = None


FormatName = Literal["ui", "openai", "responses", "anthropic", "google", "langchain"]
"""The names of the forms that are known."""

Format = FormatName | MessageFormat
"""A form of messages, by its name or as it is."""


def fragment_in(form: MessageFormat, given: Any, message_id: str) -> Fragment:
    """
    The fragment of a message in some form, under `message_id`.

    Raises:
        InvalidValueError: It is no message of that form.
    """
    if form.from_model is None:
        msg = f"messages of the form {form.name!r} are not made from a model's"
        raise InvalidValueError(msg)
    stored = form.from_model(given, message_id)
    return message_fragment(stored["role"], StoredCodec(stored, form.to_model), message_id)


def _unchanged(_name: str, data: Any) -> list[Any]:
    return [data]


def _from_stored(convert: Callable[[UIMessage], list[Any]]) -> Callable[[str, Any], list[Any]]:
    return lambda name, data: [message for turn in turns(as_ui_message(name, data)) for message in convert(turn)]


UI: Final = MessageFormat("ui", _unchanged)
"""The stored data, unchanged: UIMessages, unless something else was stored."""

OPENAI: Final = MessageFormat("openai", _from_stored(openai_messages), ui_of)
"""Messages of the OpenAI Chat Completions API."""

RESPONSES: Final = MessageFormat("responses", _from_stored(responses_items), ui_of_item)
"""Items of the OpenAI Responses API."""

ANTHROPIC: Final = MessageFormat("anthropic", _from_stored(anthropic_messages), ui_of_anthropic)
"""Messages of the Anthropic API."""

GOOGLE: Final = MessageFormat("google", _from_stored(google_contents), ui_of_content)
"""Contents of Google's Gemini API."""


def messages_in(form: MessageFormat, messages: Iterable[Any]) -> list[Any]:
    """Return messages in some form; see `to_openai`, which does it for one form."""
    return [message for stored in all_stored(messages) for message in form.to_model(stored.name, stored.data)]


def to_openai(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """
    Return messages as the OpenAI Chat Completions API takes them.

    Args:
        messages: One or several: what a ledger gave, fragments, UIMessages, OpenAI messages, pairs of name and data, or text
            from the user.

    Returns:
        Messages made by `openai_message` as they were. An assistant's UIMessage with results of tools becomes the calls and a
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
        Items made by `responses_item` as they were. An assistant's UIMessage becomes its messages, calls and their outputs, in
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
        Messages made by `anthropic_message` as they were, but for the fields that only answers of the API have. An assistant's
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
        Contents made by `google_message` as they were. An assistant's UIMessage with results of tools becomes the calls and a
        user's content with the responses, in the order in which they happened. Reasoning is given back only to where it came
        from. Messages with nothing that the API knows are left out. Any role but the assistant's becomes `user`.

    Raises:
        InvalidValueError: One of them is no message.
    """
    return messages_in(GOOGLE, messages)
