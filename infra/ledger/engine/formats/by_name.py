"""The forms of messages by their names."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from chatledger.domain.context.engine.port import MessageFormat
from chatledger.domain.context.formats.from_openai import ui_of
from chatledger.domain.context.formats.to_openai import openai_messages
from chatledger.domain.context.fragments import Fragment
from chatledger.domain.context.messages import StoredCodec, message_fragment
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
    message_id = new_id() if id is None else id
    stored = ui_of(message, message_id)
    return message_fragment(stored["role"], StoredCodec(stored, openai_messages), message_id)


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
    own = getattr(message, "id", None) if id is None else id
    message_id = new_id() if own is None else own
    stored = ui_of_langchain(message, message_id)
    return message_fragment(stored["role"], StoredCodec(stored, langchain_messages), message_id)


UI: Final = MessageFormat("ui", lambda _name, data: [data])
"""The stored data, unchanged: UIMessages, unless something else was stored."""

OPENAI: Final = MessageFormat("openai", openai_messages)
"""Messages of the OpenAI Chat Completions API."""

LANGCHAIN: Final = MessageFormat("langchain", langchain_messages)
"""Messages of LangChain, which is imported when the first one is made."""

_FORMATS: Final = (UI, OPENAI, LANGCHAIN)


def message_format(value: str | MessageFormat) -> MessageFormat:
    """
    Return the form of messages that goes by a name: `ui`, `openai` or `langchain`. A `MessageFormat` is returned as it is.

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
