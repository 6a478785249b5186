"""Runs and regenerations of one chat."""

from typing import TYPE_CHECKING, Final

import msgspec

from chatledger.domain.chat.runs import MessageRun, RegenerationRecord
from chatledger.domain.errors import CorruptStateError

from ..lmdb.environment import Transaction, prefixed
from ..lmdb.keys import Tag, chat_key, id_key, number, to_number

if TYPE_CHECKING:
    import lmdb


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_run: Final = msgspec.msgpack.Decoder(MessageRun).decode
_decode_regeneration: Final = msgspec.msgpack.Decoder(RegenerationRecord).decode

THREAD, TRIGGER, MESSAGE, REGENERATION, UNENDED = b"t", b"i", b"o", b"r", b"u"
"""The keys by which runs are listed: thread, trigger message, produced message, regeneration; and those that have not ended."""


class RunRows:
    """The rows in one transaction."""

    def __init__(self, txn: Transaction, table: "lmdb._Database", chat_no: int, chat_id: str) -> None:
        self._txn, self._table, self._chat_no, self._chat_id = txn, table, chat_no, chat_id

    def run(self, run_id: str) -> MessageRun | None:
        raw = self._get(Tag.RUN_NUMBER, id_key(run_id))
        return None if raw is None else self._numbered(raw)

    def runs(self) -> list[MessageRun]:
        """All runs in the order in which they were recorded."""
        return [self._run(value) for _, value in prefixed(self._txn, self._table, self._key(Tag.RUN))]

    def listed(self, listing: bytes, item_id: str) -> list[MessageRun]:
        """The runs of a list, in the order in which they were recorded."""
        prefix = self._key(Tag.RUN_LIST, _list_key(listing, item_id))
        return [self._numbered(key[len(prefix) :]) for key, _ in prefixed(self._txn, self._table, prefix)]

    def unended(self) -> list[MessageRun]:
        """The runs that have not ended, in the order in which they were recorded. Costs their number."""
        return self.listed(UNENDED, "")

    def regeneration(self, regeneration_id: str) -> RegenerationRecord | None:
        raw = self._get(Tag.REGENERATION, id_key(regeneration_id))
        return None if raw is None else _decode_regeneration(raw)

    def regenerations(self) -> list[RegenerationRecord]:
        """All regenerations by the time when they began, ties by id."""
        rows = prefixed(self._txn, self._table, self._key(Tag.REGENERATION))
        return sorted((_decode_regeneration(raw) for _, raw in rows), key=lambda record: (record.created_at, record.id))

    def put_run(self, run: MessageRun, before: MessageRun | None, run_count: int) -> None:
        """Add a run, or replace one; in a write transaction."""
        if before is None:
            at = number(run_count)
            self._put(Tag.RUN_NUMBER, id_key(run.run_id), at)
        else:
            stored_no = self._get(Tag.RUN_NUMBER, id_key(run.run_id))
            assert stored_no is not None, "a run that was there has a number"
            at = stored_no
        self._put(Tag.RUN, at, _encode(msgspec.structs.replace(run, chat_id="")))
        # A run is never taken out of these lists: an id in it is set once, and does not change.
        for listing, item_id in _lists(run):
            if before is None or (listing, item_id) not in _lists(before):
                self._put(Tag.RUN_LIST, _list_key(listing, item_id) + at, b"")
        # Listed by themselves, so that whether a thread is busy costs no more with all the runs that it had.
        if not run.is_ended:
            self._put(Tag.RUN_LIST, _list_key(UNENDED, "") + at, b"")
        elif before is not None and not before.is_ended:
            self._txn.delete(self._key(Tag.RUN_LIST, _list_key(UNENDED, "") + at), db=self._table)

    def put_regeneration(self, record: RegenerationRecord) -> None:
        """Add a regeneration, or replace it; in a write transaction."""
        self._put(Tag.REGENERATION, id_key(record.id), _encode(record))

    def _numbered(self, at: bytes) -> MessageRun:
        raw = self._get(Tag.RUN, at)
        if raw is None:
            msg = f"run {to_number(at)} of chat {self._chat_id!r} is missing in the index; rebuild it"
            raise CorruptStateError(msg, chat_id=self._chat_id)
        return self._run(raw)

    def _run(self, raw: bytes) -> MessageRun:
        return msgspec.structs.replace(_decode_run(raw), chat_id=self._chat_id)

    def _key(self, tag: bytes, rest: bytes = b"") -> bytes:
        return chat_key(self._chat_no, tag, rest)

    def _get(self, tag: bytes, rest: bytes) -> bytes | None:
        return self._txn.get(self._key(tag, rest), db=self._table)

    def _put(self, tag: bytes, rest: bytes, value: bytes) -> None:
        self._txn.put(self._key(tag, rest), value, db=self._table)


def _list_key(listing: bytes, item_id: str) -> bytes:
    """Return the key of a list; a number of a run follows it."""
    return listing + id_key(item_id) + b"\0"  # no id has NUL, so no list's key is the beginning of another's


def _lists(run: MessageRun) -> list[tuple[bytes, str]]:
    """The lists that a run stands in, as the kind of list and the id that it is for."""
    ids = (
        (THREAD, run.thread_id),
        (TRIGGER, run.trigger_message_id),
        (MESSAGE, run.message_id),
        (REGENERATION, run.regeneration_id),
    )
    return [(listing, item_id) for listing, item_id in ids if item_id is not None]
