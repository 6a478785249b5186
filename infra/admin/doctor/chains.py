"""Following every chain of a log, past what is damaged: where each breaks, and how much of it stands."""

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec
from eventsourcing.persistence import Notification

from chatledger.domain.chat.events import Recorded, StreamDeleted
from chatledger.domain.errors import ChatledgerError, ConfigurationError, UnsupportedFormatError
from chatledger.domain.log.tombstones import ForeignMessage, removed_until

from ...log.cipher import key_named


class Break(msgspec.Struct, frozen=True, kw_only=True):
    """A break of a hash chain."""

    stream: str
    position: int
    version: int
    expected: int
    why: str


class ChainScan:
    """
    The result of a walk over records. Nothing is raised for damage.

    Attributes:
        heads: Version and hash of the last event of each stream that follows.
        breaks: Of the streams whose chain breaks, the first place; not of those that were deleted after it.
        keeps: Of those streams, the version up to which all is certain and commits are whole.
        unreadable: (position, stream, why) of records that hold no event that can be read.
        unerased: The streams that were deleted and still have events from before that.
        hash, hash_position: Of the last event that follows.
        missing, erased: As in the index.
        foreign: (position, stream or "", why) of foreign messages.
        removed_until: Up to which position foreign messages were accounted for by an earlier repair.
        unproven: Positions of damaged records that can be read, and of which nothing proves that the event is right.

    Args:
        doubtful: Positions of records that are damaged, though they may be read: their checksum is wrong.
        is_checked: Whether the log does not give what was damaged, see `EventLog`.
    """

    def __init__(self, doubtful: Collection[int] = (), *, is_checked: bool = False) -> None:
        self.foreign: list[tuple[int, str, str]] = []
        self.removed_until = 0
        self._is_checked = is_checked
        self._whole_since = 1
        self._at: dict[str, int] = {}
        self._doubtful = doubtful
        self.unproven: dict[int, tuple[str, int, bytes]] = {}
        self._unproven_last: dict[str, int] = {}
        self.heads: dict[str, tuple[int, bytes]] = {}
        self.breaks: dict[str, Break] = {}
        self.keeps: dict[str, int] = {}
        self.unreadable: list[tuple[int, str, str]] = []
        self.holes: list[tuple[int, int]] = []
        self.position = self.missing = self.erased = self.event_count = 0
        self.hash, self.hash_position = b"", 0
        self.unerased: set[str] = set()
        self.key_ids: set[str] = set()
        """The ids of the keys that records are encrypted with."""
        self._latest: dict[str, int] = {}
        self._whole: dict[str, tuple[int, int]] = {}

    def run(self, records: Iterable[Notification], decode: Callable[[Notification], Recorded]) -> None:
        """
        Walk over records in order.

        Raises:
            ConfigurationError: They are encrypted, and there is no key; or a newer chatledger wrote them.
        """
        for record in records:
            if record.id > self.position + 1:
                self.holes.append((self.position + 1, record.id - 1))
                self._whole_since = record.id
            self.missing += record.id - self.position - 1
            self.position = record.id
            key_id = key_named(record.state)
            if key_id is not None:
                self.key_ids.add(key_id.decode("ascii", "replace"))
            try:
                recorded = decode(record)
            except (ConfigurationError, UnsupportedFormatError) as error:
                # A damaged topic looks like that of a newer version.
                if isinstance(error, UnsupportedFormatError) and "unknown event type" in str(error):
                    self._note_unreadable(record, error)
                    continue
                raise
            except ChatledgerError as error:
                self._note_unreadable(record, error)
                continue
            self._take(recorded)

    def _note_unreadable(self, record: Notification, error: ChatledgerError) -> None:
        self.unreadable.append((record.id, str(record.originator_id), str(error)))
        self.missing += 1
        self._latest[str(record.originator_id)] = record.id
        # A chat of that name may never have been.
        if record.id in self._doubtful and str(record.originator_id) not in self.heads:
            return  # what a damaged record says of its chat may be damaged, too
        self._break(str(record.originator_id), record.id, record.originator_version, f"it cannot be read: {error}")

    def _take(self, recorded: Recorded) -> None:
        stream, body = recorded.chat_id, recorded.body
        if isinstance(body, ForeignMessage):
            self.foreign.append((recorded.position, stream, body.why))
            return
        self._prove(recorded)
        version, digest = self.heads.get(stream, (0, b""))
        is_next = recorded.version == version + 1
        follows = is_next and recorded.event.previous_hash == digest
        latest, self._latest[stream] = self._latest.get(stream, 0), recorded.position
        if isinstance(recorded.body, StreamDeleted) and (
            recorded.version > version + 1 or follows or stream in self.breaks
        ):
            self.erased += max(0, recorded.version - version - 1)
            if latest >= recorded.body.first_position:
                self.unerased.add(stream)
            self.breaks.pop(stream, None)
            self.keeps.pop(stream, None)
            self.removed_until = max(self.removed_until, removed_until(stream) or 0)
        # Somebody else published it under the chat's subject: it breaks no chain, and is passed over like other foreign messages.
        elif stream not in self.breaks and not follows and self._is_extra(recorded, version):
            self.foreign.append((recorded.position, stream, f"version {recorded.version} does not follow {version}"))
            return
        elif stream in self.breaks or not follows:
            self.missing += 1
            why = (
                f"version {version + 1} was expected"
                if not is_next
                else "it does not name the hash of the one before it"
            )
            self._break(stream, recorded.position, recorded.version, why, is_hash_wrong=is_next)
            return
        self.hash, self.hash_position = recorded.hash, recorded.position
        self.event_count += 1
        self.heads[stream] = (recorded.version, recorded.hash)
        self._at[stream] = recorded.position
        last, before = self._whole.get(stream, (0, 0))
        if not recorded.event.rest:
            self._whole[stream] = (recorded.version, last)
        else:
            self._whole.setdefault(stream, (last, before))

    def _is_extra(self, recorded: Recorded, version: int) -> bool:
        """Whether an event that does not follow was added by somebody else, as nothing can be missing before it."""
        if recorded.version <= version:
            return True
        is_whole = self._at.get(recorded.chat_id, 0) >= self._whole_since - 1
        return self._is_checked and (recorded.version == version + 1 or is_whole)

    def _prove(self, recorded: Recorded) -> None:
        """Note that a damaged record holds the right event, when the next one names its hash."""
        stream = recorded.chat_id
        position = self._unproven_last.pop(stream, 0)
        if position:
            _, version, digest = self.unproven[position]
            if (recorded.version, recorded.event.previous_hash) == (version + 1, digest):
                del self.unproven[position]
        # Where only the checksum or the time of a record is damaged, the next event proves it; behind the last one there is none.
        if recorded.position in self._doubtful:
            self.unproven[recorded.position] = (stream, recorded.version, recorded.hash)
            self._unproven_last[stream] = recorded.position

    def distrust_unproven(self, seen: Mapping[str, tuple[int, bytes]]) -> None:
        """Note as damaged what no next event proves: the last events of chats, and before holes, unless an index has `seen` them so."""
        for position, (stream, version, digest) in list(self.unproven.items()):
            if seen.get(stream) == (version, digest):
                del self.unproven[position]
            elif self.heads.get(stream) == (version, digest):
                broken = self.breaks.get(stream)
                self.distrust(stream, "its record is damaged")
                if broken is not None:
                    self.breaks[stream] = broken

    def _break(self, stream: str, position: int, version: int, why: str, *, is_hash_wrong: bool = False) -> None:
        if stream in self.breaks:  # what stands behind the first break says nothing of where the chain broke
            return
        expected = self.heads.get(stream, (0, b""))[0] + 1
        self.breaks[stream] = Break(stream=stream, position=position, version=version, expected=expected, why=why)
        whole, before = self._whole.get(stream, (0, 0))
        # A hash that is wrong may mean that the event before was altered: it is not certain then. And a commit of which
        # only a part is certain is not kept, so that nobody sees half of it.
        self.keeps[stream] = before if is_hash_wrong and whole == expected - 1 else min(whole, expected - 1)

    def distrust(self, stream: str, why: str) -> None:
        """Note that the last event of a stream, which follows, is not the one that was seen before."""
        version, _ = self.heads[stream]
        whole, before = self._whole.get(stream, (0, 0))
        position = self.position
        self.breaks[stream] = Break(stream=stream, position=position, version=version, expected=version, why=why)
        self.keeps[stream] = before if whole == version else min(whole, version - 1)

    @property
    def lost(self) -> int:
        """The number of positions without an event that belongs there, and without a tombstone that accounts for it."""
        return max(0, self.missing - self.erased)
