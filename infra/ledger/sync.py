"""Pulls: what another ledger has of chats and this one lacks, with the same ids, and with the same hashes where one history goes on."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, count
from tempfile import SpooledTemporaryFile
from typing import Any, Final, Literal, NamedTuple

from msgspec.structs import replace

from chatledger.domain.chat.interchange import ImportedBranch, ImportedChat, ImportResult
from chatledger.domain.chat.redaction import redaction_in
from chatledger.domain.chat.state import StreamHead, stream_head
from chatledger.domain.errors import ChatNotFoundError, HeldError, InvalidValueError
from chatledger.domain.limits import check_id, sought_id
from chatledger.domain.proof.bundle import ChatEntry
from chatledger.domain.values import RedactionCause
from chatledger.domain.wire import Value
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.log.stream_trees import StreamTree

from ..store.commands import ChatsToRead
from .bundles import BundleMethods
from .chats import ChatMethods
from .interchange import InterchangeMethods
from .port import LedgerSnapshot
from .proof import tree_of
from .redactions import redact_messages

_TOGETHER: Final = 4_096
"""So many events are checked before the first of them is written."""
_IN_MEMORY: Final = 16 * 1024 * 1024
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


class _Difference(NamedTuple):
    """How a chat of another ledger differs: `tip` is its last event there, and the first `known` of them are here."""

    outcome: Outcome
    tip: StreamHead
    known: int = 0


class SyncMethods(ChatMethods, InterchangeMethods, BundleMethods):
    """The part of a ledger that takes over what others went on with."""

    def pull(
        self, source: "SyncMethods", *, name: str, chat_ids: Sequence[str] | None = None, dry_run: bool = False
    ) -> PullReport:
        """
        Take over what another ledger has of chats and this one lacks. Repeating changes nothing, and `source` is only read.

        A chat that only the other went on with is continued, event by event, with ids, times and hashes. One that both went on with
        gets the messages it lacks, with their ids; a branch moves on where the other's goes on from it, else that comes as
        `name/branch`, so that nothing is lost and nobody wins. What was deleted or redacted there is here too; what was deleted here
        stays deleted. When two or more ledgers pull from each other until nothing changes, all have the same messages, and the
        same ends of branches. Interrupted, the next call goes on.

        Args:
            source: An open ledger: the whole of one, or one user's.
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
        if not isinstance(source, SyncMethods):
            msg = f"source must be an open ledger, as chatledger.open returns it, not {type(source).__name__}"
            raise InvalidValueError(msg)
        if source is self or source._store.log.identity == store.log.identity:  # noqa: SLF001
            msg = "this is the same ledger; there is nothing to pull"
            raise InvalidValueError(msg)
        theirs = source._heads(chat_ids)  # noqa: SLF001
        ours = self._heads(chat_ids)
        pulled: list[PulledChat] = []
        waiting: list[tuple[str, _Difference]] = []
        total = 0
        for chat_id in sorted(theirs.keys() | ours.keys()):
            if theirs.get(chat_id) == ours.get(chat_id):
                continue
            difference = self._difference(source, chat_id)
            if difference is None:
                continue
            outcome, tip, known = difference
            goes_on = outcome in {"new", "continued"}
            events = tip.size - known if goes_on else 0
            if dry_run:
                pulled.append(PulledChat(chat_id=chat_id, outcome=outcome, events=events, tip=tip.hash.hex()))
            elif goes_on:
                waiting.append((chat_id, difference))
                total += events
                if total >= _TOGETHER:
                    pulled += self._continue(source, waiting)
                    waiting, total = [], 0
            elif (settled := self._settle(source, name, chat_id, difference)) is not None:
                pulled.append(settled)
        pulled += self._continue(source, waiting)
        return PullReport(compared=len(theirs), chats=tuple(sorted(pulled, key=lambda chat: chat.chat_id)))

    def _heads(self, chat_ids: Sequence[str] | None) -> dict[str, tuple[int, bytes]]:
        """Return the version and the hash of the last event of each living chat."""
        if chat_ids is None:
            with self._store.snapshot(ChatsToRead(are_all=True)) as snapshot:
                return _heads_in(snapshot, [chat.id for chat in snapshot.list_chats()])
        heads: dict[str, tuple[int, bytes]] = {}
        for chat_id in (sought_id(each, "chat_id") for each in chat_ids):
            with self._store.snapshot(ChatsToRead(chat_id)) as snapshot:
                heads |= _heads_in(snapshot, [chat_id])
        return heads

    def _difference(self, source: "SyncMethods", chat_id: str) -> _Difference | None:
        """Say how a chat of another ledger differs; None where this one has all of it."""
        with self._store.snapshot(ChatsToRead(chat_id)) as snapshot:
            ours = snapshot.chat(chat_id)
            head, began, ended = stream_head(ours), _began(ours), _ended(ours)
        with source._store.snapshot(ChatsToRead(chat_id)) as snapshot:  # noqa: SLF001
            theirs = snapshot.chat(chat_id)
            tip, their_begin, their_end = stream_head(theirs), _began(theirs), _ended(theirs)
            if their_begin is None:
                # A chat that was begun here after that is another one.
                return _Difference("deleted", tip) if began is not None and began <= their_end else None
            tree = tree_of(snapshot, theirs)
            known = head.version - tree.first_version
            goes_on = 0 <= known < tree.size and tree.entry(known).hash == head.hash
        if began is None:
            # Of one that was deleted and begun anew the first event is the tombstone.
            return _Difference("new" if goes_on or not head.version else "left", tip)
        if goes_on:
            return _Difference("continued", tip, known + 1)
        with self._store.snapshot(ChatsToRead(chat_id)) as snapshot:
            ours = snapshot.chat(chat_id)
            if ours.record is None:  # deleted meanwhile
                return None
            tree = tree_of(snapshot, ours)
            known = tip.version - tree.first_version
            if 0 <= known < tree.size and tree.entry(known).hash == tip.hash:
                return None
        if began != their_begin and their_end >= began:
            return _Difference("replaced", tip)
        return _Difference("left" if began != their_begin and ended >= their_begin else "merged", tip)

    def _continue(self, source: "SyncMethods", chats: Sequence[tuple[str, _Difference]]) -> Iterator[PulledChat]:
        """Take over the events of chats that this ledger has as they were before, or not at all."""
        differences = dict(chats)
        entries: list[ChatEntry] = []
        for chat_id, difference in chats:
            with suppress(ChatNotFoundError):  # deleted there meanwhile
                entries.append(source._entry(chat_id, partial(_known, difference)))  # noqa: SLF001
        if not entries:
            return
        with SpooledTemporaryFile(_IN_MEMORY) as file:
            source._write_bundle(file, entries)  # noqa: SLF001
            file.seek(0)
            adopted, report = self._take_in(file)
        messages = {chat.chat_id: chat.messages for chat in report.chats}
        for chat in adopted:
            difference = differences[chat.chat_id]
            yield PulledChat(
                chat_id=chat.chat_id,
                outcome=difference.outcome,
                events=chat.added,
                messages=messages[chat.chat_id],
                tip=difference.tip.hash.hex(),
            )

    def _settle(self, source: "SyncMethods", name: str, chat_id: str, difference: _Difference) -> PulledChat | None:
        """Delete a chat, or merge what both ledgers went on with; None where nothing was to be done."""
        pulled = PulledChat(chat_id=chat_id, outcome=difference.outcome, tip=difference.tip.hash.hex())
        if difference.outcome == "left":
            return pulled
        if difference.outcome != "merged":
            try:
                self.delete_chat(chat_id)
            except HeldError:
                return replace(pulled, outcome="held")
        if difference.outcome == "deleted":
            return pulled
        try:
            theirs = source.export_chat(chat_id)
            with self._store.snapshot(ChatsToRead(chat_id)) as snapshot:
                branches = _branches_of(snapshot.chat(chat_id), theirs, name)
        except ChatNotFoundError:  # deleted meanwhile
            return None
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


def _known(difference: _Difference, _tree: StreamTree) -> int:
    return difference.known


def _began(chat: IndexedChat) -> int | None:
    """When a chat was created, which tells it from others of the same id; None for one that is not there."""
    return None if chat.chat is None else chat.chat.created_at


def _ended(chat: IndexedChat) -> int:
    """When a chat of that id was deleted last."""
    return 0 if chat.tombstone is None else chat.tombstone.deleted_at


def _heads_in(snapshot: LedgerSnapshot, chat_ids: Iterable[str]) -> dict[str, tuple[int, bytes]]:
    heads: dict[str, tuple[int, bytes]] = {}
    for chat_id in chat_ids:
        record = snapshot.chat(chat_id).record
        if record is not None:
            heads[chat_id] = (record.head.version, record.head.hash)
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
