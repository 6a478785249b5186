"""Stored data of any form as a UIMessage that says all that they say, for the adapters that are not made of forms yet."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, cast

from ...errors import InvalidValueError
from ...forms.reading import known_form, ui_message_of
from ...values import UI, Message
from ..messages import USER, UIMessage, is_ui_message, object_at, ui_message
from .anthropic import ui_of_anthropic
from .exchanges import turns
from .from_openai import ui_of
from .google import ui_of_content
from .plain import compact
from .responses import ui_of_item

BOOKKEEPING: Final = "bookkeeping"
"""The name of an entry of Claude Code that holds no message."""


def _ui_of_entry(entry: Mapping[str, Any], message_id: str) -> UIMessage:
    message = object_at(entry, "message")
    try:
        return ui_of_anthropic(message, message_id)
    except InvalidValueError:
        return {"id": message_id, "role": BOOKKEEPING, "parts": []}


CODECS: Final[Mapping[str, Callable[[Mapping[str, Any], str], UIMessage]]] = {
    "openai": ui_of,
    "responses": ui_of_item,
    "anthropic": ui_of_anthropic,
    "google": ui_of_content,
    "langchain": lambda data, message_id: ui_message_of("langchain", data, USER, message_id),
    "claude-code": _ui_of_entry,
}
"""The conversions of messages of the APIs to UIMessages, by form."""

_SPEAKERS: Final = (("human", "user"), ("ai", "assistant"))
"""Other names that messages of a known role go by: LangChain's."""


def as_ui_message(name: str, data: Any, form: str | None) -> UIMessage:
    """
    The UIMessage that stored data are or stand for.

    A message of an API is converted. Anything else has the name of the message as its role: text is its text, any other JSON
    value is the text of its compact JSON, and None has no parts.
    """
    if form == UI and is_ui_message(data):
        return cast("UIMessage", data)
    convert = CODECS.get(form or "")
    if convert is not None:
        with suppress(InvalidValueError):  # what somebody said is of this form need not be
            return convert(object_at(data), "")
    elif form is not None and form != UI and known_form(form) is not None:
        return ui_message_of(form, data, name, "")
    role = dict(_SPEAKERS).get(name, name)
    if form == UI and isinstance(object_at(data).get("parts"), list):
        return {"role": role, **object_at(data)}
    if data is None:
        return {"id": "", "role": role, "parts": []}
    return ui_message(role, data if isinstance(data, str) else compact(data), "")


def converted(message: Message, convert: Callable[[UIMessage], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """A stored message in the form that `convert` gives UIMessages, each by itself."""
    stored = {**as_ui_message(message.name, message.data, message.form), "id": message.id}
    return [made for turn in turns(stored) for made in convert(turn)]
