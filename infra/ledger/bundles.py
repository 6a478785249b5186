"""Bundles: chats as one file that anybody can check, and that another ledger takes in as they are."""

import os
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, groupby, islice
from typing import IO, Final

from chatledger.domain.chat.events import ChatDeleted, ContentRedacted, MessagesAppended
from chatledger.domain.chat.redaction import content_slot
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.chat.state import stream_head
from chatledger.domain.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    ChatledgerError,
    ChatNotFoundError,
    ConfigurationError,
    HeldError,
    InvalidValueError,
    MessageConflictError,
    MessageNotFoundError,
    PayloadTooLargeError,
)
from chatledger.domain.limits import sought_id
from chatledger.domain.log.codec import PREFIX, EncodedEvent, lines_in, place_of_event, references_in
from chatledger.domain.log.large_data import MAX_MESSAGE_BYTES, take_out
from chatledger.domain.log.parts import without
from chatledger.domain.proof.anchors import Anchor
from chatledger.domain.proof.bundle import (
    START,
    BundleReport,
    ChatEntry,
    Frame,
    check_bundle_frames,
    entry_of,
    event_frames,
    manifest_frame,
    read_events,
    read_manifest,
)
from chatledger.domain.values import Message
from chatledger.domain.wire import Value
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.lmdb.environment import absolute_path
from chatledger.projections.lmdb.system_errors import system_errors
from chatledger.projections.log.kinds import CHATS
from chatledger.projections.log.stream_trees import StreamTree

from ..operating_system import private
from ..store.commands import ChatsToRead
from .port import LedgerSnapshot
from .proof import PemSource, ProofMethods, check_signature, load_public_key, tree_of

_LENGTH_BYTES: Final = 4
_MOST_BYTES: Final = MAX_MESSAGE_BYTES + 1024 * 1024
"""A frame that claims to be larger is refused before it is read."""
REFUSALS: Final = (AccessDeniedError, AlreadyExistsError, HeldError, MessageNotFoundError, PayloadTooLargeError)
"""Errors that are about one chat: the others go on."""
_TOGETHER: Final = 64
"""So many events are read or written in one step, with the rest of their commit, and so many chats are written together."""
_KEPT_BYTES: Final = 16 * 1024 * 1024
"""Events that are larger together are not kept in memory."""


class AdoptedChat(Value, frozen=True, kw_only=True):
    """
    A chat that a bundle brought.

    Args:
        chat_id: The chat.
        added: How many events of it were new here.
        is_deleted: Whether it was deleted here, which stays so.
    """

    chat_id: str
    added: int
    is_deleted: bool = False


def check_bundle(file: str | os.PathLike[str], public_key: PemSource | None = None) -> BundleReport:
    """
    Check a bundle, the signature of its anchor included, without a ledger; return what it holds.

    Args:
        file: The bundle.
        public_key: The key of whom you trust to have signed it: the path of a PEM file, or its bytes. Without it only the key that
            the bundle itself names is checked, which anybody can make.

    Raises:
        InvalidValueError: It does not hold: the first thing that is wrong is named; or nobody signed it, and a key is given.
        UnsupportedFormatError: A newer chatledger wrote it.
        ConfigurationError: The file or the key cannot be read, or `cryptography` is missing.
    """
    with _opened(file) as stream:
        report = check_bundle_frames(_frames(stream))
    _check_signer(report.anchor, public_key)
    return report


def is_bundle(file: str | os.PathLike[str]) -> bool:
    """Whether a file is there that begins as a bundle does."""
    try:
        with absolute_path(file).open("rb") as stream:
            return stream.read(len(START)) == START
    except (OSError, ValueError):
        return False


def _opened(file: str | os.PathLike[str]) -> IO[bytes]:
    try:
        return absolute_path(file).open("rb")
    except OSError as error:
        msg = f"the bundle {os.fspath(file)} cannot be read: {error.strerror or error}"
        raise ConfigurationError(msg) from error


def _check_signer(anchor: Anchor | None, public_key: PemSource | None) -> None:
    if anchor is not None:
        check_signature(anchor, None if public_key is None else load_public_key(public_key))
    elif public_key is not None:
        msg = "nobody signed this bundle: it has no anchor; ask for one that was made with a key"
        raise InvalidValueError(msg)


def _frames(stream: IO[bytes]) -> Iterator[Frame]:
    broken = "this is no bundle of chatledger, or it is cut off; take another copy of it"
    if stream.read(len(START)) != START:
        raise InvalidValueError(broken)
    while head := stream.read(1 + _LENGTH_BYTES):
        length = int.from_bytes(head[1:])
        body = stream.read(length) if length <= _MOST_BYTES else b""
        if len(head) != 1 + _LENGTH_BYTES or len(body) != length:
            raise InvalidValueError(broken)
        yield head[:1], body


class BundleMethods(ProofMethods):
    """The part of a ledger that hands chats to others, and takes them in."""

    @system_errors("writing a bundle")
    def bundle(
        self,
        chat_ids: str | Sequence[str],
        file: str | os.PathLike[str],
        *,
        since: int = 0,
        redact: Callable[[Message], bool] | None = None,
        anchor: Anchor | None = None,
        key: PemSource | None = None,
    ) -> BundleReport:
        """
        Write chats to a file that anybody can check without this ledger, by `chatledger.admin.check_bundle` or `chatledger bundle verify`.

        It holds all events of the chats with their hash chains, large data, and with `key` or `anchor` the proof that they are what
        was signed. What was redacted here is redacted there. Another ledger takes it in by `import_bundle`, with ids and hashes.

        Args:
            chat_ids: A chat, or several.
            file: The path of a file that is not there yet.
            since: Only events after this position; whoever takes the file in has those before.
            redact: Says of which messages the content is kept back: they stay in their place with id, parent, time and role. Such a
                file is to be checked and read, and cannot be taken in.
            anchor: An anchor of this ledger, with its leaves, that the events are to lead to.
            key: In place of it, an Ed25519 private key to sign a new one with: the path of a PEM file, or its bytes.

        Returns:
            What the file was found to hold once it was written.

        Raises:
            ChatNotFoundError: There is no such chat.
            InvalidValueError: Nothing was written since that position, or the anchor does not have a chat, or is of another ledger.
            AccessDeniedError: This ledger is limited to a user, who signs nothing; give an anchor.
            ConfigurationError: The file is there already or cannot be written, the key cannot be read, or `cryptography` is missing.

        Source: the index, and the log for each event.
        """
        ids = [sought_id(chat_id, "chat_id") for chat_id in ([chat_ids] if isinstance(chat_ids, str) else chat_ids)]
        anchor = self.anchor(key) if key is not None else anchor
        entries = [
            entry for chat_id in dict.fromkeys(ids) if (entry := self._entry(chat_id, anchor, since=since)).count
        ]
        if not entries:
            msg = f"nothing was written to {', '.join(ids) or 'no chat'} after position {since:,}"
            raise InvalidValueError(msg)
        path = absolute_path(file)
        try:
            stream = open(path, "xb", opener=private)  # noqa: SIM115 - closed below
        except FileExistsError as error:
            msg = f"{path} exists and is not overwritten; choose another name"
            raise ConfigurationError(msg) from error
        except OSError as error:
            msg = f"{path} cannot be written: {error.strerror or error}"
            raise ConfigurationError(msg) from error
        with stream:
            try:
                self._write_bundle(stream, entries, anchor, redact)
                stream.flush()
                os.fsync(stream.fileno())
                # The anchor and the events came from two places: whether they belong together shows only here.
                return check_bundle(path)
            except BaseException:
                path.unlink()
                raise

    def _entry(
        self,
        chat_id: str,
        anchor: Anchor | None = None,
        *,
        since: int = 0,
        known: int | None = None,
        most: int | None = None,
    ) -> ChatEntry:
        """
        The entry of a chat without the events up to a position, or the first `known`, which whoever takes it in has.

        Not many more than `most` of the others: as many as it takes to end with a commit.
        """
        with self._living(chat_id) as (_, tree):
            if known is None:
                before = bisect_right(range(tree.size), since, key=lambda number: tree.entry(number).position)
            else:
                before = min(known, tree.size)
            count = tree.size - before
            while most is not None and most < count:
                position = tree.entry(before + most - 1).position
                state = self._store.bytes_at([position]).get(position)
                rest = 0 if state is None else place_of_event(state).rest
                if not rest:
                    count = most
                most += rest
            proof = None if anchor is None or not count else anchor.proof(chat_id)
            return entry_of(
                chat_id,
                count=count,
                hash_=tree.entry(before + count - 1).hash,
                before=before,
                peaks=tree.peaks(before),
                proof=proof,
            )

    def _write_bundle(
        self,
        stream: IO[bytes],
        entries: Sequence[ChatEntry],
        anchor: Anchor | None = None,
        redact: Callable[[Message], bool] | None = None,
    ) -> None:
        stream.write(START)
        stream.writelines(
            kind + len(body).to_bytes(_LENGTH_BYTES) + body for kind, body in self._all_frames(entries, anchor, redact)
        )

    def _all_frames(
        self, entries: Sequence[ChatEntry], anchor: Anchor | None, redact: Callable[[Message], bool] | None
    ) -> Iterator[Frame]:
        yield manifest_frame(entries, anchor)
        places = self._places(entries)
        while some := list(islice(places, _TOGETHER)):
            # Not inside a snapshot: of a ledger at rest the index is closed before its log is opened.
            states = self._store.bytes_at(sorted(position for _, position in some))
            for chat_id, position in some:
                yield from self._event_frames(chat_id, position, states.pop(position, None), redact)

    def _places(self, entries: Sequence[ChatEntry]) -> Iterator[tuple[str, int]]:
        """The chat and the position of each event."""
        for entry in entries:
            end = entry.before + entry.count
            for start in range(entry.before, end, _TOGETHER):
                with self._living(entry.chat_id) as (_, tree):
                    positions = [tree.entry(number).position for number in range(start, min(start + _TOGETHER, end))]
                yield from ((entry.chat_id, position) for position in positions)

    def _event_frames(
        self, chat_id: str, position: int, state: bytes | None, redact: Callable[[Message], bool] | None
    ) -> Iterator[Frame]:
        if state is None:
            raise ChatNotFoundError(chat_id)
        topic = PREFIX + place_of_event(state).topic
        messages: list[Message | None] = []
        if topic == MessagesAppended.TOPIC and (redact is not None or references_in(topic, state)):
            with self._living(chat_id) as (chat, _):
                messages = [chat.message(line_id) for line_id, _ in lines_in(state)]
        if redact is not None:
            kept_back = [place for place, message in enumerate(messages) if message is not None and redact(message)]
            state = without(state, [content_slot(place) for place in kept_back])
        large = {
            part.digest: part
            for message in messages
            if message is not None and message.data is not None
            for part in take_out(message.data).large
        }
        digests = dict.fromkeys(reference.digest for reference in references_in(topic, state))
        yield from event_frames(position, state, [large[digest] for digest in digests])

    @contextmanager
    def _living(self, chat_id: str) -> Generator[tuple[IndexedChat, StreamTree]]:
        """A chat as it is now, with the tree of its events."""
        with self._store.snapshot(ChatsToRead(chat_id)) as snapshot:
            chat = snapshot.chat(chat_id)
            if chat.record is None:
                raise ChatNotFoundError(chat_id)
            yield chat, tree_of(snapshot, chat)

    @system_errors("taking in a bundle")
    def import_bundle(self, file: str | os.PathLike[str], *, public_key: PemSource | None = None) -> list[AdoptedChat]:
        """
        Take in the chats of a bundle as they are: events, ids, times and hashes. What is here already is not written again.

        A chat that only the other ledger went on with is continued, event by event. A file that does not hold is refused as a whole, as
        is one with a chat that both went on with. Interrupted, it goes on with the next call. What was deleted here stays deleted.

        Args:
            file: The path of a bundle.
            public_key: The key of whom you trust to have signed it; see `chatledger.admin.check_bundle`.

        Returns:
            What became of each chat, in the order of the file.

        Raises:
            InvalidValueError: The bundle does not hold, content was kept back from it, events before it are not here, or both went on
                with a chat. Nothing was written.
            MessageConflictError: Another chat here has a message of that id. Nothing was written.
            AccessDeniedError: This ledger is limited to a user.
            ConfigurationError: The file or the key cannot be read.
            UnsupportedFormatError: A newer chatledger wrote it.
            LogUnavailableError: The log did not answer; repeat the call.

        Costs reading the file, three times where it is large.
        """
        self._store.whole("import_bundle")
        with _opened(file) as stream:
            return self._take_in(stream, public_key)[0]

    def _take_in(
        self,
        stream: IO[bytes],
        public_key: PemSource | None = None,
        *,
        refused: dict[str, ChatledgerError] | None = None,
    ) -> tuple[list[AdoptedChat], BundleReport, dict[str, list[str]]]:
        """
        Check a bundle, and write what is new of it. The last of what it returns are the messages that were redacted in it, by chats.

        Args:
            stream: The bundle, which is read several times.
            public_key: See `import_bundle`.
            refused: Gets the chats that cannot be taken in, and why; without it the first of them is an error, and nothing is written.
        """
        store = self._store
        if store.redactor is not None:
            msg = (
                "this ledger takes secrets out of what comes in, and the events of a bundle cannot be changed: open it without "
                "redact=, or import an export in place of the bundle"
            )
            raise InvalidValueError(msg)
        entries, _ = read_manifest(_frames(stream))
        stream.seek(0)
        kept = _Kept()
        with store.snapshot(ChatsToRead(are_all=True)) as snapshot:
            chats = {entry.chat_id: self._base(snapshot, entry) for entry in entries}
            report = check_bundle_frames(_frames(stream), chats, kept.keep)
        _check_signer(report.anchor, public_key)
        report.check_whole()
        added = self._added(kept.events(stream), refused)
        redacted: dict[str, list[str]] = {}

        def new_events() -> Iterator[EncodedEvent]:
            for each in kept.events(stream):
                chat_id, body = _chat_of(each), each.event.body
                if added[chat_id]:
                    if isinstance(body, ContentRedacted) and not body.takes_names:
                        redacted.setdefault(chat_id, []).extend(body.message_ids)
                    yield each

        self._adopt(new_events(), refused)
        store.erase_deleted()  # what the events that come say was deleted or redacted, and was here
        adopted = [
            AdoptedChat(chat_id=chat_id, added=count or 0, is_deleted=count is None) for chat_id, count in added.items()
        ]
        return adopted, report, redacted

    def _adopt(self, events: Iterator[EncodedEvent], refused: dict[str, ChatledgerError] | None) -> None:
        """Write the events of many chats together, and those of one in batches, one after another."""
        together: dict[str, list[EncodedEvent]] = {}
        batches = ((chat_id, batch) for chat_id, each in groupby(events, _chat_of) for batch in _batches(each))
        for chat_id, batch in chain(batches, [("", [])]):
            if not batch or chat_id in together or len(together) == _TOGETHER:
                begun = self._store.adopt(CHATS, [(each, partial(_following, its)) for each, its in together.items()])
                errors = {each: error for each, wait in zip(together, begun, strict=True) if (error := _error_of(wait))}
                if errors and refused is None:
                    raise next(iter(errors.values()))
                if refused is not None:
                    refused |= errors
                together.clear()
            if not refused or chat_id not in refused:
                together[chat_id] = batch

    def _base(self, snapshot: LedgerSnapshot, entry: ChatEntry) -> ReplayedChat:
        """The chat as it was before the events of a bundle, as far as it is here."""
        chat = ReplayedChat(entry.chat_id)
        if entry.before:
            state = snapshot.chat(entry.chat_id)
            record = state.record
            if record is None or record.head.size < entry.before:
                msg = (
                    f"the bundle has chat {entry.chat_id!r} from its event {entry.before + 1:,} on, and this ledger does not have "
                    "those before; take in one with them first, made without since"
                )
                raise InvalidValueError(msg)
            if record.head.size == entry.before:
                return ReplayedChat.after(state)
            events = self._store.events(record.first_position - 1, stream_id=entry.chat_id)
            for recorded in islice(events, entry.before):
                chat.apply(recorded)
        return chat

    def _added(
        self, events: Iterator[EncodedEvent], refused: dict[str, ChatledgerError] | None
    ) -> dict[str, int | None]:
        """Count the events of each chat that are new here; None for one that was deleted here. Refuses what cannot be taken in."""
        added: dict[str, int | None] = {}
        for chat_id, chat_events in groupby(events, _chat_of):
            with self._store.snapshot(ChatsToRead(chat_id)) as snapshot:
                chat = snapshot.chat(chat_id)
                head = stream_head(chat)
                tree = None if chat.record is None else tree_of(snapshot, chat)
                count = 0
                last: EncodedEvent | None = None
                for last in chat_events:
                    version = last.event.originator_version
                    if version > head.version:
                        if not count:
                            _check_follows(chat, last)
                        count += 1
                        messages = last.event.body.messages if isinstance(last.event.body, MessagesAppended) else ()
                        chat.look_up(message.id for message in messages)
                        for message in messages:
                            if chat.is_elsewhere(message.id):
                                conflict = MessageConflictError(message.id, chat_id=chat_id, other_chat=True)
                                if refused is None:
                                    raise conflict
                                refused[chat_id] = conflict
                assert last is not None, "a bundle has events of each of its chats"
                version = last.event.originator_version
                if tree is not None and not count and tree.entry(version - tree.first_version).hash != last.hash:
                    raise _diverged(chat_id)
                added[chat_id] = None if chat.tombstone is not None and chat.record is None and not count else count
                if refused and chat_id in refused:
                    added[chat_id] = 0
        return added


class _Kept:
    """The events of a bundle that were checked: in memory, or read again where they are many."""

    def __init__(self) -> None:
        self._events: list[EncodedEvent] = []
        self._left = _KEPT_BYTES

    def keep(self, encoded: EncodedEvent) -> None:
        self._left -= len(encoded.state) + sum(len(large.data) for large in encoded.large)
        if self._left < 0:
            self._events.clear()
        else:
            self._events.append(encoded)

    def events(self, stream: IO[bytes]) -> Iterator[EncodedEvent]:
        """Yield all of them, in order."""
        if self._left >= 0:
            yield from self._events
            return
        stream.seek(0)
        frames = _frames(stream)
        entries, _ = read_manifest(frames)
        for _, _, encoded in read_events(frames, entries):
            yield encoded


def _error_of(wait: Callable[[], object]) -> ChatledgerError | None:
    """Wait, and return what is about one chat only."""
    try:
        wait()
    except REFUSALS as error:
        return error
    return None


def _batches(events: Iterator[EncodedEvent]) -> Iterator[list[EncodedEvent]]:
    """Yield events in batches of whole commits."""
    batch: list[EncodedEvent] = []
    for encoded in events:
        batch.append(encoded)
        if len(batch) >= _TOGETHER and not encoded.event.rest:
            yield batch
            batch = []
    if batch:
        yield batch


def _chat_of(encoded: EncodedEvent) -> str:
    return encoded.event.originator_id


def _following(batch: Sequence[EncodedEvent], chat: IndexedChat) -> Sequence[EncodedEvent]:
    version = stream_head(chat).version
    new = [encoded for encoded in batch if encoded.event.originator_version > version]
    if new:
        _check_follows(chat, new[0])
    return new


def _check_follows(chat: IndexedChat, encoded: EncodedEvent) -> None:
    head = stream_head(chat)
    # Of a chat that was deleted and begun anew the events before are gone: it begins with its tombstone.
    is_first = head.version == 0 and isinstance(encoded.event.body, ChatDeleted)
    if not is_first and (encoded.event.originator_version, encoded.event.previous_hash) != (
        head.version + 1,
        head.hash,
    ):
        raise _diverged(chat.chat_id)


def _diverged(chat_id: str) -> InvalidValueError:
    return InvalidValueError(
        f"chat {chat_id!r} was gone on with here and where the bundle comes from; nothing was written. Import an export of it under "
        "another id in place of the bundle, to have both"
    )
