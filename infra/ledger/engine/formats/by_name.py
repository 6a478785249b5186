"""The forms of messages by their names."""

from typing import Final

from chatledger.domain.context.formats.message_format import (
    ANTHROPIC,
    GOOGLE,
    OPENAI,
    RESPONSES,
    UI,
    Format,
    MessageFormat,
)
from chatledger.domain.errors import InvalidValueError

from .langchain import langchain_messages

LANGCHAIN: Final = MessageFormat("langchain", langchain_messages)
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
