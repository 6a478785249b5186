"""`ItemStore`: values under a namespace and a key on a ledger, with all their versions."""

import builtins
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from chatledger.domain.chat.events import Body, Recorded
from chatledger.domain.errors import CorruptStateError, InvalidValueError
from chatledger.domain.graph.reducers import check_object
from chatledger.domain.legal_hold import LegalHold
from chatledger.domain.limits import check_count, check_id, json_copy
from chatledger.domain.moments import Moment
from chatledger.domain.versioned.decide import decide_delete, decide_set_expiry
from chatledger.domain.versioned.events import VersionsDeleted
from chatledger.domain.versioned.keys import check_labels, item_id, parse_item_id
from chatledger.domain.versioned.numbered import (
    EXTRA,
    LINE,
    TTL,
    VALUE,
    StateDraft,
    decide_end_item,
    decide_put_item,
    has_value,
    item_draft,
    newest_version,
)
from chatledger.domain.versioned.record import VersionedRecord, VersionRecord, is_expired, number_id
from chatledger.domain.versioned.serials import join
from chatledger.domain.wire import Value
from chatledger.projections.log.kinds import ITEMS, Decision
from chatledger.projections.versioned.lists import known_items, listed_namespaces, living_items
from chatledger.projections.versioned.reader import IndexedVersioned, named_damage

from ...log.envelope import clock_ms
from ...store.commands import ChatsToRead
from ..graph.stored import put_version, version_at
from ..graph.values import MAX_STATE_BYTES, milliseconds
from ..ledger import Ledger, UserLedger
from ..port import LedgerSnapshot, StorePort, store_of
from ..scopes.as_of import AsOfPoint, find_point


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
        hold: The legal hold that keeps it; None for none.
    """

    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any]
    version: int
    created_at: int
    updated_at: int
    expires_at: int | None = None
    extra: dict[str, Any] | None = None
    hold: LegalHold | None = None


class ItemVersion(Value, frozen=True, kw_only=True):
    """
    One version of an item.

    Args:
        version: 1, 2, 3, ...
        value: The value; None where the item was ended, or the value is gone.
        stored_at: When, in ms since the epoch.
        position: The position of its event on the log.
        is_pruned: Whether its value is gone, as a rule kept it no longer; its place is left.
    """

    version: int
    value: dict[str, Any] | None
    stored_at: int
    position: int
    is_pruned: bool = False


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


T = TypeVar("T")
NOBODY: Final = ""
"""The owner of the items of a ledger that is not limited to a user."""
Wait = Callable[[], list[Recorded]]


class ItemReader:
    """The methods of an item store that read, now or as of an earlier moment."""

    def __init__(self, store: Callable[[], StorePort], user_id: str, point: AsOfPoint | None = None) -> None:
        self._get_store, self._user_id, self._point = store, user_id, point

    @property
    def _store(self) -> StorePort:
        return self._get_store()

    def get(self, namespace: Sequence[str], key: str) -> Item | None:
        """
        An item; None when there is none, or it has ended or expired.

        Raises:
            CorruptStateError: It is damaged in the index; rebuild it.
            InvalidValueError: Namespace or key break a rule.
        """
        state_id = item_id(self._user_id, namespace, key)
        with self._store.snapshot(ChatsToRead(user_id=self._user_id)) as snapshot:
            return self._item(snapshot, state_id)

    def list(self, prefix: Sequence[str] = (), *, limit: int | None = None, offset: int = 0) -> builtins.list[Item]:
        """
        The items whose namespace begins with a prefix, the last changed first.

        Args:
            prefix: The first labels; all items when empty.
            limit: At most so many; all when None.
            offset: So many are left out before.

        Costs the items that are read and left out; as of an earlier moment all items under the prefix.
        """
        return _part(self.scan(prefix), offset, limit)

    def scan(self, prefix: Sequence[str] = (), *, with_extra: bool = False) -> Generator[Item]:
        """
        Yield what `list` returns, in one snapshot, which is open until the iterator ends or is closed.

        Args:
            prefix: The first labels.
            with_extra: With what is stored beside the values.
        """
        labels = check_labels(prefix, empty=True)
        with self._store.snapshot(ChatsToRead(user_id=self._user_id)) as snapshot:
            yield from self._found(snapshot, labels, with_extra=with_extra)

    def namespaces(
        self, prefix: Sequence[str] = (), *, limit: int | None = None, offset: int = 0
    ) -> builtins.list[tuple[str, ...]]:
        """
        The namespaces that have items and begin with a prefix, in order.

        Args:
            prefix: The first labels; all namespaces when empty.
            limit: At most so many; all when None.
            offset: So many are left out before.

        Costs the namespaces that are read and left out; as of an earlier moment all items under the prefix.
        """
        return _part(self.scan_namespaces(prefix), offset, limit)

    def scan_namespaces(self, prefix: Sequence[str] = ()) -> Generator[tuple[str, ...]]:
        """Yield what `namespaces` returns, in one snapshot, which is open until the iterator ends or is closed."""
        labels = check_labels(prefix, empty=True)
        with self._store.snapshot(ChatsToRead(user_id=self._user_id)) as snapshot:
            if self._point is None:
                yield from listed_namespaces(snapshot.txn, snapshot.tables, self._user_id, labels)
            else:
                yield from sorted({item.namespace for item in self._found(snapshot, labels)})

    def _found(self, snapshot: LedgerSnapshot, labels: tuple[str, ...], *, with_extra: bool = False) -> Iterator[Item]:
        if self._point is not None:
            listed = known_items(snapshot.txn, snapshot.tables, self._user_id, labels)
            read = (self._item(snapshot, record.key, with_extra=with_extra) for record in listed)
            found = [item for item in read if item is not None]
            yield from sorted(found, key=lambda item: item.updated_at, reverse=True)
            return
        for record in living_items(snapshot.txn, snapshot.tables, self._user_id, labels):
            item = self._item(snapshot, record.key, with_extra=with_extra)
            if item is not None:
                yield item

    def _item(self, snapshot: LedgerSnapshot, state_id: str, *, with_extra: bool = False) -> Item | None:
        state = snapshot.stream(ITEMS, state_id)
        with named_damage(state, state_id):
            record = state.record
            if record is None or (self._point is None and is_expired(record, clock_ms())):
                return None
            point = self._point
            version = newest_version(state, clock_ms()) if point is None else version_at(state, point)
            if version is None or not has_value(version):
                return None
            item = _item_of(state, record, version, is_newest=self._point is None)
            if with_extra and EXTRA in version.fields:
                extra: dict[str, Any] = join(version.fields[EXTRA].digest, state.need_content)
                return msgspec.structs.replace(item, extra=extra)
            return item


class ItemStore(ItemReader):
    """
    Items on a ledger: JSON objects under a namespace and a key, with all their versions. No framework is needed.

    Of a ledger made by `for_user` they are that user's; of one that is not, nobody's. Safe for threads.

    Args:
        ledger: The ledger, which stays open as long as the store is used and is not closed by it.
        max_value_bytes: How large a value may be, encoded.

    Example:
        items = ItemStore(ledger.for_user("ada"))
        items.put(("memories",), "food", {"text": "Ada is a vegetarian"})
    """

    def __init__(self, ledger: Ledger, *, max_value_bytes: int = MAX_STATE_BYTES) -> None:
        user_id = ledger.user_id if isinstance(ledger, UserLedger) else NOBODY
        self._set_up(lambda: ledger, user_id, max_value_bytes)

    def _set_up(self, ledger: Callable[[], Ledger], user_id: str, max_value_bytes: int) -> None:
        super().__init__(lambda: store_of(ledger()), user_id)
        self._max_value_bytes = max_value_bytes

    def put(
        self,
        namespace: Sequence[str],
        key: str,
        value: dict[str, Any],
        *,
        ttl_seconds: float | None = None,
        expected_version: int | None = None,
    ) -> int:
        """
        Store a value as the next version of an item.

        Args:
            namespace: 1 to 32 labels.
            key: The key.
            value: A JSON object. It is copied.
            ttl_seconds: After so many seconds without another version, or a `refresh`, the item is absent. None: it does not expire.
            expected_version: Only if this is the newest version; 0 when there must be no such item.

        Returns:
            The version: 1, 2, 3, ...

        Raises:
            StateConflictError: Another version came meanwhile. Nothing was written.
            PayloadTooLargeError: The value is larger than `max_value_bytes`.
            InvalidValueError: A value breaks a rule.
        """
        check_object(value, "value")
        change = ItemPut(
            namespace=check_labels(namespace),
            key=key,
            value=value,
            ttl_seconds=ttl_seconds,
            expected_version=expected_version,
        )
        return self.write([change])[0]

    def end(self, namespace: Sequence[str], key: str, *, expected_version: int | None = None) -> bool:
        """
        End an item: it is absent from now on, its versions stay in its history. See `delete` for erasing them.

        Returns:
            Whether there was one.

        Raises:
            StateConflictError: The newest version is not `expected_version`. Nothing was written.
        """
        change = ItemPut(namespace=check_labels(namespace), key=key, value=None, expected_version=expected_version)
        return self.write([change])[0] > 0

    def write(self, changes: Sequence[ItemPut]) -> builtins.list[int]:
        """
        Store several changes of different items in as few batches as the log allows. Each is a commit of its own.

        Returns:
            The new version of each; 0 where an item was to be ended that was not there.

        Raises:
            InvalidValueError: A value breaks a rule, or two changes are of one item. Nothing was written.
            ChatledgerError: As `put`; the others were written.
        """
        decisions = [self._decision(change) for change in changes]
        if len({state_id for state_id, _ in decisions}) < len(decisions):
            msg = "two changes of one item in one call; give the last one only"
            raise InvalidValueError(msg)
        store = self._store
        written = self._written(store, decisions)
        if any(isinstance(event.body, VersionsDeleted) for recorded in written for event in recorded):
            store.erase_deleted()  # of what had expired
        return [put_version(recorded) if recorded else 0 for recorded in written]

    def delete(self, namespace: Sequence[str], key: str) -> bool:
        """
        Delete an item with all its versions; its content is erased from the log and the index.

        Returns:
            Whether there was one that had not ended or expired.
        """
        state_id = item_id(self._user_id, namespace, key)
        was_there = False

        def decide(state: IndexedVersioned, now: int) -> builtins.list[Body]:
            nonlocal was_there
            with named_damage(state, state_id):
                was_there = has_value(newest_version(state, now))  # of several who delete it at once, one did
            return decide_delete(state, reason="deleted")

        if self._store.execute(ITEMS, state_id, decide):
            self._store.erase_deleted()
        return was_there

    def refresh(self, namespace: Sequence[str], key: str) -> None:
        """Let an item that expires do so as long after now as it was put for. Others stay as they are."""
        state_id = item_id(self._user_id, namespace, key)

        def decide(state: IndexedVersioned, now: int) -> builtins.list[Body]:
            version = newest_version(state, now)
            if version is None or TTL not in version.fields:
                return []
            return decide_set_expiry(state, join(version.fields[TTL].digest, state.need_content), now)

        self._store.execute(ITEMS, state_id, decide)

    def history(
        self, namespace: Sequence[str], key: str, *, limit: int = 10, before: int | None = None
    ) -> builtins.list[ItemVersion]:
        """
        The versions of an item, the newest first, also of one that has ended; none when there is no such item.

        Args:
            namespace: The namespace.
            key: The key.
            limit: At most so many.
            before: Only versions before this one.
        """
        limit = check_count(limit, "limit")
        if before is not None:
            check_count(before, "before")
        state_id = item_id(self._user_id, namespace, key)
        found: builtins.list[ItemVersion] = []
        with self._store.snapshot(ChatsToRead(user_id=self._user_id)) as snapshot:
            state = snapshot.stream(ITEMS, state_id)
            with named_damage(state, state_id):
                if state.record is None or is_expired(state.record, clock_ms()):
                    return []
                earlier = state.version_ids(before=None if before is None else number_id(before))
                for version_id in islice(earlier, limit):
                    version = state.version(LINE, version_id)
                    assert version is not None, "a listed version is there"
                    found.append(
                        ItemVersion(
                            version=version.version,
                            value=_value(state, version) if has_value(version) else None,
                            stored_at=version.stored_at,
                            position=version.position,
                            is_pruned=version.skeleton is not None,
                        )
                    )
        return found

    def as_of(self, moment: Moment) -> ItemReader:
        """
        The items as they stood at an earlier moment, to be read only; of deleted ones, and of what expired, nothing is left.

        Args:
            moment: A position on the log, or a time with a time zone; see `Ledger.as_of`.

        Raises:
            InvalidValueError: The position is beyond the end of the log, or the time has no time zone.
        """
        return ItemReader(self._get_store, self._user_id, find_point(self._store, moment))

    def _decision(self, change: ItemPut) -> tuple[str, Decision[IndexedVersioned]]:
        expected = change.expected_version
        if expected is not None:
            check_count(expected, "expected_version")
        if change.value is None:
            state_id = item_id(self._user_id, change.namespace, change.key)

            def decide_end(state: IndexedVersioned, now: int) -> builtins.list[Body]:
                with named_damage(state, state_id):
                    return decide_end_item(state, state_id, now, expected_version=expected)

            return state_id, decide_end
        ttl = None if change.ttl_seconds is None else milliseconds(change.ttl_seconds, "ttl_seconds")
        value = json_copy(dict(check_object(change.value, "value")), "value")
        extra = None if change.extra is None else json_copy(dict(check_object(change.extra, "extra")), "extra")
        check_id(change.key, "the key of an item")
        draft = item_draft(
            self._user_id,
            check_labels(change.namespace),
            change.key,
            value,
            extra=extra,
            ttl_ms=ttl,
            expected_version=expected,
            limit_bytes=self._max_value_bytes,
        )
        if self._store.redactor is not None:
            draft = self._store.redactor.state(draft)
        return draft.state_id, lambda state, now: _decide_put(state, draft, now)

    def _written(
        self, store: StorePort, decisions: Sequence[tuple[str, Decision[IndexedVersioned]]]
    ) -> builtins.list[builtins.list[Recorded]]:
        if len(decisions) == 1:
            state_id, decide = decisions[0]
            return [store.execute(ITEMS, state_id, decide)]
        waiting: builtins.list[Wait] = store.begin(ITEMS, decisions)
        outcomes: builtins.list[builtins.list[Recorded]] = []
        error: Exception | None = None
        for wait in waiting:  # each is to be waited for, also after one that failed
            try:
                outcomes.append(wait())
            except Exception as failed:  # noqa: BLE001 - raised below
                error = error or failed
        if error is not None:
            raise error
        return outcomes


def _decide_put(state: IndexedVersioned, draft: StateDraft, now: int) -> list[Body]:
    with named_damage(state, draft.state_id):
        return decide_put_item(state, draft, now)


def _item_of(state: IndexedVersioned, record: VersionedRecord, version: VersionRecord, *, is_newest: bool) -> Item:
    item = parse_item_id(record.key)
    if item is None:
        msg = "its id is not that of an item"
        raise CorruptStateError(msg)
    return Item(
        namespace=item.namespace,
        key=item.key,
        value=_value(state, version),
        version=version.version,
        created_at=record.created_at,
        updated_at=version.stored_at,
        expires_at=record.expires_at if is_newest else None,
        hold=record.hold,
    )


def _value(state: IndexedVersioned, version: VersionRecord) -> dict[str, Any]:
    fields: dict[str, Any] = join(version.fields[VALUE].digest, state.need_content)
    return fields


def _part(entries: Generator[T], offset: int, limit: int | None) -> list[T]:
    offset = check_count(offset, "offset")
    if limit is not None:
        limit = check_count(limit, "limit")
    with closing(entries):
        return list(islice(islice(entries, offset, None), limit))
