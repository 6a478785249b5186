"""
Items: values under a namespace and a key, such as what an agent remembers of a user, with all their versions.

An item is a stored state of one value. An item that was ended has a newest version without a value: it is absent from then on,
and what it was stays in its history until it is erased.
"""

from typing import Any

import msgspec

from ..chat.events import Body
from ..errors import StateConflictError
from .decide import StateDraft, StoredGraphState, VersionRecord, decide_put_state, is_expired
from .events import StateExpirySet, item_id, shown_id
from .pieces import encoded

VALUE, TTL, EXTRA = "value", "ttl_ms", "extra"
"""The fields of an item's state."""
_LEAST_GAIN = 1 / 20
"""An end that would be later by less than this share of the time is not written: else each reading would write an event."""


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
    """Whether a version of an item has a value: one that ended it has none."""
    return version is not None and VALUE in version.fields


def decide_put_item(state: StoredGraphState, draft: StateDraft, moment_ms: int) -> list[Body]:
    """
    The next version of an item. Where it is expected to be absent, it may have ended before.

    Raises:
        StateConflictError: There is another newest version than was expected.
        PayloadTooLargeError: The value is larger than it may be.
    """
    newest = newest_version(state, moment_ms)
    if draft.expected_version == 0 and newest is not None and not has_value(newest):
        draft = msgspec.structs.replace(draft, expected_version=newest.version)
    return decide_put_state(state, draft, moment_ms)


def decide_end_item(
    state: StoredGraphState, item: str, moment_ms: int, *, expected_version: int | None = None
) -> list[Body]:
    """
    The version without a value that ends an item; nothing when there is none.

    Raises:
        StateConflictError: There is another newest version than was expected.
    """
    newest = newest_version(state, moment_ms)
    actual = newest.version if newest is not None and has_value(newest) else 0
    if expected_version not in {None, actual}:
        raise StateConflictError(shown_id(item), expected=expected_version or 0, actual=actual)
    return decide_put_state(state, StateDraft(state_id=item, values={}), moment_ms) if actual else []


def decide_refresh_item(state: StoredGraphState, ttl_ms: int, moment_ms: int) -> list[Body]:
    """The later end of an item that was read; nothing when there is none, or its end is nearly as late."""
    record = state.record
    if record is None or record.expires_at is None or is_expired(record, moment_ms):
        return []
    expires_at = moment_ms + ttl_ms
    return [StateExpirySet(expires_at)] if expires_at - record.expires_at > ttl_ms * _LEAST_GAIN else []


def newest_version(state: StoredGraphState, moment_ms: int) -> VersionRecord | None:
    """Return the newest version of an item that has not expired; None for none. One that ended the item has no value."""
    record = state.record
    if record is None or is_expired(record, moment_ms):
        return None
    return state.version(record.version)
