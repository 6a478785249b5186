"""A person: all that a user owns erased at once, with a receipt, and found where others' chats name the user."""

import base64
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from chatledger.domain.chat.decide_chats import decide_delete_chat
from chatledger.domain.chat.decide_redact import NamePlace, decide_pseudonymise, renamed_in
from chatledger.domain.chat.events import (
    Body,
    ChatDeleted,
    ChatUpdated,
    ContentRedacted,
    MemberRemoved,
    MemberSet,
    MessagesAppended,
    Recorded,
    StreamDeleted,
)
from chatledger.domain.chat.members import decide_remove_member
from chatledger.domain.chat.redaction import HEAD_CONTENT, HEAD_WHO, content_slot
from chatledger.domain.errors import HeldError, InvalidValueError, QuarantinedError
from chatledger.domain.holds import LEDGER_OWNER, decide_forget_hold
from chatledger.domain.limits import check_id
from chatledger.domain.log.tombstones import owner_digest
from chatledger.domain.proof.anchors import root_of, stream_digest
from chatledger.domain.proof.erasure_report import ErasedStream, ErasureReport, Mention, MentionKind
from chatledger.domain.versioned.decide import decide_delete
from chatledger.domain.versioned.events import VersionsDeleted, VersionsExpirySet
from chatledger.domain.versioned.keys import FAMILIES, THREAD, Family, parse_item_id
from chatledger.domain.versioned.record import VersionedRecord
from chatledger.domain.wire import iso
from chatledger.projections.chat.lists import ChatList, joined_chats
from chatledger.projections.chat.reader import IndexedChat, read_chats
from chatledger.projections.log.holds import goes_along
from chatledger.projections.log.kinds import CHATS, KIND_OF_FAMILY, THREADS, kind_of
from chatledger.projections.versioned.lists import listed_values
from chatledger.projections.versioned.reader import IndexedVersioned

from ..log.bookmarks import BACKUP_MARK, feeds_of
from ..log.envelope import clock_ms
from .feed.filter import is_gone
from .live import drop_live_of_sender
from .port import LedgerPart, LedgerSnapshot, StorePort
from .proof import PemSource, check_signed, leaves_of, load_private_key, load_public_key
from .redactions import forget_hold

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_MOST_MENTIONS: Final = 1000
_CATCH_UP_S: Final = 30.0
_COPIES: Final = "copies that were made otherwise than by 'chatledger backup'"
_NAMES: Final = "the user's name in chats of others, which a report lists as mentions"
_VALUES: Final = (
    "who wrote to threads, states, items and holds of others: in the history of {:,} of them the user is named"
)


class PersonMethods(LedgerPart):
    """The part of a ledger that is about all that one user owns."""

    def erase_user(
        self, user_id: str, *, dry_run: bool = False, pseudonym: str | None = None, key: PemSource | None = None
    ) -> ErasureReport:
        """
        Erase a user: all chats, threads, states and items that the user owns, with all that hangs on them; and say what is left.

        Answers that are being written, runs, vectors and large data go with their chat, and the positions of the user's feeds. It returns when the bytes are gone from the log
        and the index. Interrupted anywhere, the next call goes on, and its report names what the earlier ones erased. What a legal hold
        keeps stays, and the report names it. Chats of others that name the user, as a member, a sender or an actor, are found and
        reported, and threads, states and items of others that the user wrote to are counted; with a pseudonym, memberships end, and it
        takes the place of the name in messages, history and exports, while the bytes of the name are erased like content that is redacted. What these messages say stays; `redact` takes it.

        Args:
            user_id: The user.
            dry_run: Only say what would be erased.
            pseudonym: What the user is called from now on in chats of others, such as `former user`. It may be the same for several
                users. No receipt has it.
            key: Sign the report with this Ed25519 private key, the path of a PEM file or its bytes: that makes it a receipt.

        Returns:
            The report. Of a user who owns nothing, or whom nobody knows, an empty one.

        Raises:
            AccessDeniedError: This ledger is limited to a user, or the login may not erase.
            InvalidValueError: The id or the pseudonym is empty or breaks a rule, or they are the same.
            ConfigurationError: The key cannot be read, or `cryptography` is missing.
            LogUnavailableError: The log did not answer; call it again.

        Source: index and log. Costs what is erased, and reads the whole log once to find who is named.
        """
        store = self._store.whole("erase_user")
        check_id(user_id, "user_id")
        if pseudonym is not None and check_id(pseudonym, "pseudonym") == user_id:
            msg = f"the pseudonym is {user_id!r} itself; give another one"
            raise InvalidValueError(msg)
        private_key = None if key is None else load_private_key(key)
        began_at = clock_ms()
        store.task_writes.settle()
        store.catch_up(None, _CATCH_UP_S)
        with store.snapshot() as snapshot:
            position_before, root_before = _end_of(snapshot)
            owned = [*owned_by(snapshot, user_id)] if dry_run else []
        if dry_run:
            erased, held = [each for each in owned if not each.is_held], [each for each in owned if each.is_held]
            pseudonym = None
        else:
            erased, held = _erase(store, user_id)
        if pseudonym is not None:
            _end_part(store, user_id)
        named, written_to, tombstones = _named(store, user_id, erased)
        refused, left = {*named}, {*written_to}
        if pseudonym is not None:
            refused = _pseudonymise(store, named, pseudonym)
            left = _pseudonymise_values(store, written_to, pseudonym)
        is_renamed = refused != {*named} or left != {*written_to}
        store.catch_up(None, _CATCH_UP_S)
        with store.snapshot() as snapshot:
            position, root = _end_of(snapshot)
        # A dry run tells of the backups that would have what is erased: all that there are by now.
        least = position + 1 if dry_run else position if is_renamed else 0
        report = ErasureReport(
            user_id=user_id,
            is_dry_run=dry_run,
            began_at=began_at,
            ended_at=clock_ms(),
            position_before=position_before,
            root_before=root_before,
            position=position,
            root=root,
            erased=tuple(each.stream for each in erased),
            held=tuple(each.stream for each in held),
            earlier=tuple(each for each in tombstones if (each.position or 0) <= position_before),
            mentions=_mentions(named, refused),
            pseudonymised=_mentions(named, named.keys() - refused),
            unreached=_unreached(store, least, tombstones, is_refused=bool(refused), written_to=len(left)),
        )
        return report if private_key is None else _signed(report, private_key)


class Owned(msgspec.Struct, frozen=True):
    """A stream of a user: its family, None for a chat, its key, what a report says of it, and whether it is held."""

    family: Family | None
    key: str
    stream: ErasedStream
    is_held: bool = False


def _signed(report: ErasureReport, private_key: "Ed25519PrivateKey") -> ErasureReport:
    public_key = base64.b64encode(private_key.public_key().public_bytes_raw()).decode()
    unsigned = msgspec.structs.replace(report, public_key=public_key)
    signature = base64.b64encode(private_key.sign(unsigned.signed_bytes())).decode()
    return msgspec.structs.replace(unsigned, signature=signature)


def _end_of(snapshot: LedgerSnapshot) -> tuple[int, str]:
    """Return where the log ends, and the root over all its streams there."""
    return snapshot.state.position, root_of(leaves_of(snapshot)).hex()


def owned_by(snapshot: LedgerSnapshot, user_id: str) -> Iterator[Owned]:
    """Yield what a user owns: values, then chats with the threads that name nobody and go with them."""
    for family in FAMILIES:
        kind = KIND_OF_FAMILY[family.name]
        for _, record in listed_values(snapshot.txn, snapshot.tables, family, user_id=user_id):
            # Threads that name nobody are listed besides; they belong to who owns the chat of their id.
            if (family.owner_of(record.key) if record.owner is None else record.owner) == user_id:
                stream = _stream(family.name, kind.stream_of(record.key), record.head.size)
                yield Owned(family, record.key, stream, bool(record.holds))
    for chat in snapshot.list_chats(ChatList(user_id=user_id), limit=None, offset=0, after=None):
        thread = snapshot.stream(THREADS, chat.id).record
        if thread is not None and thread.owner is None:
            stream = _stream(THREAD.name, THREADS.stream_of(chat.id), thread.head.size)
            yield Owned(THREAD, chat.id, stream, bool(thread.holds))
        of_chat = snapshot.chat(chat.id).record
        assert of_chat is not None, "a listed chat is there"
        along = goes_along(snapshot.txn, snapshot.tables, chat.id, user_id)
        is_held = chat.hold is not None or any(each.holds for each in along)
        yield Owned(None, chat.id, _stream(CHATS.name, CHATS.stream_of(chat.id), of_chat.head.size), is_held)


def _stream(kind: str, stream_id: str, event_count: int) -> ErasedStream:
    return ErasedStream(kind=kind, digest=stream_digest(stream_id).hex(), event_count=event_count)


def _erase(store: StorePort, user_id: str) -> tuple[list[Owned], list[Owned]]:
    """
    Erase what a user owns, and what the user begins to own meanwhile, until only what is held is left.

    Returns what it erased, in the order of the log, and what is held.
    """
    erased: list[Owned] = []
    held: list[Owned] = []
    tried: set[str] = set()
    while True:
        # The whole list at once: a page at a time, each page would go through what is left once more.
        with store.snapshot() as snapshot:
            left = [each for each in owned_by(snapshot, user_id) if each.stream.digest not in tried]
        if not left:
            # Those of feeds that the user follows, under names that the user gave.
            for bookmark in store.log.bookmarks() if not held else ():
                if bookmark.name.startswith(feeds_of(user_id)):
                    store.log.drop_bookmark(bookmark.key)
            forget_hold(store, "user", user_id)
            store.finish_erasures()
            return erased, held
        # Values before chats: a chat takes its threads along, which the report would not name then.
        for each in left:
            tried.add(each.stream.digest)
            try:
                recorded = (
                    store.execute(CHATS, each.key, partial(_decide_chat, user_id), kind=ChatDeleted)
                    if each.family is None
                    else store.execute(
                        KIND_OF_FAMILY[each.family.name], each.key, lambda state, _now: decide_delete(state)
                    )
                )
            except HeldError:
                held.append(each)
                continue
            if recorded:
                stream = msgspec.structs.replace(each.stream, position=recorded[-1].position)
                erased.append(msgspec.structs.replace(each, stream=stream))
        store.erase_deleted()


def _decide_chat(user_id: str, state: IndexedChat, _now: int) -> list[Body]:
    return decide_delete_chat(state, user_id=user_id)


class NamingStream(msgspec.Struct):
    """A chat, or a value, of somebody else that names a user: in which slots of its events, in their order, and how often in which way."""

    places: list[NamePlace] = msgspec.field(default_factory=list[NamePlace])
    counts: Counter[MentionKind] = msgspec.field(default_factory=Counter[MentionKind])

    def take(self, recorded: Recorded, user_id: str) -> None:
        """Note where an event names a user. What was taken away names nobody, whatever stands in its place."""
        version, body, gone = recorded.version, recorded.body, recorded.event.redacted
        if recorded.actor == user_id and HEAD_WHO not in gone:
            self.counts["actor"] += 1
            redacted = body.message_ids if isinstance(body, ContentRedacted) and not body.takes_names else ()
            self.places.append(NamePlace(version, HEAD_WHO, redacted))
        if isinstance(body, MessagesAppended):
            for number, message in enumerate(body.messages):
                slot = content_slot(number)
                if message.sender_id == user_id and slot - 1 not in gone:  # that of the sender stands before it
                    self.counts["sender"] += 1
                    self.places.append(NamePlace(version, slot - 1, (message.id,)))
                if message.redacted is not None and message.redacted.by == user_id and slot not in gone:
                    self.counts["actor"] += 1
                    self.places.append(NamePlace(version, slot, (message.id,)))
        if isinstance(body, MemberSet | MemberRemoved) and body.user_id == user_id:
            self.counts["member"] += isinstance(body, MemberSet)
            self.places.append(NamePlace(version, HEAD_CONTENT))
        notes: Mapping[str, Any] | None = body.hold_notes if isinstance(body, VersionsExpirySet) else None
        if isinstance(body, ChatUpdated) and body.changes.keys() == {"holds", "hold_notes"}:
            notes = body.changes["hold_notes"]
        if notes and any(user_id in {held_id, held_by} for held_id, held_by, _ in notes.values()):
            self.counts["actor"] += 1
            self.places.append(NamePlace(version, HEAD_CONTENT))


def _named(
    store: StorePort, user_id: str, going: Sequence[Owned]
) -> tuple[dict[str, NamingStream], dict[str, NamingStream], list[ErasedStream]]:
    """
    Return the chats that name a user, the streams of values that do, and the tombstones of what was the user's.

    Without what was erased, or would be. Reads the whole log.
    """
    besides = {
        (CHATS if each.family is None else KIND_OF_FAMILY[each.family.name]).stream_of(each.key) for each in going
    }
    tombstones: list[ErasedStream] = []
    named: defaultdict[str, NamingStream] = defaultdict(NamingStream)
    for recorded in store.events(0):
        body, stream_id = recorded.body, recorded.event.originator_id
        if isinstance(body, ChatDeleted | VersionsDeleted) and body.owner_digest == owner_digest(stream_id, user_id):
            erased = _stream(kind_of(stream_id).name, stream_id, body.event_count)
            tombstones.append(msgspec.structs.replace(erased, position=recorded.position))
        is_value = kind_of(stream_id) is not CHATS
        is_naming = recorded.actor == user_id or isinstance(body, VersionsExpirySet)
        if stream_id in besides or (is_value and (not is_naming or isinstance(body, StreamDeleted))):
            continue
        # What was deleted names nobody any more.
        if not is_gone(store, recorded):
            named[stream_id].take(recorded, user_id)
    naming = {stream_id: of_stream for stream_id, of_stream in named.items() if of_stream.places}
    of_chats = {stream_id: of_stream for stream_id, of_stream in naming.items() if kind_of(stream_id) is CHATS}
    return of_chats, {each: naming[each] for each in naming.keys() - of_chats.keys()}, tombstones


def _forget_holds(store: StorePort, stream_ids: Collection[str]) -> set[str]:
    """Delete those of some streams that are holds or rules of the ledger's own, and not in force any more; the others."""
    left: set[str] = set()
    for stream_id in sorted(stream_ids):
        kind = kind_of(stream_id)
        with store.snapshot() as snapshot:
            record = kind.read(snapshot.tables, snapshot.txn, stream_id).record
        key = record.key if isinstance(record, VersionedRecord) else ""
        item = parse_item_id(key)
        is_own = item is not None and item.user_id == LEDGER_OWNER
        if not (is_own and store.execute(kind, key, decide_forget_hold)):
            left.add(stream_id)
    if left != {*stream_ids}:
        store.erase_deleted()
        store.finish_erasures()
    return left


def _pseudonymise(store: StorePort, named: Mapping[str, NamingStream], pseudonym: str) -> set[str]:
    """Put a pseudonym in the places of a user's name; the chats where that was refused, as a hold keeps them or they lost events."""
    refused: set[str] = set()
    for chat_id, of_chat in named.items():
        try:
            store.execute(CHATS, chat_id, partial(_decide_pseudonym, of_chat, pseudonym), kind=ContentRedacted)
        except (HeldError, QuarantinedError):
            refused.add(chat_id)
    if named.keys() - refused:
        store.erase_deleted()
        store.finish_erasures()
    return refused


def _pseudonymise_values(store: StorePort, named: Mapping[str, NamingStream], pseudonym: str) -> set[str]:
    """Put a pseudonym in the places of a user's name in threads, states and items; those where that was refused, or nobody knows the key."""
    refused, due = set[str](), _forget_holds(store, named)
    for stream_id in sorted(due):
        kind = kind_of(stream_id)
        with store.snapshot() as snapshot:
            record = kind.read(snapshot.tables, snapshot.txn, stream_id).record
        if not isinstance(record, VersionedRecord) or not record.key:
            refused.add(stream_id)
            continue
        try:
            store.execute(kind, record.key, partial(_decide_pseudonym_of_value, named[stream_id], pseudonym))
        except (HeldError, QuarantinedError, InvalidValueError):  # the last one of a hold or a rule in force
            refused.add(stream_id)
    if due - refused:
        store.erase_deleted()
        store.finish_erasures()
    return refused


def _decide_pseudonym_of_value(named: NamingStream, pseudonym: str, state: IndexedVersioned, _now: int) -> list[Body]:
    record = state.record
    # Before its first version are those of an earlier value of the key.
    return (
        []
        if record is None
        else [*renamed_in([each for each in named.places if each.version >= record.first_version], pseudonym)]
    )


def _decide_pseudonym(named: NamingStream, pseudonym: str, state: IndexedChat, _now: int) -> list[Body]:
    return decide_pseudonymise(state, named.places, pseudonym)


def _end_part(store: StorePort, user_id: str) -> None:
    """End what a user may do in chats of others, and is about to say there, before the name of who might do it goes. Held chats keep that."""
    with store.snapshot() as snapshot:
        joined = [*read_chats(snapshot.txn, snapshot.tables, joined_chats(snapshot.txn, snapshot.tables, user_id))]
    for chat in joined:
        if chat.hold is None:
            store.execute(CHATS, chat.id, lambda state, _now: decide_remove_member(state, user_id), kind=MemberRemoved)
    drop_live_of_sender(store, user_id)


def _mentions(named: Mapping[str, NamingStream], chat_ids: Collection[str]) -> tuple[Mention, ...]:
    mentions = [
        Mention(chat_id=chat_id, kind=kind, count=count)
        for chat_id in chat_ids
        for kind, count in named[chat_id].counts.items()
        if count
    ]
    return tuple(sorted(mentions, key=lambda mention: (mention.chat_id, mention.kind))[:_MOST_MENTIONS])


def _unreached(
    store: StorePort, least: int, tombstones: Sequence[ErasedStream], *, is_refused: bool, written_to: int
) -> tuple[str, ...]:
    """Return the backups that end before a position or a tombstone, in words, those that nobody can know of, and where the name is left."""
    position = max([least, *[each.position or 0 for each in tombstones]])
    behind = [mark for mark in store.log.bookmarks() if mark.name.startswith(BACKUP_MARK) and mark.position < position]
    named = [
        f"the backup {mark.name.removeprefix(BACKUP_MARK)} of {iso(mark.saved_at)}: bring it up to date with 'chatledger backup', or delete it, and say so with '--gone'"
        for mark in sorted(behind, key=lambda mark: mark.name)
    ]
    names = [*([_NAMES] if is_refused else []), *([_VALUES.format(written_to)] if written_to else [])]
    return (*named, _COPIES, *names)


def check_receipt(report: ErasureReport, public_key: PemSource | None = None) -> None:
    """
    Check that a receipt is as it was signed: by the holder of `public_key`, or, without it, of the key that it names itself.

    Raises:
        InvalidValueError: Nobody signed it, somebody else did, or it was changed.
        ConfigurationError: The key cannot be read, or `cryptography` is missing.
    """
    if report.public_key is None or report.signature is None:
        msg = "nobody signed this report of an erasure; erase_user(key=...) does"
        raise InvalidValueError(msg)
    raw, signature = (base64.b64decode(text, validate=False) for text in (report.public_key, report.signature))
    check_signed(
        report.signed_bytes(),
        signature=signature,
        signer=raw,
        public_key=None if public_key is None else load_public_key(public_key),
        what=f"receipt of the erasure at position {report.position}",
    )
