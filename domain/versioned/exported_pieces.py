"""Pieces of content as exports hold them: each named by its digest, after the pieces that it is made of."""

import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal

from ..errors import CorruptStateError, InvalidValueError
from ..wire import Value
from .content import (
    DIGEST_BYTES,
    Compound,
    Content,
    DictNode,
    Edited,
    Leaf,
    ListNode,
    Parts,
    Piece,
    bases_of,
    children_by_key,
    edited_from,
    grown_from,
    piece_digest,
    references_of,
    split_digests,
)

PieceKind = Literal["leaf", "parts", "list", "dict", "compound"]
_MOST_REMEMBERED_BYTES: Final = 64 * 1024 * 1024
_MOST_DEPTH: Final = 256
_MOST_KEPT: Final = 2**32


class ImportedPiece(Value, frozen=True, kw_only=True, omit_defaults=True):
    """
    A piece of content in an export. Binary content, digests too, is base64 text.

    Args:
        digest: Names it: BLAKE2b over its kind and content, of a list over all of its elements, of a leaf over all of its bytes.
        kind: `leaf` for a serialized value; `parts` for one that is cut into leaves; `list`, `dict`; `compound` for a
            value that its writer takes apart.
        form: What a leaf, parts or a compound is: the name of its serialization.
        data: The bytes of a leaf.
        keys: The keys of a dict, in their order.
        children: The digests of what it is made of, which stand before it.
        base: The list that a list grew out of: its first `keep` elements come first, then `children`. Or the leaf that a leaf is
            an edit of.
        keep: How many.
        edits: Of the bytes of such a base, by ascending places: (place, how many go there, the data that come in their place).
    """

    digest: str
    kind: PieceKind
    form: str = ""
    data: str = ""
    keys: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    base: str | None = None
    keep: int = 0
    edits: tuple[tuple[int, int, str], ...] = ()


def to_base64(data: bytes) -> str:
    """Return bytes as text."""
    return binascii.b2a_base64(data, newline=False).decode()


def from_base64(text: str, what: str) -> bytes:
    """Return the bytes of a text. Raises `InvalidValueError` when it is no base64."""
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        msg = f"{what} is not base64"
        raise InvalidValueError(msg) from None


def from_digest(text: str) -> bytes:
    """Return the digest in a text. Raises `InvalidValueError` when it is none."""
    digest = from_base64(text, "a digest")
    if len(digest) != DIGEST_BYTES:
        msg = f"a digest has {DIGEST_BYTES} bytes, not {len(digest)}"
        raise InvalidValueError(msg)
    return digest


class PieceExport:
    """
    The pieces of values, each once and after what it is made of. They depend on nothing but the values and their order.

    Args:
        content_of: A piece by its digest, of a list all elements; None when there is none.
        where: Names their owner in errors, e.g. "thread 'trip'".
    """

    def __init__(self, content_of: Callable[[bytes], Content | None], where: str) -> None:
        self._content_of, self._where = content_of, where
        self._seen: set[bytes] = set()
        self.found: list[ImportedPiece] = []

    def add(self, digest: bytes, before: bytes | None = None) -> str:
        """Add a value, and return its digest as text; `before` is one that was added earlier and stood in its place."""
        if digest not in self._seen:
            self._seen.add(digest)
            self._add(digest, None if before is None else self._need(before), before or b"")
        return to_base64(digest)

    def _add(self, digest: bytes, base: Content | None, before: bytes) -> None:
        content = self._need(digest)
        if isinstance(content, Leaf) and isinstance(base, Leaf):
            content = edited_from(content, before, base)
        if isinstance(content, ListNode) and isinstance(base, ListNode):
            content = grown_from(content.children, before, base.children)
        bases: Mapping[bytes, bytes] = {}
        if isinstance(content, DictNode) and isinstance(base, DictNode):
            by_key = children_by_key(base)
            bases = {child: by_key[key] for key, child in children_by_key(content).items() if key in by_key}
        elif isinstance(content, Parts) and isinstance(base, Parts):
            bases = bases_of(content, base, self._seen.__contains__)
        for child in [] if isinstance(content, Leaf | Edited) else split_digests(content.children):
            self.add(child, bases.get(child))
        self.found.append(_exported(digest, content))

    def _need(self, digest: bytes) -> Content:
        content = self._content_of(digest)
        if content is None:
            msg = f"a value of {self._where} is missing in the index; rebuild it"
            raise CorruptStateError(msg)
        return content


def _exported(digest: bytes, content: Content) -> ImportedPiece:
    name = to_base64(digest)
    if isinstance(content, Leaf):
        return ImportedPiece(digest=name, kind="leaf", form=content.type, data=to_base64(content.data))
    if isinstance(content, Edited):
        edits = tuple((at, dropped, to_base64(data)) for at, dropped, data in content.edits)
        return ImportedPiece(digest=name, kind="leaf", form=content.type, base=to_base64(content.base), edits=edits)
    children = tuple(map(to_base64, split_digests(content.children)))
    if isinstance(content, ListNode):
        base = to_base64(content.base) if content.base else None
        return ImportedPiece(digest=name, kind="list", children=children, base=base, keep=content.keep)
    if isinstance(content, DictNode):
        return ImportedPiece(digest=name, kind="dict", keys=content.keys, children=children)
    kind: PieceKind = "parts" if isinstance(content, Parts) else "compound"
    return ImportedPiece(digest=name, kind=kind, form=content.type, children=children)


class Pieces:
    """
    The pieces of an export, which were checked: each is what its digest says, and made of pieces before it.

    Args:
        pieces: As the export has them.

    Raises:
        InvalidValueError: One is not.
    """

    def __init__(self, pieces: Iterable[ImportedPiece]) -> None:
        self._contents: dict[bytes, Content] = {}
        self._depths: dict[bytes, int] = {}
        self._wholes: dict[bytes, bytes] = {}
        """The elements of the newest lists, and the bytes of the newest leaves that are edits."""
        self._remembered_bytes = 0
        for piece in pieces:
            self._take(piece)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._contents

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._contents)

    def missing(self, digest: bytes, is_there: Callable[[bytes], bool], found: dict[bytes, Piece]) -> None:
        """Add what is not there yet of a value to `found`, each piece after what it is made of."""
        stack = [(digest, False)]
        while stack:
            at, is_done = stack.pop()
            if at in found or is_there(at):
                continue
            content = self._contents[at]
            if is_done:
                found[at] = Piece(at, content)
            else:
                stack.append((at, True))
                stack.extend((child, False) for child in reversed(references_of(content)))

    def _take(self, piece: ImportedPiece) -> None:
        digest = from_digest(piece.digest)
        content = _content(piece)
        for reference in references_of(content):
            if reference not in self._contents:
                msg = f"piece {piece.digest} is made of one that does not stand before it"
                raise InvalidValueError(msg)
        if isinstance(content, Parts) and not all(
            isinstance(self._contents[child], Leaf | Edited) for child in split_digests(content.children)
        ):
            msg = f"piece {piece.digest} has parts that are no leaves"
            raise InvalidValueError(msg)
        whole = self._whole(content)
        if piece_digest(whole) != digest:
            msg = f"piece {piece.digest} is damaged: its content has another digest"
            raise InvalidValueError(msg)
        self._contents[digest] = content
        self._depths[digest] = self._depth(piece, content)
        if isinstance(whole, ListNode):
            self._remember(digest, whole.children)
        elif isinstance(content, Edited) and isinstance(whole, Leaf):
            self._remember(digest, whole.data)

    def _depth(self, piece: ImportedPiece, content: Content) -> int:
        """Return how deep a value is. Raises `InvalidValueError` when it is too deep to be read."""
        children = b"" if isinstance(content, Leaf | Edited) else content.children
        depth = 1 + max((self._depths[child] for child in split_digests(children)), default=0)
        if isinstance(content, ListNode) and content.base:
            depth = max(depth, self._depths[content.base])
        if depth > _MOST_DEPTH:
            msg = f"piece {piece.digest} is nested too deeply"
            raise InvalidValueError(msg)
        return depth

    def whole(self, digest: bytes) -> Content:
        """Return a piece without those that it came out of."""
        return self._whole(self._contents[digest])

    def _whole(self, content: Content) -> Content:
        if isinstance(content, Edited):
            return self._leaf(content)
        return ListNode(self._elements(content)) if isinstance(content, ListNode) and content.base else content

    def _leaf(self, content: Edited) -> Leaf:
        """Return a leaf with the edits of those that it came out of. Raises `InvalidValueError` when they are not of it."""
        chain, at = [content], content.base
        while at not in self._wholes and isinstance(base := self._contents[at], Edited):
            chain.append(base)
            at = base.base
        base = self._contents[at]
        data = self._wholes[at] if isinstance(base, Edited) else base.data if isinstance(base, Leaf) else b""
        try:
            for edits in reversed(chain):
                data = edits.of(data).data
        except ValueError:
            msg = "a leaf is an edit of what is none, or of another one"
            raise InvalidValueError(msg) from None
        return Leaf(content.type, data)

    def _elements(self, node: ListNode) -> bytes:
        """Return the digests of all elements of a list."""
        parts, kept = [node.children], node.keep
        while node.base:
            known = self._wholes.get(node.base)
            if known is not None:
                parts.append(known[: kept * DIGEST_BYTES])
                break
            base = self._contents[node.base]
            if not isinstance(base, ListNode):
                msg = "a list grew out of what is no list"
                raise InvalidValueError(msg)
            node = base
            inherited = node.keep if node.base else 0
            parts.append(node.children[: max(kept - inherited, 0) * DIGEST_BYTES])
            kept = min(kept, inherited)
        return b"".join(reversed(parts))

    def _remember(self, digest: bytes, whole: bytes) -> None:
        """Keep the newest lists and leaves whole: the next ones come out of these."""
        self._wholes[digest] = whole
        self._remembered_bytes += len(whole)
        while self._remembered_bytes > _MOST_REMEMBERED_BYTES and len(self._wholes) > 1:
            oldest = next(iter(self._wholes))
            self._remembered_bytes -= len(self._wholes.pop(oldest))


def _content(piece: ImportedPiece) -> Content:
    children = b"".join(map(from_digest, piece.children))
    if piece.kind == "leaf" and piece.base is not None:
        edits = [(at, dropped, from_base64(data, "an edit of a piece")) for at, dropped, data in piece.edits]
        return Edited(piece.form, from_digest(piece.base), tuple(edits))
    if piece.kind == "leaf":
        return Leaf(piece.form, from_base64(piece.data, "the data of a piece"))
    if piece.kind == "parts":
        return Parts(piece.form, children)
    if piece.kind == "compound":
        return Compound(piece.form, children)
    if piece.kind == "dict":
        if len(piece.keys) != len(piece.children):
            msg = f"piece {piece.digest} has {len(piece.keys)} keys and {len(piece.children)} values"
            raise InvalidValueError(msg)
        return DictNode(piece.keys, children)
    if not 0 <= piece.keep < _MOST_KEPT or (piece.base is None and piece.keep):
        msg = f"piece {piece.digest} keeps elements of no list"
        raise InvalidValueError(msg)
    return ListNode(children, b"" if piece.base is None else from_digest(piece.base), piece.keep)
