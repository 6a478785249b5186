"""The forms of messages by their names."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from chatledger.domain.context.formats.message_format import (
    ANTHROPIC,
    GOOGLE,
    OPENAI,
    RESPONSES,
    UI,
    Format,
    MessageFormat,
    fragment_in,
)
from chatledger.domain.context.fragments import Fragment
from chatledger.domain.errors import InvalidValueError

from ...drafts import new_id
from .langchain import langchain_messages, ui_of_langchain

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage


def openai_message(
    message: Mapping[str, Any] | Any,
    *,
    id: str | None = None,  # noqa: A002 - the field's name everywhere else
) -> Fragment:
    """
    Return a new message made of an OpenAI chat message, for `ContextEngine.set`, `Ledger.append` and `Ledger.add_messages`.

    It is stored as a UIMessage; `to_openai` gives the OpenAI message back as it was.

    Args:
        message: A message of the Chat Completions API: an object with `role` and `content` or `tool_calls`, or one of the SDK,
            such as `completion.choices[0].message`.
        id: Its id in the chat; a new one when None.

    Raises:
        InvalidValueError: It has no role, its content is neither text nor a list of parts nor None, or there is something in it
            that JSON does not know.
    """
    return _new_message(OPENAI, message, id)


def responses_item(
    item: Mapping[str, Any] | Any,
    *,
    id: str | None = None,  # noqa: A002 - as above
) -> Fragment:
    """
    Return a new message made of an item of the OpenAI Responses API, for `ContextEngine.set`, `Ledger.append` and
    `Ledger.add_messages`.

    It is stored as a UIMessage; `to_responses` gives the item back as it was. One item is one message: those of a response
    are `[responses_item(item) for item in response.output]`.

    Args:
        item: A message, a call of a function, its output, reasoning, or any other item, as a dict or as an object of the SDK.
        id: Its id in the chat; a new one when None.

    Raises:
        InvalidValueError: It has neither a type nor a role, or there is something in it that JSON does not know.
    """
    return _new_message(RESPONSES, item, id)


def anthropic_message(
    message: Mapping[str, Any] | Any,
    *,
    id: str | None = None,  # noqa: A002 - as above
) -> Fragment:
    """
    Return a new message made of an Anthropic message, for `ContextEngine.set`, `Ledger.append` and `Ledger.add_messages`.

    It is stored as a UIMessage; `to_anthropic` gives the Anthropic message back as it was. A user's message that holds nothing
    but results of tools is stored under the role `tool`.

    Args:
        message: An object with `role` and `content`, or an answer of the SDK (`client.messages.create(...)`), of which `to_anthropic`
            gives back what the API takes; its id, usage and stop reason stay stored.
        id: Its id in the chat; a new one when None.

    Raises:
        InvalidValueError: Its role is not one of the API, its content is neither text nor a list, or there is something in it
            that JSON does not know.
    """
    return _new_message(ANTHROPIC, message, id)


def google_message(
    content: Mapping[str, Any] | Any,
    *,
    id: str | None = None,  # noqa: A002 - as above
) -> Fragment:
    """
    Return a new message made of a content of Google's Gemini API, for `ContextEngine.set`, `Ledger.append` and
    `Ledger.add_messages`.

    It is stored as a UIMessage; `to_google` gives the content back as it was, with keys written as they were.

    Args:
        content: An object with `role` and `parts`, or one of the SDK, such as `response.candidates[0].content`.
        id: Its id in the chat; a new one when None.

    Raises:
        InvalidValueError: Its role is not one of the API, its `parts` are no list, or there is something in it that JSON does
            not know.
    """
    return _new_message(GOOGLE, content, id)


def langchain_message(
    message: "BaseMessage",
    *,
    id: str | None = None,  # noqa: A002 - as above
) -> Fragment:
    """
    Return a new message made of a LangChain message, for `ContextEngine.set`, `Ledger.append` and `Ledger.add_messages`.

    It is stored as a UIMessage; `to_langchain` gives the LangChain message back as it was, with the id it is stored under.

    Args:
        message: A system, human, AI, tool, function or chat message. Chunks are stored as the message they have become.
        id: Its id in the chat; that of the message, else a new one, when None.

    Raises:
        InvalidValueError: It is no message that can be stored, or there is something in it that JSON does not know.
        ConfigurationError: LangChain is not installed: `pip install 'chatledger[langchain]'`.
    """
    return _new_message(LANGCHAIN, message, getattr(message, "id", None) if id is None else id)


def _new_message(form: MessageFormat, message: Any, message_id: str | None) -> Fragment:
    fragment = fragment_in(form, message, new_id() if message_id is None else message_id)
    return msgspec.structs.replace(fragment, has_new_id=message_id is None)


LANGCHAIN: Final = MessageFormat("langchain", langchain_messages, ui_of_langchain)
"""Messages of LangChain, which is imported when the first one is made."""

_FORMATS: Final = (UI, OPENAI, RESPONSES, ANTHROPIC, GOOGLE, LANGCHAIN)


def message_format(value: Format) -> MessageFormat:
    """
    Return the form of messages that goes by a name: `ui`, `openai`, `responses`, `anthropic`, `google` or `langchain`. A
    `MessageFormat` is returned as it is.

    Raises:
        InvalidValueError: There is no such form.
    """
    if isinstance(value, MessageFormat):
        return value
    for known in _FORMATS:
        if known.name == value:
            return known
    names = ", ".join(repr(known.name) for known in _FORMATS)
    msg = f"unknown message format {value!r}; choose one of {names}, or give a MessageFormat"
    raise InvalidValueError(msg)
