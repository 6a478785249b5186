"""States and updates: how what a node returns becomes the next state."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

from ..errors import InvalidValueError
from .reducers import Reducer, last_write, merge_docs, merge_metadata, merge_tasks
from .shape import check_object

Reducers = Mapping[str, Reducer]
"""The reducer of each field; a field that is not there is overwritten."""

State = TypeVar("State", bound=Mapping[str, Any])
"""A JSON object: a `dict`, or a typed one such as `AgentState`."""

AGENT_REDUCERS: Final[Reducers] = MappingProxyType(
    {"docs": merge_docs, "tasks": merge_tasks, "metadata": merge_metadata}
)
"""The reducers of `AgentState`. With more: `{**AGENT_REDUCERS, "messages": append_messages}`."""


def reduce_state(
    state: State | None, update: Mapping[str, Any] | None, *, reducers: Reducers = AGENT_REDUCERS
) -> State:
    """
    The state after an update, as a new object. Fields that the update does not have keep their value.

    Args:
        state: The state so far, left as it is; the new one shares with it what did not change. None is an empty state.
        update: What a node returned: the changed fields, or a whole state. None changes nothing.
        reducers: The reducer of each field. Each is called with None for a value that is absent.

    Returns:
        A `dict`. Costs O(fields of the state) and what the reducers of the updated fields cost.

    Raises:
        InvalidValueError: State or update are no objects, a reducer is no function, or a field is not what its reducer takes.
    """
    before, given = check_object(state, "state"), check_object(update, "update")
    if not isinstance(reducers, Mapping):
        msg = f"reducers must be an object of functions by field, not {type(reducers).__name__}"
        raise InvalidValueError(msg)
    after = dict(before)
    for field, value in given.items():
        reducer = reducers.get(field, last_write)
        if not callable(reducer):
            msg = f"the reducer of {field} is not a function; give a function of the old and the new value"
            raise InvalidValueError(msg)
        after[field] = reducer(before.get(field), value)
    return cast("State", after)
