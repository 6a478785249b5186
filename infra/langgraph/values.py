"""
Values of channels to pieces of content and back.

A list or dict is cut into its elements, so that what did not change is neither serialized nor stored again. What was decoded
is kept and copied for the next reader, who may change what he got.
"""

import marshal
from hashlib import blake2b
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from chatledger.domain.agents.content import (
    Compound,
    Content,
    DictNode,
    Leaf,
    Parts,
    compound_piece,
    dict_piece,
    leaf_pieces,
    list_piece,
    split_digests,
)
from chatledger.domain.agents.decide import Tree

from ..agents.cutting import MARSHAL_VERSION, MAX_DEPTH, is_cut
from .compounds import put_together, taken_apart
from .copying import Maker, UncopiableError, is_message, maker_of

_RUN: Final = 32
_MAX_CACHED_BYTES: Final = 32 * 1024 * 1024
_MAX_CACHED: Final = 1 << 16

K = TypeVar("K")
V = TypeVar("V")


class Serializer(Protocol):
    """What LangGraph calls a serde."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """A value as the name of its form, and bytes."""
        ...

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """The value."""
        ...


class _Cache(Generic[K, V]):
    """At most so many bytes; it is emptied when it is full. Threads share it: each step is atomic."""

    def __init__(self) -> None:
        self._known: dict[K, V] = {}
        self._bytes = 0

    def get(self, key: K) -> V | None:
        return self._known.get(key)

    def put(self, key: K, value: V, size: int) -> None:
        if self._bytes + size > _MAX_CACHED_BYTES or len(self._known) >= _MAX_CACHED:
            self._known.clear()
            self._bytes = 0
        self._known[key] = value
        self._bytes += size


class Values:
    """The values of one serializer, with what is remembered of them."""

    def __init__(self, serializer: Serializer) -> None:
        self._serializer = serializer
        # Other serializers may hide what they are given, and keys of dicts are stored as they are.
        self._cuts_all = isinstance(serializer, JsonPlusSerializer)
        self._trees: _Cache[bytes, Tree] = _Cache()
        self._runs: _Cache[bytes, list[Tree]] = _Cache()
        self._makers: _Cache[bytes, Maker] = _Cache()

    def encode(self, value: Any, depth: int = 0) -> Tree:
        """A value in pieces."""
        kind = cast("type[Any]", type(value))
        if kind is list and is_cut(value, depth):
            children = self._elements(value, depth + 1)
            piece = list_piece([child.digest for child in children])
            return Tree(piece.digest, piece.content, children)
        if depth >= MAX_DEPTH or not self._cuts_all:
            return self._leaf(value)
        if kind is dict and is_cut(value, depth):
            items = {key: self.encode(element, depth + 1) for key, element in value.items()}
            piece = dict_piece({key: child.digest for key, child in items.items()})
            return Tree(piece.digest, piece.content, list(items.values()))
        apart = taken_apart(value)
        if apart is not None:
            children = [self.encode(part, depth + 1) for part in apart[1]]
            piece = compound_piece(apart[0], [child.digest for child in children])
            return Tree(piece.digest, piece.content, children)
        return self._leaf(value)

    def _elements(self, values: list[Any], depth: int) -> list[Tree]:
        """The elements of a list, looked up by runs of them: mostly only its end is new."""
        trees: list[Tree] = []
        whole = len(values) - len(values) % _RUN
        for at in range(0, whole, _RUN):
            run = values[at : at + _RUN]
            data = _told_apart(run)
            key = None if data is None else blake2b(data, digest_size=16).digest()
            known = None if key is None else self._runs.get(key)
            if known is None:
                known = [self.encode(value, depth) for value in run]
                if key is not None and data is not None:
                    self._runs.put(key, known, len(data) + _RUN * 200)
            trees += known
        trees += [self.encode(value, depth) for value in values[whole:]]
        return trees

    def _leaf(self, value: Any) -> Tree:
        key = _fingerprint(value)
        known = None if key is None else self._trees.get(key)
        if known is not None:
            return known
        type_name, data = self._serializer.dumps_typed(value)
        *parts, whole = leaf_pieces(type_name, data)
        tree = Tree(whole.digest, whole.content, [Tree(part.digest, part.content) for part in parts])
        if key is not None:
            self._trees.put(key, tree, len(data) + 200)
        return tree

    def reader(self) -> "Reader":
        """One reading of values that belong together."""
        return Reader(self._serializer, self._makers)


class Reader:
    """Decodes values; each reader gets objects of its own."""

    def __init__(self, serializer: Serializer, makers: "_Cache[bytes, Maker]") -> None:
        self._serializer = serializer
        self._makers = makers
        self._here: dict[bytes, Maker] = {}

    def is_known(self, digest: bytes) -> bool:
        """Whether a piece need not be read, as its value is remembered; it then stays so for this reader."""
        if digest in self._here:
            return True
        known = self._makers.get(digest)
        if known is not None:
            self._here[digest] = known
        return known is not None

    def decode(self, digest: bytes, pieces: dict[bytes, Content]) -> Any:
        """The value of a piece."""
        make = self._here.get(digest)
        if make is not None:
            return make()
        content = pieces[digest]
        if isinstance(content, Leaf | Parts):
            return self._leaf(digest, content, pieces)
        here = self._here
        children = split_digests(content.children)
        values = [here[child]() if child in here else self.decode(child, pieces) for child in children]
        if isinstance(content, DictNode):
            return dict(zip(content.keys, values, strict=True))
        return put_together(content.type, values) if isinstance(content, Compound) else values

    def _leaf(self, digest: bytes, content: Leaf | Parts, pieces: dict[bytes, Content]) -> Any:
        data = _data_of(content, pieces)
        value = self._serializer.loads_typed((content.type, data))
        try:
            make = maker_of(value)
        except UncopiableError:
            return value
        self._here[digest] = make
        self._makers.put(digest, make, len(data) * 4 + 1_000)
        return value


def _data_of(content: Leaf | Parts, pieces: dict[bytes, Content]) -> bytes:
    if isinstance(content, Leaf):
        return content.data
    parts = [pieces[digest] for digest in split_digests(content.children)]
    return b"".join(part.data for part in parts if isinstance(part, Leaf))


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
        return marshal.dumps((names, fields, extras), MARSHAL_VERSION)
    except ValueError:
        return None


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
