"""Messages and their parts as plain JSON values: roles, and what a message of another format carries beside."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Protocol, cast, runtime_checkable

from ...errors import InvalidValueError
from ...limits import MAX_JSON_DEPTH, json_copy
from ...values import OWNER
from ..messages import ASSISTANT, USER, UIMessage, object_at

_MAX_INPUT_DEPTH: Final = MAX_JSON_DEPTH // 2
"""The depth up to which arguments of a tool call are stored parsed: they stand a few levels deep in a message."""


@runtime_checkable
class Dumpable(Protocol):
    """An object of an SDK, or another pydantic model."""

    def model_dump(self, *, mode: str = ..., exclude_unset: bool = ...) -> dict[str, Any]:
        """Return the fields."""
        ...


def _unwrapped(value: Any, depth: int) -> Any:
    # What is too deep stays as it is: the copy refuses it.
    if depth > MAX_JSON_DEPTH or isinstance(value, str):
        return value
    if not isinstance(value, type) and callable(dump := getattr(value, "model_dump", None)):
        value = dump(mode="json", exclude_unset=True)  # as the SDK sends its own objects
    if isinstance(value, Mapping):
        return {key: _unwrapped(item, depth + 1) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_unwrapped(item, depth + 1) for item in cast("list[Any]", value)]
    return value


def plain_object(value: Any, what: str) -> dict[str, Any]:
    """
    A JSON copy of an object that may hold mappings, tuples, and objects with `model_dump()` such as those of the OpenAI SDK.

    Raises:
        InvalidValueError: It is no object, or there is something in it that JSON does not know.
    """
    copied = json_copy(_unwrapped(value, 0), what)
    if not isinstance(copied, dict):
        msg = f"{what} must be an object, not {type(value).__name__}"
        raise InvalidValueError(msg)
    return cast("dict[str, Any]", copied)


def copied(message: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return a JSON copy of a message, so that nobody changes what is stored."""
    found: dict[str, Any] = json_copy(message, what)
    return found


def compact(value: Any) -> str:
    """A JSON value as text without blanks: how models write arguments."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def parsed(text: str) -> tuple[Any, bool]:
    """The JSON value in a text and True; the text itself and False where it holds none that can be kept exactly."""
    try:
        return json_copy(json.loads(text), "input", MAX_JSON_DEPTH - _MAX_INPUT_DEPTH), True
    except (ValueError, RecursionError):
        return text, False


def without(fields: Mapping[str, Any], *consumed: str) -> dict[str, Any]:
    """The fields but for those."""
    return {key: value for key, value in fields.items() if key not in consumed}


def text_at(fields: Mapping[str, Any], key: str) -> str | None:
    """The text under a key, or None."""
    value = fields.get(key)
    return value if isinstance(value, str) else None


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


PROVIDER: Final = "providerMetadata"
CALL_PROVIDER: Final = "callProviderMetadata"


def details_of(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the details that are stored with a message."""
    return object_at(message, "metadata", OWNER)


def part_details(part: Mapping[str, Any], form: str, *, place: str = PROVIDER) -> Mapping[str, Any]:
    """Return the details that one format stores with a part."""
    return object_at(part, place, OWNER, form)


def kept(**details: Any) -> dict[str, Any]:
    """The details but for those that say nothing."""
    return {key: value for key, value in details.items() if value is not None and value is not False and value != {}}


def with_details(part: dict[str, Any], form: str, details: dict[str, Any], *, place: str = PROVIDER) -> dict[str, Any]:
    """The part with what a format keeps for it, if anything."""
    if not details:
        return part
    return {**part, place: {**part.get(place, {}), OWNER: {form: details}}}
