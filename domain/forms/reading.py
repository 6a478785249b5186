"""
Reading messages in any form: their items, text, UIMessage parts and role.

A form has one reader. A message of no form, or of one that nobody registered, is any JSON, whose strings are its text.
"""

from importlib import import_module
from typing import Any, Final, get_args

from ..errors import InvalidValueError
from .items import SYSTEM, TOOL, FormItem, Refusal, Text
from .model import SPEAKERS, UI, Form, FormName, any_json
from .plain import list_at, object_at, strings_in, text_at

_NAMES: Final = (*get_args(FormName), "codex", "gemini-cli", "opencode", "otel", "pi", "chatkit", "crewai")
"""Of the forms that have a module here, which is named after them."""
_registered: Final[dict[str | None, Form]] = {}


def register(form: Form) -> Form:
    """Make a form known under its name, in place of another one of that name, and return it."""
    _registered[form.name] = form
    return form


def known_form(name: str | None) -> Form | None:
    """Return the form of a name; None when it is not known."""
    form = _registered.get(name)
    if form is None and name is not None and name in _NAMES:
        # On first use: most ledgers hold messages of one form, and opening one reads none.
        form = register(import_module("." + name.replace("-", "_"), __package__).FORM)
    return form


def known_forms() -> list[str]:
    """Return the names of all forms that are known."""
    return list(dict.fromkeys([*_NAMES, *(form.name for form in _registered.values())]))


def items_of(form: str | None, data: Any, name: str = "", source: Any = None) -> list[FormItem]:
    """
    Return the items of a message.

    Args:
        form: The name of its form.
        data: The message, any JSON value. What is not as its form says is read as far as it is, else as any JSON.
        name: Its role, where the data have none.
        source: The message, for the items to refer to.
    """
    registered = known_form(form)
    return any_json(data, name, source) if registered is None else registered.read(data, name, source)


def text_of(form: str | None, data: Any) -> str:
    """
    Return the text of a message: what a reader would read, without JSON syntax, keys or ids.

    The texts of several parts are joined by line breaks; so are all strings in data of no known form, in order, without keys.
    """
    if isinstance(data, str):
        return data
    registered = known_form(form)
    if registered is None:
        return "\n".join(strings_in(data))
    items = without_instructions(registered.read(data, "", None))
    return "\n".join([what.text for item in items if type(what := item.what) is Text or type(what) is Refusal])


def parts_of(form: str | None, data: Any) -> list[dict[str, Any]]:
    """Return the parts of the UIMessage that a message is or stands for; data of no known form are one text, if they have any."""
    if form == UI and isinstance(object_at(data).get("parts"), list):
        return list_at(data, "parts")
    registered = known_form(form)
    if registered is not None:
        from .ui import parts_of as parts_of_items

        return parts_of_items(without_instructions(registered.read(data, "", None)))
    text = text_of(form, data)
    return [{"type": "text", "text": text}] if text else []


def without_instructions(items: list[FormItem]) -> list[FormItem]:
    """Return the items without instructions, unless there is nothing else: requests of Pydantic AI have them beside what a user says."""
    others = [item for item in items if item.role != SYSTEM]
    return others or items


def ui_message_of(form: str | None, data: Any, name: str, message_id: str | None = None) -> dict[str, Any]:
    """Return the UIMessage that a message is or stands for: under an id, or with its own as it came when None."""
    if form == UI and isinstance(object_at(data).get("parts"), list):
        return {"role": name, **data} if message_id is None else {"role": name, **data, "id": message_id}
    return {"id": message_id or "", "role": role_of(form, data, name), "parts": parts_of(form, data)}


def name_of(data: Any, form: str) -> str:
    """
    Return the name under which a message of a form is stored: its role.

    Raises:
        InvalidValueError: It is no message of that form, or does not say its role.
    """
    registered = known_form(form)
    role = text_at(object_at(data), "role") if registered is None else role_of(form, data, registered.unsaid)
    if not role:
        msg = f"this is no message of the form {form!r}, or it says no role; give the role beside the data and the form"
        raise InvalidValueError(msg)
    return role


def role_of(form: str | None, data: Any, name: str = "user") -> str:
    """Return the role of a message: `tool` where it holds nothing but results of tools, which some APIs pass as messages of users."""
    registered = known_form(form)
    if registered is None:
        return SPEAKERS.get(name, name)
    items = without_instructions(registered.read(data, name, None))
    if not items:
        return registered.role(data) or name
    return next((item.role for item in items if item.role != TOOL), TOOL)
