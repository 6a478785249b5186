"""A merge of two states that began as the same one: by the reducers of their fields, or not at all."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from ..errors import MergeConflictError
from ..limits import same_json
from ..packing import ordered_json
from .reducers import AGENT_REDUCERS, Reducers, State, check_object, last_write, reduce_state

_ABSENT: Final = object()


def merge_states(base: State | None, ours: State, theirs: State, *, reducers: Reducers = AGENT_REDUCERS) -> State:
    """
    Merge two states that went on from the same one, field by field, as a new object.

    Where one side alone changed a field, or removed it, that side counts. Where both changed it, its reducer makes the value, from ours
    and from the update that led from the base to theirs. That update is not known: the first of these counts with which the reducer
    makes theirs of the base: new keys, new items or the difference of two numbers; or all of theirs.

    Args:
        base: The state that both began as; None where they share none.
        ours: One side. Of what a reducer orders, ours comes first.
        theirs: The other side.
        reducers: The reducer of each field; those of `reduce_state`.

    Raises:
        MergeConflictError: Both sides changed a field that has no reducer, or whose reducer cannot make theirs of the base.
        InvalidValueError: A state is no object, or a field is not what its reducer takes.
    """
    before, mine, other = check_object(base, "base"), check_object(ours, "ours"), check_object(theirs, "theirs")
    merged: dict[str, Any] = {}
    for field in {**mine, **other}:
        was, ours_now, theirs_now = (side.get(field, _ABSENT) for side in (before, mine, other))
        if _is_same(was, theirs_now) or _is_same(ours_now, theirs_now):
            value = ours_now
        elif _is_same(was, ours_now):
            value = theirs_now
        else:
            value = _reduced(field, was, ours_now, theirs_now, reducers)
        if value is not _ABSENT:
            merged[field] = value
    return cast("State", merged)


def _reduced(field: str, was: Any, ours: Any, theirs: Any, reducers: Reducers) -> Any:
    reducer = reducers.get(field, last_write)
    if _ABSENT not in (ours, theirs) and reducer is not last_write:
        begin = None if was is _ABSENT else was

        def reduce(old: Any, update: Any) -> Any:
            return reduce_state({field: old}, {field: update}, reducers=reducers)[field]

        for update in _updates(begin, theirs):
            if same_json(reduce(begin, update), theirs):
                return reduce(ours, update)
    raise MergeConflictError(
        field,
        base=None if was is _ABSENT else was,
        ours=None if ours is _ABSENT else ours,
        theirs=None if theirs is _ABSENT else theirs,
    )


def _updates(was: Any, now: Any) -> Iterator[Any]:
    """Yield what may have made a value of another one, the least first."""
    yield _added(was, now, is_deep=True)
    yield _added(was, now, is_deep=False)
    yield now


def _added(was: Any, now: Any, *, is_deep: bool) -> Any:
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        old, new = cast("Mapping[str, Any]", was), cast("Mapping[str, Any]", now)
        return {
            key: _added(old[key], value, is_deep=True) if is_deep and key in old else value
            for key, value in new.items()
            if key not in old or not same_json(old[key], value)
        }
    if isinstance(was, list) and isinstance(now, list):
        before, items = cast("list[Any]", was), cast("list[Any]", now)
        if same_json(before, items[: len(before)]):
            return items[len(before) :]
        unchanged = {ordered_json(item) for item in before}
        return [item for item in items if ordered_json(item) not in unchanged]
    numbers = (int, float)  # not booleans, whose difference says nothing
    return now - was if type(cast("object", was)) in numbers and type(cast("object", now)) in numbers else now


def _is_same(a: Any, b: Any) -> bool:
    return a is b or (a is not _ABSENT and b is not _ABSENT and same_json(a, b))
