"""Ledgers as the two ends of a pull: what is asked of the one that gives, what of the one that takes, and an open ledger as either."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, count
from typing import IO, Annotated, Any, Final, Literal, Protocol, runtime_checkable

import msgspec

from chatledger.domain.chat.decide_import import Lineage
from chatledger.domain.chat.events import (
    ContentRedacted,
    MessagesAnnotated,
    MessagesAppended,
    RegenerationBegun,
    RunRecorded,
)
from chatledger.domain.chat.interchange import ImportedBranch, ImportedChat, ImportResult
from chatledger.domain.chat.redaction import redaction_in
from chatledger.domain.chat.state import Tombstone, stream_head
from chatledger.domain.errors import (
    ChatledgerError,
    ChatNotFoundError,
    HeldError,
    InvalidValueError,
    MessageNotFoundError,
)
from chatledger.domain.legal_hold import LegalHold
from chatledger.domain.limits import sought_id
from chatledger.domain.proof.bundle import ChatEntry
from chatledger.domain.proof.head_sums import bucket_sums, rows_below, sums_under
from chatledger.domain.values import Redaction
from chatledger.domain.wire import Value
from chatledger.projections.chat.reader import IndexedChat, read_heads

from ..log.envelope import acting, clock_ms
from ..store.commands import ChatsToRead
from .bundles import REFUSALS, BundleMethods
from .chats import ChatMethods
from .holds import HoldMethods, take_holds
from .interchange import InterchangeMethods, Tail, exported_tail
from .port import store_of
from .proof import tree_of
from .redactions import copies_left, redact_alike, redact_copies

Heads = dict[str, tuple[int, str]]
"""By the ids of chats the version and the hash of the last event."""
Place = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{2}){0,2}$")]
"""A place in the tree of sums over heads: the root, a group or a bucket, in hexadecimal digits."""
Outcome = Literal["new", "continued", "merged", "deleted", "replaced", "held", "left", "refused"]


_ENDED: Final = "chatledger:ended:"
"""Before the time, in ms, when a chat ended elsewhere, in the command that deletes it here."""


class PulledChat(Value, frozen=True, kw_only=True):
    """
    A chat that a pull changed, or could not.

    Args:
        chat_id: The chat.
        outcome: `new` here; `continued` by the events of the other ledger; `merged`, as both had gone on with it; `deleted` as it was
            there; `replaced` by the one that was begun there after it was deleted; `held` by a legal hold
            here, though it or some of it was deleted there; `left`, as it was deleted here; `refused`, as it cannot be here, and `why` says why.
        events: How many events of the other ledger were written here as they are.
        messages: How many messages are new here.
        branches: The branches that tell what the other ledger goes on with.
        copies: Copies of messages that were redacted there, each with its chat: only this ledger had them, by a fork or a merge, and
            they were redacted too.
        tip: The hash of the last event that the other ledger has of it, in hexadecimal digits; empty where it has none.
        why: Why it is held or was refused.
    """

    chat_id: str
    outcome: Outcome
    events: int = 0
    messages: int = 0
    branches: tuple[str, ...] = ()
    copies: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    tip: str = ""
    why: str | None = None


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


class TakenChat(Value, frozen=True, kw_only=True):
    """
    A chat of which events were taken in, or were not.

    Args:
        chat_id: The chat.
        events, messages: How many of them are new.
        copies: Copies of messages that lost their content by it, each with its chat; they have theirs still.
        why: Why nothing of it was taken in; None where it was.
        is_held: Whether it was not because of a legal hold.
    """

    chat_id: str
    events: int = 0
    messages: int = 0
    copies: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    why: str | None = None
    is_held: bool = False


class Settlement(Value, frozen=True, kw_only=True):
    """
    Settlement of a chat that cannot be continued by events: what is to be done with it where it is taken.

    Args:
        chat_id: The chat.
        outcome: `new`, `merged`, `deleted` or `replaced`; see `PulledChat`.
        name: What the ledger that gives is called where it is taken.
        tip: The hash of the last event there.
        ended: When a chat of that id was deleted there last, in ms; 0 for never.
    """

    chat_id: str
    outcome: Literal["new", "merged", "deleted", "replaced"]
    name: str
    tip: str
    ended: int


class HeadSums(Value, frozen=True, kw_only=True):
    """
    Sums over the last events of the chats of a ledger, equal in two that have the same.

    Args:
        identity: Tells its log from others.
        chats: How many chats it has.
        sums: By the places that stand directly below those that were asked for; the root at `""`.
    """

    identity: str
    chats: int
    sums: dict[Place, str]


@runtime_checkable
class Peer(Protocol):
    """Port of either ledger."""

    def sums(self, under: Sequence[str]) -> HeadSums:
        """Return the sums over the last events of its chats: the root, or those below places of the tree."""
        ...

    def heads(self, chat_ids: Sequence[str], buckets: Sequence[str] = ()) -> Heads:
        """Return the version and the hash of the last event of some chats, and of those of some buckets of the tree of sums."""
        ...

    def standings(self, versions: Mapping[str, int]) -> dict[str, ChatStanding]:
        """Say how far it has come with each chat, and whether it has an event of that version."""
        ...


@runtime_checkable
class PullSource(Peer, Protocol):
    """Port of the ledger that gives."""

    def write_bundle(self, known: Mapping[str, int], stream: IO[bytes], most: int) -> bool:
        """
        Write a bundle of the next events of chats after the first few, of each about `most` of them.

        False where none of the chats is there any more.
        """
        ...

    def export_chat(self, chat_id: str, after: int = 0) -> ImportedChat:
        """
        Return a chat, whole or with the messages of which events after a version tell, and the ends of branches.

        Raises `ChatNotFoundError`.
        """
        ...

    def holds(self, chat_ids: Sequence[str] | None) -> list[LegalHold]:
        """Return the legal holds on users and on chats, or on some chats; none where only a user's are shown."""
        ...


@runtime_checkable
class PullTarget(Peer, Protocol):
    """Port of the ledger that takes."""

    @property
    def most_bytes(self) -> int:
        """The largest bundle that it takes."""
        ...

    def take_in(self, bundle: IO[bytes]) -> list[TakenChat]:
        """Write the events of a bundle. Raises `InvalidValueError` where it does not hold, and then nothing is written."""
        ...

    def take_holds(self, holds: Sequence[LegalHold]) -> list[LegalHold]:
        """Put legal holds that are not in force; return those that were put. One on a chat that is not there is not."""
        ...

    def redact_copies(self, message_ids: Sequence[str]) -> list[str]:
        """Redact copies of messages that are redacted, as those are. Returns those that were."""
        ...

    def settle(self, settlement: Settlement, theirs: ImportedChat | None) -> PulledChat | None:
        """
        Delete a chat, or take what the other ledger went on with beside what is here; None where nothing was to be done.

        Raises `MessageNotFoundError` where it lacks messages that come before those of `theirs`; what else it refuses is in the answer.
        """
        ...


class TravelMethods(ChatMethods, InterchangeMethods, BundleMethods, HoldMethods):
    """The parts of a ledger that a pull needs."""


class LedgerPeer:
    """An open ledger as either end of a pull."""

    def __init__(self, ledger: TravelMethods) -> None:
        self._ledger = ledger
        self._store = store_of(ledger)

    @property
    def most_bytes(self) -> int:
        """The largest bundle that it takes."""
        return sys.maxsize

    def sums(self, under: Sequence[str]) -> HeadSums:
        """Return the sums over the last events of its chats: the root, or those below places of the tree."""
        with self._store.snapshot(ChatsToRead(are_all=True)) as snapshot:
            txn, tables = snapshot.txn, snapshot.tables
            if self._store.user_id is None:
                chats = int(txn.stat(tables.heads)["entries"])
                sums = sums_under(partial(tables.head_sums_of, txn), under)
            else:
                heads = read_heads(txn, tables, snapshot.chat_nos())
                chats, sums = len(heads), sums_under(partial(rows_below, bucket_sums(heads)), under)
        return HeadSums(identity=self._store.log.identity, chats=chats, sums=sums)

    def heads(self, chat_ids: Sequence[str], buckets: Sequence[str] = ()) -> Heads:
        """Return the version and the hash of the last event of some chats, and of those of some buckets of the tree of sums."""
        heads: Heads = {}
        for chat_id in (sought_id(each, "chat_id") for each in dict.fromkeys(chat_ids)):
            with self._store.snapshot(ChatsToRead(chat_id)) as snapshot:
                record = snapshot.chat(chat_id).record
                if record is not None:
                    heads[chat_id] = record.head.version, record.head.hash.hex()
        if buckets:
            with self._store.snapshot(ChatsToRead(are_all=True)) as snapshot:
                txn, tables = snapshot.txn, snapshot.tables
                places = map(bytes.fromhex, dict.fromkeys(buckets))
                chat_nos = list(dict.fromkeys(chat_no for place in places for chat_no in tables.chats_in(txn, place)))
                if self._store.user_id is not None:
                    shown = set(snapshot.chat_nos())
                    chat_nos = [chat_no for chat_no in chat_nos if chat_no in shown]
                heads |= read_heads(txn, tables, chat_nos)
        return heads

    def standings(self, versions: Mapping[str, int]) -> dict[str, ChatStanding]:
        """Say how far it has come with each chat, and whether it has an event of that version."""
        return {chat_id: self._standing(chat_id, version) for chat_id, version in versions.items()}

    def _standing(self, chat_id: str, version: int) -> ChatStanding:
        with self._store.snapshot(ChatsToRead(sought_id(chat_id, "chat_id"))) as snapshot:
            chat = snapshot.chat(chat_id)
            head = stream_head(chat)
            tree = None if chat.record is None else tree_of(snapshot, chat)
            first = head.version if tree is None else tree.first_version
            is_there = tree is not None and 0 <= version - first < tree.size
            return ChatStanding(
                began=None if chat.chat is None else chat.chat.created_at,
                ended=0 if chat.tombstone is None else _ended(chat.tombstone),
                version=head.version,
                hash=head.hash.hex(),
                size=0 if tree is None else tree.size,
                first_version=first,
                hash_there=tree.entry(version - first).hash.hex() if tree is not None and is_there else None,
            )

    def write_bundle(self, known: Mapping[str, int], stream: IO[bytes], most: int) -> bool:
        """Write a bundle of the next events of chats after the first few, of each about `most`; False where none of the chats is there."""
        entries: list[ChatEntry] = []
        for chat_id, before in known.items():
            with suppress(ChatNotFoundError):  # deleted meanwhile
                entry = self._ledger._entry(chat_id, known=before, most=most)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - a part of it
                entries += [entry] if entry.count > 0 else []
        if entries:
            self._ledger._write_bundle(stream, entries)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        return bool(entries)

    def export_chat(self, chat_id: str, after: int = 0) -> ImportedChat:
        """Return a chat, whole or with the messages of which events after a version tell, and the ends of branches."""
        if not after:
            return self._ledger.export_chat(chat_id)
        with self._store.snapshot(ChatsToRead(chat_id)) as snapshot:
            chat = snapshot.chat(chat_id)
            if chat.record is None:
                raise ChatNotFoundError(chat_id)
            tree = tree_of(snapshot, chat)
            number = max(after + 1 - tree.first_version, 0)
            position = tree.entry(number).position if number < tree.size else None
        tail = Tail(set(), set(), set())
        for recorded in () if position is None else self._store.events(position - 1, stream_id=chat_id):
            body = recorded.body
            if isinstance(body, MessagesAppended):
                tail.message_ids.update(message.id for message in body.messages)
            elif isinstance(body, MessagesAnnotated | ContentRedacted):
                tail.message_ids.update(body.message_ids)
            elif isinstance(body, RunRecorded):
                tail.run_ids.add(body.run.run_id)
            elif isinstance(body, RegenerationBegun):
                tail.regeneration_ids.add(body.regeneration_id)
        with self._store.snapshot(ChatsToRead(chat_id)) as snapshot:
            return exported_tail(snapshot.chat(chat_id), tail)

    def holds(self, chat_ids: Sequence[str] | None) -> list[LegalHold]:
        """Return the legal holds on users and on chats, or on some chats; none where only a user's are shown."""
        if self._store.user_id is not None:
            return []
        holds = self._ledger.holds()
        if chat_ids is None:
            return [hold for hold in holds if hold.kind in {"chat", "user"}]
        wanted = set(chat_ids)
        return [hold for hold in holds if hold.kind == "chat" and hold.id in wanted]

    def take_holds(self, holds: Sequence[LegalHold]) -> list[LegalHold]:
        """Put legal holds that are not in force; return those that were put. One on a chat that is not there is not."""
        return take_holds(self._store.whole("hold"), holds)

    def take_in(self, bundle: IO[bytes]) -> list[TakenChat]:
        """Write the events of a bundle. Raises `InvalidValueError` where it does not hold, and then nothing is written."""
        refused: dict[str, ChatledgerError] = {}
        adopted, report, redacted = self._ledger._take_in(bundle, refused=refused)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        messages = {chat.chat_id: chat.messages for chat in report.chats}
        return [
            TakenChat(chat_id=chat.chat_id, why=str(why), is_held=isinstance(why, HeldError))
            if (why := refused.get(chat.chat_id)) is not None
            else TakenChat(
                chat_id=chat.chat_id,
                events=chat.added,
                messages=messages[chat.chat_id],
                copies=copies_left(self._store, redacted.get(chat.chat_id, [])),
            )
            for chat in adopted
        ]

    def settle(self, settlement: Settlement, theirs: ImportedChat | None) -> PulledChat | None:
        """Delete a chat, or take what the other ledger went on with beside what is here; None where nothing was to be done."""
        chat_id, outcome = settlement.chat_id, settlement.outcome
        if (theirs is None) != (outcome == "deleted") or (theirs is not None and theirs.id != chat_id):
            msg = f"the other ledger does not say what became of chat {chat_id!r}; nothing of it was changed"
            raise InvalidValueError(msg)
        pulled = PulledChat(chat_id=chat_id, outcome=outcome, tip=settlement.tip)
        try:
            if outcome in {"deleted", "replaced"}:
                # As of when it ended there: what was begun after that, here or elsewhere, is another one.
                with acting(command_id=f"{_ENDED}{min(settlement.ended, clock_ms())}"):
                    self._ledger.delete_chat(chat_id)
            return pulled if theirs is None else self._merge(pulled, settlement.name, theirs)
        except HeldError as error:
            return msgspec.structs.replace(pulled, outcome="held", why=str(error))
        except MessageNotFoundError:
            raise
        except REFUSALS as error:
            return msgspec.structs.replace(pulled, outcome="refused", why=str(error))

    def _merge(self, pulled: PulledChat, name: str, theirs: ImportedChat) -> PulledChat | None:
        branches = theirs.branches
        if pulled.outcome == "merged":
            with self._store.snapshot(ChatsToRead(theirs.id)) as snapshot:
                branches = _branches_of(snapshot.chat(theirs.id), theirs, name)
        result = self._ledger._import(msgspec.structs.replace(theirs, branches=branches), "skip")  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        pulled = msgspec.structs.replace(
            pulled, messages=result.messages_added, branches=tuple(branch.name for branch in branches)
        )
        try:
            redacted = self._redact_as(theirs)
        except HeldError as error:
            return msgspec.structs.replace(pulled, outcome="held", why=str(error))
        if not redacted and result == ImportResult(chat_id=theirs.id):
            return None
        return msgspec.structs.replace(pulled, copies=copies_left(self._store, redacted))

    def redact_copies(self, message_ids: Sequence[str]) -> list[str]:
        """Redact copies of messages that are redacted, as those are. Returns those that were."""
        return redact_copies(self._store, message_ids)

    def _redact_as(self, theirs: ImportedChat) -> list[str]:
        """Redact the messages that were redacted there. Returns those that were not here."""
        patterns: dict[str, tuple[Redaction, Any]] = {}
        with self._store.snapshot(ChatsToRead(theirs.id)) as snapshot:
            chat = snapshot.chat(theirs.id)
            for message in theirs.messages:
                redaction = redaction_in(message.notes)
                ours = None if redaction is None else chat.message(message.id)
                if redaction is not None and ours is not None and ours.redacted is None:
                    patterns[message.id] = redaction, message.data
        redact_alike(self._store, patterns)
        return list(patterns)


def _ended(tombstone: Tombstone) -> int:
    """Return when a chat ended, where that was first."""
    prefix, _, ended = (tombstone.command_id or "").rpartition(":")
    return int(ended) if f"{prefix}:" == _ENDED and ended.isdecimal() else tombstone.deleted_at


def _branches_of(ours: IndexedChat, theirs: ImportedChat, name: str) -> tuple[ImportedBranch, ...]:
    """Return the branches of a chat that say here what the other ledger goes on with, under the names that they get here."""
    lineage = Lineage(ours, theirs.messages)
    reached = ours.chains.merged_heads(at for _, _, at in ours.branch_places() if at is not None)
    branches: list[ImportedBranch] = []
    for branch in theirs.branches:
        head = branch.head_message_id
        place = None if head is None else ours.place(head)
        if head is None or (place is not None and any(ours.chains.is_ancestor(place, end) for end in reached)):
            continue
        numbered = (f"{name}/{branch.name}-{number}" for number in count(2))
        taken = {each.name for each in branches}
        for free in chain([branch.name, f"{name}/{branch.name}"], numbered):
            existing = ours.branch(free)
            end = None if existing is None else existing.head_message_id
            if free not in taken and (end is None or lineage.descends(head, end)):
                branches.append(msgspec.structs.replace(branch, name=free, id=None, is_active=False))
                break
    return tuple(branches)
