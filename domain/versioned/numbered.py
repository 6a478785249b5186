"""
Values of one line whose versions are numbered: states of graphs, and items.

An item is a value under a namespace and a key, such as what an agent remembers of a user. One that was ended has a newest version without
fields: it is absent from then on, and what it was stays in its history until it is erased.
"""

from typing import Any, Final

import msgspec

from ..chat.events import Body
from ..errors import CorruptStateError, PayloadTooLargeError, StateConflictError
from .decide import decide_put, living
from .events import FieldRef
from .keys import item_id, shown_id
from .record import PutVersion, VersionedState, VersionRecord, is_expired, number_id
from .serials import Encoded, encoded

LINE: Final = ""
"""The one line of these values."""
VALUE, TTL, EXTRA = "value", "ttl_ms", "extra"
"""The fields of an item."""


class StateDraft(msgspec.Struct, frozen=True, kw_only=True):
    """
    A version to be stored.

    Args:
        state_id: The state or the item.
        values: Of each field, its value; None where it is that of the parent.
        node: What wrote it.
        parent: The version that it was made from.
        basis: The position of the parent's event, where the state was computed from it: a state that was deleted and made anew
            has other versions of the same numbers. None when that does not matter.
        expected_version: The newest version that the writer knows of, 0 for none; None when that does not matter.
        ttl_ms: After how many ms without another version it expires.
        limit_bytes: How much the state may take encoded.
    """

    state_id: str
    values: dict[str, Encoded | None]
    node: str | None = None
    parent: int | None = None
    basis: int | None = None
    is_final: bool = False
    expected_version: int | None = None
    ttl_ms: int | None = None
    limit_bytes: int | None = None


def decide_put_state(state: VersionedState, draft: StateDraft, now: int) -> list[Body]:
    """
    The next version, with the pieces that no version has; on a state that has expired, the first one of a new life.

    Raises:
        StateConflictError: There is another newest version than was expected, or the parent is gone or another one.
        PayloadTooLargeError: The state is larger than it may be.
    """
    _, alive = living(state, now)
    newest = 0 if alive.record is None else alive.record.version
    if draft.expected_version not in {None, newest}:
        raise StateConflictError(shown_id(draft.state_id), expected=draft.expected_version or 0, actual=newest)
    parent = None if draft.parent is None else alive.version(LINE, number_id(draft.parent))
    unchanged_names = [name for name, value in draft.values.items() if value is None]
    inherited = {} if parent is None else parent.fields
    is_other = draft.basis is not None and (parent is None or parent.position != draft.basis)
    if is_other or not inherited.keys() >= {*unchanged_names}:
        raise StateConflictError(shown_id(draft.state_id), expected=draft.parent or 0, actual=newest)
    own = {name: value for name, value in draft.values.items() if value is not None}
    sizes = {name: value.size_bytes for name, value in own.items()}
    size = sum(len(name.encode()) for name in draft.values) + sum(sizes.values())
    size += sum(inherited[name].size_bytes for name in unchanged_names)
    if draft.limit_bytes is not None and size > draft.limit_bytes:
        raise PayloadTooLargeError(
            shown_id(draft.state_id), size_bytes=size, limit_bytes=draft.limit_bytes, what="the state"
        )
    put = PutVersion(
        key=draft.state_id,
        id=number_id(newest + 1),
        parent=None if draft.parent is None else number_id(draft.parent),
        values={name: value.serial for name, value in own.items()},
        unchanged=lambda _parent: dict.fromkeys(unchanged_names),
        order=[*draft.values],
        sizes=sizes,
        before=inherited if parent is not None else _newest_fields(alive, newest),
        runtime="",
        node=draft.node,
        is_final=draft.is_final,
        ttl_ms=draft.ttl_ms,
    )
    return decide_put(state, put, now)


def _newest_fields(state: VersionedState, newest: int) -> dict[str, FieldRef]:
    """The fields by which values without a parent are cut; none where that version is damaged."""
    try:
        version = state.version(LINE, number_id(newest)) if newest else None
    except CorruptStateError:
        version = None
    return {} if version is None else version.fields


def item_draft(
    user_id: str,
    namespace: tuple[str, ...],
    key: str,
    value: Any,
    *,
    extra: Any = None,
    ttl_ms: int | None = None,
    expected_version: int | None = None,
    limit_bytes: int,
) -> StateDraft:
    """Return the version of an item with a value, and with what is stored beside it; both were checked and copied."""
    values = {VALUE: encoded(value)}
    if extra is not None:
        values[EXTRA] = encoded(extra)
    if ttl_ms is not None:
        values[TTL] = encoded(ttl_ms)
    return StateDraft(
        state_id=item_id(user_id, namespace, key),
        values={**values},
        expected_version=expected_version,
        ttl_ms=ttl_ms,
        limit_bytes=limit_bytes,
    )


def has_value(version: VersionRecord | None) -> bool:
    """Whether a version of an item has a value. A version that ended the item has none."""
    return version is not None and VALUE in version.fields


def decide_put_item(state: VersionedState, draft: StateDraft, now: int) -> list[Body]:
    """
    The next version of an item. Where it is expected to be absent, it may have ended before.

    Raises:
        StateConflictError: There is another newest version than was expected.
        PayloadTooLargeError: The value is larger than it may be.
    """
    newest = newest_version(state, now)
    if draft.expected_version == 0 and newest is not None and not has_value(newest):
        draft = msgspec.structs.replace(draft, expected_version=newest.version)
    return decide_put_state(state, draft, now)


def decide_end_item(state: VersionedState, item: str, now: int, *, expected_version: int | None = None) -> list[Body]:
    """
    The version without a value that ends an item; nothing when there is none.

    Raises:
        StateConflictError: There is another newest version than was expected.
    """
    newest = newest_version(state, now)
    actual = newest.version if newest is not None and has_value(newest) else 0
    if expected_version not in {None, actual}:
        raise StateConflictError(shown_id(item), expected=expected_version or 0, actual=actual)
    return decide_put_state(state, StateDraft(state_id=item, values={}), now) if actual else []


def newest_version(state: VersionedState, now: int) -> VersionRecord | None:
    """Return the newest version of an item that has not expired; None for none. One that ended the item has no value."""
    record = state.record
    if record is None or record.newest is None or is_expired(record, now):
        return None
    return state.version(LINE, record.newest)
