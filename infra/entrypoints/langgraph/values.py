"""
Values of channels to pieces of content; `reader` has the way back.

Plain data are serialized at once, and cut where they are stored, by what stood in their place. A list or dict of what takes long to
serialize, such as messages, is cut into its elements, so that what did not change is neither serialized nor stored again.
"""

import marshal
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol, cast

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot  # pyright: ignore[reportPrivateUsage]  # its only name

from chatledger.domain.errors import ConfigurationError, CorruptStateError
from chatledger.domain.versioned.content import (
    WHOLE_BYTES,
    Serial,
    Tree,
    composite_piece,
    dict_tree,
    leaf_tree,
    list_piece,
)
from chatledger.domain.versioned.serials import bare, is_plain
from chatledger.projections.lmdb.cache import Remembered

from ...ledger.threads import MARSHAL_VERSION, MAX_DEPTH, is_cut

_SEND: Final = "langgraph.send/1"
_SNAPSHOT: Final = "langgraph.delta_snapshot/1"
_RUNS: Final = (32, 8)
"""So many elements of a list are looked up at once, as long as as many are left."""
_SAMPLE_BYTES: Final = 200


class Serializer(Protocol):
    """A LangGraph serializer ("serde")."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """A value as the name of its form, and bytes."""
        ...

    def loads_typed(self, data: tuple[str, bytes]) -> Any: ...


def taken_apart(value: Any) -> tuple[str, list[Any]] | None:
    """Return the name of the form of a value that is stored in parts, and the parts; None for every other value."""
    kind = cast("type[Any]", type(value))
    if kind is _DeltaSnapshot:
        return _SNAPSHOT, [value.value]
    if kind.__name__ == "Send" and kind.__module__ == "langgraph.types" and getattr(value, "timeout", None) is None:
        return _SEND, [value.node, value.arg]
    return None


def is_snapshot(form: str) -> bool:
    """Whether a form is that of a snapshot of a delta channel."""
    return form == _SNAPSHOT


def put_together(form: str, parts: list[Any]) -> Any:
    """The value again."""
    if form == _SNAPSHOT and len(parts) == 1:
        return _DeltaSnapshot(parts[0])
    if form == _SEND and len(parts) == 2:
        try:
            from langgraph.types import Send
        except ImportError as error:
            msg = "this checkpoint sends packets to nodes, and reading them needs langgraph: pip install langgraph"
            raise ConfigurationError(msg) from error
        return Send(*parts)
    msg = f"a stored value has the form {form!r}, which this version does not know; a newer one wrote it"
    raise CorruptStateError(msg)


_MESSAGES: Final[dict[type, bool]] = {}


def is_message(kind: type) -> bool:
    """Whether it is one of LangChain's own classes of messages; what others keep beside their fields is not known."""
    is_own = _MESSAGES.get(kind)
    if is_own is None:
        from langchain_core.messages import BaseMessage

        is_own = _MESSAGES[kind] = issubclass(kind, BaseMessage) and kind.__module__.startswith("langchain_core.")
    return is_own


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

    def encode(self, value: Any) -> Tree | Serial:
        """A value in pieces, or as a whole where that says enough."""
        is_long_text = type(value) in {str, bytes} and len(value) > WHOLE_BYTES
        if self._cuts_all and (is_long_text or (type(value) in {list, dict} and is_plain(value))):
            return Serial(*bare(*self._serializer.dumps_typed(value)))
        return self._tree(value)

    def _tree(self, value: Any, depth: int = 0) -> Tree:
        kind = cast("type[Any]", type(value))
        if kind is list and is_cut(value, depth):
            children, digests = self._elements(value, depth + 1)
            piece = list_piece(digests)
            return Tree(piece.digest, piece.content, children)
        if depth >= MAX_DEPTH or not self._cuts_all:
            return self._leaf(value)
        if kind is dict and is_cut(value, depth):
            return dict_tree({key: self._tree(element, depth + 1) for key, element in value.items()})
        apart = taken_apart(value)
        if apart is not None:
            children = [self._tree(part, depth + 1) for part in apart[1]]
            piece = composite_piece(apart[0], [child.digest for child in children])
            return Tree(piece.digest, piece.content, children)
        return self._leaf(value)

    def _elements(self, values: list[Any], depth: int) -> tuple[list[Tree], list[bytes]]:
        """The elements of a list with their digests in order, looked up by runs of them."""
        trees: list[Tree] = []
        digests: list[bytes] = []
        at = 0
        # Mostly only the end of a list is new: what is before it is found with a look-up for each run.
        for size in _RUNS:
            while at + size <= len(values):
                run = self._run(values[at : at + size], depth)
                trees += run.trees
                digests.append(run.digests)
                at += size
        rest = [self._tree(value, depth) for value in values[at:]]
        return trees + rest, digests + [tree.digest for tree in rest]

    def _run(self, values: list[Any], depth: int) -> _ElementRun:
        data = _told_apart(values)
        key: bytes | None = None
        if data is not None:
            # A run is found by parts of its bytes, and then compared as a whole: faster than a hash of all of them.
            size = len(data)
            step = max(size // 4, _SAMPLE_BYTES)
            samples = [data[at : at + _SAMPLE_BYTES] for at in range(0, size, step)]
            key = b"".join((size.to_bytes(8, "big"), *samples))
        encoded = None if key is None else self._runs.get(key)
        if encoded is not None and encoded.data == data:
            return encoded
        trees = [self._tree(value, depth) for value in values]
        run = _ElementRun(data or b"", trees, b"".join(tree.digest for tree in trees))
        if key is not None:
            self._runs.put(key, run, len(run.data) + len(trees) * 200)
        return run

    def _leaf(self, value: Any) -> Tree:
        key = _fingerprint(value)
        encoded = None if key is None else self._trees.get(key)
        if encoded is not None:
            return encoded
        type_name, data = self._serializer.dumps_typed(value)
        tree = leaf_tree(type_name, data)
        if key is not None:
            self._trees.put(key, tree, len(data) + 200)
        return tree


def _told_apart(values: list[Any]) -> bytes | None:
    """Bytes that tell these values from all others that are serialized differently; None where nothing quick does."""
    kinds = set(map(type, values))
    try:
        if not any(map(is_message, kinds)):
            return b"\0" + marshal.dumps(values, MARSHAL_VERSION)
        if not all(map(is_message, kinds)):
            return None
        names = [kind.__qualname__ for kind in (kinds if len(kinds) == 1 else map(type, values))]
        fields = [value.__dict__ for value in values]
        extras = [value.__pydantic_extra__ for value in values]
        return marshal.dumps((fields, names, extras), MARSHAL_VERSION)
    except ValueError:
        return None


def _fingerprint(value: Any) -> bytes | None:
    """A digest of a value; None where nothing quick tells it from all others."""
    kind = cast("type[Any]", type(value))
    try:
        if not is_message(kind):
            return blake2b(marshal.dumps(value, MARSHAL_VERSION), digest_size=16).digest()
        fields = kind.__qualname__, value.__dict__, value.__pydantic_extra__, None
        return blake2b(marshal.dumps(fields, MARSHAL_VERSION), digest_size=16, person=b"message").digest()
    except ValueError:
        return None
