"""
Reducers: what becomes of one field of a state when a node returns a value for it.

A reducer takes the old and the new value and returns the value of the next state. None stands for an absent value and counts as
empty. Reducers are pure, linear in the sizes of their inputs, and leave both as they are. What merges makes a new list or
object, whose items are those of its inputs. The same functions are reducers of LangGraph: `docs: Annotated[list[Document], merge_docs]`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ..errors import InvalidValueError
from ..rules import check_id, same_json
from .shape import check_object, check_objects

Reducer = Callable[[Any, Any], Any]
"""`(old, new) -> next`; either may be None, which stands for an absent value."""

_COUNTERS: Final = ("node_timings", "token_counts")
_ERRORS: Final = "errors"


def last_write(old: Any, new: Any) -> Any:  # noqa: ARG001 - the signature of reducers
    """The new value, None included: what holds for every field without another reducer."""
    return new


def merge_docs(old: list[Any] | None, new: list[Any] | None) -> list[Any]:
    """
    Merge documents by `id`.

    A later document takes the place of the first one with its id; new ids follow in their order. The result holds no id twice,
    whether the documents came in one batch or in several.

    Raises:
        InvalidValueError: A value is no list, or a document is no object with an `id`.
    """
    return _merge_by_id(old, new, "docs", needs_id=True)


def append_messages(old: list[Any] | None, new: list[Any] | None) -> list[Any]:
    """
    Append new messages; one with a known `id` replaces the old one at its place.

    A message without an id is always appended: nothing tells whether it is the same remark or the same words once more.

    Raises:
        InvalidValueError: A value is no list, a message is no object, or its `id` is not text.
    """
    return _merge_by_id(old, new, "messages", needs_id=False)


def merge_tasks(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> dict[str, Any]:
    """
    The old fields and the new ones; of a field in both, the new value.

    Raises:
        InvalidValueError: A value is no object.
    """
    return {**check_object(old, "tasks"), **check_object(new, "tasks")}


def merge_metadata(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> dict[str, Any]:
    """
    As `merge_tasks`, but `node_timings` and `token_counts` are merged by key, and `errors` are appended.

    A new list of errors that begins with the old one is taken as it is: it comes from a node that returned the whole state.

    Raises:
        InvalidValueError: A value is no object, or `errors` is no list of objects.
    """
    before, after = check_object(old, "metadata"), check_object(new, "metadata")
    merged = {**before, **after}
    for name in _COUNTERS:
        if name in after:
            field = f"metadata.{name}"
            merged[name] = {**check_object(before.get(name), field), **check_object(after[name], field)}
    if _ERRORS in after:
        merged[_ERRORS] = _add_errors(before.get(_ERRORS), after[_ERRORS])
    return merged


def _add_errors(old: Any, new: Any) -> list[Any]:
    known, given = check_objects(old, "metadata.errors"), check_objects(new, "metadata.errors")
    is_whole = len(given) >= len(known) and all(map(same_json, known, given))
    return list(given) if is_whole else [*known, *given]


def _merge_by_id(old: Any, new: Any, field: str, *, needs_id: bool) -> list[Any]:
    """Both lists in a row, without those items that a later one with the same id replaces."""
    merged: dict[str | int, Any] = {}  # in order of first occurrence, by id; without one by place, which no id equals
    for items in (check_objects(old, field), check_objects(new, field)):
        for index, item in enumerate(items):
            item_id = item.get("id")
            if item_id is None and needs_id:
                msg = f"{field}[{index}] has no id; give it one, so that it can be told from the others"
                raise InvalidValueError(msg)
            key = len(merged) if item_id is None else check_id(item_id, f"the id of {field}[{index}]")
            merged[key] = item
    return list(merged.values())
