"""Who says something to a model."""

import re
from typing import Final

from ..ui_message import ASSISTANT, USER, UIMessage
from .details import details_of
from .plain import object_at, text_at

DEVELOPER: Final = "developer"
SYSTEM: Final = "system"
TOOL: Final = "tool"
FUNCTION: Final = "function"
_NOT_IN_NAMES: Final = re.compile(r"[\s<|\\/>]+")
_MAX_NAME: Final = 64


def role_of(role: str, *, name: str | None, call_id: str | None) -> str:
    """
    The role that a message has for a model.

    Of the roles that the API knows `tool` needs the id of the call it answers, and `function` a name. A message of any other
    role is from the user: that gives it no authority that it should not have.
    """
    is_known = role in {SYSTEM, USER, ASSISTANT} or (role == TOOL and call_id is not None)
    return role if is_known or (role == FUNCTION and name is not None) else USER


def model_role(stored: UIMessage) -> tuple[str, str | None]:
    """The role that a message has for a model, see `role_of`, and the name of its participant if it has one."""
    details = details_of(stored)
    role, name = stored["role"], text_at(details, "name")
    found = role_of(role, name=name, call_id=text_at(details, "tool_call_id"))
    is_placed = found == role or "role" in object_at(details, "openai")
    return found, name if name is not None or is_placed else participant(role)


def participant(role: str) -> str:
    """A role as the name of a participant, with the characters and the length that the API allows."""
    return _NOT_IN_NAMES.sub("_", role)[:_MAX_NAME]
