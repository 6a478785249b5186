"""Copies of fragment data."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import msgspec

from .fragment import Fragment


def copied(fragment: Fragment) -> Fragment:
    """
    The fragment with its own lists and objects, so that later changes by the caller have no effect.

    Shared references stay shared and cycles stay cycles; anything that is no list, object or fragment is taken as it is.
    Nothing recurses, so any depth will do.
    """
    copies: dict[int, Any] = {}
    pending: list[Callable[[], None]] = []

    def copy(value: Any) -> Any:
        """The copy of a value, whose items may still be to come."""
        chain: list[Fragment] = []
        while isinstance(value, Fragment) and id(value) not in copies:
            chain.append(value)
            value = value.data
        result = copies[id(value)] if id(value) in copies else _container(value)
        if result is not value and id(value) not in copies:
            copies[id(value)] = result
            pending.append(partial(_fill, result, value, copy))
        for outer in reversed(chain):
            result = msgspec.structs.replace(outer, data=result, metadata=dict(outer.metadata))
            copies[id(outer)] = result
        return result

    whole = copy(fragment)
    while pending:
        pending.pop()()
    return cast("Fragment", whole)


def _container(value: Any) -> Any:
    """An empty list or object for one to be copied; the value itself when it is neither."""
    if isinstance(value, list | tuple):
        return []
    return {} if isinstance(value, Mapping) else value


def _fill(target: Any, source: Any, copy: Callable[[Any], Any]) -> None:
    if isinstance(target, list):
        cast("list[Any]", target).extend(copy(item) for item in source)
    else:
        target.update((key, copy(item)) for key, item in cast("Mapping[Any, Any]", source).items())
