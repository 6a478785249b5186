"""Keeping what could be read behind the damage of a chat: it is written anew, in order, as far as it makes sense."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from eventsourcing.persistence import Notification

from chatledger.domain.chat.events import Body, MessagesAppended, Recorded
from chatledger.domain.errors import ChatledgerError, CorruptStateError
from chatledger.domain.log.large_data import Reference
from chatledger.projections.log.kinds import CHATS, STATES, THREADS, kind_of
from chatledger.projections.snapshot import Snapshot

from ...ledger.drafts import new_id
from ...ledger.ledger import Ledger
from ...ledger.port import store_of
from ...log.blobs import MissingBlobError
from ...log.mapper import StructMapper
from .account import KeptEvents, LostData, describe_ranges, ranges_of
from .refitting import LOST_NAME, encode_text, refit_chat, refit_state, refit_thread

REFITTINGS: Final[Mapping[str, Callable[[Recorded, Any, str], list[Body]]]] = {
    CHATS.name: lambda recorded, state, gap: refit_chat(recorded, state, gap=gap, new_id=new_id),
    THREADS.name: lambda recorded, state, _gap: refit_thread(recorded, state),
    STATES.name: lambda recorded, state, _gap: refit_state(recorded, state),
}
"""By the name of a kind of streams: (an event behind a hole, the stream, what is missing in words) to what is written."""


class Readable(NamedTuple):
    """
    An event that could be read behind damage, maybe without its large data.

    Args:
        recorded: The event; what is said of lost large data stands in place of these.
        lost_data: Which messages lack data.
    """

    recorded: Recorded
    lost_data: tuple[LostData, ...] = ()


def decode_record(mapper: StructMapper, record: Notification) -> Readable | None:
    """Return what a record says; None when it cannot be read."""
    try:
        return Readable(mapper.recorded(record))
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
    return Readable(Recorded(record.id, event, b""), tuple(lacking))


class Salvage:
    """
    Writes events anew that do not follow, each as a commit of its own.

    Args:
        ledger: On the repaired log.

    Attributes:
        lost_data: Messages that were kept without their large data.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: dict[str, list[int]] = {}
        self._unusable: dict[str, list[int]] = {}
        self._placeholders: dict[str, list[str]] = {}
        self._gaps: dict[str, set[int]] = {}
        self._last: dict[str, int] = {}
        self.lost_data: list[LostData] = []

    def take(self, readable: Readable, *, base: int) -> None:
        """
        Take the next event of a chat.

        Args:
            readable: The event.
            base: The version up to which the chat is whole without it.
        """
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
        made = [
            message.id
            for one in written
            if isinstance(one.body, MessagesAppended)
            for message in one.body.messages
            if message.type == LOST_NAME
        ]
        self._placeholders.setdefault(stream, []).extend(made)

    def _write(self, recorded: Recorded, gaps: set[int]) -> list[Recorded]:
        store, stream = store_of(self._ledger).whole("repair"), recorded.chat_id
        kind = kind_of(stream)
        said = f"Lost versions of the chat: {describe_ranges(ranges_of(gaps))}"

        def read(snapshot: Snapshot) -> Any:
            if kind.is_refused_in_quarantine:
                snapshot.refuse(stream)
            return kind.read(snapshot.tables, snapshot.txn, stream)

        def decide(state: Any, _now: int) -> list[Body]:
            return REFITTINGS[kind.name](recorded, state, said)

        return store.execute_on_stream((stream, read, decide), kind=None)

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
