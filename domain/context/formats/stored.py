"""Stored data of any shape as a UIMessage."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeGuard, cast

from ...errors import InvalidValueError
from ...values import Message, NewMessage
from ..fragments import Fragment, as_fragment, is_fragment, stored_form
from ..messages import USER, UIMessage, is_ui_message, ui_message
from .anthropic import is_anthropic_message, ui_of_anthropic
from .from_openai import is_openai_message, ui_of
from .google import is_google_content, ui_of_content
from .plain import compact
from .responses import is_responses_item, ui_of_item

_FORMS: Final = (
    (is_google_content, ui_of_content),
    (is_anthropic_message, ui_of_anthropic),
    (is_responses_item, ui_of_item),
    (is_openai_message, ui_of),
)
"""The forms of the APIs' messages: a test for each, and its conversion to a UIMessage; the first that fits counts."""

_SPEAKERS: Final = (("human", "user"), ("ai", "assistant"))
"""Other names that messages of a known role go by: LangChain's."""


class Stored(NamedTuple):
    """A message as it is stored: its name and data, and its id if it is known from elsewhere than the data."""

    name: str
    data: Any
    id: str | None = None


def all_stored(messages: Any) -> list[Stored]:
    """
    Name and data of messages: of one, or of several in order; see `stored_of`.

    Raises:
        InvalidValueError: These are no messages.
        MissingCodecError: A fragment that is still lazy, or has no codec.
    """
    if isinstance(messages, str | Mapping | Message | NewMessage | Fragment):
        messages = [messages]
    if isinstance(messages, bytes) or not isinstance(messages, Iterable):
        msg = f"expected messages, not {type(messages).__name__}"
        raise InvalidValueError(msg)
    return [stored_of(value) for value in cast("Iterable[Any]", messages)]


def stored_of(value: Any) -> Stored:
    """
    Name and data of a message.

    Args:
        value: A stored or new message, a message fragment, a UIMessage, a message of an API, a pair of name and data, or text,
            which is from the user.

    Raises:
        InvalidValueError: It is none of them.
        MissingCodecError: A fragment that is still lazy, or has no codec.
    """
    if isinstance(value, str):
        return Stored(USER, value)
    if isinstance(value, Message | NewMessage):
        return Stored(value.name, value.data, value.id)
    if _is_pair(value):
        return Stored(value[0], value[1])
    found = of_an_api(value)
    if found is not None:
        return Stored(found["role"], found)
    if is_ui_message(value):
        return Stored(cast("Mapping[str, Any]", value)["role"], value)
    if is_fragment(value):
        fragment = as_fragment(value)
        return Stored(fragment.name, stored_form(fragment), fragment.id)
    msg = f"expected a message, a UIMessage, a pair of name and data, or text, not {type(value).__name__}"
    raise InvalidValueError(msg)


def as_ui_message(name: str, data: Any) -> UIMessage:
    """
    The UIMessage that stored data are or stand for.

    Text has the name of the message as its role. A message of an API that was stored as it is is converted. Any other JSON
    value is the text of its compact JSON, and None has no parts.
    """
    if is_ui_message(data) and "id" in data and "content" not in data:
        return cast("UIMessage", data)  # nearly all are, and need not be tried as messages of each API
    found = of_an_api(data)
    if found is not None:
        return found
    if is_ui_message(data):
        return cast("UIMessage", data)
    role = dict(_SPEAKERS).get(name, name)
    if data is None:
        return {"id": "", "role": role, "parts": []}
    return ui_message(role, data if isinstance(data, str) else compact(data), "")


def of_an_api(value: Any, message_id: str = "") -> UIMessage | None:
    """
    Return the UIMessage for a message as an API has it: Google's, Anthropic's, an item or a chat message of OpenAI's; else None.

    What all of them share, `{"role": ..., "content": text}`, is a chat message.
    """
    for is_of, convert in _FORMS:
        if is_of(value):
            return convert(value, message_id)
    return None


def _is_pair(value: Any) -> TypeGuard[tuple[str, Any]]:
    if not isinstance(value, tuple):
        return False
    pair = cast("tuple[Any, ...]", value)
    return len(pair) == 2 and isinstance(pair[0], str)
