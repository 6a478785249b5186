"""
A whole versioned value as exports hand it out and imports hand it in.

Threads, states and items have one form: pieces of content and versions, as the log has them.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol, cast

import msgspec

from ..errors import DECODE_ERRORS, CorruptStateError, InvalidValueError, NotFoundError
from ..limits import check_count, check_id, check_optional_id, check_time
from ..wire import Value
from .content import (
    DIGEST_BYTES,
    Content,
    DictNode,
    Edited,
    Leaf,
    ListNode,
    Parts,
    Piece,
    as_change,
    piece_digest,
    references_of,
    split_digests,
)
from .decide import written_slots
from .events import FieldRef, Serialized, VersionKey
from .keys import FAMILIES, Family, FamilyName, check_checkpoint_id, check_namespace, family_of_id
from .record import StoredWrite, VersionedState, VersionRecord, is_expired
from .serials import join

_MOST_REMEMBERED_BYTES: Final = 64 * 1024 * 1024
_MOST_DEPTH: Final = 256
"""Deeper values are read by nothing that calls itself for what a value is made of."""
_MOST_KEPT: Final = 2**32


def shown_digest(digest: bytes) -> str:
    """Return a digest as exports and errors show it."""
    return b64encode(digest).decode()


class PieceExport:
    """
    The pieces of values. They depend on nothing but the values and their order.

    Args:
        content_of: A piece by its digest, whole; None when there is none.
        where: Names their owner in errors, e.g. "thread 'trip'".
    """

    def __init__(self, content_of: Callable[[bytes], Content | None], where: str) -> None:
        self._content_of, self._where = content_of, where
        self._added: set[bytes] = set()
        self.pieces: list[Piece] = []

    def add(self, digest: bytes, before: bytes | None = None) -> None:
        """Add a value; `before` is one that was added earlier and stood in its place."""
        if digest in self._added:
            return
        self._added.add(digest)
        base = None if before is None else self._need(before)
        content, bases = as_change(self._need(digest), before, base, self._added.__contains__)
        for child in references_of(content):
            self.add(child, bases.get(child))
        self.pieces.append(Piece(digest, content))

    def _need(self, digest: bytes) -> Content:
        content = self._content_of(digest)
        if content is None:
            msg = f"a value of {self._where} is missing in the index; rebuild it"
            raise CorruptStateError(msg)
        return content


class CheckedPieces:
    """
    The pieces of an export, which were checked: each is what its digest says, and made of pieces before it.

    Raises:
        InvalidValueError: One is not.
    """

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self.contents: dict[bytes, Content] = {}
        """The pieces as they came, by digest."""
        self._depths: dict[bytes, int] = {}
        self._wholes: dict[bytes, bytes] = {}
        """The elements of the newest lists, and the bytes of the newest leaves that are edits: the next ones come out of these."""
        self._remembered_bytes = 0
        for piece in pieces:
            self._take(piece.digest, piece.content)

    def whole(self, digest: bytes) -> Content:
        """Return a piece without those that it came out of."""
        return self._whole(self.contents[digest])

    def _take(self, digest: bytes, content: Content) -> None:
        references = references_of(content)
        if not all(reference in self.contents for reference in references):
            raise _damaged(digest, "is made of one that does not stand before it")
        kinds = {type(self.contents[reference]) for reference in references}
        if isinstance(content, DictNode) and len(content.keys) != len(references):
            raise _damaged(digest, f"has {len(content.keys)} keys and {len(references)} values")
        if isinstance(content, ListNode):
            if not 0 <= content.keep < _MOST_KEPT or (content.keep and not content.base):
                raise _damaged(digest, "keeps elements of no list")
            if content.base and not isinstance(self.contents[content.base], ListNode):
                raise _damaged(digest, "grew out of what is no list")
        if isinstance(content, Parts | Edited) and not kinds <= {Leaf, Edited}:
            raise _damaged(digest, "has parts that are no leaves, or is an edit of what is none")
        whole = self._whole(content)
        if piece_digest(whole) != digest:
            raise _damaged(digest, "is damaged: its content has another digest")
        # What a piece came out of is no level of it, but a list has the elements that it kept, and so their levels.
        own = [] if isinstance(content, Leaf | Edited) else split_digests(content.children)
        depth = 1 + max((self._depths[child] for child in own), default=0)
        if isinstance(content, ListNode) and content.base:
            depth = max(depth, self._depths[content.base])
        if depth > _MOST_DEPTH:
            raise _damaged(digest, "is nested too deeply")
        self.contents[digest], self._depths[digest] = content, depth
        if isinstance(whole, ListNode):
            self._remember(digest, whole.children)
        elif isinstance(content, Edited) and isinstance(whole, Leaf):
            self._remember(digest, whole.data)

    def _whole(self, content: Content) -> Content:
        if isinstance(content, Edited):
            return self._leaf(content)
        return ListNode(self._elements(content)) if isinstance(content, ListNode) and content.base else content

    def _leaf(self, content: Edited) -> Leaf:
        """Return a leaf with the edits of those that it came out of. Raises `InvalidValueError` when they are not of it."""
        chain, at = [content], content.base
        while at not in self._wholes and isinstance(base := self.contents[at], Edited):
            chain.append(base)
            at = base.base
        base = self.contents[at]
        data = base.data if isinstance(base, Leaf) else self._wholes[at]
        try:
            for edits in reversed(chain):
                data = edits.of(data).data
        except ValueError:
            msg = "a leaf is an edit of another one than the piece says"
            raise InvalidValueError(msg) from None
        return Leaf(content.type, data)

    def _elements(self, node: ListNode) -> bytes:
        """Return the digests of all elements of a list."""
        parts, kept = [node.children], node.keep
        while node.base:
            remembered = self._wholes.get(node.base)
            if remembered is not None:
                parts.append(remembered[: kept * DIGEST_BYTES])
                break
            node = cast("ListNode", self.contents[node.base])
            inherited = node.keep if node.base else 0
            parts.append(node.children[: max(kept - inherited, 0) * DIGEST_BYTES])
            kept = min(kept, inherited)
        return b"".join(reversed(parts))

    def _remember(self, digest: bytes, whole: bytes) -> None:
        self._wholes[digest] = whole
        self._remembered_bytes += len(whole)
        while self._remembered_bytes > _MOST_REMEMBERED_BYTES and len(self._wholes) > 1:
            oldest = next(iter(self._wholes))
            self._remembered_bytes -= len(self._wholes.pop(oldest))


def _damaged(digest: bytes, how: str) -> InvalidValueError:
    return InvalidValueError(f"piece {shown_digest(digest)} {how}")


_MOST_INDEX: Final = 2**31
_MOST_BYTES: Final = 2**53


class ImportedVersion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A version of a value in an export, with its pending writes: a checkpoint of a thread, a version of a state or an item.

    Args:
        line: The sequence of versions that it is in: a namespace of a thread, such as that of an assistant (`assistant:<id>`).
        id: Its id. Of a state and an item the number of the version with 12 digits.
        parent: The id of the version that it was made from.
        fields: Of each field, such as a channel of a graph, the digest of its value, and how many bytes that takes encoded; 0
            where nobody limits that. None where only writes have come yet.
        frames: What only the writer understands, each as the name of a serialization and the bytes: of a thread the
            checkpoint without its values, and the metadata.
        runtime: What wrote it, e.g. `python`.
        stored_at: When it was stored, in ms since the epoch.
        run_id: The run that made it.
        node: The node that wrote it, if it said so.
        is_final: Whether that was the end node.
        is_orphan: Whether its parent was removed.
        skeleton: The fields that are left of a pruned one.
        writes: Its pending writes.
    """

    id: str
    line: str = ""
    parent: str | None = None
    fields: dict[str, FieldRef] | None = None
    frames: tuple[Serialized, ...] = ()
    runtime: str = ""
    stored_at: int | None = None
    run_id: str | None = None
    node: str | None = None
    is_final: bool = False
    is_orphan: bool = False
    skeleton: tuple[str, ...] | None = None
    writes: tuple[StoredWrite, ...] = ()


class ImportedValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A whole thread of agents, state of a graph, or item: all its versions, in the order in which they were recorded.

    Args:
        family: What it is.
        id: Its id. That of a state or an item names its owner.
        owner: The user whose thread it is; None where that follows from the chat of the same id, or it is nobody's.
        created_at: When it began, in ms since the epoch.
        expires_at: From when on it counts as absent, in ms since the epoch; None when it does not expire.
        pieces: Its content in pieces that versions share.
        versions: The versions with their pending writes.
    """

    family: FamilyName
    id: str
    owner: str | None = None
    created_at: int | None = None
    expires_at: int | None = None
    pieces: tuple[Piece, ...] = ()
    versions: tuple[ImportedVersion, ...] = ()

    @property
    def name(self) -> str:
        """The name in problems and errors, which does not say whose it is: `thread 'trip'`."""
        return name_of(_family(self), self.id)


class ValueImportResult(Value, frozen=True, kw_only=True):
    """The changes that importing a versioned value made; a repeated import changes nothing."""

    id: str
    is_new: bool = False
    versions_added: int = 0
    writes_added: int = 0


class ListedValue(VersionedState, Protocol):
    """A versioned value that lists all that it has."""

    @property
    def family(self) -> Family:
        """The family that it is of."""
        ...

    def ids_with_writes(self, line: str) -> list[str]:
        """Return the ids of all versions of a line, and of those that only have writes yet; ascending."""
        ...


def _family(value: ImportedValue) -> Family:
    return next(family for family in FAMILIES if family.name == value.family)


def name_of(family: Family, key: str) -> str:
    """Return the name of a value in errors, which does not say whose it is."""
    return f"{family.name} {family.shown(key)!r}"


def version_name(family: Family, version_id: str, line: str | None = None) -> str:
    """Return the name of a version in errors."""
    if family.is_numbered:
        return f"version {int(version_id)}"
    return f"checkpoint {version_id!r}" + ("" if line is None else f" (namespace {line!r})")


def absent_value(family: Family, key: str) -> NotFoundError:
    """Return the error when there is no such value."""
    return NotFoundError(f"no {name_of(family, key)}")


def exported_value(state: ListedValue, now: int) -> ImportedValue:
    """Return a whole value. Raises `NotFoundError` when there is none, or it has expired."""
    record = state.record
    if record is None or is_expired(record, now) or (state.family.is_numbered and record.newest is None):
        raise absent_value(state.family, state.key)
    pieces = PieceExport(state.content, name_of(state.family, state.key))
    before: dict[tuple[str, str], bytes] = {}
    versions: list[ImportedVersion] = []
    for line, version_id in _in_order(state):
        stored, writes = state.version(line, version_id), tuple(state.writes(line, version_id))
        for name, ref in stored.fields.items() if stored is not None else ():
            pieces.add(ref.digest, before.get((line, name)))
            before[line, name] = ref.digest
        for write in writes:
            pieces.add(write.digest)
        versions.append(
            ImportedVersion(id=version_id, line=line, writes=writes)
            if stored is None
            else ImportedVersion(
                id=version_id,
                line=line,
                parent=stored.parent,
                fields=stored.fields,
                frames=stored.frames,
                runtime=stored.runtime,
                stored_at=stored.stored_at,
                run_id=stored.run_id,
                node=stored.node,
                is_final=stored.is_final,
                is_orphan=stored.is_orphan,
                skeleton=stored.skeleton,
                writes=writes,
            )
        )
    return ImportedValue(
        family=state.family.name,
        id=record.key,
        owner=record.owner,
        created_at=record.created_at,
        expires_at=record.expires_at,
        pieces=tuple(pieces.pieces),
        versions=tuple(versions),
    )


def _in_order(state: ListedValue) -> list[VersionKey]:
    """
    List the versions by the time when they were stored, and by id where that is the same; those of a numbered value by number.

    A line begins after those that came up before it, whatever the times of what was copied into it.
    """
    if state.family.is_numbered:
        return [(line, version_id) for line in state.lines() for version_id in state.ids_with_writes(line)]
    placed: list[tuple[int, int, str, str]] = []
    begin = 0
    for number, line in enumerate(state.lines()):
        times: dict[str, int | None] = {}
        for version_id in state.ids_with_writes(line):
            stored = state.version(line, version_id)
            times[version_id] = None if stored is None else stored.stored_at
        begin = max(begin, min((time for time in times.values() if time is not None), default=begin))
        placed += [(max(begin, time or begin), number, version_id, line) for version_id, time in times.items()]
    return [(line, version_id) for _, _, version_id, line in sorted(placed)]


class CheckedVersion(msgspec.Struct, frozen=True):
    """A version of an export as it is stored."""

    line: str
    id: str
    record: VersionRecord | None
    writes: tuple[StoredWrite, ...]

    @property
    def roots(self) -> list[bytes]:
        """The digests of its values."""
        return [*(() if self.record is None else self.record.digests), *(write.digest for write in self.writes)]


class CheckedValue(msgspec.Struct, frozen=True):
    """A value of an export, which was checked."""

    family: Family
    key: str
    owner: str | None
    created_at: int | None
    expires_at: int | None
    pieces: CheckedPieces
    versions: dict[VersionKey, CheckedVersion]


def check_value(value: ImportedValue) -> CheckedValue:
    """Return a value as it is stored. Raises `InvalidValueError` when it is damaged, or something in it breaks a rule."""
    if not isinstance(value, ImportedValue):
        msg = f"expected an ImportedValue, not {type(value).__name__}; export_thread and export_state return one"
        raise InvalidValueError(msg)
    family = _family(value)
    check_id(value.id, f"the id of a {family.name}")
    if family.is_numbered and (family_of_id(value.id) is not family or value.owner is not None):
        msg = f"{name_of(family, value.id)} is no {family.name}, or has an owner beside the one in its id"
        raise InvalidValueError(msg)
    if value.owner is not None:
        check_id(value.owner, "the owner of a thread", empty=True)
    for name in ("created_at", "expires_at"):
        if getattr(value, name) is not None:
            check_time(getattr(value, name), name)
    pieces = CheckedPieces(value.pieces)
    versions: dict[VersionKey, CheckedVersion] = {}
    for version in value.versions:
        checked = _checked(version, family)
        key, name = (version.line, version.id), version_name(family, version.id, version.line)
        if key in versions:
            msg = f"{name} is there twice"
            raise InvalidValueError(msg)
        if not all(digest in pieces.contents for digest in checked.roots):
            msg = f"{name} lacks a value"
            raise InvalidValueError(msg)
        versions[key] = checked
    if family.is_numbered:
        _check_numbered(pieces, versions)
    _check_acyclic(family, versions)
    return CheckedValue(family, value.id, value.owner, value.created_at, value.expires_at, pieces, versions)


def _checked(version: ImportedVersion, family: Family) -> CheckedVersion:
    check_namespace(version.line)
    for version_id in (version.id,) if version.parent is None else (version.id, version.parent):
        check_checkpoint_id(version_id)
        if family.is_numbered and not (len(version_id) == 12 and version_id.isascii() and version_id.isdigit()):
            msg = f"a {family.name} has a version {version_id!r}, which is no number of one"
            raise InvalidValueError(msg)
    name = version_name(family, version.id)
    for write in version.writes:
        check_id(write.task_id, "task_id", empty=True)
        check_time(write.written_at, "written_at")
        if not -_MOST_INDEX <= write.index < _MOST_INDEX:
            msg = f"the index of a write is {write.index}"
            raise InvalidValueError(msg)
    if len(written_slots(version.writes)) < len(version.writes):
        msg = f"{name} has two writes in one slot"
        raise InvalidValueError(msg)
    if version.fields is None:
        return CheckedVersion(version.line, version.id, None, version.writes)
    frame_count = 0 if family.is_numbered else 2  # of a thread checkpoint and metadata
    if len(version.frames) != frame_count:
        msg = f"{name} has {len(version.frames)} frames, those of a {family.name} have {frame_count}"
        raise InvalidValueError(msg)
    if any(check_count(ref.size_bytes, "size_bytes") >= _MOST_BYTES for ref in version.fields.values()):
        msg = f"{name} has a field that nothing holds"
        raise InvalidValueError(msg)
    if version.skeleton is not None and not {*version.fields, *(write.channel for write in version.writes)} <= {
        *version.skeleton
    }:
        msg = f"{name} was pruned, and has values of channels that its skeleton does not name"
        raise InvalidValueError(msg)
    if version.run_id is not None:
        check_id(version.run_id, "run_id", empty=True)
    record = VersionRecord(
        version.line,
        version.id,
        version.parent,
        version.fields,
        version.frames,
        version.runtime,
        0 if version.stored_at is None else check_time(version.stored_at, "stored_at"),
        version.run_id,
        check_optional_id(version.node, "node"),
        version.is_final,
        version.is_orphan,
        version.skeleton,
    )
    return CheckedVersion(version.line, version.id, record, version.writes)


def _check_numbered(pieces: CheckedPieces, versions: Mapping[VersionKey, CheckedVersion]) -> None:
    """Raise `InvalidValueError` unless a state or an item has versions in its one line, with values that are read as JSON."""
    if not versions or any(line or version.record is None or version.writes for (line, _), version in versions.items()):
        msg = "it has no version, or what no state has: another line, pending writes"
        raise InvalidValueError(msg)
    for digest in {digest for version in versions.values() for digest in version.roots}:
        try:
            join(digest, pieces.whole)
        except (*DECODE_ERRORS, CorruptStateError):
            msg = f"piece {shown_digest(digest)} is no value of a state"
            raise InvalidValueError(msg) from None


def _check_acyclic(family: Family, versions: Mapping[VersionKey, CheckedVersion]) -> None:
    """Raise `InvalidValueError` when a version is its own ancestor."""
    sound: set[VersionKey] = set()
    for key in versions:
        path: set[VersionKey] = set()
        at: VersionKey | None = key
        while at is not None and at in versions and at not in sound:
            if at in path:
                msg = f"{version_name(family, at[1], at[0])} is its own ancestor"
                raise InvalidValueError(msg)
            path.add(at)
            record = versions[at].record
            at = None if record is None or record.parent is None or record.is_orphan else (at[0], record.parent)
        sound |= path
