"""Pulls: what another ledger has of chats and this one lacks, with the same ids, and with the same hashes where one history goes on."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import Final, NamedTuple

import msgspec

from chatledger.domain.chat.interchange import ImportedChat
from chatledger.domain.errors import ChatNotFoundError, InvalidValueError, MessageNotFoundError
from chatledger.domain.legal_hold import LegalHold
from chatledger.domain.limits import check_id
from chatledger.domain.proof.head_sums import BUCKET_BYTES
from chatledger.domain.values import Progress, no_progress
from chatledger.domain.wire import Value

from ..log.bookmarks import Bookmark, bookmark_key
from ..log.envelope import clock_ms
from .peers import (
    ChatStanding,
    Heads,
    LedgerPeer,
    Outcome,
    PulledChat,
    PullSource,
    PullTarget,
    Settlement,
    TakenChat,
    TravelMethods,
)
from .port import LedgerLog

EVENTS_TOGETHER: Final = 4_096
"""So many events are checked before the first of them is written, and are on the way together."""
IN_MEMORY: Final = 16 * 1024 * 1024
"""Larger ones wait in a temporary file."""
BUCKETS_TOGETHER: Final = 4_096
STANDINGS_TOGETHER: Final = 256
"""So many are asked for at once."""
_DIGITS: Final = 32
_SETTLED: Final = {"new", "merged", "deleted", "replaced"}


class PullReport(Value, frozen=True, kw_only=True):
    """
    What a pull did.

    Args:
        compared: How many chats the other ledger showed.
        chats: Those that are not as they were, and those that were to change and could not, in the order of their ids.
        holds: The legal holds that were put, as they are in force there.
    """

    compared: int
    chats: tuple[PulledChat, ...]
    holds: tuple[LegalHold, ...] = ()


class _Difference(NamedTuple):
    """Difference of a chat of another ledger: `events` are there from its last event back to the first `known`, which are here."""

    outcome: Outcome
    theirs: ChatStanding
    known: int = 0
    events: int = 0
    since: int = 0
    """The version there up to which a merge took in what there is."""


class SyncMethods(TravelMethods):
    """The part of a ledger that takes over what others went on with."""

    def pull(
        self,
        source: "SyncMethods | PullSource",
        *,
        name: str,
        chat_ids: Sequence[str] | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> PullReport:
        """
        Take over what another ledger has of chats and this one lacks. Repeating changes nothing, and `source` is only read.

        A chat that only the other went on with is continued, event by event, with ids, times and hashes. One that both went on with
        gets the messages it lacks, with their ids; a branch moves on where the other's goes on from it, else that comes as
        `name/branch`, so that nothing is lost and nobody wins. What was deleted or redacted there is here too; what was deleted here
        stays deleted. Legal holds on users and chats come too, and end where each ledger releases them. When ledgers pull from each other
        until nothing changes, all have the same messages and the same ends of branches. Interrupted, the next call goes on. A chat that
        cannot be here is named in the answer, and the others go on.

        Args:
            source: An open ledger, the whole of one or one user's; or a `chatledger.admin.RemoteLedger`, one behind `chatledger serve`.
            name: What the other is called here, such as `office`; give it the same name each time.
            chat_ids: Only these chats; without it all that it shows.
            dry_run: Only say what would be done: `messages` and `branches` are not known before it is done.
            progress: Called with (chats done, chats that differ).

        Raises:
            InvalidValueError: What the other has does not hold; chats that came before it were taken over.
            AccessDeniedError: This ledger is limited to a user.
            LogUnavailableError: A log did not answer; repeat the call.

        Source: both indexes, and the log of the other for events. Costs one comparison where the chats are equal, else a few hundred sums, and reading what is new in those that differ.
        """
        store = self._store.whole("pull")
        check_id(name, "name")
        if isinstance(source, SyncMethods):
            other: PullSource = LedgerPeer(source)
        elif isinstance(source, PullSource):
            other = source
        else:
            msg = f"source must be an open ledger, as chatledger.open returns it, or a RemoteLedger, not {type(source).__name__}"
            raise InvalidValueError(msg)
        travel = _Travel(other, LedgerPeer(self), name, store.log)
        return travel.go(chat_ids, progress or no_progress, dry_run=dry_run)

    def push(
        self,
        target: "SyncMethods | PullTarget",
        *,
        name: str,
        chat_ids: Sequence[str] | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> PullReport:
        """
        Have another ledger take over what this one has of chats and it lacks, as if it pulled.

        Behind a server each chat is written as its key may write: to chats of its user, and those in which the user is a writer. What it
        may not is named in the answer as `refused`, and the others go on.

        Args:
            target: An open ledger; or a `chatledger.admin.RemoteLedger`, one behind `chatledger serve`.
            name: What this ledger is called there, such as `laptop`; give it the same name each time.
            chat_ids: Only these chats; without it all that this ledger shows.
            dry_run: Only say what would be done.
            progress: Called with (chats done, chats that differ).

        Raises:
            InvalidValueError: What this ledger has does not hold there.
            AccessDeniedError: The target is limited to a user, or the key may not write.
            LogUnavailableError: A log or the server did not answer; repeat the call.

        Source: both indexes, and the log of this ledger for events.
        """
        check_id(name, "name")
        if isinstance(target, SyncMethods):
            return target.pull(self, name=name, chat_ids=chat_ids, dry_run=dry_run, progress=progress)
        if not isinstance(target, PullTarget):
            msg = f"target must be an open ledger, as chatledger.open returns it, or a RemoteLedger, not {type(target).__name__}"
            raise InvalidValueError(msg)
        travel = _Travel(LedgerPeer(self), target, name, self._store.log)
        return travel.go(chat_ids, progress or no_progress, dry_run=dry_run)


class _Merge(NamedTuple):
    """The last events of a chat at both ends, by the beginning of their hashes, when what one end had was merged into the other."""

    version: int
    theirs: str
    ours: str

    @classmethod
    def of(cls, theirs: tuple[int, str] | None, ours: tuple[int, str] | None) -> "_Merge | None":
        """Return the merge of two heads; None where one of them is missing."""
        return None if theirs is None or ours is None else cls(theirs[0], theirs[1][:_DIGITS], ours[1][:_DIGITS])


class _Travel:
    """The way of chats from one ledger to another. `log` is that of either, and keeps what was merged."""

    def __init__(self, source: PullSource, target: PullTarget, name: str, log: LedgerLog) -> None:
        self._source, self._target, self._name = source, target, name
        self._theirs, self._ours = source.sums(()), target.sums(())
        if self._theirs.identity == self._ours.identity:
            msg = "this is the same ledger; there is nothing to pull"
            raise InvalidValueError(msg)
        self._merges = _Merges(log, f"{self._theirs.identity} {self._ours.identity} {name}")

    def go(self, chat_ids: Sequence[str] | None, progress: Progress, *, dry_run: bool) -> PullReport:
        """Bring what is lacking."""
        theirs, ours = self._heads(chat_ids)
        unlike: dict[str, _Merge | None] = {}
        for chat_id in sorted(each for each in theirs.keys() | ours.keys() if theirs.get(each) != ours.get(each)):
            merged = self._merges.get(chat_id)
            if merged is None or merged != _Merge.of(theirs.get(chat_id), ours.get(chat_id)):
                unlike[chat_id] = merged
        differing: dict[str, _Difference] = {}
        waiting: dict[str, _Difference] = {}
        pulled: list[PulledChat] = []
        holds: list[LegalHold] = []
        total = 0
        try:
            for done, (chat_id, difference) in enumerate(self._differences(unlike)):
                progress(done, len(unlike))
                if difference is None:
                    continue
                (waiting if difference.events else differing)[chat_id] = difference
                total += difference.events
                if total >= EVENTS_TOGETHER and not dry_run:
                    pulled += self._continue(waiting)
                    waiting, total = {}, 0
            if dry_run:
                pulled += _planned(waiting | differing)
            else:
                pulled += self._continue(waiting)
                # Before anything is deleted; and after what only the other went on with, as a mark is an event too.
                held = self._source.holds(chat_ids)
                holds = self._target.take_holds(held) if held else []
                settled = [self._settle(chat_id, difference) for chat_id, difference in differing.items()]
                pulled += [each for each in settled if each is not None]
                pulled = self._without_copies(pulled)
        finally:
            self._merges.save()
        progress(len(unlike), len(unlike))
        pulled.sort(key=lambda chat: chat.chat_id)
        compared = self._theirs.chats if chat_ids is None else len(theirs)
        return PullReport(compared=compared, chats=tuple(pulled), holds=tuple(holds))

    def _heads(self, chat_ids: Sequence[str] | None) -> tuple[Heads, Heads]:
        """Return the last events of chats at both ends: of those that are named, or of all in the buckets whose sums differ."""
        if chat_ids is not None:
            return self._source.heads(chat_ids), self._target.heads(chat_ids)
        theirs, ours, places = self._theirs.sums, self._ours.sums, list[str]()
        for depth in range(1 + BUCKET_BYTES):
            if depth:
                theirs, ours = self._source.sums(places).sums, self._target.sums(places).sums
            places = sorted(each for each in theirs.keys() | ours.keys() if theirs.get(each) != ours.get(each))
            if not places:
                return {}, {}
        heads: tuple[Heads, Heads] = {}, {}
        for start in range(0, len(places), BUCKETS_TOGETHER):
            for end, known in zip((self._source, self._target), heads, strict=True):
                known.update(end.heads((), places[start : start + BUCKETS_TOGETHER]))
        return heads

    def _differences(self, chats: Mapping[str, _Merge | None]) -> Iterator[tuple[str, _Difference | None]]:
        """Say how each chat of the other ledger differs; None where this one has all of it. Each end is asked for many at once."""
        left = iter(chats.items())
        while part := dict(islice(left, STANDINGS_TOGETHER)):
            ours = self._target.standings(dict.fromkeys(part, 0))
            theirs = self._source.standings(
                {
                    chat_id: ours[chat_id].version if merged is None else merged.version
                    for chat_id, merged in part.items()
                }
            )
            # Of what went on here only this end can say whether it went on from what is there.
            ahead = {each: theirs[each].version for each in part if ours[each].version > theirs[each].version > 0}
            here = self._target.standings(ahead)
            for chat_id, merged in part.items():
                is_ahead = chat_id in here and here[chat_id].hash_there == theirs[chat_id].hash
                yield chat_id, _difference(ours[chat_id], theirs[chat_id], merged, is_ahead=is_ahead)

    def _continue(self, chats: dict[str, _Difference]) -> Iterator[PulledChat]:
        """Take over the events of chats that the target has as they were before, in steps that end with a commit."""
        left: dict[str, int] = {chat_id: each.known for chat_id, each in chats.items()}
        sums: dict[str, TakenChat] = {}
        together, most = len(left), EVENTS_TOGETHER
        while left:
            part: dict[str, int] = dict(islice(left.items(), together))
            with SpooledTemporaryFile(IN_MEMORY) as file:
                taken: Sequence[TakenChat] = ()
                if self._source.write_bundle(part, file, most):
                    is_too_large = file.tell() > self._target.most_bytes
                    if is_too_large and (together, most) != (1, 1):
                        together, most = (together // 2, most) if together > 1 else (1, most // 2)
                        continue
                    if is_too_large:
                        why = f"its next event takes {file.tell():,} bytes, more than fit into a request; let the other side pull it"
                        taken = [TakenChat(chat_id=chat_id, why=why) for chat_id in part]
                        together, most = len(left), EVENTS_TOGETHER
                    else:
                        file.seek(0)
                        taken = self._target.take_in(file)
            for chat in taken:
                before = sums.get(chat.chat_id, TakenChat(chat_id=chat.chat_id))
                sums[chat.chat_id] = msgspec.structs.replace(
                    chat,
                    events=before.events + chat.events,
                    messages=before.messages + chat.messages,
                    copies=before.copies | chat.copies,
                )
            # Those that do not come, and those of which nothing did, are for the next pull.
            going_on = [
                each.chat_id for each in taken if each.events and sums[each.chat_id].events < chats[each.chat_id].events
            ]
            heads: dict[str, tuple[int, str]] = self._target.heads(going_on) if going_on else {}
            left = {chat_id: known for chat_id, known in left.items() if chat_id not in part}
            for chat_id, (version, _) in heads.items():
                known = version - chats[chat_id].theirs.first_version + 1
                if known < chats[chat_id].theirs.size:
                    left[chat_id] = known
        for chat in sums.values():
            outcome = "held" if chat.is_held else chats[chat.chat_id].outcome if chat.why is None else "refused"
            yield PulledChat(
                chat_id=chat.chat_id,
                outcome=outcome,
                events=chat.events,
                messages=chat.messages,
                copies=chat.copies,
                tip=chats[chat.chat_id].theirs.hash,
                why=chat.why,
            )

    def _without_copies(self, pulled: list[PulledChat]) -> list[PulledChat]:
        """Redact what copies messages that were redacted, unless the other ledger has it too: there somebody let it stay."""
        copies = {message_id: chat_id for chat in pulled for message_id, chat_id in chat.copies.items()}
        if not copies:
            return pulled
        theirs = set[str]()
        for chat_id in self._source.heads([*dict.fromkeys(copies.values())]):
            with suppress(ChatNotFoundError):  # deleted meanwhile
                theirs.update(message.id for message in self._source.export_chat(chat_id).messages)
        own = [message_id for message_id in copies if message_id not in theirs]
        redacted = set(self._target.redact_copies(own) if own else ())
        return [
            msgspec.structs.replace(chat, copies={each: chat.copies[each] for each in chat.copies if each in redacted})
            for chat in pulled
        ]

    def _settle(self, chat_id: str, difference: _Difference) -> PulledChat | None:
        """Bring a chat that cannot be continued by events; None where nothing was to be done."""
        theirs = difference.theirs
        if difference.outcome not in _SETTLED:
            return PulledChat(chat_id=chat_id, outcome=difference.outcome, tip=theirs.hash)
        settlement = Settlement(
            chat_id=chat_id,
            outcome=difference.outcome,  # type: ignore[arg-type]  # as was asked above
            name=self._name,
            tip=theirs.hash,
            ended=theirs.ended,
        )
        try:
            pulled = self._settle_since(settlement, difference.since)
        except ChatNotFoundError:  # deleted meanwhile
            return None
        except MessageNotFoundError as error:
            return PulledChat(chat_id=chat_id, outcome="refused", tip=theirs.hash, why=str(error))
        if difference.outcome == "merged" and (pulled is None or pulled.outcome == "merged"):
            here = self._target.heads([chat_id]).get(chat_id)
            self._merges.keep(chat_id, _Merge.of((theirs.version, theirs.hash), here))
        else:
            self._merges.keep(chat_id, None)
        return pulled

    def _settle_since(self, settlement: Settlement, since: int) -> PulledChat | None:
        if settlement.outcome == "deleted":
            return self._target.settle(settlement, None)
        # Read before anything is deleted: the other side may not answer.
        theirs: ImportedChat = self._source.export_chat(settlement.chat_id, since)
        try:
            return self._target.settle(settlement, theirs)
        except MessageNotFoundError:
            if not since:
                raise
            return self._target.settle(settlement, self._source.export_chat(settlement.chat_id))


def _planned(differing: dict[str, _Difference]) -> Iterator[PulledChat]:
    for chat_id, (outcome, theirs, _, events, _) in differing.items():
        yield PulledChat(chat_id=chat_id, outcome=outcome, events=events, tip=theirs.hash)


class _Merges:
    """
    The merges of one ledger into another, beside the log of one of them: a chat that is as a merge left it is not read again.

    Nothing but time is lost with them, so that they are no events. They lie in a few places, of which a pull reads those of the
    chats that differ.
    """

    def __init__(self, log: LedgerLog, ends: str) -> None:
        self._log, self._ends = log, ends
        self._marks: dict[str, Bookmark | None] = {}
        self._merges: dict[str, dict[str, _Merge]] = {}
        self._changed = set[str]()

    def get(self, chat_id: str) -> _Merge | None:
        """Return the last one of a chat."""
        place, key = self._at(chat_id)
        return self._in(place).get(key)

    def keep(self, chat_id: str, merge: _Merge | None) -> None:
        """Keep the last one of a chat; None for none."""
        place, key = self._at(chat_id)
        merges = self._in(place)
        if merges.get(key) == merge:
            return
        self._changed.add(place)
        if merge is None:
            del merges[key]
        else:
            merges[key] = merge

    def save(self) -> None:
        """Write what was changed."""
        from ..log.port import LostRaceError

        for place in self._changed:
            mark = self._marks[place]
            with suppress(LostRaceError):  # another pull between the two, whose merges are as true
                self._log.save_bookmark(
                    Bookmark(
                        name=place,
                        index=0,
                        count=0,
                        position=0,
                        holder=msgspec.json.encode(self._merges[place]).decode(),
                        log_id=self._log.identity,
                        saved_at=clock_ms(),
                        revision=0 if mark is None else mark.revision,
                    )
                )

    def _at(self, chat_id: str) -> tuple[str, str]:
        digest = sha256(f"{self._ends} {chat_id}".encode()).hexdigest()
        ends = sha256(self._ends.encode()).hexdigest()[:_DIGITS]
        return f"chatledger:merges:{ends}:{digest[:2]}", digest[2:_DIGITS]

    def _in(self, place: str) -> dict[str, _Merge]:
        if place not in self._merges:
            mark = self._marks[place] = self._log.load_bookmark(bookmark_key(place, 0, 0))
            self._merges[place] = {} if mark is None else msgspec.json.decode(mark.holder, type=dict[str, _Merge])
        return self._merges[place]


def _difference(
    ours: ChatStanding, theirs: ChatStanding, merged: _Merge | None, *, is_ahead: bool
) -> _Difference | None:
    began = ours.began
    if theirs.began is None:
        # A chat that was begun here after that is another one.
        return _Difference("deleted", theirs) if began is not None and _is_over(began, ours, theirs) else None
    if merged is not None and began is not None and (theirs.hash_there or "").startswith(merged.theirs):
        return _Difference("merged", theirs, since=merged.version)
    goes_on = ours.version > 0 and theirs.hash_there == ours.hash
    if began is None and (goes_on or not ours.version):
        # Of one that was deleted and begun anew the first event is the tombstone.
        return _Difference("new", theirs, events=theirs.size)
    if goes_on:
        known = ours.version - theirs.first_version + 1
        return _Difference("continued", theirs, known, theirs.size - known) if known < theirs.size else None
    if began is None:
        return _Difference("left" if _is_over(theirs.began, theirs, ours) else "new", theirs)
    if is_ahead:
        return None
    if began != theirs.began:
        if _is_over(began, ours, theirs):
            return _Difference("replaced", theirs)
        if _is_over(theirs.began, theirs, ours):
            return _Difference("left", theirs)
    return _Difference("merged", theirs)


def _is_over(began: int, standing: ChatStanding, other: ChatStanding) -> bool:
    """Whether the other ledger knows of a deletion of a chat that began then, of which the one that has it does not know."""
    return began <= other.ended and standing.ended < other.ended
