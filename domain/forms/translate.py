"""
Translation of a chain into another form.

    translate(messages, "anthropic").messages

Three steps: each message is read by its own form, its items are arranged as turns, and each turn is given as it came, where all
of it came in the target's form, or written anew.

What an assistant says is one turn until somebody else speaks, or until it goes on after a result. Results stand with the turn
that has their call, in the order of the calls. One pass over the chain decides it, so what is decided for a chain holds for
every chain that begins with it, but for results that come late.
"""

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final, Literal

import msgspec

from ..errors import InvalidValueError
from .items import (
    ASSISTANT,
    REDACTED,
    TOOL,
    USER,
    Call,
    Dropped,
    File,
    FormItem,
    Reasoning,
    Refusal,
    Result,
    Source,
    Text,
)
from .model import Form
from .reading import items_of, known_form, known_forms
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
        self._redacted: list[tuple[WrittenTurn, FormItem]] = []
        """The results that were redacted, with the turns whose calls they answered."""

    def add(self, item: FormItem, number: int) -> None:
        """Put an item of a message in its turn."""
        what = item.what
        newest = self.turns[-1] if self.turns else None
        if item.role == TOOL and isinstance(what, Text) and what.text == REDACTED and newest and None in newest.results:
            # Which call it answered went with its content. Others may answer some of the turn's, so it waits for the end.
            self._redacted.append((newest, item))
            newest.has_results = True
            newest.sources.append(number)
        elif type(what) is Result:
            self._add_result(item, what, number)
        elif (type(what) is Text or type(what) is Refusal) and self._is_left_out(what.text):
            self.changed.add(number)
        else:
            is_assistants = item.role == ASSISTANT or (item.role == TOOL and type(what) is not Text)
            turn = self._assistants(number) if is_assistants else self._others(item, number)
            if type(what) is Call:
                # A call is given under an id that no earlier call has.
                own_id, name = what.id, what.name
                _note(self._by_name, name, turn)
                if own_id is not None:
                    _note(self._by_id, own_id, turn)
                if not own_id:
                    _note(self._without_id, name, turn)
                    _note(self._without_id, "", turn)
                call_id, called = self._id_for(own_id, name), self._name_for(name)
                if call_id != own_id or called != name:
                    self.changed.add(number)
                    item = FormItem(
                        item.role, msgspec.structs.replace(what, id=call_id, name=called), item.source, item.native
                    )
                turn.calls.append(item)
                turn.results.append(None)
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
        for turn, item in self._redacted:
            if None in turn.results:
                place = turn.results.index(None)
                call = turn.calls[place].what
                assert isinstance(call, Call), "places are those of calls"
                turn.results[place] = FormItem(TOOL, Result(call.id, call.name, REDACTED, is_error=False), item.source)
        for turn in self.turns:
            if None not in turn.results or (open_calls == "keep" and turn is self.turns[-1]):
                continue
            turn.is_told = False
            if open_calls == "drop":
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
                continue
            turn.results = [result or interrupted(call) for call, result in zip(turn.calls, turn.results, strict=True)]
        if open_calls == "drop":
            self.turns = [turn for turn in self.turns if turn.items or turn.is_told]


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


class Translated(msgspec.Struct, frozen=True):
    """
    A chain in another form.

    Args:
        messages: The messages in that form.
        dropped: What the chain says and these messages do not.
        origins: For each message, the places in the chain that it comes from: mostly one, several where an answer came in parts.
            One place may stand for several messages.
    """

    messages: list[Any]
    dropped: list[Dropped]
    origins: list[Sequence[int]]


def translate(
    messages: Sequence[Source],
    form: str | Form,
    *,
    open_calls: OpenCalls = "answer",
    stray_results: StrayResults = "drop",
) -> Translated:
    """
    Translate a chain into a form, so that its API takes it.

    What came in this form is given as it came, as far as the API takes it so. Ids of calls are kept where the API allows them
    and no earlier call has them; else they are made from what they were, always the same. The translation of the beginning of
    a chain begins that of the whole, but for results that came late.

    Args:
        messages: The chain, oldest first.
        form: The form, or its name.
        open_calls: `answer` gives each call without a result the error `interrupted`, `drop` leaves the call out, and `keep` does
            neither for calls of the turn that ends the chain.
        stray_results: Whether a result whose call is not there is left out or told as a text of the user.

    Returns:
        The messages, and a `Dropped` for all that they leave out.

    Raises:
        InvalidValueError: The form, or that of a message, is not known.
    """
    target = form if isinstance(form, Form) else known_form(form)
    if target is None or target.write is None:
        raise _unknown(form if isinstance(form, str) else form.name)
    chain = list(messages)
    forms = {message.form for message in chain}
    if forms <= {target.name} and open_calls == "keep":  # what an adapter reads of its own framework
        writer = target.write([], [], frozenset())
        writer.put(chain)
        return Translated(writer.messages, [], [(place,) for place in range(len(chain))])
    kin = {target.name, target.blocks or target.name}
    for name in forms - {None, target.name}:
        other = known_form(name)
        if other is None:
            raise _unknown(str(name))
        kin |= {other.name} if other.blocks == target.name else set()
    arranged = arrange(chain, target, open_calls=open_calls, stray_results=stray_results)
    writer = target.write(arranged.turns, arranged.dropped, frozenset(kin))
    changed = arranged.changed
    changed.update(number for number, message in enumerate(chain) if message.form != target.name)
    origins: list[Sequence[int]] = []
    going_on: dict[int, list[int]] = {}  # of messages that several turns are told in
    is_answering = False
    for turns, numbers in runs(arranged):
        if changed.isdisjoint(numbers) and all(turn.is_told for turn in turns):
            sources = [chain[number] for number in numbers]
            if writer.takes(turns, sources):
                writer.put(sources)
                origins += [(number,) for number in numbers]
                is_answering = turns[-1].role == ASSISTANT
                continue
        for turn in turns:
            writer.write(turn)
            added = len(writer.messages) - len(origins)
            origins += [turn.sources] * added
            # A step of an answer may go on in the message of the one before; any other turn of which nothing was written is lost.
            if not added and is_answering and turn.role == ASSISTANT:
                place = len(origins) - 1
                going_on.setdefault(place, [*origins[place]]).extend(turn.sources)
            is_answering = turn.role == ASSISTANT and bool(origins)
    for place, numbers in going_on.items():
        origins[place] = sorted({*numbers})
    writer.finish([chain[places[0]].id for places in origins])
    return Translated(writer.messages, arranged.dropped, origins)


def _unknown(name: str) -> InvalidValueError:
    names = ", ".join(repr(form) for form in known_forms())
    return InvalidValueError(
        f"no form {name!r} of messages is known to translate from or into; known are {names}; "
        "chatledger.forms.register(Form(...)) makes another one known"
    )
