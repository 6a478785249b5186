"""Pieces of content as exports hold them: those of the log, each once and behind the pieces that it is made of."""

from base64 import b64encode
from collections.abc import Callable, Iterable
from typing import Final, cast

from ..errors import CorruptStateError, InvalidValueError
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

    Args:
        pieces: As the export has them.

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
