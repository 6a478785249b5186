"""
Content: the values of threads and of the states of graphs, cut into pieces that are named by their digest, so that equal ones are
kept once.

A value is a leaf (what the serializer made of it), or a list, dict or other composite of pieces. A long leaf is cut into parts. What came
out of something else says only what is new: a list that grew as many as `keep` elements of `base`, and then its own; a leaf in which little
changed the edits of the bytes of `base`.

Cutting long values into parts, so that what did not change is found again, and saying what changed in a part.

All of it is about bytes: how good a cut is is the writer's affair, and readers join whatever parts there are.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

PART_BYTES: Final = 32 * 1024
"""A new part has at most so many bytes."""
_LEAST_PART: Final = 8 * 1024
"""A shorter part is cut again with what follows it, so that values that grow leave no crumbs."""
_ANCHOR: Final = 24
_MOST_MISSES: Final = 4
_MOST_DEPTH: Final = 6

Edit = tuple[int, int, bytes]
"""A place in the bytes before, how many of them go there, and what comes in their place."""


def cut(data: bytes, before: Sequence[bytes]) -> list[bytes]:
    """
    Cut bytes into parts, with as many as there are of those that stood here before.

    The parts in order are the bytes, whatever `before` is; equal arguments give equal parts.
    """
    spans: list[tuple[int, int]] = []
    at = misses = missed = 0
    behind = sum(map(len, before))
    for old in before:
        # Behind the part before it, or as far from that or from the end as it was: what repeats itself is found anywhere.
        likely = (at, at + missed, len(data) - behind)
        behind -= len(old)
        place = next((place for place in likely if place >= at and data.startswith(old, place)), -1)
        if place < 0:
            place = data.find(old[:_ANCHOR], at, at + 3 * PART_BYTES)
        if place < 0 or not old or not data.startswith(old, place):
            misses, missed = misses + 1, missed + len(old)
            if misses > _MOST_MISSES and not spans:  # another value: looking on costs more than it finds
                break
            continue
        _add(spans, at, place)
        spans.append((place, place + len(old)))
        at, missed = place + len(old), 0
    _add(spans, at, len(data))
    return [data[start:end] for start, end in spans]


def _add(spans: list[tuple[int, int]], start: int, end: int) -> None:
    """Add new parts, which begin with the part before them if that is short."""
    if start == end:
        return
    if spans and spans[-1][1] - spans[-1][0] < _LEAST_PART:
        start, _ = spans.pop()
    count = -(-(end - start) // PART_BYTES)
    bounds = [start + (end - start) * number // count for number in range(count + 1)]
    spans += pairwise(bounds)


def edits_between(old: bytes, new: bytes) -> list[Edit]:
    """Return the edits that make one of the other, by ascending places."""
    edits: list[Edit] = []
    _compare(old, new, (0, len(old)), (0, len(new)), edits, _MOST_DEPTH)
    return edits


def _compare(
    old: bytes, new: bytes, in_old: tuple[int, int], in_new: tuple[int, int], edits: list[Edit], depth: int
) -> None:
    (a, a_end), (b, b_end) = in_old, in_new
    common = _common_start(old[a:a_end], new[b:b_end])
    a, b = a + common, b + common
    common = _common_end(old[a:a_end], new[b:b_end])
    a_end, b_end = a_end - common, b_end - common
    if a == a_end and b == b_end:
        return
    if depth and min(a_end - a, b_end - b) > 2 * _ANCHOR:
        for share in (2, 1, 3):  # of a quarter: the middle first
            at = a + (a_end - a - _ANCHOR) * share // 4
            anchor = old[at : at + _ANCHOR]
            # As far from the start or from the end as before, if it is there: what repeats itself is found anywhere.
            likely = [
                place for place in (b + at - a, b_end - (a_end - at)) if place >= b and new.startswith(anchor, place)
            ]
            place = likely[0] if likely else new.find(anchor, b, b_end)
            if 0 <= place <= b_end - _ANCHOR:
                _compare(old, new, (a, at), (b, place), edits, depth - 1)
                _compare(old, new, (at, a_end), (place, b_end), edits, depth - 1)
                return
    edits.append((a, a_end - a, new[b:b_end]))


def _common_start(left: bytes, right: bytes) -> int:
    """Count the bytes that both begin with."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while low < high:  # all up to `low` are equal, and not all up to `high`
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_end(left: bytes, right: bytes) -> int:
    """Count the bytes that both end with."""
    return _common_start(left[::-1], right[::-1])


def edited(old: bytes, edits: Iterable[Edit]) -> bytes:
    """
    Return bytes after edits.

    Raises:
        ValueError: They are none of these bytes.
    """
    parts: list[bytes] = []
    at = 0
    for place, dropped, data in edits:
        if not at <= place <= place + dropped <= len(old):
            msg = "edits are not of these bytes"
            raise ValueError(msg)
        parts += (old[at:place], data)
        at = place + dropped
    return b"".join((*parts, old[at:]))


def size_of_edits(edits: Iterable[Edit]) -> int:
    """Return about how many bytes edits take on the log."""
    return sum(len(data) + 9 for _, _, data in edits)


DIGEST_BYTES: Final = 20
WHOLE_BYTES: Final = 16 * 1024
"""A leaf of more bytes is cut into parts."""
_MOST_EDITED: Final = 2
"""So many parts of a value may be edits: where more changed, it is another value, and looking for edits costs more than it saves."""
_LEAST_EDITED: Final = 80
"""A shorter leaf is as short as the edits that would make it."""
_LEAST_KEPT: Final = 4

_encode: Final = msgspec.msgpack.Encoder().encode


PART: Final = "part"
"""The type of the leaves that a long leaf is cut into."""


class Leaf(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=0):
    """A value as the serializer gave it: the name of its form, and the bytes."""

    type: str
    data: bytes


class Parts(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=1):
    """A leaf whose bytes are those of other leaves, one after the other."""

    type: str
    children: bytes


class ListNode(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=2):
    """A list: the first `keep` elements of the list `base`, then those in `children`."""

    children: bytes
    base: bytes = b""
    keep: int = 0


class DictNode(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=3):
    """A dict with text keys, in their order."""

    keys: tuple[str, ...]
    children: bytes


class Compound(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=4):
    """A value that whoever wrote it takes apart and puts together again: the name of its form, and what it is made of."""

    type: str
    children: bytes


class Edited(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=5):
    """A leaf whose bytes are those of the leaf `base` after edits."""

    type: str
    base: bytes
    edits: tuple[Edit, ...]

    def of(self, base: bytes) -> Leaf:
        """Return the leaf, from the bytes of its base. Raises `ValueError` where they are other ones."""
        return Leaf(self.type, edited(base, self.edits))


Content = Leaf | Parts | ListNode | DictNode | Compound | Edited
"""Children are digests, one after the other."""


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """
    A piece of content with its digest. Of a list the digest is that of all of its elements, and of a leaf that of all its bytes,
    whatever it came out of.
    """

    digest: bytes
    content: Content


class Tree(NamedTuple):
    """A value in pieces: its own, and the values that it is made of."""

    digest: bytes
    content: Content
    children: "Sequence[Tree]" = ()


class Serial(NamedTuple):
    """A value that was serialized as a whole: the name of its form, and the bytes. What stood in its place says how it is cut."""

    type: str
    data: bytes


def leaf_tree(type_name: str, data: bytes, before: Sequence[bytes] = ()) -> Tree:
    """Return one serialized value in pieces; `before` are the parts of the value that stood in its place."""
    *parts, whole = leaf_pieces(type_name, data, before)
    return Tree(whole.digest, whole.content, [Tree(part.digest, part.content) for part in parts])


def tree_of(value: Tree | Serial, before: bytes | None, content_of: Callable[[bytes], Content | None]) -> Tree:
    """Return a value in pieces, cut by the value that stood in its place, `before`, whose pieces `content_of` finds."""
    if isinstance(value, Tree):
        return value
    earlier = None if before is None or len(value.data) <= WHOLE_BYTES else content_of(before)
    parts = [earlier] if isinstance(earlier, Leaf) else []
    if isinstance(earlier, Parts):
        parts = [part for part in map(content_of, split_digests(earlier.children)) if isinstance(part, Leaf)]
    return leaf_tree(value.type, value.data, [part.data for part in parts])


def list_tree(children: Sequence[Tree]) -> Tree:
    """Return a list of values in pieces."""
    piece = list_piece([child.digest for child in children])
    return Tree(piece.digest, piece.content, children)


def dict_tree(items: Mapping[str, Tree]) -> Tree:
    """Return a dict of values in pieces."""
    piece = dict_piece({key: child.digest for key, child in items.items()})
    return Tree(piece.digest, piece.content, list(items.values()))


def leaf_pieces(type_name: str, data: bytes, before: Sequence[bytes] = ()) -> list[Piece]:
    """The pieces of one serialized value, see `leaf_tree`; the last of them is the value."""
    if len(data) <= WHOLE_BYTES:
        leaf = Leaf(type_name, data)
        return [Piece(piece_digest(leaf), leaf)]
    leaves = [Leaf(PART, part) for part in cut(data, before)]
    parts = [Piece(piece_digest(leaf), leaf) for leaf in leaves]
    whole = Parts(type_name, b"".join(part.digest for part in parts))
    return [*parts, Piece(piece_digest(whole), whole)]


def list_piece(children: Sequence[bytes]) -> Piece:
    """The list of pieces with these digests."""
    node = ListNode(b"".join(children))
    return Piece(piece_digest(node), node)


def dict_piece(items: dict[str, bytes]) -> Piece:
    """The dict of pieces with these digests."""
    node = DictNode(tuple(items), b"".join(items.values()))
    return Piece(piece_digest(node), node)


def composite_piece(type_name: str, children: Sequence[bytes]) -> Piece:
    """The value of that form that is made of pieces with these digests."""
    node = Compound(type_name, b"".join(children))
    return Piece(piece_digest(node), node)


def piece_digest(content: Content) -> bytes:
    """Return the digest that names a piece: BLAKE2b over its kind and content, which must be whole, without a base."""
    if isinstance(content, Leaf):
        head, data = b"leaf" + _encode(content.type), content.data
    elif isinstance(content, Parts):
        head, data = b"part" + _encode(content.type), content.children
    elif isinstance(content, ListNode):
        assert not content.base, "a list is named by all of its elements"
        head, data = b"list", content.children
    elif isinstance(content, Compound):
        head, data = b"comp" + _encode(content.type), content.children
    elif isinstance(content, Edited):
        msg = "a leaf is named by all of its bytes"
        raise TypeError(msg)
    else:
        head, data = b"dict" + _encode(content.keys), content.children
    hashed = blake2b(head, digest_size=DIGEST_BYTES)
    hashed.update(data)
    return hashed.digest()


def split_digests(children: bytes) -> list[bytes]:
    """Digests one after the other, as a list."""
    return [children[at : at + DIGEST_BYTES] for at in range(0, len(children), DIGEST_BYTES)]


def references_of(content: Content) -> list[bytes]:
    """The pieces that a piece as it is stored is made of."""
    if isinstance(content, Leaf):
        return []
    if isinstance(content, Edited):
        return [content.base]
    references = split_digests(content.children)
    return [content.base, *references] if isinstance(content, ListNode) and content.base else references


def as_change(
    content: Content, before: bytes | None, base: Content | None, is_there: Callable[[bytes], bool]
) -> tuple[Content, Mapping[bytes, bytes]]:
    """
    Return a piece as what it adds to the piece before it, where that is shorter than the whole.

    Of a cut leaf the parts come too that are new, if they are few, each with the part that stood at its place.
    """
    if before is None or base is None:
        return content, {}
    if isinstance(content, Leaf) and isinstance(base, Leaf) and len(content.data) >= _LEAST_EDITED:
        edits = edits_between(base.data, content.data)
        is_short = DIGEST_BYTES + size_of_edits(edits) <= len(content.data) // 2
        return (Edited(content.type, before, tuple(edits)) if is_short else content), {}
    if isinstance(content, ListNode) and isinstance(base, ListNode):
        keep = _common(content.children, base.children)
        is_short = keep >= _LEAST_KEPT
        return (ListNode(content.children[keep * DIGEST_BYTES :], before, keep) if is_short else content), {}
    if isinstance(content, Parts) and isinstance(base, Parts):
        earlier = split_digests(base.children)
        new = [(place, part) for place, part in enumerate(split_digests(content.children)) if not is_there(part)]
        is_few = len(new) <= _MOST_EDITED
        return content, {part: earlier[place] for place, part in new if place < len(earlier)} if is_few else {}
    return content, {}


def _common(left: bytes, right: bytes) -> int:
    """Count the digests that both begin with."""
    if left.startswith(right):  # nearly always, as lists grow at their ends
        return len(right) // DIGEST_BYTES
    return _common_start(left, right) // DIGEST_BYTES


class Missing:
    """
    The pieces of values that are not stored yet, each before those that are made of it.

    `content_of`: a stored piece by its digest, of a list all elements; None when there is none.
    """

    def __init__(
        self,
        is_stored: Callable[[bytes], bool],
        content_of: Callable[[bytes], Content | None],
    ) -> None:
        self._is_stored, self._content_of = is_stored, content_of
        self._seen: set[bytes] = set()
        self.found: list[Piece] = []

    def add(self, value: Tree, before: bytes | None) -> None:
        """Add what is missing of a value; `before` is what stood in its place earlier."""
        if value.digest in self._seen or self._is_stored(value.digest):
            return
        self._seen.add(value.digest)
        # Nothing is looked up for a short leaf: no edits are shorter.
        is_short = isinstance(value.content, Leaf) and len(value.content.data) < _LEAST_EDITED
        base = None if before is None or is_short else self._content_of(before)
        content, bases = as_change(value.content, before, base, self._is_stored)
        for child in value.children[content.keep :] if isinstance(content, ListNode) else value.children:
            self.add(child, bases.get(child.digest))
        self.found.append(Piece(value.digest, content))


def add_missing(
    roots: Iterable[bytes],
    content_of: Callable[[bytes], Content | None],
    is_there: Callable[[bytes], bool],
    missing: dict[bytes, Piece],
) -> None:
    """Add the pieces of values that are not there to `missing`, each behind those that it is made of or came out of."""
    stack = [(digest, False) for digest in roots]
    while stack:
        digest, has_its_own = stack.pop()
        if digest in missing or is_there(digest) or (content := content_of(digest)) is None:
            continue
        if has_its_own:
            missing[digest] = Piece(digest, content)
        else:
            stack.append((digest, True))
            stack.extend((child, False) for child in reversed(references_of(content)))


def size_of(pieces: Iterable[Piece]) -> int:
    """Return the approximate size of pieces on the log, in bytes."""
    return sum(map(_size_of_piece, pieces))


def _size_of_piece(piece: Piece) -> int:
    content = piece.content
    if isinstance(content, Leaf):
        return DIGEST_BYTES + 16 + len(content.data)
    if isinstance(content, Edited):
        return 2 * DIGEST_BYTES + 16 + size_of_edits(content.edits)
    base = content.base if isinstance(content, ListNode) else b""
    return DIGEST_BYTES + 16 + len(base) + len(content.children)
