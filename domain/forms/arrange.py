"""
Turns of a chain: its items in an order that every API takes.

What an assistant says is one turn until somebody else speaks, or until it goes on after a result. Results stand with the turn
that has their call, in the order of the calls. One pass over the chain decides it, so what is decided for a chain holds for
every chain that begins with it, but for results that come late.
"""

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, Literal

import msgspec

from .items import ASSISTANT, TOOL, USER, Call, Dropped, File, FormItem, Reasoning, Refusal, Result, Source, Text
from .model import Form
from .reading import items_of
from .writing import WrittenTurn, interrupted, result_text

OpenCalls = Literal["answer", "keep", "drop"]
StrayResults = Literal["drop", "text"]

_ID_BYTES: Final = 6
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]+")
_MAX_NAME: Final = 64


class Arranged(msgspec.Struct, frozen=True):
    """The turns of a chain, the numbers of messages of which something is elsewhere or otherwise than they say, and what was left out."""

    turns: list[WrittenTurn]
    changed: set[int]
    dropped: list[Dropped]


def arrange(
    messages: Sequence[Source], target: Form, *, open_calls: OpenCalls, stray_results: StrayResults
) -> Arranged:
    """Return the turns of a chain, for a form that decides on ids, and on texts of nothing; the rest as `translate` has it."""
    arranging = _Arranging(target, stray_results)
    for number, message in enumerate(messages):
        items = items_of(message.form, message.data, message.name, message)
        if items and items[0].source is not message:
            arranging.changed.add(number)  # its data are not as its form says
        for item in items:
            arranging.add(item, number)
    arranging.close(open_calls)
    return Arranged(arranging.turns, arranging.changed, arranging.dropped)


_Newest = dict[str, tuple[WrittenTurn, list[int]]]


def _note(newest: _Newest, key: str, turn: WrittenTurn) -> None:
    """Note that the next call of a turn is one of those under a key."""
    last = newest.get(key)
    if last is not None and last[0] is turn:
        last[1].append(len(turn.calls))
    else:
        newest[key] = (turn, [len(turn.calls)])


class _Arranging:
    def __init__(self, target: Form, stray_results: StrayResults) -> None:
        self.turns: list[WrittenTurn] = []
        self.changed: set[int] = set()
        self.dropped: list[Dropped] = []
        self._rules, self._stray_results = target.rules, stray_results
        self._used_ids: set[str] = set()
        self._occurrences: dict[str, int] = {}
        self._names: dict[str, str] = {}
        # The newest turn that has calls of an id, of a name, and of a name but without an id (of any name under the name `""`), and
        # their places in it. An older turn with an open call of the id does not get the result: providers that count `call_0` anew
        # in each answer would have it answer a call that was given up.
        self._by_id: _Newest = {}
        self._by_name: _Newest = {}
        self._without_id: _Newest = {}

    def add(self, item: FormItem, number: int) -> None:
        """Put an item of a message in its turn."""
        what = item.what
        if type(what) is Result:
            self._add_result(item, what, number)
        elif (type(what) is Text or type(what) is Refusal) and self._is_left_out(what.text):
            self.changed.add(number)
        else:
            is_assistants = item.role == ASSISTANT or (item.role == TOOL and type(what) is not Text)
            turn = self._assistants(number) if is_assistants else self._others(item, number)
            if type(what) is Call:
                item = self._with_call(turn, item, what, number)
            turn.items.append(item)
            if item.name is not None and turn.name is None:
                turn.name = item.name

    def _is_left_out(self, text: str) -> bool:
        if self._rules.blank == "kept":
            return False
        return not text or (self._rules.blank == "blank" and text[0].isspace() and not text.strip())

    def _assistants(self, number: int) -> WrittenTurn:
        """Return the assistant's turn that a message goes on, or begins."""
        turn = self.turns[-1] if self.turns else None
        if turn is None or turn.role != ASSISTANT or turn.has_results:
            turn = WrittenTurn(ASSISTANT, None, [], [number], [], [])
            self.turns.append(turn)
        elif turn.sources[-1] != number:
            turn.sources.append(number)
        return turn

    def _others(self, item: FormItem, number: int) -> WrittenTurn:
        """Return the turn of anybody else: messages of users are never joined, as a joined one would change the prefix."""
        turn = self.turns[-1] if self.turns else None
        if turn is None or turn.role != item.role or turn.sources[-1] != number:
            turn = WrittenTurn(item.role, item.name, [], [number])
            self.turns.append(turn)
        return turn

    def _with_call(self, turn: WrittenTurn, item: FormItem, call: Call, number: int) -> FormItem:
        """Note a call, and return it under an id that no earlier call has."""
        own_id, name = call.id, call.name
        _note(self._by_name, name, turn)
        if own_id is not None:
            _note(self._by_id, own_id, turn)
        if not own_id:
            _note(self._without_id, name, turn)
            _note(self._without_id, "", turn)
        call_id, called = self._id_for(own_id, name), self._name_for(name)
        if call_id != own_id or called != name:
            self.changed.add(number)
            item = FormItem(item.role, msgspec.structs.replace(call, id=call_id, name=called), item.source, item.native)
        turn.calls.append(item)
        turn.results.append(None)
        return item

    def _id_for(self, own_id: str | None, name: str) -> str | None:
        key = name if own_id is None else own_id
        occurrence = self._occurrences.get(key, 0)
        self._occurrences[key] = occurrence + 1
        if own_id is None and not self._rules.needs_ids:
            return None
        call_id = own_id
        while call_id is None or call_id in self._used_ids or not self._rules.ids.fullmatch(call_id):
            # Decided by the prefix alone, so that caches of prompts are found again.
            digest = blake2b(f"{key}:{occurrence}".encode("utf-8", "surrogatepass"), digest_size=_ID_BYTES)
            call_id = f"call_{digest.hexdigest()}"
            occurrence += 1
        self._used_ids.add(call_id)
        return call_id

    def _name_for(self, name: str) -> str:
        called = self._names.get(name)
        if called is None:
            called, allowed = name, self._rules.names.fullmatch
            if not allowed(called):
                called = _NOT_IN_NAMES.sub("_", name)[:_MAX_NAME].lstrip("-") or "tool"
            if not allowed(called):  # a digit begins it
                called = f"_{called}"[:_MAX_NAME]
            self._names[name] = called
        return called

    def _add_result(self, item: FormItem, result: Result, number: int) -> None:
        """Put a result with its call, or leave it out."""
        turn, places = self._calls_of(result)
        place = None
        if turn is not None:
            free = [place for place in places if turn.results[place] is None]  # of two results the first stays
            # Several calls have one id: in a UIMessage a result stands with its own call, in one part.
            if len(free) > 1 and item.native is not None:
                free.sort(key=lambda place: turn.calls[place].native is not item.native)
            place = free[0] if free else None
        if turn is None or place is None:
            self._add_stray(
                item, result, number, "no call before it has its id" if turn is None else "its call has a result"
            )
            return
        call = turn.calls[place].what
        assert isinstance(call, Call), "places are those of calls"
        if result.call_id != call.id or result.name != call.name:
            result = Result(call.id, call.name, result.content, result.is_error)
            item = FormItem(TOOL, result, item.source, item.native)
        turn.results[place] = item
        turn.has_results = True
        if number in turn.sources[-1:]:
            return
        turn.sources.append(number)
        if turn is not self.turns[-1]:  # it moves up to its call, before what was said in between
            self.changed.add(number)

    def _calls_of(self, result: Result) -> tuple[WrittenTurn | None, Sequence[int]]:
        call_id, name = result.call_id, result.name
        if call_id is None:
            return (self._by_name.get(name) if name else self._without_id.get("")) or (None, ())
        # Some take the name of a call without an id for one.
        fitting = self._by_id.get(call_id)
        if self._without_id:
            unnamed = self._without_id.get(call_id)
            if unnamed and (fitting is None or unnamed[0].sources[0] > fitting[0].sources[0]):
                return unnamed
            return fitting or self._without_id.get(name or call_id) or (None, ())
        return fitting or (None, ())

    def _add_stray(self, item: FormItem, result: Result, number: int, why: str) -> None:
        self.changed.add(number)
        if self._stray_results == "drop":
            self.dropped.append(Dropped(item.source.id, "result", why))
            return
        text = result_text(result)
        if text:
            self.add(FormItem(USER, Text(text), item.source), number)
            self.turns[-1].is_told = False
        for file in result.content if isinstance(result.content, list) else ():
            if isinstance(file, File):
                self.add(FormItem(USER, file, item.source), number)

    def close(self, open_calls: OpenCalls) -> None:
        """Answer the calls that have no result, or leave them out."""
        for turn in self.turns:
            if None not in turn.results or (open_calls == "keep" and turn is self.turns[-1]):
                continue
            turn.is_told = False
            if open_calls == "drop":
                self._leave_out(turn)
                continue
            turn.results = [result or interrupted(call) for call, result in zip(turn.calls, turn.results, strict=True)]
        if open_calls == "drop":
            self.turns = [turn for turn in self.turns if turn.items or turn.is_told]

    def _leave_out(self, turn: WrittenTurn) -> None:
        self.changed.update(turn.sources)
        unanswered = [call for call, result in zip(turn.calls, turn.results, strict=True) if result is None]
        self.dropped += [Dropped(call.source.id, "call", "it has no result") for call in unanswered]
        rest: list[FormItem] = []
        for item in turn.items:
            if all(item is not call for call in unanswered):
                rest.append(item)
                continue
            # The Responses API refuses reasoning without the item that it led to.
            while rest and isinstance(thought := rest[-1].what, Reasoning) and thought.origin == "responses":
                self.dropped.append(Dropped(rest.pop().source.id, "reasoning", "what it led to has no result"))
        turn.items = rest
        turn.calls = [call for call, result in zip(turn.calls, turn.results, strict=True) if result is not None]
        turn.results = [result for result in turn.results if result is not None]


def runs(arranged: Arranged) -> Iterable[tuple[list[WrittenTurn], list[int]]]:
    """Yield the smallest runs of turns that hold their messages whole, with the numbers of these messages in order."""
    turns = arranged.turns
    last = {number: place for place, turn in enumerate(turns) for number in turn.sources}
    start = 0
    while start < len(turns):
        end = place = start
        while place <= end:
            for number in turns[place].sources:
                end = max(end, last[number])
            place += 1
        run = turns[start:place]
        numbers = run[0].sources if len(run) == 1 else sorted({number for turn in run for number in turn.sources})
        yield run, numbers
        start = place
