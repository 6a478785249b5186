"""Messages of LangChain, which is imported when the first one is stored or made."""

from importlib import import_module
from typing import Any

from chatledger.domain.context.formats.langchain import TYPES
from chatledger.domain.errors import ConfigurationError, InvalidValueError


def is_langchain(value: Any) -> bool:
    """Whether this is a message object of LangChain."""
    return any(kind.__module__ == "langchain_core.messages.base" for kind in type(value).__mro__)


def value_of_langchain(message: Any) -> dict[str, Any]:
    """
    Return a LangChain message as its `message_to_dict` writes it. A chunk is stored as the message that it has become.

    Raises:
        InvalidValueError: It is of a type that LangChain does not define, or one that removes another.
    """
    library = messages_module()
    whole: Any = library.message_chunk_to_message(message) if isinstance(message, library.BaseMessageChunk) else message
    if whole.type not in TYPES:
        msg = f"a LangChain message of type {whole.type!r} cannot be stored; {', '.join(sorted(TYPES))} can"
        raise InvalidValueError(msg)
    return {"type": whole.type, "data": dict(whole)}


def messages_module() -> Any:
    """
    The module `langchain_core.messages`.

    Raises:
        ConfigurationError: It is not installed.
    """
    try:
        return import_module("langchain_core.messages")
    except ImportError as error:
        msg = "LangChain messages need langchain-core: pip install 'chatledger[langchain]'"
        raise ConfigurationError(msg) from error
