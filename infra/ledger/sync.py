"""Pulls: what another ledger has of chats and this one lacks, with the same ids, and with the same hashes where one history goes on."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, count
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

from msgspec.structs import replace

from chatledger.domain.chat.interchange import ImportedBranch, ImportedChat, ImportResult
from chatledger.domain.chat.redaction import redaction_in
from chatledger.domain.chat.state import stream_head
from chatledger.domain.errors import ChatNotFoundError, HeldError, InvalidValueError
from chatledger.domain.limits import check_id, sought_id
from chatledger.domain.proof.bundle import ChatEntry
from chatledger.domain.values import RedactionCause
from chatledger.domain.wire import Value
from chatledger.projections.chat.reader import IndexedChat

from ..store.commands import ChatsToRead
from .bundles import BundleMethods
from .chats import ChatMethods
from .interchange import InterchangeMethods
from .port import LedgerSnapshot, store_of
from .proof import tree_of
from .redactions import redact_messages

_TOGETHER: Final = 4_096
"""So many events are checked before the first of them is written."""
IN_MEMORY: Final = 16 * 1024 * 1024
"""Larger ones wait in a temporary file."""

Outcome = Literal["new", "continued", "merged", "deleted", "replaced", "held", "left"]


class PulledChat(Value, frozen=True, kw_only=True):
    """
    A chat that a pull changed, or could not.

    Args:
        chat_id: The chat.
        outcome: `new` here; `continued` by the events of the other ledger; `merged`, as both had gone on with it; `deleted` as it was
            there; `replaced` by the one that was begun there after it was deleted; `held`, as it was deleted there and a legal
            hold keeps it here; `left`, as it was deleted here.
        events: How many events of the other ledger were written here as they are.
        messages: How many messages are new here.
        branches: The branches that tell what the other ledger goes on with.
        tip: The hash of the last event that the other ledger has of it, in hexadecimal digits; empty where it has none.
    """

    chat_id: str
    outcome: Outcome
    events: int = 0
    messages: int = 0
    branches: tuple[str, ...] = ()
    tip: str = ""


class PullReport(Value, frozen=True, kw_only=True):
    """
    What a pull did.

    Args:
        compared: How many chats the other ledger showed.
        chats: Those that are not as they were, and those that were to change and could not, in the order of their ids.
    """

    compared: int
    chats: tuple[PulledChat, ...]


class ChatStanding(Value, frozen=True, kw_only=True):
    """
    Standing of a chat in a ledger: how far it has come with it.

    Args:
        began: When the chat was created, in ms, which tells it from others of the same id; None where it is not there.
        ended: When a chat of that id was deleted last; 0 for never.
        version, hash: Its last event, or the tombstone, the hash in hexadecimal digits; 0 and zeros where there is none.
        size: How many events it has; of one that was begun anew with the tombstone.
        first_version: The version of the first of them.
        hash_there: The hash of the event at the version that was asked for; None where it has none.
    """

    began: int | None
    ended: int
    version: int
    hash: str
    size: int
    first_version: int
    hash_there: str | None


@runtime_checkable
class PullSource(Protocol):
    """Port of the other ledger: what a pull asks of it."""

    @property
    def identity(self) -> str:
        """Tells its log from others."""
        ...

    def heads(self, chat_ids: Sequence[str] | None) -> dict[str, tuple[int, str]]:
        """Return the version and the hash of the last event of each chat, or of some."""
        ...

    def standing(self, chat_id: str, version: int) -> ChatStanding:
        """Say how far it has come with a chat, and whether it has an event of that version."""
        ...

    def write_bundle(self, known: Mapping[str, int], stream: IO[bytes]) -> bool:
        """Write a bundle of the events of chats after the first few; False where none of them is there any more."""
        ...

    def export_chat(self, chat_id: str) -> ImportedChat:
        """Return a whole chat. Raises `ChatNotFoundError`."""
        ...


class LedgerSource:
    """An open ledger as the source of a pull."""

    def __init__(self, ledger: "SyncMethods") -> None:
        self._ledger = ledger
        self._store = store_of(ledger)

    @property
    def identity(self) -> str:
        """Tells its log from others."""
        return self._store.log.identity

    def heads(self, chat_ids: Sequence[str] | None) -> dict[str, tuple[int, str]]:
        """Return the version and the hash of the last event of each chat, or of some."""
        if chat_ids is None:
            with self._store.snapshot(ChatsToRead(are_all=True)) as snapshot:
                return _heads_in(snapshot, [chat.id for chat in snapshot.list_chats()])
        heads: dict[str, tuple[int, str]] = {}
        for chat_id in (sought_id(each, "chat_id") for each in chat_ids):
            with self._store.snapshot(ChatsToRead(chat_id)) as snapshot:
                heads |= _heads_in(snapshot, [chat_id])
        return heads

    def standing(self, chat_id: str, version: int) -> ChatStanding:
        """Say how far it has come with a chat, and whether it has an event of that version."""
        with self._store.snapshot(ChatsToRead(sought_id(chat_id, "chat_id"))) as snapshot:
            chat = snapshot.chat(chat_id)
            head = stream_head(chat)
            tree = None if chat.record is None else tree_of(snapshot, chat)
            first = head.version if tree is None else tree.first_version
            is_there = tree is not None and 0 <= version - first < tree.size
            return ChatStanding(
                began=None if chat.chat is None else chat.chat.created_at,
                ended=0 if chat.tombstone is None else chat.tombstone.deleted_at,
                version=head.version,
                hash=head.hash.hex(),
                size=0 if tree is None else tree.size,
                first_version=first,
                hash_there=tree.entry(version - first).hash.hex() if tree is not None and is_there else None,
            )

    def write_bundle(self, known: Mapping[str, int], stream: IO[bytes]) -> bool:
        """Write a bundle of the events of chats after the first few; False where none of them is there any more."""
        entries: list[ChatEntry] = []
        for chat_id, before in known.items():
            with suppress(ChatNotFoundError):  # deleted meanwhile
                entry = self._ledger._entry(chat_id, known=before)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - a part of it
                entries += [entry] if entry.count > 0 else []
        if entries:
            self._ledger._write_bundle(stream, entries)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        return bool(entries)

    def export_chat(self, chat_id: str) -> ImportedChat:
        """Return a whole chat. Raises `ChatNotFoundError`."""
        return self._ledger.export_chat(chat_id)


class _Difference(NamedTuple):
    """Difference of a chat of another ledger: `events` are there from its last event `tip` back to the first `known`, which are here."""

    outcome: Outcome
    tip: str
    known: int = 0
    events: int = 0


class SyncMethods(ChatMethods, InterchangeMethods, BundleMethods):
    """The part of a ledger that takes over what others went on with."""

    def pull(
        self,
        source: "SyncMethods | PullSource",
        *,
        name: str,
        chat_ids: Sequence[str] | None = None,
        dry_run: bool = False,
    ) -> PullReport:
        """
        Take over what another ledger has of chats and this one lacks. Repeating changes nothing, and `source` is only read.

        A chat that only the other went on with is continued, event by event, with ids, times and hashes. One that both went on with
        gets the messages it lacks, with their ids; a branch moves on where the other's goes on from it, else that comes as
        `name/branch`, so that nothing is lost and nobody wins. What was deleted or redacted there is here too; what was deleted here
        stays deleted. When two or more ledgers pull from each other until nothing changes, all have the same messages, and the
        same ends of branches. Interrupted, the next call goes on.

        Args:
            source: An open ledger, the whole of one or one user's; or a `chatledger.admin.RemoteLedger`, one behind `chatledger serve`.
            name: What the other is called here, such as `office`; give it the same name each time.
            chat_ids: Only these chats; without it all that it shows.
            dry_run: Only say what would be done: `messages` and `branches` are not known before it is done.

        Raises:
            InvalidValueError: What the other has does not hold; chats that came before it were taken over.
            MessageConflictError: Another chat here has a message of that id; the same.
            AccessDeniedError: This ledger is limited to a user.
            LogUnavailableError: A log did not answer; repeat the call.

        Source: both indexes, and the log of the other for events. Costs a row for each chat, and reading those that differ.
        """
        store = self._store.whole("pull")
        check_id(name, "name")
        if isinstance(source, SyncMethods):
            other: PullSource = LedgerSource(source)
        elif isinstance(source, PullSource):
            other = source
        else:
            msg = f"source must be an open ledger, as chatledger.open returns it, or a RemoteLedger, not {type(source).__name__}"
            raise InvalidValueError(msg)
        if other.identity == store.log.identity:
            msg = "this is the same ledger; there is nothing to pull"
            raise InvalidValueError(msg)
        here = LedgerSource(self)
        theirs, ours = other.heads(chat_ids), here.heads(chat_ids)
        pulled: list[PulledChat] = []
        waiting: dict[str, _Difference] = {}
        total = 0
        for chat_id in sorted(theirs.keys() | ours.keys()):
            if theirs.get(chat_id) == ours.get(chat_id):
                continue
            difference = _difference(here, other, chat_id)
            if difference is None:
                continue
            outcome, tip, _, events = difference
            if dry_run:
                pulled.append(PulledChat(chat_id=chat_id, outcome=outcome, events=events, tip=tip))
            elif events:
                waiting[chat_id] = difference
                total += events
                if total >= _TOGETHER:
                    pulled += self._continue(other, waiting)
                    waiting, total = {}, 0
            elif (settled := self._settle(other, name, chat_id, difference)) is not None:
                pulled.append(settled)
        pulled += self._continue(other, waiting)
        return PullReport(compared=len(theirs), chats=tuple(sorted(pulled, key=lambda chat: chat.chat_id)))

    def _continue(self, source: PullSource, chats: Mapping[str, _Difference]) -> Iterator[PulledChat]:
        """Take over the events of chats that this ledger has as they were before, or not at all."""
        with SpooledTemporaryFile(IN_MEMORY) as file:
            if not chats or not source.write_bundle({chat_id: each.known for chat_id, each in chats.items()}, file):
                return
            file.seek(0)
            adopted, report = self._take_in(file)
        messages = {chat.chat_id: chat.messages for chat in report.chats}
        for chat in adopted:
            outcome, tip, _, _ = chats[chat.chat_id]
            yield PulledChat(
                chat_id=chat.chat_id, outcome=outcome, events=chat.added, messages=messages[chat.chat_id], tip=tip
            )

    def _settle(self, source: PullSource, name: str, chat_id: str, difference: _Difference) -> PulledChat | None:
        """Delete a chat, or merge what both ledgers went on with; None where nothing was to be done."""
        pulled = PulledChat(chat_id=chat_id, outcome=difference.outcome, tip=difference.tip)
        if difference.outcome == "left":
            return pulled
        theirs: ImportedChat | None = None
        if difference.outcome != "deleted":
            try:
                # Before anything is deleted here: the other side may not answer.
                theirs = source.export_chat(chat_id)
            except ChatNotFoundError:  # deleted meanwhile
                return None
        if difference.outcome != "merged":
            try:
                self.delete_chat(chat_id)
            except HeldError:
                return replace(pulled, outcome="held")
        if theirs is None:
            return pulled
        branches = theirs.branches
        if difference.outcome == "merged":
            with self._store.snapshot(ChatsToRead(chat_id)) as snapshot:
                branches = _branches_of(snapshot.chat(chat_id), theirs, name)
        result = self._import(replace(theirs, branches=branches), "skip")
        redacted = self._redact_as(theirs)
        if not redacted and result == ImportResult(chat_id=chat_id):
            return None
        return replace(pulled, messages=result.messages_added, branches=tuple(branch.name for branch in branches))

    def _redact_as(self, theirs: ImportedChat) -> bool:
        """Redact the messages that were redacted there; whether there were any that were not here."""
        kept: dict[str, Any] = {}
        by_reason: dict[tuple[str | None, RedactionCause], list[str]] = {}
        with self._store.snapshot(ChatsToRead(theirs.id)) as snapshot:
            chat = snapshot.chat(theirs.id)
            for message in theirs.messages:
                redaction = redaction_in(message.notes)
                ours = None if redaction is None else chat.message(message.id)
                if redaction is not None and ours is not None and ours.redacted is None:
                    kept[message.id] = message.data
                    by_reason.setdefault((redaction.reason, redaction.cause), []).append(message.id)
        for (reason, cause), ids in by_reason.items():
            redact_messages(
                self._store, ids, lambda message: kept.get(message.id), reason=reason, cause=cause, copies=False
            )
        return bool(kept)


def _difference(here: PullSource, there: PullSource, chat_id: str) -> _Difference | None:
    """Say how a chat of another ledger differs; None where this one has all of it."""
    ours = here.standing(chat_id, 0)
    theirs = there.standing(chat_id, ours.version)
    began, tip = ours.began, theirs.hash
    if theirs.began is None:
        # A chat that was begun here after that is another one.
        return _Difference("deleted", tip) if began is not None and began <= theirs.ended else None
    goes_on = ours.version > 0 and theirs.hash_there == ours.hash
    if began is None:
        # Of one that was deleted and begun anew the first event is the tombstone.
        is_left = ours.version > 0 and not goes_on
        return _Difference("left", tip) if is_left else _Difference("new", tip, events=theirs.size)
    if goes_on:
        known = ours.version - theirs.first_version + 1
        return _Difference("continued", tip, known, theirs.size - known) if known < theirs.size else None
    if here.standing(chat_id, theirs.version).hash_there == tip:
        return None
    if began != theirs.began and theirs.ended >= began:
        return _Difference("replaced", tip)
    return _Difference("left" if began != theirs.began and ours.ended >= theirs.began else "merged", tip)


def _heads_in(snapshot: LedgerSnapshot, chat_ids: Iterable[str]) -> dict[str, tuple[int, str]]:
    heads: dict[str, tuple[int, str]] = {}
    for chat_id in chat_ids:
        record = snapshot.chat(chat_id).record
        if record is not None:
            heads[chat_id] = (record.head.version, record.head.hash.hex())
    return heads


def _branches_of(ours: IndexedChat, theirs: ImportedChat, name: str) -> tuple[ImportedBranch, ...]:
    """Return the branches of a chat that say here what the other ledger goes on with, under the names that they get here."""
    parents = {message.id: message.parent_id for message in theirs.messages}
    heads = [branch.head_message_id for branch in ours.branches() if branch.head_message_id is not None]
    branches: list[ImportedBranch] = []
    for branch in theirs.branches:
        head = branch.head_message_id
        if head is None or (ours.has_message(head) and any(ours.is_ancestor(head, at) for at in heads)):
            continue
        line: set[str | None] = {None}
        at: str | None = head
        while at is not None:
            line.add(at)
            at = parents.get(at)
        numbered = (f"{name}/{branch.name}-{number}" for number in count(2))
        taken = {each.name for each in branches}
        for free in chain([branch.name, f"{name}/{branch.name}"], numbered):
            existing = ours.branch(free)
            if free not in taken and (existing is None or existing.head_message_id in line):
                branches.append(replace(branch, name=free, id=None, is_active=False))
                break
    return tuple(branches)
