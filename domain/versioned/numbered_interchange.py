"""A whole state of a graph as exports hand it out and imports hand it in, and the decision that takes it in."""

from typing import Final

import msgspec

from ..chat.events import Body
from ..errors import DECODE_ERRORS, AlreadyExistsError, CorruptStateError, InvalidValueError, NotFoundError
from ..limits import check_count, check_id, check_optional_id, check_time
from ..wire import Value
from .content import Content, DictNode, Leaf, ListNode, Parts, Piece, size_of, split_digests
from .decide import batches_of, living
from .events import Begins, FieldRef, VersionContentPut, VersionPut, begun
from .exported_pieces import ImportedPiece, PieceExport, Pieces, from_digest, to_base64
from .interchange import changed_meanwhile
from .json_values import RUN, VALUE, decoded
from .keys import owner_of_state, shown_id
from .numbered import LINE
from .record import VersionedState, VersionRecord, is_expired, number_id

_MOST_COMMIT_BYTES: Final = 4 * 1024 * 1024
_MOST_VERSIONS: Final = 2**53
_PART: Final = "part"
_decode: Final = msgspec.msgpack.Decoder().decode


class ImportedField(Value, frozen=True, kw_only=True):
    """A field of a version in an export: the digest of its value in base64, and how many bytes the value takes encoded."""

    digest: str
    size_bytes: int


class ImportedVersion(Value, frozen=True, kw_only=True):
    """
    A version of a graph's state in an export.

    Args:
        version: 1, 2, 3, ...
        fields: Of each field its value.
        node: The node that wrote it, if it said so.
        parent: The version that it was made from.
        is_final: Whether that was the end node.
        stored_at: When it was stored, in ms since the epoch.
    """

    version: int
    fields: dict[str, ImportedField]
    node: str | None = None
    parent: int | None = None
    is_final: bool = False
    stored_at: int | None = None


class ImportedState(Value, frozen=True, kw_only=True):
    """
    A whole state of a graph: all of its versions, the oldest first.

    Args:
        id: Its id, as `state_id` makes it; it names the owner.
        pieces: The values of its fields, in pieces that versions share.
        versions: The versions.
        expires_at: From when on it counts as absent, in ms since the epoch; None when it does not expire.
    """

    id: str
    pieces: tuple[ImportedPiece, ...] = ()
    versions: tuple[ImportedVersion, ...] = ()
    expires_at: int | None = None


class StateImportResult(Value, frozen=True, kw_only=True):
    """The changes that importing a state of a graph made; a repeated import changes nothing."""

    state_id: str
    is_new: bool = False
    versions_added: int = 0


def exported_state(state: VersionedState, moment_ms: int) -> ImportedState:
    """Return a whole state. Raises `NotFoundError` when there is none, or it has expired."""
    record = state.record
    if record is None or not record.version or is_expired(record, moment_ms):
        msg = "there is no such state, or it has expired"
        raise NotFoundError(msg)
    pieces = PieceExport(state.content, f"state {shown_id(record.key)!r}")
    before: dict[str, bytes] = {}
    versions: list[ImportedVersion] = []
    for number in range(1, record.version + 1):
        stored = state.version(LINE, number_id(number))
        if stored is None:
            msg = f"state {shown_id(record.key)!r} has no version {number}"
            raise NotFoundError(msg)
        fields = {
            name: ImportedField(digest=pieces.add(ref.digest, before.get(name)), size_bytes=ref.size_bytes)
            for name, ref in stored.fields.items()
        }
        before |= {name: ref.digest for name, ref in stored.fields.items()}
        versions.append(
            ImportedVersion(
                version=number,
                fields=fields,
                node=stored.node,
                parent=None if stored.parent is None else int(stored.parent),
                is_final=stored.is_final,
                stored_at=stored.stored_at,
            )
        )
    return ImportedState(
        id=record.key, pieces=tuple(pieces.found), versions=tuple(versions), expires_at=record.expires_at
    )


class CheckedState(msgspec.Struct, frozen=True):
    """A state of an export, which was checked."""

    id: str
    pieces: Pieces
    versions: list[VersionRecord]
    expires_at: int | None


def check_state(state: ImportedState) -> CheckedState:
    """Return a state as it is stored. Raises `InvalidValueError` when it is damaged, or a value breaks a rule."""
    if not isinstance(state, ImportedState):
        msg = f"expected an ImportedState, not {type(state).__name__}; export_state returns one"
        raise InvalidValueError(msg)
    owner_of_state(state.id)
    if state.expires_at is not None:
        check_time(state.expires_at, "expires_at")
    pieces = Pieces(state.pieces)
    _check_values(pieces)
    versions = [_checked(version, number, pieces) for number, version in enumerate(state.versions, start=1)]
    if not versions:
        msg = "it has no version"
        raise InvalidValueError(msg)
    return CheckedState(state.id, pieces, versions, state.expires_at)


def _checked(version: ImportedVersion, number: int, pieces: Pieces) -> VersionRecord:
    if version.version != number:
        msg = f"version {number} is missing: {version.version} stands in its place"
        raise InvalidValueError(msg)
    fields: dict[str, FieldRef] = {}
    for name, field in version.fields.items():
        check_id(name, "the name of a field", empty=True)
        digest = from_digest(field.digest)
        size = check_count(field.size_bytes, "size_bytes")
        if digest not in pieces or _is_run(pieces.whole(digest)) or size >= _MOST_VERSIONS:
            msg = f"version {number} lacks the value of a field"
            raise InvalidValueError(msg)
        fields[name] = FieldRef(digest, size)
    if version.parent is not None and check_count(version.parent, "parent") >= _MOST_VERSIONS:
        msg = f"the parent of version {number} is no version"
        raise InvalidValueError(msg)
    stored_at = 0 if version.stored_at is None else check_time(version.stored_at, "stored_at")
    node = check_optional_id(version.node, "node")
    parent = None if version.parent is None else number_id(version.parent)
    return VersionRecord(
        LINE, number_id(number), parent, fields, stored_at=stored_at, node=node, is_final=version.is_final
    )


def _check_values(pieces: Pieces) -> None:
    """Raise `InvalidValueError` unless the pieces are values of states."""
    for digest in pieces:
        content = pieces.whole(digest)
        if isinstance(content, Leaf):
            is_sound = _is_part(content) or _is_value(content)
            if content.type == RUN:
                is_sound = _is_value(Leaf(VALUE, content.data)) and isinstance(_decode(content.data), list)
        elif isinstance(content, Parts):
            parts = map(pieces.whole, split_digests(content.children))
            whole = b"".join(part.data for part in parts if isinstance(part, Leaf))
            is_sound = _is_value(Leaf(content.type, whole))
        elif isinstance(content, DictNode):
            is_sound = not any(_is_run(pieces.whole(child)) for child in split_digests(content.children))
        elif isinstance(content, ListNode):
            is_sound = not any(_is_part(pieces.whole(child)) for child in split_digests(content.children))
        else:
            is_sound = False
        if not is_sound:
            msg = f"piece {to_base64(digest)} is no value of a state"
            raise InvalidValueError(msg)


def _is_run(content: Content) -> bool:
    """Whether it is only a part of a value: elements of a list, or some of its bytes."""
    return isinstance(content, Leaf) and content.type in {RUN, _PART}


def _is_part(content: Content) -> bool:
    return isinstance(content, Leaf) and content.type == _PART


def _is_value(leaf: Leaf) -> bool:
    if not leaf.type.startswith(VALUE) or leaf.type == RUN:
        return False
    try:
        decoded(leaf)
    except (*DECODE_ERRORS, CorruptStateError):
        return False
    return True


def check_same_state(state: VersionedState, imported: CheckedState, moment_ms: int) -> None:
    """
    Check that a state can be taken in: there is none of its id, or one of the two goes on where the other one ends.

    Raises:
        AlreadyExistsError: There is one with other content.
    """
    record = state.record
    if record is None or is_expired(record, moment_ms):
        return
    for version in imported.versions[: record.version]:
        if _differs(state, version):
            msg = (
                f"state {shown_id(imported.id)!r} is here with other content: version {version.version} differs. Nothing of it "
                "was written; import it into another ledger, or delete the state that is here first"
            )
            raise AlreadyExistsError(msg)


def _differs(state: VersionedState, version: VersionRecord) -> bool:
    stored = state.version(LINE, version.id)
    if stored is None:
        return True
    # When and where a version was stored is not part of what it says.
    return msgspec.structs.replace(version, stored_at=stored.stored_at, position=stored.position) != stored


def decide_import_state(
    state: VersionedState, imported: CheckedState, first: int, moment_ms: int, *, limit: int
) -> tuple[list[Body], int]:
    """
    Return what the state lacks of the versions from `first` on, in up to `limit` events, and the version to go on with.

    On a state that has expired, a new life begins. Raises `AlreadyExistsError` when a version is there and differs.
    """
    # Only the first commit ends what has expired: the later ones go on with the new life.
    ending, alive = living(state, moment_ms) if first == 1 else ([], state)
    newest = 0 if alive.record is None else alive.record.version
    bodies: list[Body] = []
    written: dict[bytes, Piece] = {}
    used_bytes = put = 0
    following = len(imported.versions) + 1
    for version in imported.versions[first - 1 :]:
        if version.version <= newest:
            if _differs(alive, version):
                what = f"version {version.version} of state {shown_id(imported.id)!r}"
                raise changed_meanwhile(what)
            continue
        missing = _missing(alive, imported, version, written)
        *earlier, last = batches_of([*missing.values()])
        size = size_of(missing.values())
        # At least one version, whatever it takes: else a large one would never be written.
        if put and (len(bodies) + 1 + len(earlier) > limit or used_bytes + size > _MOST_COMMIT_BYTES):
            following = version.version
            break
        bodies += map(VersionContentPut, earlier)
        bodies.append(
            VersionPut(
                line=LINE,
                id=version.id,
                parent=version.parent,
                fields=version.fields,
                pieces=last,
                node=version.node,
                is_final=version.is_final,
                expires_at=imported.expires_at,
                stored_at=version.stored_at or None,
            )
        )
        used_bytes, put = used_bytes + size, put + 1
        written |= missing
    if alive.record is not None:
        return bodies, following
    return [*ending, *begun(bodies, Begins(imported.id, None, imported.versions[0].stored_at or None))], following


def _missing(
    state: VersionedState, imported: CheckedState, version: VersionRecord, written: dict[bytes, Piece]
) -> dict[bytes, Piece]:
    missing: dict[bytes, Piece] = {}
    for digest in version.digests:
        imported.pieces.missing(digest, lambda at: at in written or state.has_content(at), missing)
    return missing
