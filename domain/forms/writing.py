"""Writing turns in a form: what writers of all forms share."""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final

import msgspec

from .items import TOOL, Call, Dropped, File, FormItem, Json, Own, Reasoning, Result, Source, Text
from .plain import compact, object_at, parsed

_ASIDE: Final = frozenset({"citations", "annotations", "cache_control", "thoughtSignature", "thought_signature"})
"""Fields of blocks that say something to their own API alone."""


Sources = Sequence[Source]
"""Stored messages of one form, in order."""


class WrittenTurn(msgspec.Struct):
    """
    A turn: what somebody said, and of an assistant's calls the results, which follow it.

    Args:
        role: Of whoever speaks.
        items: What is said; calls have the ids that they have in the target.
        calls: The calls among the items, in order.
        results: The result of each call, under its id and name; None where there is none.
        sources: The numbers of the messages that it is from, in order.
        is_told: Whether all in it is from these messages.
    """

    role: str
    name: str | None
    items: list[FormItem]
    sources: list[int]
    calls: list[FormItem] = []
    results: list[FormItem | None] = []
    has_results: bool = False
    is_told: bool = True


class Writer:
    """
    A writer of turns in one form: `messages` are those that it has written, `dropped` what they leave out.

    Args:
        turns: All turns of the chain.
        dropped: What was left out before.
        kin: The forms whose messages consist of blocks of this form.
    """

    form: ClassVar[str]
    has_files: ClassVar[str] = ""
    """The files that the form has, in words, for those that are left out."""

    def __init__(self, turns: Sequence[WrittenTurn], dropped: list[Dropped], kin: frozenset[str]) -> None:
        self.turns, self.dropped, self.kin = turns, dropped, kin
        self.messages: list[Any] = []
        self.ids: set[str] = set()

    def free_id(self, source: Source) -> str:
        """Return an id for a message that is made of a stored one: its id, or such as `m2#1` where another one has that."""
        message_id, number = source.id, 0
        while message_id in self.ids:
            number += 1
            message_id = f"{source.id}#{number}"
        self.ids.add(message_id)
        return message_id

    def takes(self, turns: Sequence[WrittenTurn], sources: Sources) -> bool:  # noqa: ARG002 - for others to decide
        """Whether turns can be given as they came, in messages of this form of which nothing was moved, added or renamed."""
        return True

    def put(self, sources: Sources) -> None:
        """Give messages of this form as they came."""
        self.messages += [source.data for source in sources]

    def write(self, turn: WrittenTurn) -> None:
        """Write a turn anew."""
        raise NotImplementedError

    def finish(self, ids: Sequence[str]) -> None:
        """Change what the messages must not have together, once all are written; `ids` has the stored message that each begins with."""

    def native(self, item: FormItem) -> Any:
        """Return the block of an item as it came, if it is of this form; else None, and what its fields said to another API is dropped."""
        block = item.native
        # Blocks of its own form keep marks for caches, signatures, and fields that are not known here.
        if item.source.form in self.kin:
            return block if isinstance(block, dict) else None
        if isinstance(block, dict) and not _ASIDE.isdisjoint(block) and type(item.what) is not Reasoning:
            for key in sorted(_ASIDE.intersection(block)):
                if block[key] and block[key] != NO_SIGNATURE:
                    self.dropped.append(Dropped(item.source.id, key, f"the form {item.source.form} alone has it"))
        return None

    def _blocks(self, items: Iterable[FormItem]) -> list[Any]:
        """Return the blocks for items, without those that are left out."""
        return [block for item in items if (block := self._block(item)) is not None]

    def _block(self, item: FormItem) -> Any:
        """Return the block of an item: as it came, if it came in this form, else a new one. None where there is none, which is noted."""
        what, native = item.what, self.native(item)
        if type(what) is Call:
            block = self._call_block(item, what, native)
        elif native is not None:
            return native
        else:
            block = what.block if isinstance(what, Own) and what.origin == self.form else self._new_block(item)
        if block is None:
            self.lose(item, self.has_files)
        return block

    def _call_block(self, item: FormItem, call: Call, native: Any) -> Any:  # noqa: ARG002 - for forms whose calls are blocks
        """Return the block of a call, under the id and the name that it has here; None where the form has none for it."""
        return native

    def _new_block(self, item: FormItem) -> Any:
        """Return a new block for an item; None where the form has none for it."""
        raise NotImplementedError

    def _contents(self, item: FormItem, result: Result) -> list[Any]:
        """Return the blocks for what a result says, values as texts."""
        pieces = [Text(result.content)] if isinstance(result.content, str) else result.content
        texts = [Text(compact(piece.value)) if isinstance(piece, Json) else piece for piece in pieces]
        return self._blocks(FormItem(TOOL, text, item.source) for text in texts)

    def _files_behind(self, call: Call, item: FormItem, result: Result) -> list[Any]:
        """Return the blocks that tell a result's files behind all results, where an API takes no files within; none without files."""
        pieces = [] if isinstance(result.content, str) else result.content
        blocks = self._blocks(FormItem(TOOL, piece, item.source) for piece in pieces if isinstance(piece, File | Own))
        return [{"type": "text", "text": f"Files in the result of {call.name} ({call.id}):"}, *blocks] if blocks else []

    def lose(self, item: FormItem, why: str = "") -> None:
        """Note that an item is left out."""
        what, kind = item.what, "file"
        if isinstance(what, Reasoning):
            kind, why = "reasoning", f"signed by {what.origin}" if what.origin else f"{self.form} takes none of others"
        elif isinstance(what, Own):
            kind = str(object_at(what.block).get("type") or "block")
            why = f"the form {what.origin} alone has it"
        elif isinstance(what, Call | Result):
            kind = "call" if isinstance(what, Call) else "result"
        self.dropped.append(Dropped(item.source.id, kind, why))

    def lose_name(self, turn: WrittenTurn) -> None:
        """Note that the name of a participant is left out, if a turn has one."""
        if turn.name is not None:
            self.dropped.append(Dropped(turn.items[0].source.id, "name", f"{self.form} has no names"))


INTERRUPTED: Final = "interrupted"
"""The result of a call that nobody answered."""


def interrupted(call: FormItem) -> FormItem:
    """Return the result of a call that has none."""
    assert isinstance(call.what, Call), "calls have results"
    return FormItem(TOOL, Result(call.what.id, call.what.name, INTERRUPTED, is_error=True), call.source)


def sources_of(items: Iterable[FormItem | None]) -> list[Source]:
    """Return the messages that items are from, each once."""
    return [*{id(item.source): item.source for item in items if item is not None}.values()]


def answers(turn: WrittenTurn, *, is_all: bool = False) -> Iterator[tuple[FormItem, Call, FormItem, Result]]:
    """Yield the calls of a turn that have a result, each with its result; with `is_all` the others too, with an error, as most APIs take all or none."""
    for call, own_result in zip(turn.calls, turn.results, strict=True):
        result = interrupted(call) if own_result is None and is_all else own_result
        if result is not None and isinstance(call.what, Call) and isinstance(result.what, Result):
            yield call, call.what, result, result.what


NO_SIGNATURE: Final = b64encode(b"skip_thought_signature_validator").decode()
"""The documented signature of Gemini for calls that another model made: it refuses a step whose first call has none."""


def input_of(call: Call) -> Any:
    """Return the arguments of a call, parsed; what is no JSON as the text that it is."""
    if call.input is not msgspec.UNSET:
        return call.input
    return parsed(call.raw)[0] if call.raw else {}


def object_of(call: Call) -> dict[str, Any]:
    """Return the arguments of a call as an object; anything else under the key `input`."""
    value = input_of(call)
    return value if isinstance(value, dict) else {} if value is None else {"input": value}


def arguments_of(call: Call) -> str:
    """Return the arguments of a call as text: as the model wrote them, else as compact JSON."""
    if call.raw is not None:
        return call.raw
    if isinstance(call.input, str) and not parsed(call.input)[1]:
        return call.input  # what a model wrote that was no JSON, from a form that has no text for it
    return compact({} if call.input is None or call.input is msgspec.UNSET else call.input)


def result_text(result: Result) -> str:
    """Return the result of a tool as text: its texts by lines, values as compact JSON; files have none."""
    content = result.content
    if isinstance(content, str):
        return content
    return "\n".join(
        piece.text if isinstance(piece, Text) else compact(piece.value)
        for piece in content
        if isinstance(piece, Text | Json)
    )


def id_at(file: File, provider: str) -> str | None:
    if file.origin == provider:
        return file.file_id
    return None if file.copies is None else file.copies.get(provider)


def url_of(file: File) -> str | None:
    """Return the URL of a file, as a data URL if its bytes are given; None for a file that only its provider has."""
    return file.url if file.data is None else f"data:{file.media_type};base64,{file.data}"
