"""Following a log from where a backup ends: every event must be the next one of its stream."""

from eventsourcing.persistence import Notification

from chatledger.domain.errors import ChainIntegrityError
from chatledger.domain.events import Recorded, StreamDeleted
from chatledger.domain.foreign import is_foreign
from chatledger.domain.state import misplaced

from .manifest import Heads

_ADVICE = "The backup stays as it was. 'chatledger doctor' says more"


class Follower:
    """
    The chain of every stream, up to the position reached.

    A chat that is deleted while it is read has holes before its tombstone comes. So what does not follow is left out and
    remembered; `problem` says whether a tombstone explained it.
    """

    def __init__(self, heads: Heads, *, position: int, hash_: bytes, missing: int, erased: int) -> None:
        self.heads, self.position, self.hash = heads, position, hash_
        self.missing, self.erased = missing, erased
        self.reached = position
        """Up to where the log was read; what others published after the last event is not in the backup."""
        self.passed: list[int] = []
        """The foreign messages since the last event."""
        self.rest = 0
        self.doomed: list[tuple[str, int, int]] = []
        """(stream, first position, position of the tombstone) of what was deleted."""
        self._suspects: dict[str, ChainIntegrityError] = {}

    def expect_tombstone(self) -> None:
        """The event that the backup ends with is gone from the log: only a tombstone can explain that."""
        for stream, (_, digest) in self.heads.items():
            if digest == self.hash:
                msg = (
                    f"the event at position {self.position} of the log, of chat {stream!r}, was there when the last backup "
                    "was taken, and is gone without a deletion"
                )
                self._suspects[stream] = ChainIntegrityError(msg, chat_id=stream, position=self.position)

    def is_foreign(self, recorded: Recorded) -> bool:
        """Whether this is a foreign message: its place is kept in the backup, and nothing of what it says."""
        self.reached = recorded.position
        if is_foreign(recorded) or recorded.version <= self.heads.get(recorded.chat_id, (0, b""))[0]:
            self.passed.append(recorded.position)
            return True
        return False

    def take(self, record: Notification, recorded: Recorded) -> bool:
        """Whether an event belongs into the backup. All of the log are to be given, in order."""
        self.missing += record.id - self.position - 1 - len(self.passed)
        self.passed = []
        self.position, self.hash, self.rest = record.id, recorded.hash, recorded.event.rest
        stream, body = recorded.chat_id, recorded.body
        version, digest = self.heads.get(stream, (0, b""))
        is_next = recorded.version == version + 1 and recorded.event.previous_hash == digest
        if isinstance(body, StreamDeleted) and (recorded.version > version + 1 or is_next):
            self.erased += recorded.version - version - 1
            self._suspects.pop(stream, None)
            self.doomed.append((stream, body.first_position, recorded.position))
        elif stream in self._suspects or not is_next:
            self._suspects.setdefault(
                stream, misplaced(recorded, f"version {version + 1} was expected, in the chain that was read before")
            )
            self.missing += 1
            return False
        self.heads[stream] = (recorded.version, recorded.hash)
        return True

    def problem(self, *, is_dense: bool) -> ChainIntegrityError | None:
        """What no tombstone explained up to here."""
        for error in self._suspects.values():
            return ChainIntegrityError(f"{error}. {_ADVICE}", chat_id=error.chat_id, position=error.position)
        if is_dense and self.missing > self.erased:
            msg = (
                f"{self.missing:,} positions up to {self.position} hold no event, but deleted chats account for "
                f"{self.erased:,} only: events are lost. {_ADVICE}"
            )
            return ChainIntegrityError(msg)
        return None
