"""
Reading messages in any form: their items, text, UIMessage parts and role.

A form has one reader. A message of no form, or of one that nobody registered, is any JSON, whose strings are its text.
"""

from typing import Any, Final

from ..errors import InvalidValueError
from . import (
    adk,
    agent_framework,
    anthropic,
    chatkit,
    claude_code,
    codex,
    crewai,
    gemini_cli,
    google,
    langchain,
    llamaindex,
    openai,
    opencode,
    otel,
    pi,
    pydantic_ai,
    responses,
    strands,
    ui,
)
from .items import SYSTEM, TOOL, FormItem, Refusal, Text
from .model import SPEAKERS, Form, any_json
from .plain import list_at, object_at, strings_in, text_at

_FORMS: Final[dict[str | None, Form]] = {
    module.FORM.name: module.FORM
    for module in (
        ui,
        openai,
        responses,
        anthropic,
        google,
        langchain,
        claude_code,
        codex,
        gemini_cli,
        opencode,
        otel,
        pi,
        agent_framework,
        pydantic_ai,
        llamaindex,
        strands,
        chatkit,
        adk,
        crewai,
    )
}


def register(form: Form) -> Form:
    """Make a form known under its name, in place of another one of that name, and return it."""
    _FORMS[form.name] = form
    return form


def known_form(name: str | None) -> Form | None:
    """Return the form of a name; None when it is not known."""
    return _FORMS.get(name)


def known_forms() -> list[str]:
    """Return the names of all forms that are known."""
    return [form.name for form in _FORMS.values()]


def items_of(form: str | None, data: Any, name: str = "", source: Any = None) -> list[FormItem]:
    """
    Return the items of a message.

    Args:
        form: The name of its form.
        data: The message, any JSON value. What is not as its form says is read as far as it is, else as any JSON.
        name: Its role, where the data have none.
        source: The message, for the items to refer to.
    """
    registered = _FORMS.get(form)
    return any_json(data, name, source) if registered is None else registered.read(data, name, source)


def text_of(form: str | None, data: Any) -> str:
    """
    Return the text of a message: what a reader would read, without JSON syntax, keys or ids.

    The texts of several parts are joined by line breaks; so are all strings in data of no known form, in order, without keys.
    """
    if isinstance(data, str):
        return data
    registered = _FORMS.get(form)
    if registered is None:
        return "\n".join(strings_in(data))
    items = without_instructions(registered.read(data, "", None))
    return "\n".join([what.text for item in items if type(what := item.what) is Text or type(what) is Refusal])


def parts_of(form: str | None, data: Any) -> list[dict[str, Any]]:
    """Return the parts of the UIMessage that a message is or stands for; data of no known form are one text, if they have any."""
    if form == ui.NAME and isinstance(object_at(data).get("parts"), list):
        return list_at(data, "parts")
    if form in _FORMS:
        return ui.parts_of(without_instructions(_FORMS[form].read(data, "", None)))
    text = text_of(form, data)
    return [{"type": "text", "text": text}] if text else []


def without_instructions(items: list[FormItem]) -> list[FormItem]:
    """Return the items without instructions, unless there is nothing else: requests of Pydantic AI have them beside what a user says."""
    others = [item for item in items if item.role != SYSTEM]
    return others or items


def ui_message_of(form: str | None, data: Any, name: str, message_id: str | None = None) -> dict[str, Any]:
    """Return the UIMessage that a message is or stands for: under an id, or with its own as it came when None."""
    if form == ui.NAME and isinstance(object_at(data).get("parts"), list):
        return {"role": name, **data} if message_id is None else {"role": name, **data, "id": message_id}
    return {"id": message_id or "", "role": role_of(form, data, name), "parts": parts_of(form, data)}


def name_of(data: Any, form: str) -> str:
    """
    Return the name under which a message of a form is stored: its role.

    Raises:
        InvalidValueError: It is no message of that form, or does not say its role.
    """
    registered = _FORMS.get(form)
    role = text_at(object_at(data), "role") if registered is None else role_of(form, data, registered.unsaid)
    if not role:
        msg = f"this is no message of the form {form!r}, or it says no role; give the role beside the data and the form"
        raise InvalidValueError(msg)
    return role


def role_of(form: str | None, data: Any, name: str = "user") -> str:
    """Return the role of a message: `tool` where it holds nothing but results of tools, which some APIs pass as messages of users."""
    registered = _FORMS.get(form)
    if registered is None:
        return SPEAKERS.get(name, name)
    items = without_instructions(registered.read(data, name, None))
    if not items:
        return registered.role(data) or name
    return next((item.role for item in items if item.role != TOOL), TOOL)
