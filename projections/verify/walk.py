"""Walk of a log from its start: every event is read, checked, and replayed into a scratch generation of an index."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from chatledger.domain.chat.events import ContentRedacted, Recorded, StreamDeleted
from chatledger.domain.chat.state import ChatState, StreamHead
from chatledger.domain.errors import (
    ChainIntegrityError,
    ChatledgerError,
    CorruptStateError,
    LedgerClosedError,
    LogUnavailableError,
    UnsupportedFormatError,
)
from chatledger.domain.holds import HoldWatch
from chatledger.domain.log.merkle import root_of_peaks
from chatledger.domain.proof.anchors import Anchor, AnchorLeaf, stream_digest
from chatledger.domain.proof.verification import ForeignRecord, broken, broken_off, check_commit, check_event
from chatledger.domain.wire import encode_plain

from ..generations import Generation, IndexState
from ..lmdb.environment import Transaction
from ..log.applying import Settings, apply_events
from ..projector import Log, Remains, find_tombstone

_SHOWN: Final = 5


class AnchorWatch:
    """Compares a log with an anchor, event by event. Takes memory for the leaves of the anchor."""

    def __init__(self, anchor: Anchor) -> None:
        self.anchor = anchor
        self._leaves = {leaf.digest: leaf for leaf in anchor.leaves}
        self._digests: dict[str, bytes] = {}
        self._reached: set[bytes] = set()
        self._erased: dict[bytes, str] = {}
        self._changed: dict[bytes, tuple[Recorded, str]] = {}

    def take(self, recorded: Recorded, head: StreamHead) -> None:
        """Take the next event, and where it leaves its stream."""
        digest = self._digests.get(recorded.chat_id)
        if digest is None:
            digest = self._digests[recorded.chat_id] = stream_digest(recorded.chat_id)
        leaf = self._leaves.get(digest)
        if leaf is None or head.version < leaf.version:
            return
        if head.version == leaf.version:
            self._reached.add(digest)
            why = _difference(leaf, head)
            if why is not None:
                self._changed[digest] = recorded, why
        elif isinstance(recorded.body, StreamDeleted) and recorded.body.first_position <= leaf.position:
            # The chat was deleted since; where its tombstone follows at once, it must name what was anchored.
            if recorded.version == leaf.version + 1 and recorded.event.previous_hash != leaf.hash:
                self._changed[digest] = recorded, f"its tombstone does not continue event {leaf.version}"
            elif recorded.position <= self.anchor.position:
                self._changed[digest] = recorded, "its tombstone stands among the events of the anchor, which has none"
            else:
                self._erased[digest] = recorded.chat_id
        elif digest not in self._reached and digest not in self._erased:
            self._changed[digest] = recorded, f"it has no event {leaf.version}"

    @property
    def erased(self) -> list[str]:
        """The chats that were deleted since, in the order of their deletion."""
        return list(self._erased.values())

    @property
    def problem(self) -> ChainIntegrityError | None:
        """Return what is wrong with the log up to here; None when it has everything that was anchored."""
        if self._changed:
            recorded, why = min(self._changed.values(), key=lambda change: change[0].position)
            more = f" (and so for {len(self._changed) - 1:,} more)" if len(self._changed) > 1 else ""
            return self._error(f"chat {recorded.chat_id!r} is not as it was: {why}{more}", recorded)
        missing = sorted(self._leaves.keys() - self._reached - self._erased.keys())
        if missing:
            names = ", ".join(digest.hex()[:16] + "…" for digest in missing[:_SHOWN])
            return self._error(
                f"{len(missing):,} of its {len(self._leaves):,} streams are not on the log, or end earlier; their ids have the "
                f"SHA-256 {names}"
            )
        return None

    def _error(self, what: str, recorded: Recorded | None = None) -> ChainIntegrityError:
        msg = (
            f"the log is not the one that was anchored at position {self.anchor.position}: {what}. Events were changed, dropped "
            "or moved since; compare the log with a backup"
        )
        if recorded is None:
            return ChainIntegrityError(msg)
        return ChainIntegrityError(msg, chat_id=recorded.chat_id, position=recorded.position, version=recorded.version)


def _difference(leaf: AnchorLeaf, head: StreamHead) -> str | None:
    """The difference of a stream to what was anchored, which had the same version; None when there is none."""
    if leaf.hash != head.hash:
        return f"event {leaf.version} has the hash {head.hash.hex()[:16]}…, it had {leaf.hash.hex()[:16]}…"
    if leaf.position != head.position:
        return f"event {leaf.version} stands at position {head.position}, it stood at {leaf.position}"
    if (leaf.size, leaf.root) != (head.size, root_of_peaks(head.peaks)):
        return f"the events up to {leaf.version} stand at other positions than they did"
    return None


PAGE_EVENTS: Final = 500
GATHERED_EVENTS: Final = 2_000
_LIGHT_BYTES: Final = 4 << 20
_SAMPLED: Final = 16
"""One event of so many is weighed."""
_ADVICE: Final = "Restore the log from a backup"
_SEARCHED: Final = 100_000
_MOST_FOREIGN: Final = 1_000


class WalkedLog(Log, Protocol):
    """The log that a walk reads."""

    @property
    def is_checked(self) -> bool:
        """Whether it does not give what was damaged."""
        ...

    def committed_position(self) -> int:
        """The position of the last event, behind all that was acknowledged before; 0 for an empty log."""
        ...


class Walk:
    """
    One walk over a log. It takes the memory of one page, whatever the length of the log.

    Args:
        log: The log.
        scratch: An empty generation, which holds the replayed chats afterwards.
        watch: Is told every event.
        progress: Is told the position reached.
    """

    def __init__(
        self,
        log: WalkedLog,
        scratch: Generation,
        *,
        watch: AnchorWatch | None,
        progress: Callable[[int], None],
    ) -> None:
        self._log, self.scratch, self._watch, self._progress = log, scratch, watch, progress
        self.holds = HoldWatch()
        self.state = IndexState()
        self.event_count = self.tombstone_count = self.foreign_count = 0
        self.foreign: list[ForeignRecord] = []
        self._at = 0
        self._open_commit: Recorded | None = None
        self._last: Recorded | None = None
        self._remains = Remains()
        self._passed = 0
        self._unexplained: dict[str, dict[int, Recorded]] = {}
        """The events without content, by stream and version, until the event is read that says why. They take no content."""
        self._settings = Settings(
            check=self._check,
            watch=self._see,
            is_checked=log.is_checked,
            pass_over=self._pass_over,
        )

    def to(self, target: int) -> None:
        """
        Walk up to a position.

        Raises:
            ChainIntegrityError, CorruptStateError, UnsupportedFormatError: An event is not sound; the error names it.
        """
        while self._at < target:
            page = [recorded for recorded in self._read() if recorded.position <= target]
            if not page:
                return
            self._take(page)
            self._at = page[-1].position
            self._progress(self._at)

    def finish(self) -> None:
        """
        Walk to the present end of the log, and check what only the whole can tell.

        Raises:
            ChainIntegrityError: Events are lost, or are not those of the anchor.
        """
        seen = -1
        while True:
            target = self._log.committed_position()
            self.to(target)
            problem = self._problem(target)
            if problem is None:
                return
            # A chat that was deleted while we walked leaves holes before its tombstone comes, which is on the log by now.
            if target <= seen:
                raise problem
            seen = target

    def _problem(self, target: int) -> ChainIntegrityError | None:
        if self._open_commit is not None and self._open_commit.event.rest:
            return broken_off(self._open_commit)
        for of_stream in self._unexplained.values():
            for recorded in of_stream.values():
                slots = ", ".join(map(str, recorded.event.redacted))
                return broken(
                    recorded, f"the content of its slots {slots} was taken away, and nothing on the log says why"
                )
        watched = None if self._watch is None else self._watch.problem
        if watched is not None:
            return watched
        state = self.state
        missing = state.missing + target - state.position
        # Only a log without holes tells by them what is lost: an erased event leaves one, and its tombstone says how many.
        if self._log.is_dense and missing > state.erased:
            msg = (
                f"{missing:,} positions up to {target} hold no event, but deleted chats account for {state.erased:,} only: "
                f"events are lost. {_ADVICE}"
            )
            return ChainIntegrityError(msg)
        return None

    def _read(self) -> Sequence[Recorded]:
        """Read the next page, and pages behind it as long as they are small: a chat's rows are written once for all of them."""
        try:
            events = page = self._log.read(self._at, PAGE_EVENTS)
        except (LogUnavailableError, LedgerClosedError):
            raise
        except ChatledgerError as error:
            self._narrow()
            raise self._located(error) from error
        while page and len(events) < GATHERED_EVENTS:
            # As JSON: MessagePack has no integers beyond 64 bits, which messages may hold.
            sampled = sum([len(encode_plain(recorded.event.body)) for recorded in page[::_SAMPLED]])
            if _SAMPLED * sampled >= _LIGHT_BYTES:
                break
            try:
                page = self._log.read(page[-1].position, PAGE_EVENTS)
            except ChatledgerError:
                break  # met again by the next read, when the events before it are checked
            events = [*events, *page]
        return events

    def _narrow(self) -> None:
        """Go on event by event, up to the one that cannot be read; one before it may be the first that is not sound."""
        while True:
            try:
                page = self._log.read(self._at, 1)
            except (LogUnavailableError, LedgerClosedError):
                raise
            except ChatledgerError as error:
                raise self._located(error) from error
            if not page:
                return
            self._take(page)
            self._at = page[0].position

    def _located(self, error: ChatledgerError) -> ChatledgerError:
        """The error for the event after the last good one, which cannot be read."""
        position: int | None = getattr(error, "position", None)
        if position is None:
            position, error = self._find(error)
        where = "" if f"position {position}" in str(error) else f"the event at position {position}: "
        msg = f"{where}{error}. {_ADVICE}"
        if isinstance(error, UnsupportedFormatError):
            return UnsupportedFormatError(f"{where}{error}")
        chat_id, version = getattr(error, "chat_id", None), getattr(error, "version", None)
        kind = ChainIntegrityError if isinstance(error, ChainIntegrityError) else CorruptStateError
        return kind(msg, chat_id=chat_id, position=position, version=version)

    def _find(self, error: ChatledgerError) -> tuple[int, ChatledgerError]:
        for position in range(self._at + 1, self._at + _SEARCHED):
            try:
                self._log.event_at(position)
            except LogUnavailableError:
                raise
            except ChatledgerError as unreadable:
                return position, unreadable
        return self._at + 1, error

    def _take(self, page: Sequence[Recorded]) -> None:
        while True:
            events = self._remains.removed_from(page)
            if not events:
                return
            try:
                self._apply(events)
            except ChainIntegrityError as error:
                if not self._is_explained(error):
                    raise  # else once more, without what is left of the deleted chat
            else:
                self.event_count += len(events) - self._passed
                self.foreign_count += self._passed
                self.tombstone_count += sum(isinstance(recorded.event.body, StreamDeleted) for recorded in events)
                for recorded in events:
                    self._explain(recorded)
                return

    def _explain(self, recorded: Recorded) -> None:
        """Note an event without content, or what one says of content that earlier ones lack."""
        event, body = recorded.event, recorded.event.body
        if isinstance(body, StreamDeleted):
            self._unexplained.pop(recorded.chat_id, None)
        elif isinstance(body, ContentRedacted):
            of_stream = self._unexplained.get(recorded.chat_id, {})
            for version, slots in body.targets:
                unexplained = of_stream.pop(version, None)
                rest = () if unexplained is None else set(unexplained.event.redacted) - set(slots)
                if unexplained is not None and rest:
                    left = replace(unexplained.event, redacted=tuple(sorted(rest)))
                    of_stream[version] = replace(unexplained, event=left)
        if event.redacted:
            bare = replace(recorded, event=replace(event, body=None))
            self._unexplained.setdefault(recorded.chat_id, {})[recorded.version] = bare

    def _apply(self, events: Sequence[Recorded]) -> None:
        before, foreign_before = self._open_commit, len(self.foreign)

        def change(txn: Transaction) -> IndexState:
            # A transaction that finds its environment full is begun again, so it begins with what was there before.
            self._open_commit, self._passed = before, 0
            del self.foreign[foreign_before:]
            return apply_events(self.scratch, txn, events=events, settings=self._settings)

        try:
            self.state = self.scratch.update(change)
        except ChainIntegrityError as error:
            self._open_commit = before
            raise self._named(error) from error

    def _see(self, recorded: Recorded, head: StreamHead) -> None:
        self.holds.take(recorded)
        if self._watch is not None:
            self._watch.take(recorded, head)

    def _pass_over(self, recorded: Recorded, why: str) -> None:
        self._passed += 1
        if len(self.foreign) < _MOST_FOREIGN:
            self.foreign.append(ForeignRecord(recorded.position, recorded.chat_id or None, why))

    def _check(self, state: ChatState, recorded: Recorded) -> None:
        self._last = recorded
        check_commit(self._open_commit, recorded)
        check_event(state, recorded)
        self._open_commit = recorded

    def _named(self, error: ChainIntegrityError) -> ChainIntegrityError:
        """The error with all facts: what raised it knew the event or did not."""
        last = self._last
        if last is None or error.version is not None:
            return error
        if error.position not in {None, last.position}:  # an earlier event, which is in the message
            return error
        return ChainIntegrityError(str(error), chat_id=last.chat_id, position=last.position, version=last.version)

    def _is_explained(self, error: ChainIntegrityError) -> bool:
        """Whether an event does not follow only because its chat was deleted later and is being erased; it is left out."""
        try:
            tombstone = find_tombstone(self._log, error.chat_id, error.position)
        except (LogUnavailableError, LedgerClosedError):
            raise
        except ChatledgerError:
            return False
        if tombstone is None:
            return False
        self._remains.add(tombstone)
        self._settings.partly_erased.add(tombstone.chat_id)
        if self._open_commit is not None and self._open_commit.chat_id == tombstone.chat_id:
            self._open_commit = None
        return True
