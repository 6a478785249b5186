"""The forms of messages by their names."""

from typing import Any, Final

from chatledger.domain.context.formats.message_format import OPENAI, UI, MessageFormat
from chatledger.domain.errors import InvalidValueError

from .to_langchain import langchain_messages


def _langchain(name: str, data: Any) -> list[Any]:
    return list(langchain_messages(name, data))


LANGCHAIN: Final = MessageFormat("langchain", _langchain)
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
