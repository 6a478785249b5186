"""Taking secrets out of what comes in, before anything of it is written: of messages, versioned values and live streams."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast

import msgspec

from chatledger.domain.chat.interchange import ImportedChat
from chatledger.domain.errors import DECODE_ERRORS, ConfigurationError, InvalidValueError
from chatledger.domain.forms.items import REDACTED
from chatledger.domain.values import NewMessage
from chatledger.domain.versioned.content import (
    PART,
    Compound,
    Content,
    DictNode,
    Edited,
    Leaf,
    ListNode,
    Parts,
    Piece,
    Serial,
    Tree,
    composite_piece,
    dict_piece,
    leaf_pieces,
    leaf_tree,
    list_piece,
    split_digests,
)
from chatledger.domain.versioned.events import Serialized
from chatledger.domain.versioned.interchange import CheckedPieces, ImportedValue
from chatledger.domain.versioned.numbered import StateDraft
from chatledger.domain.versioned.record import PutVersion, TaskPut
from chatledger.domain.versioned.serials import Encoded, bare, with_header
from chatledger.projections.lmdb.cache import Remembered

Redact = Callable[[str], str] | str | re.Pattern[str]
"""A function that returns a text without its secrets, or a pattern of them: a regular expression, compiled or not."""

_HELD: Final = 64
"""So many characters of a live stream are held back: a secret of as many is found that has white space in it, such as the number of a card."""
_MOST_HELD: Final = 16_384
_PIECE_BYTES: Final = 200
_LANGCHAIN_CODES: Final = range(8)
"""The extensions of msgpack in which LangGraph writes objects; see `plain_values`. All but the arrays are msgpack inside."""
_ARRAY: Final = 6
T = TypeVar("T")


def check_redact(redact: Redact | Iterable[Redact] | None) -> "Redactor | None":
    """Return what takes secrets out. Raises `ConfigurationError` for what is neither a function nor a pattern."""
    if redact is None:
        return None
    untyped: Any = redact
    is_list = isinstance(untyped, Iterable) and not isinstance(untyped, str)
    listed: list[Any] = [*cast("Iterable[Any]", untyped)] if is_list else [untyped]
    steps: list[Callable[[str], str]] = []
    for step in listed:
        if isinstance(step, str | re.Pattern):
            try:
                pattern: re.Pattern[str] = re.compile(cast("str", step))
            except re.error as error:
                msg = f"redact has the pattern {step!r}, which is no regular expression: {error}"
                raise ConfigurationError(msg) from error
            steps.append(partial(pattern.sub, REDACTED))
        elif callable(step):
            steps.append(cast("Callable[[str], str]", step))
        else:
            msg = f"redact takes a function of a text, a pattern, or a list of them, not {type(step).__name__}"
            raise ConfigurationError(msg)
    return Redactor(steps)


class Redactor:
    """
    Takes secrets out of texts, wherever they are in a value. Safe for threads if its functions are.

    Args:
        steps: Functions that return a text without its secrets, each called with what the one before left.
    """

    def __init__(self, steps: Sequence[Callable[[str], str]]) -> None:
        self._steps = steps
        # A list of messages comes with each step of an agent, and only its last ones are new.
        self._trees: Remembered[bytes, Tree] = Remembered()

    def text(self, text: str) -> str:
        """Return a text without secrets. Raises `InvalidValueError` where a function returns no text."""
        for step in self._steps:
            changed: Any = step(text)
            if not isinstance(changed, str):
                msg = f"redact must return text, and returned {type(changed).__name__}; nothing was written"
                raise InvalidValueError(msg)
            text = changed
        return text

    def data(self, value: T) -> T:
        """Return a value of dicts, lists and texts, with the same texts where they have no secrets; keys stay. What is not changed is the same object."""
        node: Any = value
        if isinstance(node, str):
            return cast("T", self.text(node))
        if isinstance(node, Mapping):
            fields = cast("Mapping[Any, Any]", node)
            changed = {key: self.data(inner) for key, inner in fields.items()}
            return cast("T", changed) if any(changed[key] is not fields[key] for key in changed) else value
        if isinstance(node, list | tuple):
            elements = [self.data(inner) for inner in cast("Sequence[Any]", node)]
            is_same = all(new is old for new, old in zip(elements, cast("Sequence[Any]", node), strict=True))
            return value if is_same else cast("T", elements)
        if isinstance(node, msgspec.msgpack.Ext) and node.code in _LANGCHAIN_CODES and node.code != _ARRAY:
            raw = bytes(node.data)
            inner = self._packed(raw)
            return value if inner is raw else cast("T", msgspec.msgpack.Ext(node.code, inner))
        return value

    def message(self, draft: NewMessage) -> NewMessage:
        """Return a message without secrets in its data and metadata."""
        # What is no message is refused where it is decided on.
        if not isinstance(draft, NewMessage):  # pyright: ignore[reportUnnecessaryIsInstance]
            return draft
        return msgspec.structs.replace(draft, data=self.data(draft.data), metadata=self.data(draft.metadata))

    def imported_chat(self, chat: ImportedChat) -> ImportedChat:
        """Return a conversation to import without secrets in its messages."""
        messages = [
            msgspec.structs.replace(message, data=self.data(message.data), notes=self.data(message.notes))
            for message in chat.messages
        ]
        return msgspec.structs.replace(chat, messages=messages)

    # Versioned values

    def state(self, draft: StateDraft) -> StateDraft:
        """Return a version of a state or an item without secrets."""
        values: dict[str, Encoded | None] = {**draft.values}
        for name, value in draft.values.items():
            serial = None if value is None else self._serial(value.serial)
            if value is not None and serial is not None and serial is not value.serial:
                values[name] = Encoded(serial, len(with_header(serial.type, serial.data)[1]))
        return msgspec.structs.replace(draft, values=values)

    def put(self, put: PutVersion) -> PutVersion:
        """Return a checkpoint of a thread without secrets, in its values and its metadata."""

        def unchanged(parent: Any) -> Mapping[str, Tree | Serial | None]:
            values = put.unchanged(parent)
            return {name: None if value is None else self.value(value) for name, value in values.items()}

        values = {name: self.value(value) for name, value in put.values.items()}
        frames = self._frames(put.frames)
        return msgspec.structs.replace(put, values=values, unchanged=unchanged, frames=frames)

    def task(self, task: TaskPut) -> TaskPut:
        """Return the writes of a task without secrets."""
        return task._replace(writes=[(index, channel, self.value(value)) for index, channel, value in task.writes])

    def value(self, value: Tree | Serial) -> Tree | Serial:
        """Return a value in pieces, or serialized, without secrets."""
        return self._serial(value) if isinstance(value, Serial) else self._tree(value)

    def imported_value(self, value: ImportedValue) -> ImportedValue:
        """Return a value to import without secrets: the digests of what had them are others. Raises `InvalidValueError` when it is damaged."""
        digests, stored = self._imported_pieces(value.pieces)
        versions = [
            msgspec.structs.replace(
                version,
                frames=self._frames(version.frames),
                fields=None
                if version.fields is None
                else {
                    name: msgspec.structs.replace(ref, digest=digests.get(ref.digest, ref.digest))
                    for name, ref in version.fields.items()
                },
                writes=tuple(
                    msgspec.structs.replace(write, digest=digests.get(write.digest, write.digest))
                    for write in version.writes
                ),
            )
            for version in value.versions
        ]
        return msgspec.structs.replace(value, pieces=tuple(stored.values()), versions=tuple(versions))

    def _imported_pieces(self, pieces: Sequence[Piece]) -> tuple[dict[bytes, bytes], dict[bytes, Piece]]:
        """Return the digests that pieces have without secrets, by those that they had, and the pieces, each behind those that it is made of."""
        checked = CheckedPieces(pieces)
        digests: dict[bytes, bytes] = {}
        stored: dict[bytes, Piece] = {}

        def mapped(children: bytes) -> bytes:
            return b"".join(digests[child] for child in split_digests(children))

        for piece in pieces:
            content, whole = piece.content, checked.whole(piece.digest)
            if isinstance(whole, Leaf) and whole.type == PART:
                continue  # a part alone tells nothing: a secret may go on in the next one
            if isinstance(whole, Leaf | Parts):
                parts = [] if isinstance(whole, Leaf) else split_digests(whole.children)
                leaves = [Piece(part, checked.whole(part)) for part in parts]
                data = whole.data if isinstance(whole, Leaf) else b"".join(map(_data_of, leaves))
                serial = Serial(whole.type, data)
                clean = self._serial(serial)
                if clean is not serial:
                    new = leaf_pieces(clean.type, clean.data)
                elif isinstance(content, Edited) and digests.get(content.base) == content.base:
                    new = [piece]
                else:
                    new = [*leaves, Piece(piece.digest, whole)]
            elif isinstance(content, ListNode):
                assert isinstance(whole, ListNode), "a list grows out of lists"
                base = digests[content.base] if content.base else b""
                own = ListNode(mapped(content.children), base, content.keep)
                new = [Piece(list_piece(split_digests(mapped(whole.children))).digest, own)]
            elif isinstance(content, DictNode):
                new = [dict_piece(dict(zip(content.keys, split_digests(mapped(content.children)), strict=True)))]
            else:
                assert isinstance(content, Compound), "an edit comes out of a leaf"
                new = [composite_piece(content.type, split_digests(mapped(content.children)))]
            digests[piece.digest] = new[-1].digest
            for rewritten in new:
                stored.setdefault(rewritten.digest, rewritten)
        return digests, stored

    def _frames(self, frames: tuple[Serialized, ...]) -> tuple[Serialized, ...]:
        cleaned = [self._serial(Serial(form, data)) for form, data in frames]
        return tuple((frame.type, frame.data) for frame in cleaned)

    def _tree(self, tree: Tree) -> Tree:
        cleaned = self._trees.get(tree.digest)
        if cleaned is not None:
            return cleaned
        content: Content = tree.content
        changed = tree
        if isinstance(content, Leaf | Parts):
            data = content.data if isinstance(content, Leaf) else b"".join(_data_of(part) for part in tree.children)
            serial = Serial(content.type, data)
            clean = self._serial(serial)
            changed = tree if clean is serial else leaf_tree(clean.type, clean.data)
        else:
            children = [self._tree(child) for child in tree.children]
            if any(new is not old for new, old in zip(children, tree.children, strict=True)):
                digests = [child.digest for child in children]
                match content:
                    case DictNode():
                        piece = dict_piece(dict(zip(content.keys, digests, strict=True)))
                    case Compound():
                        piece = composite_piece(content.type, digests)
                    case _:
                        piece = list_piece(digests)
                changed = Tree(piece.digest, piece.content, children)
        self._trees.put(tree.digest, changed, _PIECE_BYTES)
        return changed

    def _serial(self, serial: Serial) -> Serial:
        """Return a serialized value without secrets; one that only its own serializer reads, such as `pickle`, as it is."""
        form, data = with_header(serial.type, serial.data)
        match form:
            case "msgpack":
                clean = self._packed(data)
            case "json" | "text":
                text = data.decode(errors="replace")
                clean = data if self.text(text) == text else self._json(form, text)
            case _:
                return serial
        if clean is data:
            return serial
        return Serial(*(bare(form, clean) if serial.type != form else (form, clean)))

    def _json(self, form: str, text: str) -> bytes:
        if form == "json":
            try:
                return msgspec.json.encode(self.data(msgspec.json.decode(text)))
            except msgspec.MsgspecError:
                pass
        return self.text(text).encode()

    def _packed(self, data: bytes) -> bytes:
        """Return msgpack without secrets: the same bytes where it has none, or is none."""
        try:
            value: Any = msgspec.msgpack.decode(data)
            clean = self.data(value)
            return data if clean is value else msgspec.msgpack.encode(clean)
        except (*DECODE_ERRORS, RecursionError, OverflowError):
            return data

    # Live streams

    def cut(self, text: str) -> tuple[str, str]:
        """
        Cut what a live stream has so far, and return the beginning without secrets, and the rest as it came, which is held back.

        It is cut at white space, where no secret goes on that began before, as far as the rest tells.
        """
        end = len(text) - _HELD
        while end > 0:
            end = max((text.rfind(space, 0, end) for space in " \n\t"), default=-1) + 1
            if end <= 0:
                break
            clean = self.text(text[:end])
            if clean + self.text(text[end:]) == self.text(text):
                return clean, text[end:]
            end -= 1
        if len(text) > _MOST_HELD:  # one word, or one secret: it goes as it is known so far
            return self.text(text), ""
        return "", text


def _data_of(part: Tree | Piece) -> bytes:
    return part.content.data if isinstance(part.content, Leaf) else b""
