"""Stored data of any form as a UIMessage."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeGuard, cast

from msgspec import UNSET

from ...errors import InvalidValueError
from ...forms import ui
from ...forms.detect import form_of
from ...forms.model import Form, Item, Read, any_json
from ...forms.reading import known_form, register, role_of
from ...values import UI, Message, NewMessage
from ..fragments import Fragment, as_fragment, is_fragment
from ..messages import USER, UIMessage, draft_of, is_ui_message, object_at, ui_message
from .anthropic import ui_of_anthropic
from .from_openai import ui_of
from .google import ui_of_content
from .langchain import ui_of_langchain
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
    "langchain": ui_of_langchain,
    "claude-code": _ui_of_entry,
}
"""The conversions of messages of the APIs to UIMessages, by form."""

_SPEAKERS: Final = (("human", "user"), ("ai", "assistant"))
"""Other names that messages of a known role go by: LangChain's."""


def _items_of_ui(convert: Callable[[Mapping[str, Any], str], UIMessage]) -> Read:
    def read(data: Any, name: str, source: Any) -> list[Item]:
        try:
            return ui.read(convert(object_at(data), ""), name, source)
        except InvalidValueError:
            return any_json(data, name, source)

    return read


for _name in ("langchain", "claude-code"):
    register(Form(name=_name, read=_items_of_ui(CODECS[_name])))


class Stored(NamedTuple):
    """A message as it is stored: its name, its data and their form, and its id if it has one."""

    name: str
    data: Any
    form: str | None
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
        return Stored(USER, value, None)
    if isinstance(value, Message):
        return Stored(value.name, value.data, value.form, value.id)
    if isinstance(value, NewMessage):
        return Stored(value.name, value.data, form_of(value.data) if value.form is UNSET else value.form, value.id)
    if _is_pair(value):
        return Stored(value[0], value[1], form_of(value[1]))
    if is_fragment(value):
        return stored_of(draft_of(as_fragment(value)))
    form = form_of(value)
    if form is not None:
        return Stored(as_ui_message(USER, value, form)["role"], value, form)
    msg = f"expected a message, a UIMessage, a pair of name and data, or text, not {type(value).__name__}"
    raise InvalidValueError(msg)


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
    role = dict(_SPEAKERS).get(name, name)
    if form == UI and isinstance(object_at(data).get("parts"), list):
        return {"role": role, **object_at(data)}
    if data is None:
        return {"id": "", "role": role, "parts": []}
    return ui_message(role, data if isinstance(data, str) else compact(data), "")


def name_of(data: Mapping[str, Any], form: str) -> str:
    """
    The name under which a message of a form is stored: its role, and `tool` where it holds nothing but results of tools.

    Raises:
        InvalidValueError: It is no message of that form, or does not say its role.
    """
    default = CODECS[form](data, "")["role"] if form in CODECS else ""  # refuses what is none
    role = data.get("role") if known_form(form) is None else role_of(form, data, default)
    if form == UI and not is_ui_message(data):
        role = None
    if not isinstance(role, str) or not role:
        msg = f"a message of the form {form!r} is given that says no role; give NewMessage(name, data, form={form!r})"
        raise InvalidValueError(msg)
    return role


def told(name: str, data: Any, form: str | None, message_id: str | None) -> Any:
    """The data of a message as they are told: those of a UIMessage or of an API as a UIMessage under the id of the message."""
    if form is None or (form != UI and form not in CODECS):
        return data
    message = as_ui_message(name, data, form)
    return message if message_id is None or message.get("id") == message_id else {**message, "id": message_id}


def _is_pair(value: Any) -> TypeGuard[tuple[str, Any]]:
    if not isinstance(value, tuple):
        return False
    pair = cast("tuple[Any, ...]", value)
    return len(pair) == 2 and isinstance(pair[0], str)
