"""The values that a store of items returns."""

from typing import Any

from chatledger.domain.wire import Value


class Item(Value, frozen=True, kw_only=True):
    """
    An item: a value under a namespace and a key.

    Args:
        namespace: Its labels, such as `("memories", "ada")`.
        key: Its key, one of a kind in the namespace.
        value: A JSON object. It is the caller's own.
        version: 1, 2, 3, ...: each put makes one, and each end.
        created_at: The time of the first version, in ms since the epoch.
        updated_at: The time of this version, in ms.
        expires_at: From when on it counts as absent, in ms; None when it does not expire.
        extra: What is stored beside the value, where it was asked for; see `ItemPut`.
    """

    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any]
    version: int
    created_at: int
    updated_at: int
    expires_at: int | None = None
    extra: dict[str, Any] | None = None


class ItemVersion(Value, frozen=True, kw_only=True):
    """
    One version of an item.

    Args:
        version: 1, 2, 3, ...
        value: The value; None where the item was ended.
        stored_at: When, in ms since the epoch.
        position: The position of its event on the log.
    """

    version: int
    value: dict[str, Any] | None
    stored_at: int
    position: int


class ItemPut(Value, frozen=True, kw_only=True):
    """
    A change of an item, for `ItemStore.write`.

    Args:
        namespace: The namespace.
        key: The key.
        value: The value; None ends the item.
        ttl_seconds: After so many seconds without another version it is absent; None: it does not expire.
        expected_version: Only if this is the newest version; 0 when there must be none.
        extra: A JSON object beside the value that belongs to this version, such as vectors of its texts. Only `scan` returns it.
    """

    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any] | None
    ttl_seconds: float | None = None
    expected_version: int | None = None
    extra: dict[str, Any] | None = None
