"""Messages of LangChain, which is imported when the first one is stored or made."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import msgspec

from chatledger.domain.context.in_forms import chain_of
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.extras import needing
from chatledger.domain.forms.langchain import FORM, TYPES
from chatledger.domain.forms.reading import register
from chatledger.domain.forms.translate import OpenCalls, StrayResults, translate
from chatledger.domain.limits import data_copy

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

_CLASSES: Final = {
    "system": "SystemMessage",
    "human": "HumanMessage",
    "ai": "AIMessage",
    "tool": "ToolMessage",
    "function": "FunctionMessage",
    "chat": "ChatMessage",
}
_CALLS: Final = ("tool_calls", "invalid_tool_calls")


def to_langchain(
    messages: Any, *, open_calls: OpenCalls = "answer", stray_results: StrayResults = "drop"
) -> "list[BaseMessage]":
    """
    Return messages as LangChain takes them, each with the id that it is stored under. See `to_openai`.

    Several messages for one have ids such as `m2#1`.

    Raises:
        InvalidValueError: One of them is no message, or its form is not known.
        ConfigurationError: LangChain is not installed: `pip install 'chatledger[langchain]'`.
    """
    return objects_of(translate(chain_of(messages), FORM, open_calls=open_calls, stray_results=stray_results).messages)


def objects_of(messages: list[Any]) -> "list[BaseMessage]":
    """
    Return the LangChain messages for values as `message_to_dict` writes them.

    Raises:
        ConfigurationError: LangChain is not installed.
    """
    library = messages_module()
    made: list[Any] = []
    for message in messages:
        fields = data_copy(message["data"], "a LangChain message")
        # The constructor refuses what some providers add to their calls.
        calls = {key: fields.pop(key) for key in _CALLS if fields.get(key)}
        made.append(getattr(library, _CLASSES[message["type"]])(**fields))
        for key, value in calls.items():
            setattr(made[-1], key, value)
    return made


register(msgspec.structs.replace(FORM, decode=objects_of))


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
    with needing("langchain", "a LangChain message"):
        return import_module("langchain_core.messages")
