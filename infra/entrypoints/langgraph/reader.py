"""Decoding values from pieces. What was decoded is kept, and copied for each reader, which may change its copy."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from langgraph.checkpoint.base import DeltaChannelHistory
from pydantic import BaseModel

from chatledger.domain.errors import CorruptStateError
from chatledger.domain.versioned.content import (
    WHOLE_BYTES,
    Compound,
    Content,
    DictNode,
    Edited,
    Leaf,
    ListNode,
    Parts,
    split_digests,
)
from chatledger.domain.versioned.record import ancestors
from chatledger.domain.versioned.serials import with_header
from chatledger.projections.lmdb.cache import Remembered
from chatledger.projections.versioned.reader import IndexedVersioned, load_contents

from .values import Serializer, is_message, put_together

Maker = Callable[[], Any]
"""Makes a copy that shares nothing which can be changed."""

_IMMUTABLE: Final = frozenset({str, bytes, int, float, bool, complex, type(None)})
_new: Final[Callable[[Any], Any]] = object.__new__


_SLOTS: Final = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
# Past the checks of models, which what is copied has passed, and without a look-up of the attribute each time.
_set_fields, _set_given, _set_extra, _set_private = (
    cast("Callable[[Any, Any], None]", vars(BaseModel)[name].__set__) for name in _SLOTS
)


class UncopiableError(Exception):
    """A value that is neither immutable nor of a kind that is copied here; it is decoded for each reader."""


def maker_of(value: Any) -> Maker:
    """Return a function that makes copies of a value, which callers may change; `UncopiableError` where it is of no kind that is copied."""
    kind = cast("type[Any]", type(value))
    if kind in _IMMUTABLE:
        return lambda: value
    if kind is list:
        return _list_maker(value) if value else list
    if kind is dict:
        return _dict_maker(value) if value else dict
    if kind is tuple:
        makers = [maker_of(element) for element in value]
        return lambda: tuple(make() for make in makers)
    if is_message(kind):
        return _message_maker(value)
    raise UncopiableError


def _list_maker(value: list[Any]) -> Maker:
    if all(type(element) in _IMMUTABLE for element in value):
        return list(value).copy
    makers = [maker_of(element) for element in value]
    return lambda: [make() for make in makers]


def _parted(value: dict[Any, Any]) -> tuple[dict[Any, Any], list[tuple[Any, Maker]]]:
    """A dict as what can be shared, with places for the rest, and what makes the rest."""
    changing = [(key, maker_of(item)) for key, item in value.items() if type(item) not in _IMMUTABLE]
    return value | {key: None for key, _ in changing}, changing


def _dict_maker(value: dict[Any, Any]) -> Maker:
    fixed, changing = _parted(value)
    if not changing:
        return fixed.copy

    def make() -> dict[Any, Any]:
        fresh = fixed.copy()
        for key, make_item in changing:
            fresh[key] = make_item()
        return fresh

    return make


def _message_maker(message: Any) -> Maker:
    kind = cast("type[Any]", type(message))
    if message.__pydantic_private__ is not None:
        raise UncopiableError
    fixed, changing = _parted(message.__dict__)
    make_extra = maker_of(message.__pydantic_extra__)
    fields_set = set(message.__pydantic_fields_set__)
    # Pydantic only ever adds to this set, and to a full one nothing: so copies share it, which halves the garbage
    # collector's work on long lists of messages.
    is_full = fields_set >= kind.model_fields.keys()

    def make() -> Any:
        fresh, fields = _new(kind), fixed.copy()
        for key, make_item in changing:
            fields[key] = make_item()
        _set_fields(fresh, fields)
        _set_given(fresh, fields_set if is_full else fields_set.copy())
        _set_extra(fresh, make_extra())
        _set_private(fresh, None)
        return fresh

    return make


class Makers:
    """A cache of functions that copy decoded values, by digest. Lists have their own room: there is one more at each step."""

    def __init__(self) -> None:
        self._leaves: Remembered[bytes, Maker] = Remembered()
        self._nodes: Remembered[bytes, Maker] = Remembered()

    def get(self, digest: bytes) -> Maker | None:
        """Return the function that makes the value of a piece."""
        return self._nodes.get(digest) or self._leaves.get(digest)

    def put_leaf(self, digest: bytes, make: Maker, serialized_bytes: int) -> None:
        """Remember what makes a value that was serialized whole."""
        self._leaves.put(digest, make, serialized_bytes * 4 + 1_000)

    def put_node(self, digest: bytes, make: Maker, children: int) -> None:
        self._nodes.put(digest, make, children * 8 + 500)


class Decoded:
    """The decoded values of the savers that share a serializer. A reader keeps the cache that was there when it began."""

    def __init__(self) -> None:
        self.makers = Makers()

    def forget(self) -> None:
        """Begin with an empty cache, as the serializer would decode differently now."""
        self.makers = Makers()


class Reader:
    """One reading of values that belong together; each gives objects of its own."""

    def __init__(self, serializer: Serializer, makers: Makers) -> None:
        self._serializer = serializer
        self._makers = makers
        self._here: dict[bytes, Maker] = {}

    def is_known(self, digest: bytes) -> bool:
        """Whether a piece and what it is made of need not be read, as its value is remembered."""
        if digest in self._here:
            return True
        make = self._makers.get(digest)
        # Held for this reader: the cache may forget it before it is decoded, and its pieces were not read.
        if make is not None:
            self._here[digest] = make
        return make is not None

    def decode(self, digest: bytes, pieces: Mapping[bytes, Content]) -> Any:
        """The value of a piece, where `pieces` has all that is not known."""
        return self._maker(digest, pieces)()

    def _maker(self, digest: bytes, pieces: Mapping[bytes, Content]) -> Maker:
        remembered = self._here.get(digest)
        if remembered is not None:
            return remembered
        content = pieces[digest]
        if isinstance(content, ListNode):
            return self._list_maker(digest, content, pieces)
        if isinstance(content, Leaf | Parts):
            data = _data_of(content, pieces)
            make = self._leaf_maker(content.type, data)
            self._makers.put_leaf(digest, make, len(data))
        else:
            assert not isinstance(content, Edited), "leaves were put together when the pieces were read"
            makers = self._children(content, pieces)
            make = (
                (lambda: dict(zip(content.keys, [make() for make in makers], strict=True)))
                if isinstance(content, DictNode)
                else (lambda: put_together(content.type, [make() for make in makers]))
            )
            self._makers.put_node(digest, make, len(makers))
        self._here[digest] = make
        return make

    def _children(self, content: ListNode | DictNode | Compound, pieces: Mapping[bytes, Content]) -> list[Maker]:
        return [self._maker(child, pieces) for child in split_digests(content.children)]

    def _list_maker(self, digest: bytes, content: ListNode, pieces: Mapping[bytes, Content]) -> "_ListMaker":
        """Return the maker of a list, after those of the lists that it grew out of."""
        # These are those of the checkpoints before, which a history asks for next. A loop, as there may be thousands of them.
        grown = [(digest, content)]
        make: Maker | None = None
        while content.base and (make := self._here.get(content.base)) is None:
            base = pieces[content.base]
            assert isinstance(base, ListNode), "it was checked when the pieces were read"
            grown.append((content.base, base))
            content = base
        if not isinstance(make, _ListMaker | None):
            msg = "a list grew out of what is no list: the index is damaged; rebuild it, the log is not affected"
            raise CorruptStateError(msg)
        made = make or _ListMaker([])
        for name, node in reversed(grown):
            made = _ListMaker(made.makers[: node.keep] + self._children(node, pieces))
            self._here[name] = made
            self._makers.put_node(name, made, len(made.makers))
        return made

    def _leaf_maker(self, type_name: str, data: bytes) -> Maker:
        typed = with_header(type_name, data)
        value = self._serializer.loads_typed(typed)
        if len(data) <= WHOLE_BYTES:  # to copy nested data takes longer than to decode them
            try:
                return maker_of(value)
            except UncopiableError:
                pass
        # The value itself goes to the first reader, and the next ones decode it anew.
        first = [value]

        def make() -> Any:
            try:
                return first.pop()
            except IndexError:
                return self._serializer.loads_typed(typed)

        return make


class _ListMaker:
    """Makes a list, and is where the makers of longer ones begin."""

    __slots__ = ("makers",)

    def __init__(self, makers: list[Maker]) -> None:
        self.makers = makers

    def __call__(self) -> list[Any]:
        return [make() for make in self.makers]


def _data_of(content: Leaf | Parts, pieces: Mapping[bytes, Content]) -> bytes:
    if isinstance(content, Leaf):
        return content.data
    parts = [pieces[digest] for digest in split_digests(content.children)]
    return b"".join(part.data for part in parts if isinstance(part, Leaf))


def delta_history(
    thread: IndexedVersioned, namespace: str, checkpoint_id: str | None, channels: Sequence[str], reader: Reader
) -> Mapping[str, DeltaChannelHistory]:
    """
    The writes of each channel at the ancestors of a checkpoint, oldest first, up to the nearest ancestor with a value of it.

    That value is the seed, and that ancestor's own writes come after it; None is no seed, as the channel is empty there.
    """
    target = thread.newest(namespace) if checkpoint_id is None else thread.version(namespace, checkpoint_id)
    # Not the namespace in order: forks share it, and what they wrote is not of this line.
    line = () if target is None else ancestors(target, lambda some_id: thread.version(namespace, some_id))
    backwards: dict[str, list[tuple[str, str, bytes]]] = {channel: [] for channel in channels}
    seeds: dict[str, bytes] = {}
    remaining = set(channels)
    for at in line:
        for write in reversed(thread.writes(namespace, at.id)):
            if write.channel in remaining:
                backwards[write.channel].append((write.task_id, write.channel, write.digest))
        for channel in [channel for channel in remaining if channel in at.fields]:
            seeds[channel] = at.fields[channel].digest
            remaining.discard(channel)
        if not remaining:
            break
    roots = [*seeds.values(), *(digest for writes in backwards.values() for _, _, digest in writes)]
    pieces = load_contents(thread, roots, reader.is_known, {})
    history: dict[str, DeltaChannelHistory] = {}
    for channel in channels:
        writes: list[tuple[str, str, Any]] = [
            (task_id, name, reader.decode(digest, pieces)) for task_id, name, digest in reversed(backwards[channel])
        ]
        entry: DeltaChannelHistory = {"writes": writes}
        seed: Any = reader.decode(seeds[channel], pieces) if channel in seeds else None
        if seed is not None:
            entry["seed"] = seed
        history[channel] = entry
    return history
