"""LangChain, when it is used."""

from importlib import import_module
from typing import Any

from chatledger.domain.errors import ConfigurationError


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
