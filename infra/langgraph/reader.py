"""Decoding values from pieces. What was decoded is kept and copied for the next reader, who may change what he got."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from chatledger.domain.agents.content import Compound, Content, DictNode, Leaf, ListNode, Parts, split_digests
from chatledger.domain.errors import CorruptStateError
from chatledger.projections.remembered import Remembered

from .compounds import put_together
from .copying import Maker, UncopiableError, maker_of


class Serializer(Protocol):
    """What LangGraph calls a serde."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """A value as the name of its form, and bytes."""
        ...

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """The value."""
        ...


class Makers:
    """What makes copies of the values that a serializer decoded, by digest. Lists have their own room: there is one more at each step."""

    def __init__(self) -> None:
        self._leaves: Remembered[bytes, Maker] = Remembered()
        self._nodes: Remembered[bytes, Maker] = Remembered()

    def get(self, digest: bytes) -> Maker | None:
        """What makes the value of a piece."""
        return self._nodes.get(digest) or self._leaves.get(digest)

    def put_leaf(self, digest: bytes, make: Maker, serialized_bytes: int) -> None:
        """Remember what makes a value that was serialized whole."""
        self._leaves.put(digest, make, serialized_bytes * 4 + 1_000)

    def put_node(self, digest: bytes, make: Maker, children: int) -> None:
        """Remember what makes a value of others."""
        self._nodes.put(digest, make, children * 8 + 500)


class Reader:
    """One reading of values that belong together; each gives objects of its own."""

    def __init__(self, serializer: Serializer, makers: Makers) -> None:
        self._serializer = serializer
        self._makers = makers
        self._here: dict[bytes, Maker] = {}

    def is_known(self, digest: bytes) -> bool:
        """Whether a piece and what it is made of need not be read, as its value is remembered; for this reader it stays so."""
        if digest in self._here:
            return True
        known = self._makers.get(digest)
        if known is not None:
            self._here[digest] = known
        return known is not None

    def decode(self, digest: bytes, pieces: Mapping[bytes, Content]) -> Any:
        """The value of a piece, where `pieces` has all that is not known."""
        return self._maker(digest, pieces)()

    def _maker(self, digest: bytes, pieces: Mapping[bytes, Content]) -> Maker:
        known = self._here.get(digest)
        if known is not None:
            return known
        content = pieces[digest]
        if isinstance(content, ListNode):
            return self._list_maker(digest, content, pieces)
        if isinstance(content, Leaf | Parts):
            data = _data_of(content, pieces)
            make = self._leaf_maker(content.type, data)
            self._makers.put_leaf(digest, make, len(data))
        else:
            makers = self._children(content, pieces)
            make = (
                _dict_maker(content.keys, makers)
                if isinstance(content, DictNode)
                else _form_maker(content.type, makers)
            )
            self._makers.put_node(digest, make, len(makers))
        self._here[digest] = make
        return make

    def _children(self, content: ListNode | DictNode | Compound, pieces: Mapping[bytes, Content]) -> list[Maker]:
        return [self._maker(child, pieces) for child in split_digests(content.children)]

    def _list_maker(self, digest: bytes, content: ListNode, pieces: Mapping[bytes, Content]) -> "_ListMaker":
        """Also those of the lists that it grew out of, which are likely to be asked for next."""
        grown = [(digest, content)]
        make: Maker | None = None
        while content.base and (make := self._here.get(content.base)) is None:
            base = pieces[content.base]
            assert isinstance(base, ListNode), "who read the pieces has looked"
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
        value = self._serializer.loads_typed((type_name, data))
        try:
            return maker_of(value)
        except UncopiableError:
            pass
        first = [value]

        def make() -> Any:
            try:
                return first.pop()
            except IndexError:
                return self._serializer.loads_typed((type_name, data))

        return make


class _ListMaker:
    """Makes a list, and is where the makers of longer ones begin."""

    __slots__ = ("makers",)

    def __init__(self, makers: list[Maker]) -> None:
        self.makers = makers

    def __call__(self) -> list[Any]:
        return [make() for make in self.makers]


def _dict_maker(keys: Sequence[str], makers: Sequence[Maker]) -> Maker:
    return lambda: dict(zip(keys, [make() for make in makers], strict=True))


def _form_maker(form: str, makers: Sequence[Maker]) -> Maker:
    return lambda: put_together(form, [make() for make in makers])


def _data_of(content: Leaf | Parts, pieces: Mapping[bytes, Content]) -> bytes:
    if isinstance(content, Leaf):
        return content.data
    parts = [pieces[digest] for digest in split_digests(content.children)]
    return b"".join(part.data for part in parts if isinstance(part, Leaf))
