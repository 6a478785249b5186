"""Taking content out of the log that versions do not have any more: which events are rewritten, and what of them comes anew before that."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from chatledger.domain.chat.decide_redact import MAX_TARGETS
from chatledger.domain.chat.events import Body, ContentRedacted, Recorded
from chatledger.domain.chat.redaction import HEAD_CONTENT
from chatledger.domain.limits import COMMIT_EVENTS
from chatledger.domain.log.codec import MAX_EVENT_BYTES
from chatledger.domain.versioned.content import Piece, size_of
from chatledger.domain.versioned.decide import batches_of
from chatledger.domain.versioned.decide_import import writes_put
from chatledger.domain.versioned.events import (
    Begins,
    Skeleton,
    TaskWrites,
    VersionContentPut,
    VersionKey,
    VersionPut,
    VersionRest,
    VersionsKept,
    VersionWritesPut,
)
from chatledger.domain.versioned.pruning import decide_thin
from chatledger.domain.versioned.record import StoredWrite, VersionRecord

from ..log.stream_trees import StreamTree
from .pieces import StoredPiece, base_of, reached_pieces
from .reader import IndexedVersioned

_MOST_BYTES: Final = 4 * 1024 * 1024
"""About so much comes anew in one commit: what is more comes in commits before it."""
_encode: Final = msgspec.msgpack.Encoder().encode
Write = tuple[str, int, str, bytes]
"""The task, the index, the channel and the digest of a write."""


class Host(NamedTuple):
    """
    What of a value an event holds, by digests: fields of versions, writes, and pieces, each with the one that it came out of.

    `version` is that of the event in the stream.
    """

    version: int
    fields: dict[VersionKey, set[tuple[str, bytes]]]
    writes: dict[VersionKey, set[Write]]
    pieces: dict[bytes, bytes]
    begins: Begins | None


def host_of(recorded: Recorded) -> Host | None:
    """Return what an event holds that can be taken out of it; None where that is nothing, or is gone."""
    body: Body = recorded.body
    if HEAD_CONTENT in recorded.event.redacted:
        return None
    fields: dict[VersionKey, set[tuple[str, bytes]]] = {}
    tasks: dict[VersionKey, Sequence[TaskWrites]] = {}
    pieces: Sequence[Piece] = ()
    if isinstance(body, VersionsKept):
        fields = {(rest.line, rest.id): _named(rest) for rest in body.rests if rest.skeleton != ()}
        if not fields:
            return None
    elif isinstance(body, VersionPut):
        fields, pieces = {(body.line, body.id): _named(body)}, body.pieces
        tasks = {(body.line, body.parent or ""): body.writes or ()}
    elif isinstance(body, VersionWritesPut):
        tasks, pieces = {(body.line, body.id): body.tasks}, body.pieces
    elif isinstance(body, VersionContentPut):
        pieces = body.pieces
    else:
        return None
    writes = {
        key: {(task.task_id, slot.index, slot.channel, slot.digest) for task in of_key for slot in task.slots}
        for key, of_key in tasks.items()
        if of_key
    }
    based = {piece.digest: base_of(piece.content) for piece in pieces}
    return Host(recorded.version, fields, writes, based, body.begins)


def event_places(state: IndexedVersioned) -> list[tuple[int, int]]:
    """Return where the events are that may have content to take out: the first and the last position of each row of them."""
    record, stream_no = state.record, state.stream_no
    if record is None or stream_no is None:
        return []
    tree = StreamTree(*state.read_from, stream_no, record.head)
    first_version = tree.first_version
    return [
        (tree.entry(first - first_version).position, tree.entry(last - first_version).position)
        for first, last in state.untaken()
    ]


def _named(version: VersionPut | VersionRest | VersionRecord) -> set[tuple[str, bytes]]:
    return {(name, ref.digest) for name, ref in version.fields.items()}


def _slot(write: StoredWrite) -> Write:
    return write.task_id, write.index, write.channel, write.digest


class _Left:
    """A value as it is once some of its versions are reduced to skeletons."""

    def __init__(self, state: IndexedVersioned, skeletons: Iterable[Skeleton]) -> None:
        self._state = state
        self._channels = {(skeleton.line, skeleton.id): skeleton.channels for skeleton in skeletons}
        self._versions: dict[VersionKey, VersionRecord | None] = {}
        self._writes: dict[VersionKey, dict[Write, StoredWrite]] = {}

    def version(self, key: VersionKey) -> VersionRecord | None:
        if key not in self._versions:
            record = self._state.version(*key)
            self._versions[key] = None if record is None else self._reduced(record)
        return self._versions[key]

    def _reduced(self, record: VersionRecord) -> VersionRecord:
        channels = self._channels.get((record.line, record.id))
        if channels is None:
            return record
        fields = {name: ref for name, ref in record.fields.items() if name in channels}
        return msgspec.structs.replace(record, fields=fields, skeleton=channels)

    def writes(self, key: VersionKey) -> dict[Write, StoredWrite]:
        if key not in self._writes:
            channels = self._channels.get(key)
            left = [each for each in self._state.writes(*key) if channels is None or each.channel in channels]
            self._writes[key] = {_slot(each): each for each in left}
        return self._writes[key]

    def reached(self) -> tuple[dict[bytes, StoredPiece], set[bytes]]:
        """Return the pieces that are still reached, and which of them the newest versions have: those stay longest."""
        state, newest, roots = self._state, list[bytes](), list[bytes]()
        for line in state.lines():
            versions = map(self._reduced, state.unpruned(line))
            newest += (digest for version in islice(versions, 1) for digest in version.digests)
            roots += (digest for version in versions for digest in version.digests)
            keys = [(line, version_id) for version_id, _ in state.all_writes(line)]
            roots += (slot[-1] for key in dict.fromkeys(keys) for slot in self.writes(key))
        reached = reached_pieces([*newest, *roots], state.stored_content)
        return reached, {*reached_pieces(newest, state.stored_content)}


def decide_take_out(state: IndexedVersioned, skeletons: Sequence[Skeleton], hosts: Sequence[Host]) -> list[Body]:
    """
    These versions lose their content, and all events lose what no version has any more. What stays of such an event comes anew first.

    Where that is much, these are the first events of it, and repeating it goes on.

    `hosts`: all events of the value that have content which may go.
    """
    left = _Left(state, skeletons)
    reached, lasting = left.reached()
    victims = [host for host in hosts if _has_dead(host, left, reached)]
    gone = {host.version for host in victims}
    others = [host for host in hosts if host.version not in gone]
    pieces = _to_repeat(state, reached, victims, others)
    # What the newest versions have in events of its own: those need not be rewritten soon.
    piles = [[piece for piece in pieces if (piece.digest in lasting) == is_lasting] for is_lasting in (True, False)]
    anew: list[Body] = [VersionContentPut(batch) for pile in piles for batch in batches_of(pile) if batch]
    anew += _writes_to_repeat(left, victims, others)
    if len(anew) > COMMIT_EVENTS or size_of(pieces) > 2 * _MOST_BYTES:
        return _first_of(anew)
    begins = next((host.begins for host in victims if host.begins is not None), None)
    versions = sorted(gone)
    return [
        *anew,
        *_kept(left, victims, begins),
        *decide_thin(skeletons),
        *(
            ContentRedacted(
                (), tuple((version, (HEAD_CONTENT,)) for version in versions[at : at + MAX_TARGETS]), "retention"
            )
            for at in range(0, len(versions), MAX_TARGETS)
        ),
    ]


def _has_dead(host: Host, left: _Left, reached: dict[bytes, StoredPiece]) -> bool:
    """Whether an event holds something that the value does not have any more."""
    if any(digest not in reached for digest in host.pieces):
        return True
    for key, fields in host.fields.items():
        version = left.version(key)
        if version is None or not fields <= _named(version):
            return True
    return any(not writes <= left.writes(key).keys() for key, writes in host.writes.items())


def _to_repeat(
    state: IndexedVersioned, reached: dict[bytes, StoredPiece], victims: Sequence[Host], others: Sequence[Host]
) -> list[Piece]:
    """
    Return the pieces that stay and that the log would not have any more, whole.

    Also those that the index has whole and the log as a change of something: an index that is built anew must come to the same rows,
    though what it was a change of may come later there.
    """
    in_victims = {digest for host in victims for digest in host.pieces}
    bases: dict[bytes, bytes] = {}
    for host in others:
        for digest, base in host.pieces.items():
            bases[digest] = base and bases.get(digest, base)
    repeated: list[Piece] = []
    for digest in sorted({*in_victims, *(digest for digest, base in bases.items() if base)}):
        stored = reached.get(digest)
        if stored is None or bases.get(digest) == b"":
            continue
        if digest in in_victims or bases[digest] not in reached or not base_of(stored.content):
            repeated.append(Piece(digest, state.whole(stored.content)))
    return repeated


def _writes_to_repeat(left: _Left, victims: Sequence[Host], others: Sequence[Host]) -> Iterator[Body]:
    there: dict[VersionKey, set[Write]] = {}
    for host in others:
        for key, writes in host.writes.items():
            there.setdefault(key, set()).update(writes)
    for key in dict.fromkeys(key for host in victims for key in host.writes):
        here = {slot for host in victims for slot in host.writes.get(key, ())} - there.get(key, set())
        stays = [write for slot, write in left.writes(key).items() if slot in here]
        yield from writes_put(*key, stays)


def _kept(left: _Left, victims: Sequence[Host], begins: Begins | None) -> Iterator[Body]:
    """Yield what stays of versions: of those without content once and for all, and in events of their own of the others."""
    keys = dict.fromkeys(key for host in victims for key in host.fields)
    stays = [version for key in keys if (version := left.version(key)) is not None]
    bare = [version for version in stays if version.skeleton == () and version.frames]
    for pile in (bare, [version for version in stays if version.skeleton != ()]):
        batch: list[VersionRest] = []
        room = MAX_EVENT_BYTES // 2
        for version in pile:
            rest = VersionRest(version.line, version.id, version.fields, version.frames, version.skeleton)
            room -= len(_encode(rest))
            if batch and room < 0:
                yield VersionsKept(tuple(batch), begins)
                batch, begins, room = [], None, MAX_EVENT_BYTES // 2 - len(_encode(rest))
            batch.append(rest)
        if batch:
            yield VersionsKept(tuple(batch), begins)
            begins = None
    if begins is not None:
        yield VersionsKept((), begins)


def _first_of(bodies: Sequence[Body]) -> list[Body]:
    """Return the first events, as many as are one commit."""
    first: list[Body] = []
    used = 0
    for body in bodies[:COMMIT_EVENTS]:
        used += size_of(getattr(body, "pieces", ()))
        if first and used > _MOST_BYTES:
            break
        first.append(body)
    return first
