"""
Values of channels to pieces of content.

A list or dict is cut into its elements, so that what did not change is neither serialized nor stored again.
"""

import marshal
from hashlib import blake2b
from typing import Any, Final, NamedTuple, cast

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from chatledger.domain.content import Tree, composite_piece, dict_tree, leaf_tree, list_piece
from chatledger.projections.lmdb.cache import Remembered

from ...ledger.threads import MARSHAL_VERSION, MAX_DEPTH, is_cut
from .reader import Makers, Reader, Serializer, is_message, taken_apart

_RUN: Final = 32
_SAMPLE_BYTES: Final = 200


class _ElementRun(NamedTuple):
    """Elements of a list: what tells them apart, and what they are in pieces."""

    data: bytes
    trees: list[Tree]
    digests: bytes


class Values:
    """The values of one serializer, with what is remembered of them."""

    def __init__(self, serializer: Serializer) -> None:
        self._serializer = serializer
        # Other serializers may hide what they are given, and keys of dicts are stored as they are.
        self._cuts_all = isinstance(serializer, JsonPlusSerializer)
        self._trees: Remembered[bytes, Tree] = Remembered()
        self._runs: Remembered[bytes, _ElementRun] = Remembered()
        self._makers = Makers()

    def encode(self, value: Any, depth: int = 0) -> Tree:
        """A value in pieces."""
        kind = cast("type[Any]", type(value))
        if kind is list and is_cut(value, depth):
            children, digests = self._elements(value, depth + 1)
            piece = list_piece(digests)
            return Tree(piece.digest, piece.content, children)
        if depth >= MAX_DEPTH or not self._cuts_all:
            return self._leaf(value)
        if kind is dict and is_cut(value, depth):
            return dict_tree({key: self.encode(element, depth + 1) for key, element in value.items()})
        apart = taken_apart(value)
        if apart is not None:
            children = [self.encode(part, depth + 1) for part in apart[1]]
            piece = composite_piece(apart[0], [child.digest for child in children])
            return Tree(piece.digest, piece.content, children)
        return self._leaf(value)

    def _elements(self, values: list[Any], depth: int) -> tuple[list[Tree], list[bytes]]:
        """The elements of a list with their digests in order, looked up by runs of them: mostly only its end is new."""
        trees: list[Tree] = []
        digests: list[bytes] = []
        whole = len(values) - len(values) % _RUN
        for at in range(0, whole, _RUN):
            run = self._run(values[at : at + _RUN], depth)
            trees += run.trees
            digests.append(run.digests)
        rest = [self.encode(value, depth) for value in values[whole:]]
        return trees + rest, digests + [tree.digest for tree in rest]

    def _run(self, values: list[Any], depth: int) -> _ElementRun:
        data = _told_apart(values)
        key = None if data is None else _sample(data)
        known = None if key is None else self._runs.get(key)
        if known is not None and known.data == data:
            return known
        trees = [self.encode(value, depth) for value in values]
        run = _ElementRun(data or b"", trees, b"".join(tree.digest for tree in trees))
        if key is not None:
            self._runs.put(key, run, len(run.data) + _RUN * 200)
        return run

    def _leaf(self, value: Any) -> Tree:
        key = _fingerprint(value)
        known = None if key is None else self._trees.get(key)
        if known is not None:
            return known
        type_name, data = self._serializer.dumps_typed(value)
        tree = leaf_tree(type_name, data)
        if key is not None:
            self._trees.put(key, tree, len(data) + 200)
        return tree

    def reader(self) -> Reader:
        """One reading of values that belong together."""
        return Reader(self._serializer, self._makers)


def _told_apart(values: list[Any]) -> bytes | None:
    """Bytes that tell these values from all others that are serialized differently; None where nothing quick does."""
    kinds = set(map(type, values))
    try:
        if not any(map(is_message, kinds)):
            return b"\0" + marshal.dumps(values, MARSHAL_VERSION)
        if not all(map(is_message, kinds)):
            return None
        names = [type(value).__qualname__ for value in values]
        fields = [value.__dict__ for value in values]
        extras = [value.__pydantic_extra__ for value in values]
        return marshal.dumps((fields, names, extras), MARSHAL_VERSION)
    except ValueError:
        return None


def _sample(data: bytes) -> bytes:
    """Parts of some bytes, by which they are found; those that are found are compared as a whole, which is faster than a hash."""
    size = len(data)
    parts = [data[at : at + _SAMPLE_BYTES] for at in range(0, size, max(size // 4, _SAMPLE_BYTES))]
    return b"".join((size.to_bytes(8, "big"), *parts))


def _fingerprint(value: Any) -> bytes | None:
    """What tells a value from all others, in few bytes."""
    kind = cast("type[Any]", type(value))
    try:
        if not is_message(kind):
            data = marshal.dumps(value, MARSHAL_VERSION)
        else:
            data = marshal.dumps((kind.__qualname__, value.__dict__, value.__pydantic_extra__, None), MARSHAL_VERSION)
    except ValueError:
        return None
    return blake2b(data, digest_size=16, person=b"message" if is_message(kind) else b"").digest()
