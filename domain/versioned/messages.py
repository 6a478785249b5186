"""Messages in the values of threads, states and items: recognised in what was serialized, with no library of the one that wrote them."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec import to_builtins

from ..forms.detect import form_of
from ..forms.items import ASSISTANT, USER
from ..search.fields import search_texts
from .content import Leaf
from .serials import plain_value, with_header

_KEY_BYTES: Final = 16
_DEPTH: Final = 8
_KEPT: Final = (
    *("content", "id", "name", "role", "status", "tool_call_id", "tool_calls", "invalid_tool_calls", "function_call"),
    *("type", "parts"),
)
"""The fields that are kept of a message: what it says, and not what was measured of it."""
_ROLES: Final = {"human": USER, "ai": ASSISTANT}
_CHUNK: Final = "MessageChunk"
_MSGPACK: Final = "msgpack"
_raw_list: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_encode: Final = msgspec.msgpack.Encoder().encode


class HeldMessage(NamedTuple):
    """A message in a value: its role, its id where it has one, and the message as JSON, with the name of its form."""

    role: str
    id: str | None
    data: Any
    form: str | None

    def key(self, *, without_id: bool = False) -> bytes:
        """The digest that tells it from the other messages of its value: of its id and what it says, and not of what was measured of it."""
        texts = search_texts(self.form, self.data, self.role)
        told = [None if without_id else self.id, self.role, sorted(texts.items())]
        return blake2b(_encode(told), digest_size=_KEY_BYTES).digest()


def may_have_messages(data: bytes) -> bool:
    """Whether a serialized value may have messages: nearly all others are told so by a look at their bytes."""
    return (b"content" in data or b"parts" in data) and (b"role" in data or b"type" in data)


def elements_of_leaf(leaf: Leaf, earlier: Leaf | None) -> Iterator[tuple[int, Leaf]]:
    """
    Yield what a leaf has that the leaf before it had not: of a list the new elements with their places, else all of it at place -1.

    What a list was appended to is not looked at.
    """
    count, before = _length(leaf), None if earlier is None else _length(earlier)
    if count is None:
        yield -1, leaf
    elif earlier is not None and before is not None and before <= count and leaf.data.startswith(earlier.data):
        yield from enumerate(_elements(count - before, leaf.data[len(earlier.data) :]), before)
    else:
        there = frozenset(_elements(before, earlier.data)) if earlier is not None and before is not None else ()
        for at, element in enumerate(_elements(count, leaf.data)):
            if element not in there:
                yield at, element


def element_of_leaf(leaf: Leaf, place: int) -> Leaf:
    """Return the element of a leaf at a place, as `elements_of_leaf` gave it."""
    count = _length(leaf)
    return leaf if count is None or place < 0 else _elements(count, leaf.data)[place]


def messages_of(leaf: Leaf) -> list[HeldMessage]:
    """Return the messages in a serialized value, in order; none where it cannot be read, as other serializers hide what they are given."""
    return list(_held(plain_value(leaf.type, leaf.data), _DEPTH)) if may_have_messages(leaf.data) else []


def _length(leaf: Leaf) -> int | None:
    """The number of elements of a list that was serialized without its header; None for all others."""
    head, bracket, count = leaf.type.partition("[")
    return int(count) if head == _MSGPACK and bracket else None


def _elements(count: int, data: bytes) -> list[Leaf]:
    try:
        return [Leaf(_MSGPACK, bytes(raw)) for raw in _raw_list(with_header(f"{_MSGPACK}[{count}", data)[1])]
    except msgspec.MsgspecError:
        return []


def _held(value: Any, depth: int) -> Iterator[HeldMessage]:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        message = _of_langchain(fields) or _of_api(fields)
        if message is not None:
            yield message
            return
        value = list(fields.values())
    if isinstance(value, list) and depth:
        for element in cast("list[Any]", value):
            yield from _held(element, depth - 1)


def _of_langchain(fields: dict[str, Any]) -> HeldMessage | None:
    """Return a message of LangChain, whatever its class is called."""
    kind = fields.get("type")
    if not isinstance(kind, str) or not isinstance(fields.get("content"), str | list):
        return None
    from ..forms import langchain

    kind = kind.removesuffix(_CHUNK).lower() if kind.endswith(_CHUNK) else kind
    if kind not in langchain.TYPES:
        return None
    own = fields.get("role")
    role = own if kind == langchain.CHAT and isinstance(own, str) else _ROLES.get(kind, kind)
    extras = {name: fields[name] for name in _KEPT if fields.get(name) and name != "type"}
    data = {"type": kind, "data": to_builtins({**extras, "content": fields["content"]})}
    return HeldMessage(role, _text(fields.get("id")), data, langchain.NAME)


def _of_api(fields: dict[str, Any]) -> HeldMessage | None:
    """Return a message as APIs write it: an object with a role, and what it says."""
    role = fields.get("role")
    if not isinstance(role, str) or not role:
        return None
    if not isinstance(fields.get("content"), str | list) and not isinstance(fields.get("parts"), list):
        return None
    data = to_builtins({name: fields[name] for name in _KEPT if name in fields})
    form = form_of(data)
    return None if form is None else HeldMessage(_ROLES.get(role, role), _text(fields.get("id")), data, form)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
