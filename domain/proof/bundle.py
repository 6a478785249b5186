r"""
Bundles: chats in one file, which anybody can check without the ledger, and which another ledger takes in with their hashes.

    chatledger-bundle/1 and a line feed, then frames: kind, 1 byte | length of the body, 4 bytes big-endian | body
      m   the manifest, JSON: once, and first
      e   an event: its position on the log, 8 bytes big-endian | its bytes, as `log/parts.py` says
      l   large data that the event before it names by their digests, in its order

The events of a chat follow each other, and so do the chats, in the order of the manifest. Content may be missing: what was redacted,
of which an event of the chat says so; and what whoever made the bundle withheld, of which nothing does.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from types import MappingProxyType
from typing import Any, Final, NoReturn

import msgspec

from ..chat.events import ChatDeleted, ContentRedacted, MessagesAppended, Recorded
from ..chat.replay import ReplayedChat
from ..errors import ChainIntegrityError, CorruptStateError, InvalidValueError
from ..limits import check_id
from ..log.codec import NO_HASH, PREFIX, EncodedEvent, decode_event, place_of_event, references_in
from ..log.large_data import LargeData, Reference, data_digest
from ..log.merkle import HASH_BYTES, event_leaf, grown, root_of_peaks
from ..log.parts import event_hash
from ..versioned.keys import check_chat_id
from ..wire import Value
from .anchors import Anchor, AnchorLeaf, InclusionProof, path_from_rows, path_to_rows
from .verification import check_commit, check_event

START: Final = b"chatledger-bundle/1\n"
MANIFEST, EVENT, LARGE = b"m", b"e", b"l"
_POSITION_BYTES: Final = 8

Frame = tuple[bytes, bytes]
"""The kind of a frame, and its body."""


class ChatEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    A chat in the manifest.

    Args:
        chat_id: The chat.
        count: How many of its events are here.
        hash: That of the last of these, in hexadecimal digits.
        before: How many it had before them, since its beginning; 0 where all are here.
        peaks: Roots of the perfect trees over those, in hexadecimal digits, the largest first.
        leaf, path: Where it ended at the anchor, and its path there; None without an anchor.
    """

    chat_id: str
    count: int
    hash: str
    before: int
    peaks: str
    leaf: list[str | int] | None = None
    path: list[tuple[int, str]] | None = None


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a bundle: its chats, and the anchor that signs where they ended, without its leaves."""

    chats: list[ChatEntry]
    anchor: dict[str, Any] | None = None


class BundledChat(Value, frozen=True, kw_only=True):
    """
    A chat of a bundle.

    Args:
        chat_id: The chat.
        title: Its title; None where it has none, or the event that gave it is not here.
        first_version, version: The versions of its first and its last event here.
        hash: That of the last event, in hexadecimal digits.
        messages: How many messages these events brought.
        redacted: How many slots lost their content by a redaction that the chat tells of.
        withheld: How many lost it otherwise: whoever made the bundle kept it back.
        signed_version: The version up to which the anchor has these events; None without an anchor.
    """

    chat_id: str
    title: str | None
    first_version: int
    version: int
    hash: str
    messages: int
    redacted: int
    withheld: int
    signed_version: int | None


class BundleReport(Value, frozen=True, kw_only=True):
    """
    What a bundle was found to hold.

    Args:
        chats: Its chats.
        anchor: The anchor that their events lead to, without its leaves; None where nobody signed.
    """

    chats: tuple[BundledChat, ...]
    anchor: Anchor | None

    def check_whole(self) -> None:
        """Raise `InvalidValueError` where content was kept back, so that no ledger can take the chats in."""
        for chat in self.chats:
            if chat.withheld:
                msg = f"content of chat {chat.chat_id!r} was kept back from this bundle: it is to be checked and read, not to be taken in"
                raise InvalidValueError(msg)


def entry_of(
    chat_id: str, *, count: int, hash_: bytes, before: int, peaks: bytes, proof: InclusionProof | None
) -> ChatEntry:
    """Return the entry of a chat; `proof` is that it is in the anchor."""
    if proof is None:
        return ChatEntry(chat_id, count, hash_.hex(), before, peaks.hex())
    path = [(bit, hash_) for bit, hash_ in path_to_rows(proof.path)]
    return ChatEntry(chat_id, count, hash_.hex(), before, peaks.hex(), proof.leaf.to_row(), path)


def manifest_frame(chats: Sequence[ChatEntry], anchor: Anchor | None) -> Frame:
    signed = None if anchor is None else msgspec.json.decode(anchor.without_leaves().to_json())
    return MANIFEST, msgspec.json.encode(Manifest(list(chats), signed))


def event_frames(position: int, state: bytes, large: Iterable[LargeData]) -> Iterator[Frame]:
    yield EVENT, position.to_bytes(_POSITION_BYTES) + state
    for data in large:
        yield LARGE, data.data


def read_manifest(frames: Iterator[Frame]) -> tuple[list[ChatEntry], Anchor | None]:
    """
    Return the chats of the manifest, which comes first, and its anchor.

    Raises:
        InvalidValueError: There is no manifest, or it is none.
    """
    kind, body = next(frames, (b"", b""))
    if kind != MANIFEST:
        _refuse("it does not begin with a manifest")
    try:
        manifest = msgspec.json.decode(body, type=Manifest)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        _refuse(f"its manifest cannot be read ({error})", error)
    ids = [entry.chat_id for entry in manifest.chats]
    for chat_id in ids:
        check_chat_id(chat_id)
    if not ids or len(set(ids)) < len(ids):
        _refuse("its manifest names no chat, or one twice")
    return manifest.chats, None if manifest.anchor is None else Anchor.from_json(msgspec.json.encode(manifest.anchor))


def read_events(frames: Iterator[Frame], chats: Sequence[ChatEntry]) -> Iterator[tuple[ChatEntry, int, EncodedEvent]]:
    """
    Yield each event with the entry of its chat and its position, and with its large data.

    Raises:
        InvalidValueError: There are others than the manifest says, or large data are not those that events name.
        UnsupportedFormatError: A newer chatledger wrote an event.
    """
    for entry in chats:
        if entry.count < 1:
            _refuse(f"it has no events of chat {entry.chat_id!r}")
        for _ in range(entry.count):
            kind, body = next(frames, (b"", b""))
            if kind != EVENT:
                _refuse(f"events of chat {entry.chat_id!r} are missing")
            position, state = int.from_bytes(body[:_POSITION_BYTES]), body[_POSITION_BYTES:]
            try:
                topic = PREFIX + place_of_event(state).topic
                references = {reference.digest: reference for reference in references_in(topic, state)}
                large = {
                    digest: _large_of(reference, *next(frames, (b"", b""))) for digest, reference in references.items()
                }
                event = decode_event(topic, state, large)
                encoded = EncodedEvent(event, topic, state, event_hash(state), tuple(starmap(LargeData, large.items())))
            except CorruptStateError as error:
                _refuse(f"what stands at position {position:,} of chat {entry.chat_id!r}: {error}", error)
            yield entry, position, encoded
    if next(frames, None) is not None:
        _refuse("something follows its last event")


def _large_of(reference: Reference, kind: bytes, body: bytes) -> bytes:
    if kind != LARGE or len(body) != reference.size or data_digest(body) != reference.digest:
        _refuse("large data are missing, or are not those that an event names")
    return body


class _Fold:
    """The check of the events of one chat, one after another: chain, tree, and what they say of the chat."""

    def __init__(self, entry: ChatEntry, anchor: Anchor | None, base: ReplayedChat | None) -> None:
        self._entry = entry
        self._chat = ReplayedChat(entry.chat_id) if entry.before == 0 else base
        self._size = entry.before
        try:
            self._peaks, self._end = bytes.fromhex(entry.peaks), bytes.fromhex(entry.hash)
            self._leaf = None if entry.leaf is None else AnchorLeaf.from_row(entry.leaf)
            path = path_from_rows(entry.path or [])
        except (ValueError, TypeError) as error:
            self._refuse(f"its place in the manifest cannot be read ({error})", error)
        if entry.before < 0 or len(self._peaks) != entry.before.bit_count() * HASH_BYTES:
            self._refuse("its manifest does not have the hashes of what it had before")
        if (self._leaf is None) != (anchor is None):
            self._refuse("its manifest has an anchor for other chats alone, or a place in none")
        if anchor is not None and self._leaf is not None:
            if not anchor.check_proof(entry.chat_id, InclusionProof(self._leaf, path)):
                self._refuse("the anchor does not have it like this")
            if self._leaf.size <= entry.before:
                self._refuse("the anchor is older than all that is here")
        self._last: Recorded | None = None
        self._first_version = self._signed_version = 0
        self._messages = 0
        self._title: str | None = None
        self._bare: set[tuple[int, int]] = set()
        self._explained: set[tuple[int, int]] = set()

    def take(self, position: int, encoded: EncodedEvent) -> None:
        event, last = encoded.event, self._last
        recorded = Recorded(position, event, encoded.hash)
        if event.originator_id != self._entry.chat_id:
            self._refuse(f"an event of {event.originator_id!r} stands among its own")
        if last is None:
            self._first_version = recorded.version
            is_first = recorded.version == 1 and event.previous_hash == NO_HASH
            if self._entry.before == 0 and not is_first and not isinstance(recorded.body, ChatDeleted):
                self._refuse("it does not begin with its first event")
        elif recorded.version != last.version + 1 or event.previous_hash != last.hash or position <= last.position:
            self._refuse(f"event {recorded.version} does not follow event {last.version}")
        try:
            check_commit(last, recorded)
            if self._chat is not None:
                check_event(self._chat, recorded)
                self._chat.apply(recorded)
        except (ChainIntegrityError, CorruptStateError) as error:
            # Not in its words, which advise whoever has the log.
            self._refuse(f"its event {recorded.version} does not fit what the chat was before it", error)
        self._peaks = grown(self._size, self._peaks, event_leaf(position, recorded.hash))
        self._size += 1
        leaf = self._leaf
        if leaf is not None and self._size == leaf.size:
            end = (recorded.version, position, recorded.hash, root_of_peaks(self._peaks))
            if end != (leaf.version, leaf.position, leaf.hash, leaf.root):
                self._refuse("its events are not those that the anchor has")
            self._signed_version = recorded.version
        body = recorded.body
        self._messages += len(body.messages) if isinstance(body, MessagesAppended) else 0
        self._bare |= {(recorded.version, slot) for slot in event.redacted}
        if isinstance(body, ContentRedacted):
            self._explained |= {(version, slot) for version, slots in body.targets for slot in slots}
        self._last = recorded

    def end(self) -> BundledChat:
        """Return what the events were found to be."""
        last, leaf = self._last, self._leaf
        assert last is not None, "there is at least one event"
        if last.event.rest:
            self._refuse("its last commit broke off")
        if last.hash != self._end:
            self._refuse("its last event is another one than the manifest says")
        if leaf is not None and self._size < leaf.size:
            self._refuse(f"the anchor has {leaf.size:,} events of it, and {self._size:,} are here")
        profile = None if self._chat is None else self._chat.profile
        return BundledChat(
            chat_id=self._entry.chat_id,
            title=None if profile is None else profile.title,
            first_version=self._first_version,
            version=last.version,
            hash=last.hash.hex(),
            messages=self._messages,
            redacted=len(self._bare & self._explained),
            withheld=len(self._bare - self._explained),
            signed_version=None if leaf is None else self._signed_version,
        )

    def _refuse(self, why: str, cause: Exception | None = None) -> NoReturn:
        _refuse(f"chat {self._entry.chat_id!r}: {why}", cause)


def check_bundle_frames(
    frames: Iterable[Frame],
    bases: Mapping[str, ReplayedChat] = MappingProxyType({}),
    keep: Callable[[EncodedEvent], object] = lambda _: None,
) -> BundleReport:
    """
    Check a bundle by its frames, and return what it holds. The signature of its anchor is not checked by this.

    Of a chat that begins here, all is checked that `verify` checks in a ledger. Of one that goes on, what its events say of branches
    and messages only with the chat as it was before, in `bases`. `keep` is called with each event.

    Raises:
        InvalidValueError: It does not hold; the first thing that is wrong is named.
        UnsupportedFormatError: A newer chatledger wrote an event.
    """
    frames = iter(frames)
    entries, anchor = read_manifest(frames)
    chats: list[BundledChat] = []
    fold: _Fold | None = None
    at: ChatEntry | None = None
    message_ids: set[str] = set()
    for entry, position, encoded in read_events(frames, entries):
        if fold is None or entry is not at:
            chats += [] if fold is None else [fold.end()]
            fold, at = _Fold(entry, anchor, bases.get(entry.chat_id)), entry
        fold.take(position, encoded)
        keep(encoded)
        body = encoded.event.body
        for message in body.messages if isinstance(body, MessagesAppended) else ():
            # Within a chat its replay tells; a ledger has each id once, whatever the chat.
            if check_id(message.id, "the id of a message") in message_ids:
                _refuse(f"message {message.id!r} is there twice")
            message_ids.add(message.id)
    assert fold is not None, "a manifest names at least one chat"
    return BundleReport(chats=(*chats, fold.end()), anchor=anchor)


def _refuse(why: str, cause: Exception | None = None) -> NoReturn:
    msg = f"the bundle does not hold: {why}. It was changed, or is incomplete; take another copy of it"
    raise InvalidValueError(msg) from cause
