"""The lists over versioned values: by beginning, change and end, by owner, of a conversation, of items, and of versions by id and run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from heapq import merge
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from chatledger.domain.errors import CorruptStateError
from chatledger.domain.versioned.keys import FAMILIES, ITEM, STATE, THREAD, Family, parse_item_id, parse_state_id
from chatledger.domain.versioned.record import STATUSES, StatusName, VersionedRecord

from ..chat.lists import joined_chats
from ..chat.reader import chat_at
from ..lmdb.environment import Transaction, prefixed
from ..lmdb.keys import number, to_number
from ..lmdb.tables import Tables
from . import rows

BY_BEGINNING, BY_CHANGE, OWNED_BY_BEGINNING, OWNED_BY_CHANGE = b"b", b"c", b"o", b"p"
"""The lists of a family, all of it or of an owner. The key ends with the number of the value, or with `_changed`, whose value is that number."""
BY_EXPIRY, OF_CONVERSATION, BY_RUN = b"e", b"f", b"r"
KNOWN_ITEMS, LIVING_ITEMS, NAMESPACES = b"k", b"l", b"n"
"""
The lists over items: those of a user with any version and those with a value under each beginning of their namespace; and the
namespaces of a user, each with the number of items that have a value.
"""
BY_STATUS, OWNED_BY_STATUS, COUNTS, OPEN_RUNS = b"s", b"t", b"u", b"v"
"""
The lists over threads: by status and change, all of them or those of an owner, and how many stand so. And the open runs of chats on
a thread, which may not be there yet, each with the owner of its chat.
"""
SEARCHED, OWNED_SEARCHED = b"m", b"q"
"""The values that have messages, all and by owner, by the number of these in the search index."""
BY_ID: Final = b"z"
"""The versions of threads by id. The longest list is the last, as pages get full only where all that comes goes last."""

ORDERED_BYTES: Final = 400
"""The bytes of a namespace by which a list is in order: LMDB's keys have at most 511."""
_TIME_OFFSET: Final = 2**63
_LAST: Final = b"\xff" * 17
"""Beyond the place with which keys of a list end."""
_END: Final = b"\0"
_NUMBER_BYTES: Final = len(number(0))
_PLACE_BYTES: Final = len(rows.line_prefix(0, 0))
"""The bytes of the numbers of a value and of a line of it."""


class FamilyLists(NamedTuple):
    """
    The lists that a family has.

    Args:
        code: Tells its lists from those of other families.
        fixed: Returns the lists that a value is in as long as it lives; the number of the value follows.
        moving: Returns those in which it moves with each change; see `_changed`.
        has_ids: Whether its versions are listed by id and run.
    """

    code: bytes
    fixed: Callable[[VersionedRecord], Sequence[bytes]]
    moving: Callable[[VersionedRecord], Sequence[bytes]]
    has_ids: bool = False


def _owner_in_lists(family: Family, record: VersionedRecord) -> str:
    """Return the owner under whom a value is listed; "" for nobody."""
    return (family.owner_of(record.key) if record.owner is None else record.owner) or ""


def listing(family: Family, user_id: str | None, *, is_by_change: bool, status: StatusName | None = None) -> bytes:
    """
    Return the prefix of the keys of a list of a family: of all, or of those of an owner, with "" of those that name none.

    With a status only threads that stand so, by change.
    """
    code = LISTS[family.name].code
    if status is not None:
        place = bytes((STATUSES.index(status),))
        return BY_STATUS + place if user_id is None else OWNED_BY_STATUS + _digest(user_id) + place
    if user_id is None:
        return (BY_CHANGE if is_by_change else BY_BEGINNING) + code
    return (OWNED_BY_CHANGE if is_by_change else OWNED_BY_BEGINNING) + code + _digest(user_id)


def fixed_places(family: Family, stream_no: int, record: VersionedRecord) -> list[bytes]:
    """Return the keys of a value in the lists that it is in as long as it lives."""
    prefixes = [listing(family, user_id, is_by_change=False) for user_id in (None, _owner_in_lists(family, record))]
    return [prefix + number(stream_no) for prefix in (*prefixes, *LISTS[family.name].fixed(record))]


def moving_places(family: Family, stream_no: int, record: VersionedRecord) -> dict[bytes, bytes]:
    """Return the rows of a value in the lists by time; none where the beginning of its stream, which alone tells its key, is lost."""
    if not record.key:
        return {}
    place = _changed(record)
    places = {prefix + place: number(stream_no) for prefix in LISTS[family.name].moving(record)}
    if record.ends_at is not None:
        places[BY_EXPIRY + moment(record.ends_at) + number(stream_no)] = family.name.encode()
    return places


def _changed(record: VersionedRecord) -> bytes:
    # Several change in one millisecond: then the log says which did last.
    return number(record.updated_at + _TIME_OFFSET) + number(record.head.position)


def count_keys(family: Family, record: VersionedRecord | None) -> Sequence[bytes]:
    """Return the keys of the numbers of threads that stand as one does: of all, and of its owner; none for other values, or for none."""
    if family is not THREAD or record is None or not record.key:
        return ()
    return _of_standing(record.owner or "", record.status)[1]


@lru_cache(1024)  # a put asks twice, before and after, and mostly the thread stands as it did
def _of_standing(owner: str, status: StatusName) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Return the lists by change of an owner's thread that stands so, and the keys of the numbers of such threads."""
    stands = [listing(THREAD, user_id, is_by_change=True, status=status) for user_id in (None, owner)]
    of_all = [listing(THREAD, user_id, is_by_change=True) for user_id in (None, owner)]
    return [*of_all, *stands], [COUNTS + listed for listed in stands]


def thread_counts(txn: Transaction, tables: Tables, user_id: str | None) -> dict[StatusName, int]:
    """Return how many threads stand in each way, expired ones too: of all, or of an owner, with "" of those that name none."""
    keys: dict[StatusName, bytes] = {
        status: COUNTS + listing(THREAD, user_id, is_by_change=True, status=status) for status in STATUSES
    }
    counts: dict[StatusName, int] = {}
    for status, key in keys.items():
        raw = txn.get(key, db=tables.version_lists)
        counts[status] = 0 if raw is None else to_number(raw)
    return counts


def open_run(thread_id: str, chat_no: int, run_id: str) -> bytes:
    """Return the key of an open run in the list of its thread, whose prefix ends before the chat."""
    return runs_of(thread_id) + number(chat_no) + _digest(run_id)


def runs_of(thread_id: str) -> bytes:
    """Return the prefix of the open runs of a thread."""
    return OPEN_RUNS + _digest(thread_id)


def moment(time_ms: int) -> bytes:
    """Return a time as it stands in keys."""
    return number(time_ms + _TIME_OFFSET)


def by_id(version_id: str, stream_no: int, line_no: int) -> bytes:
    return BY_ID + version_id.encode() + _END + rows.line_prefix(stream_no, line_no)


def by_run(run_id: str, stream_no: int, line_no: int, version_id: str) -> bytes:
    """A version in the list of a run, whose prefix is `BY_RUN` and a digest, as ids of both may be long."""
    return BY_RUN + _digest(run_id) + rows.line_prefix(stream_no, line_no) + version_id.encode()


def searched_places(family: Family, record: VersionedRecord) -> list[bytes]:
    """Return the keys of a value that has messages in the lists of those."""
    owner = OWNED_SEARCHED + _digest(_owner_in_lists(family, record))
    return [prefix + number(record.messages_no) for prefix in (SEARCHED, owner)]


def searched_row(family: Family, record: VersionedRecord) -> bytes:
    """Return the row of a value in these lists: its number and its family."""
    return number(record.first_position) + LISTS[family.name].code


def searched_at(txn: Transaction, tables: Tables, messages_no: int) -> tuple[Family, int] | None:
    """Return the family and the number of the value whose messages have a number in the search index; None for other numbers."""
    raw = txn.get(SEARCHED + number(messages_no), db=tables.version_lists)
    return None if raw is None else _searched(raw)


def _searched(raw: bytes) -> tuple[Family, int]:
    return _FAMILY_OF_CODE[raw[_NUMBER_BYTES:]], to_number(raw[:_NUMBER_BYTES])


def searched_values(
    txn: Transaction, tables: Tables, user_id: str | None = None, *, after: int = 0
) -> Iterator[tuple[int, Family, int]]:
    """Yield the values that have messages, or those of an owner: number of these, behind `after`, family and number of the value."""
    prefix = SEARCHED if user_id is None else OWNED_SEARCHED + _digest(user_id)
    cursor = txn.cursor(tables.version_lists)
    is_there = cursor.set_range(prefix + number(after + 1))
    while is_there and (key := cursor.key()).startswith(prefix):
        yield to_number(key[len(prefix) :]), *_searched(cursor.value())
        is_there = cursor.next()


def namespace_key(user_id: str, labels: Sequence[str]) -> bytes:
    """Return the key of a namespace in the list of its user, which is in the order of the labels up to `ORDERED_BYTES` of them."""
    ordered = _ordered_labels(labels)
    rest = b"" if len(ordered) <= ORDERED_BYTES else _labels_digest(user_id, labels)
    return NAMESPACES + _digest(user_id) + ordered[:ORDERED_BYTES] + rest


def _ordered_labels(labels: Sequence[str]) -> bytes:
    """Return labels as bytes that sort as they do, and begin with those of each of their beginnings."""
    return "".join(f"{label}\0" for label in labels).encode()  # no label contains NUL


def _labels_digest(user_id: str, labels: Sequence[str]) -> bytes:
    # No part contains NUL, and the user comes first.
    return _digest("\0".join((user_id, *labels)))


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=24).digest()


@lru_cache(1024)  # an item that is put is looked at several times, and its key does not change
def _under_labels(kind: bytes, key: str) -> Sequence[bytes]:
    """Return the lists of an item under each beginning of its namespace, from no label to all."""
    item = parse_item_id(key)
    if item is None:
        return []
    beginnings = [item.namespace[:count] for count in range(len(item.namespace) + 1)]
    return [kind + _labels_digest(item.user_id, labels) for labels in beginnings]


def is_living_item(family: Family, record: VersionedRecord) -> bool:
    """Whether it is an item that has a value."""
    return family is ITEM and record.newest is not None and not record.is_ended


def _by_change_of_states(record: VersionedRecord) -> Sequence[bytes]:
    return _by_change(STATE, record)


def _of_items(record: VersionedRecord) -> Sequence[bytes]:
    # By change for retention rules, which go through them from the oldest.
    return [*_by_change(ITEM, record), *_living(record)]


def _by_change(family: Family, record: VersionedRecord) -> Sequence[bytes]:
    owner = _owner_in_lists(family, record)
    return [listing(family, user_id, is_by_change=True) for user_id in (None, owner)]


def _by_status(record: VersionedRecord) -> Sequence[bytes]:
    return _of_standing(record.owner or "", record.status)[0]


def _in_conversation(record: VersionedRecord) -> Sequence[bytes]:
    return [OF_CONVERSATION + _digest(parse_state_id(record.key).conversation_id)]


def _known(record: VersionedRecord) -> Sequence[bytes]:
    return _under_labels(KNOWN_ITEMS, record.key)


def _living(record: VersionedRecord) -> Sequence[bytes]:
    return _under_labels(LIVING_ITEMS, record.key) if is_living_item(ITEM, record) else []


def _no_more(_record: VersionedRecord) -> Sequence[bytes]:
    return []


LISTS: Final[Mapping[str, FamilyLists]] = {
    THREAD.name: FamilyLists(b"t", _no_more, _by_status, has_ids=True),
    STATE.name: FamilyLists(b"s", _in_conversation, _by_change_of_states),
    ITEM.name: FamilyLists(b"i", _known, _of_items),
}
"""The lists of each family, by its name."""
_FAMILY_OF_CODE: Final = {LISTS[family.name].code: family for family in FAMILIES}

_record_decoder: Final = msgspec.msgpack.Decoder(VersionedRecord)


def read_record(txn: Transaction, tables: Tables, stream_no: int) -> VersionedRecord | None:
    """Return the record of the value of a number; None when there is none. Raises `CorruptStateError` when it is damaged."""
    key = number(stream_no) + rows.RECORD
    raw = txn.get(key, db=tables.versioned)
    return None if raw is None else rows.unsealed(key, raw, _record_decoder)


def record_at(txn: Transaction, tables: Tables, stream_no: int) -> VersionedRecord:
    """The record of a listed value. Raises `CorruptStateError` when it is damaged."""
    try:
        record = read_record(txn, tables, stream_no)
    except CorruptStateError:
        record = None
    if record is None:
        msg = f"the record of the value that began at position {stream_no} is damaged in the index; rebuild it"
        raise CorruptStateError(msg, position=stream_no)
    return record


def _numbers(
    txn: Transaction, tables: Tables, prefix: bytes, *, is_ascending: bool = True, after: bytes | None = None
) -> Iterator[tuple[bytes, int]]:
    """Yield the places in a list, behind the place `after`, with the numbers of the values that stand there."""
    cursor = txn.cursor(tables.version_lists)
    if is_ascending:
        is_there = cursor.set_range(prefix if after is None else prefix + after + b"\0")
    else:
        is_there = cursor.prev() if cursor.set_range(prefix + (_LAST if after is None else after)) else cursor.last()
    while is_there and (key := cursor.key()).startswith(prefix):
        yield key[len(prefix) :], to_number(cursor.value() or key[-_NUMBER_BYTES:])
        is_there = cursor.next() if is_ascending else cursor.prev()


def listed_values(
    txn: Transaction,
    tables: Tables,
    family: Family,
    *,
    user_id: str | None = None,
    is_by_change: bool = False,
    is_ascending: bool = True,
    after: bytes | None = None,
    status: StatusName | None = None,
) -> Iterator[tuple[bytes, VersionedRecord]]:
    """
    Yield values of a family, each with its place in the order in which they began or were changed; expired ones too.

    Of a user those whose owner that is. Where keys name no owner also those that name nobody, and those of other owners whose keys
    are ids of chats that the user is a member of. `after` is the place before the first one. With a `status` only threads that
    stand so, by change.
    """
    owners = [None] if user_id is None else [user_id] if family is not THREAD else [user_id, ""]
    lists = [
        _numbers(
            txn,
            tables,
            listing(family, owner, is_by_change=is_by_change, status=status),
            is_ascending=is_ascending,
            after=after,
        )
        for owner in owners
    ]
    if user_id is not None and family is THREAD:
        # Of those there are as many as the user has joined chats, so they are put in order here.
        shared = _shared(txn, tables, user_id, is_by_change=is_by_change or status is not None, status=status)
        wanted = (
            place for place in shared if after is None or (place[0] > after if is_ascending else place[0] < after)
        )
        lists.append(iter(sorted(wanted, reverse=not is_ascending)))
    for place, stream_no in merge(*lists, reverse=not is_ascending) if len(lists) > 1 else lists[0]:
        yield place, record_at(txn, tables, stream_no)


def _shared(
    txn: Transaction, tables: Tables, user_id: str, *, is_by_change: bool, status: StatusName | None
) -> Iterator[tuple[bytes, int]]:
    for chat_no in joined_chats(txn, tables, user_id):
        chat_id = chat_at(txn, tables, chat_no)
        raw = None if chat_id is None else txn.get(rows.stream_key(THREAD.stream_of(chat_id)), db=tables.chat_ids)
        if raw is None:
            continue
        record = record_at(txn, tables, to_number(raw))
        if record.owner not in {None, user_id} and status in {None, record.status}:
            yield _changed(record) if is_by_change else number(record.first_position), record.first_position


def others_threads(txn: Transaction, tables: Tables, user_id: str) -> Iterator[VersionedRecord]:
    """Yield the threads that a user may see though they do not name that owner, the last changed first; expired ones too."""
    if user_id:
        for _, stream_no in _numbers(txn, tables, listing(THREAD, "", is_by_change=True), is_ascending=False):
            yield record_at(txn, tables, stream_no)
    for _, stream_no in _shared(txn, tables, user_id, is_by_change=True, status=None):
        yield record_at(txn, tables, stream_no)


def states_of_conversation(txn: Transaction, tables: Tables, conversation_id: str) -> Iterator[VersionedRecord]:
    """Yield the states of a conversation, in the order in which they began; expired ones too."""
    for _, stream_no in _numbers(txn, tables, OF_CONVERSATION + _digest(conversation_id)):
        yield record_at(txn, tables, stream_no)


def due_values(txn: Transaction, tables: Tables, *, until: int) -> Iterator[tuple[Family, VersionedRecord]]:
    """Yield the values of all families that expired at a moment, in ms, or before, the longest due first."""
    bound = BY_EXPIRY + moment(until + 1)
    families = {family.name.encode(): family for family in FAMILIES}
    for key, name in prefixed(txn, tables.version_lists, BY_EXPIRY):
        if key >= bound:
            return
        yield families[name], record_at(txn, tables, to_number(key[-_NUMBER_BYTES:]))


def known_items(txn: Transaction, tables: Tables, user_id: str, labels: Sequence[str]) -> Iterator[VersionedRecord]:
    """Yield a user's items under the beginning of a namespace as they began; expired and ended ones too."""
    for _, stream_no in _numbers(txn, tables, KNOWN_ITEMS + _labels_digest(user_id, labels)):
        yield record_at(txn, tables, stream_no)


def living_items(txn: Transaction, tables: Tables, user_id: str, labels: Sequence[str]) -> Iterator[VersionedRecord]:
    """Yield a user's items with a value under the beginning of a namespace, the last changed first; expired ones too."""
    for _, stream_no in _numbers(txn, tables, LIVING_ITEMS + _labels_digest(user_id, labels), is_ascending=False):
        yield record_at(txn, tables, stream_no)


class ItemNamespace(msgspec.Struct, frozen=True, array_like=True):
    """A namespace that has items with a value, and their number, expired ones included."""

    labels: tuple[str, ...]
    count: int


decode_namespace: Final = msgspec.msgpack.Decoder(ItemNamespace).decode


def listed_namespaces(
    txn: Transaction, tables: Tables, user_id: str, labels: Sequence[str] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield the namespaces in which a user has items with a value and that begin with some labels, in order."""
    wanted = tuple(labels)
    of_user = NAMESPACES + _digest(user_id)
    end = len(of_user) + ORDERED_BYTES
    entries = prefixed(txn, tables.version_lists, of_user + _ordered_labels(wanted)[:ORDERED_BYTES])
    for _, alike in groupby(entries, key=lambda row: row[0][:end]):  # mostly one: long ones differ later
        for namespace in sorted(decode_namespace(raw).labels for _, raw in alike):
            if namespace[: len(wanted)] == wanted:
                yield namespace


def listed_versions(
    txn: Transaction, tables: Tables, *, before: str | None = None, resume: bytes | None = None
) -> Iterator[tuple[bytes, str, str, str]]:
    """The versions of all threads by id, the greatest first: (key, thread id, line, version id)."""
    cursor = txn.cursor(tables.version_lists)
    start = resume or BY_ID + (b"\xff" if before is None else before.encode() + _END)  # no UTF-8 has 255
    is_there = cursor.prev() if cursor.set_range(start) else cursor.last()
    names = _LineNames(txn, tables)
    while is_there and (key := cursor.key()).startswith(BY_ID):
        yield key, *names.of(key[-_PLACE_BYTES:]), key[len(BY_ID) : -_PLACE_BYTES - len(_END)].decode()
        is_there = cursor.prev()


def versions_of_run(txn: Transaction, tables: Tables, run_id: str) -> list[tuple[str, str, str]]:
    """The versions that a run made: (thread id, line, version id)."""
    prefix, names = BY_RUN + _digest(run_id), _LineNames(txn, tables)
    end = len(prefix) + _PLACE_BYTES
    return [
        (*names.of(key[len(prefix) : end]), key[end:].decode())
        for key, _ in prefixed(txn, tables.version_lists, prefix)
    ]


class _LineNames:
    """The keys of values and the texts of their lines, by the numbers that lists have."""

    def __init__(self, txn: Transaction, tables: Tables) -> None:
        self._txn, self._tables = txn, tables
        self._names: dict[bytes, tuple[str, str]] = {}

    def of(self, place: bytes) -> tuple[str, str]:
        """Return key and line of a number of a value and the number of a line."""
        names = self._names.get(place)
        if names is None:
            stream_no = to_number(place[:_NUMBER_BYTES])
            raw = self._txn.get(number(stream_no) + rows.LINE_TEXT + place[_NUMBER_BYTES:], db=self._tables.versioned)
            line = "" if raw is None else raw.decode()
            names = self._names[place] = record_at(self._txn, self._tables, stream_no).key, line
        return names
