"""Writing anew what a repaired log lacks: what only the index still knows of chats, and what could be read behind the damage."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, Final, NamedTuple

import msgspec
from eventsourcing.persistence import Notification

from chatledger.domain.chat.events import Body, MessagesAppended, Recorded
from chatledger.domain.errors import ChatledgerError, CorruptStateError
from chatledger.domain.log.large_data import Reference
from chatledger.domain.values import Branch
from chatledger.projections.index import Index
from chatledger.projections.log.kinds import CHATS, KIND_OF_FAMILY, kind_of

from ...ledger.drafts import new_id
from ...ledger.interchange import exported_chat
from ...ledger.ledger import Ledger
from ...ledger.port import store_of
from ...log.blobs import MissingBlobError
from ...log.mapper import StructMapper
from .account import KeptEvents, LostData, describe_ranges, ranges_of
from .refitting import LOST_NAME, encode_text, refit_chat, refit_value

REFITTINGS: Final[Mapping[str, Callable[[Recorded, Any, str, Any], list[Body]]]] = {
    CHATS.name: lambda recorded, state, gap, _indexed: refit_chat(recorded, state, gap=gap, new_id=new_id),
    **{name: lambda recorded, state, _gap, indexed: refit_value(recorded, state, indexed) for name in KIND_OF_FAMILY},
}
"""
By the name of a kind of streams: (an event behind a hole, the stream, what is missing in words, the value as an index has it,
or None) to what is written.
"""


def recreate(ledger: Ledger, index: Index, heads: Mapping[str, tuple[int, bytes]], *, seen: int) -> set[str]:
    """Bring the chats that lost events to where the index saw them, but what was deleted after `seen`, and return which these are."""
    recreated: set[str] = set()
    for chat_id, (version, _) in heads.items():
        with store_of(ledger).snapshot() as snapshot:
            state = snapshot.chat(chat_id)
            tombstone, record = state.tombstone, state.record
        is_deleted = record is None and tombstone is not None and tombstone.head.position > seen
        if not is_deleted and (record is None or record.head.version < version):
            with index.snapshot() as snapshot:
                lost = exported_chat(snapshot.chat(chat_id))
            # Make a chat what it was, by calls that leave their events, so that its history says what a repair
            # did.
            ledger.import_chat(lost, on_change="refuse")
            now = ledger.get_chat(lost.id)
            assert now is not None, "it was just imported"
            if (now.title, now.metadata) != (lost.title, lost.metadata):
                ledger.update_chat(lost.id, title=lost.title, replace_metadata=lost.metadata)
            there: dict[str, Branch] = {branch.name: branch for branch in ledger.list_branches(lost.id)}
            for branch in lost.branches:
                head = there[branch.name].head_message_id
                if head != branch.head_message_id:
                    ledger.move_head(lost.id, branch.name, branch.head_message_id, expected=head)
                if branch.is_active and not there[branch.name].is_active:
                    ledger.set_active_branch(lost.id, branch.name)
            for name in there.keys() - {branch.name for branch in lost.branches}:
                ledger.delete_branch(lost.id, name)
            wanted = {checkpoint.name: checkpoint.message_id for checkpoint in lost.checkpoints}
            for checkpoint in ledger.list_checkpoints(lost.id):
                if checkpoint.name not in wanted:
                    ledger.delete_checkpoint(lost.id, checkpoint.name)
                elif checkpoint.message_id != wanted[checkpoint.name]:
                    ledger.set_checkpoint(lost.id, checkpoint.name, wanted[checkpoint.name])
            recreated.add(chat_id)
    return recreated


class LegibleEvent(NamedTuple):
    """An event that could be read behind damage, maybe without large data, in whose place it says what is lost."""

    recorded: Recorded
    lost_data: tuple[LostData, ...] = ()


def decode_record(mapper: StructMapper, record: Notification) -> LegibleEvent | None:
    """Return what a record says; None when it cannot be read."""
    try:
        return LegibleEvent(mapper.recorded(record))
    except CorruptStateError:
        pass
    except ChatledgerError:
        return None
    lost: dict[str, int] = {}

    def fetch(part: Reference) -> bytes | bytearray:
        try:
            if mapper.blobs is not None:
                return mapper.blobs.get(part.digest, part.size)
        except (ChatledgerError, MissingBlobError):
            pass
        # It says what is missing where the data were, so that the message and all that follows stay.
        text = f"[{part.size:,} bytes were lost when the log was damaged, with the SHA-256 {part.digest.hex()}]"
        lost[text] = part.size
        return part.stand_in(text)

    stream_id, version = str(record.originator_id), record.originator_version
    try:
        event = mapper.decode(record, fetch)
    except ChatledgerError:
        return None
    if not lost:
        return None
    if (event.originator_id, event.originator_version) != (stream_id, version) or not isinstance(
        event.body, MessagesAppended
    ):
        return None
    lacking = [
        LostData(chat_id=stream_id, message_id=message.id, version=version, size=size)
        for message in event.body.messages
        for text, size in lost.items()
        if encode_text(text) in encode_text(message.data)
    ]
    return LegibleEvent(Recorded(record.id, event, b""), tuple(lacking))


class Salvage:
    """
    Writes events anew that do not follow, each as a commit of its own.

    Args:
        index: What was derived from the damaged one before, if there is one: it knows how a value began, and what lost events brought.
    """

    def __init__(self, ledger: Ledger, index: Index | None = None) -> None:
        self._ledger, self._index = ledger, index
        self._kept: dict[str, list[int]] = {}
        self._unusable: dict[str, list[int]] = {}
        self._placeholders: dict[str, list[str]] = {}
        self._gaps: dict[str, set[int]] = {}
        self._last: dict[str, int] = {}
        self.lost_data: list[LostData] = []

    def take(self, readable: LegibleEvent, *, base: int) -> None:
        """Take the next event of a chat, which is whole without it up to the version `base`."""
        recorded = readable.recorded
        stream, version = recorded.chat_id, recorded.version
        gaps = self._gaps.setdefault(stream, set())
        gaps.update(range(self._last.get(stream, base) + 1, version))
        self._last[stream] = version
        try:
            written = self._write(recorded, gaps)
        except ChatledgerError:  # it does not fit: nothing was written
            written = []
        target = self._kept if written else self._unusable
        target.setdefault(stream, []).append(version)
        if written:
            self.lost_data += readable.lost_data
        self._placeholders.setdefault(stream, []).extend(
            message.id
            for rewritten in written
            if isinstance(rewritten.body, MessagesAppended)
            for message in rewritten.body.messages
            if message.type == LOST_NAME
        )

    def _write(self, recorded: Recorded, gaps: set[int]) -> list[Recorded]:
        store, stream = store_of(self._ledger).whole("repair"), recorded.chat_id
        kind = kind_of(stream)
        gap = f"Lost versions of the chat: {describe_ranges(ranges_of(gaps))}"

        with nullcontext() if self._index is None or kind is CHATS else self._index.snapshot() as snapshot:
            indexed = None if snapshot is None else kind.read(snapshot.tables, snapshot.txn, stream)

            def decide(state: Any, _now: int) -> list[Body]:
                return REFITTINGS[kind.name](recorded, state, gap, indexed)

            # Known by its stream: the key of a state stands in its first event alone, which may be what was lost.
            return store.execute(msgspec.structs.replace(kind, stream_of=str), stream, decide)

    def kept(self) -> tuple[KeptEvents, ...]:
        """Return the kept events, by chat."""
        return tuple(
            KeptEvents(
                chat_id=stream,
                versions=ranges_of(self._kept.get(stream, ())),
                unusable=ranges_of(self._unusable.get(stream, ())),
                placeholders=tuple(self._placeholders.get(stream, ())),
            )
            for stream in sorted(self._last)
        )
