"""What the fields of a state must look like where a reducer relies on it. Errors name the field, never its content."""

from collections.abc import Mapping
from typing import Any, cast

from ..errors import InvalidValueError


def check_object(value: Any, field: str) -> Mapping[str, Any]:
    """An object with text keys; an absent one is empty."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        msg = f"{field} must be an object, not {type(value).__name__}"
        raise InvalidValueError(msg)
    for key in cast("Mapping[Any, Any]", value):
        if not isinstance(key, str):
            msg = f"{field} has a key of type {type(key).__name__}; keys must be text"
            raise InvalidValueError(msg)
    return cast("Mapping[str, Any]", value)


def check_list(value: Any, field: str) -> list[Any]:
    """A list; an absent one is empty."""
    if value is None:
        return []
    if not isinstance(value, list):
        msg = f"{field} must be a list, not {type(value).__name__}"
        raise InvalidValueError(msg)
    return cast("list[Any]", value)


def check_objects(value: Any, field: str) -> list[Mapping[str, Any]]:
    """A list of objects; an absent one is empty."""
    items = check_list(value, field)
    for index, item in enumerate(items):
        if not isinstance(item, Mapping):
            msg = f"{field}[{index}] must be an object, not {type(item).__name__}"
            raise InvalidValueError(msg)
    return items
