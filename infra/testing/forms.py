"""The contract of a form of messages."""

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, get_args

from chatledger.domain.forms.items import Call, FormItem, Result, Source, Text
from chatledger.domain.forms.model import Form, FormName
from chatledger.domain.forms.plain import object_at, text_at
from chatledger.domain.forms.reading import items_of, known_form, parts_of, role_of, text_of
from chatledger.domain.forms.translate import translate
from chatledger.domain.forms.writing import input_of
from chatledger.domain.limits import same_json
from chatledger.domain.values import Message

from . import expect, require

_FORMS: Final = get_args(FormName)
_MARK: Final = re.compile(r"~[a-z]\d+~")
_IMAGE: Final = "iVBORw0KGgo="
_ODD: Final[list[Any]] = json.loads(
    '[null, true, 7, "text", [], {}, [[1]], {"role": 7}, {"role": "user"}, {"parts": {"a": null}}, {"a": [{}]}]'
)


def check_form(
    form: Form | str, *, rules: Callable[[list[Any]], Iterable[str]] | None = None, stories: int = 200, seed: int = 0
) -> None:
    """
    Check a form of messages: what is translated into it and out of it is neither lost, doubled, changed nor paired otherwise.

    Stories of users, answers, calls and results, also missing, late and shuffled ones, are told in each form that is built in, and
    translated. Takes about a second for 100 stories.

    Args:
        form: The form, or its name; it is registered, see `chatledger.forms.register`.
        rules: What the framework or API demands: of a list of messages, what it would refuse, in words. Nothing is demanded when None.
        stories: The number of stories.
        seed: Of the stories.

    Raises:
        AssertionError: A rule is broken; says which, with the messages.
    """
    name = form if isinstance(form, str) else form.name
    registered = known_form(name)
    is_registered = registered is not None and (isinstance(form, str) or registered is form)
    require(is_registered, f"{name}: chatledger.forms.register(form) makes it known")
    for value in _ODD:  # a reader does not raise
        for read in (text_of, parts_of, role_of):
            read(name, value)
    if registered is None or registered.write is None:
        return
    for number in range(stories):
        dice = random.Random(f"{seed}:{number}")  # noqa: S311 - stories, no secrets
        chain = _told(dice)
        source = dice.choice(_FORMS)
        told = chain if source == "openai" else _in_chat(source, translate(chain, source).messages)
        for open_calls in ("answer", "keep", "drop"):
            translated = translate(told, name, open_calls=open_calls)
            shown = f"{name}: {[message.data for message in told]!r} is {translated.messages!r}"
            expect(len(translated.messages), len(translated.origins), f"{shown}: each message is told of some")
            # Only with every call answered is a list what an API takes.
            if rules is not None and open_calls == "answer":
                expect([], list(rules(translated.messages)), shown)
            json.dumps(translated.messages)
            _compare(told, _in_chat(name, translated.messages), {item.message_id for item in translated.dropped}, shown)
        for cut in range(len(told)):  # what follows changes nothing, unless it answers a call
            if told[cut].name == "user" and not _has_late(told, cut):
                part, whole = translate(told[:cut], name).messages, translate(told, name).messages
                require(same_json(part, whole[: len(part)]), f"{name}: {part!r} is not the beginning of {whole!r}")
        _check_out_of(name, _in_chat(name, translate(told, name).messages))


def _check_out_of(form: str, own: Sequence[Message]) -> None:
    values = [message.data for message in own]
    for open_calls in ("answer", "keep"):
        again = translate(own, form, open_calls=open_calls)
        require(same_json(values, again.messages), f"{form}: {values!r} is given as {again.messages!r}, not as it came")
        expect([], again.dropped, f"{form}: of its own messages nothing is dropped")
    for other in _FORMS:
        there = translate(own, other)
        shown = f"{form} in {other}: {values!r} is {there.messages!r}"
        _compare(own, _in_chat(other, there.messages), {item.message_id for item in there.dropped}, shown)


def _compare(chain: Sequence[Source], told: Sequence[Source], dropped: set[str], shown: str) -> None:
    """Check that all that is said in a chain is in another one, once, in order, and each result with its call."""
    before, after = list(_marks(chain)), list(_marks(told))
    times = Counter(mark for mark, *_ in after)
    doubled = [mark for mark, count in times.items() if count > 1]
    expect([], doubled, f"{shown}: these are told more than once")
    lost = [mark for mark, _, _, message_id in before if mark not in times and message_id not in dropped]
    expect([], lost, f"{shown}: these are lost, and not among `dropped`")
    for kind in ("words", "call"):
        wanted = [mark for mark, what, _, _ in before if what == kind and mark in times]
        expect(wanted, [mark for mark, what, _, _ in after if what == kind], f"{shown}: {kind} in order")
    pairs = {mark: answers for mark, what, answers, _ in before if what == "result" and mark in times}
    results = {mark: answers for mark, what, answers, _ in after if what == "result"}
    expect(pairs, results, f"{shown}: results of these calls")


def _marks(chain: Sequence[Source]) -> Iterator[tuple[str, str, str | None, str]]:
    """Yield the marks in a chain: what they are in, of a result the mark of its call, and the message."""
    calls: dict[str | None, str] = {}
    for message in chain:
        items: list[FormItem] = items_of(message.form, message.data, message.name, message)
        for item in items:
            what = item.what
            if isinstance(what, Text):
                yield from ((mark, "words", None, message.id) for mark in _MARK.findall(what.text))
            elif isinstance(what, Call):
                for mark in _MARK.findall(json.dumps(input_of(what))):
                    calls[what.id or what.name] = mark
                    yield mark, "call", None, message.id
            elif isinstance(what, Result):
                content = what.content if isinstance(what.content, str) else repr(what.content)
                answers = calls.get(what.call_id or what.name)
                yield from ((mark, "result", answers, message.id) for mark in _MARK.findall(content))


def _has_late(chain: Sequence[Message], cut: int) -> bool:
    """Whether a result behind a place answers a call before it."""
    calls: set[str | None] = set()
    for place, message in enumerate(chain):
        for item in items_of(message.form, message.data, message.name, message):
            if isinstance(item.what, Call) and place < cut:
                calls.add(item.what.id or item.what.name)
            if isinstance(item.what, Result) and place >= cut and (item.what.call_id or item.what.name) in calls:
                return True
    return False


def _in_chat(form: str, values: Sequence[Any]) -> list[Message]:
    """Return messages of a form as a chat has them: under their own ids, if they have any."""
    return [
        Message(
            id=text_at(value, "id") or text_at(object_at(value, "data"), "id") or f"m{place}",
            chat_id="trip",
            parent_id=None,
            name=role_of(form, value),
            data=value,
            form=form,
            created_at=1_700_000_000_000 + place,
        )
        for place, value in enumerate(values)
    ]


def _told(dice: random.Random) -> list[Message]:
    """Return a story in the form of OpenAI."""
    numbers = iter(range(10_000))
    messages: list[dict[str, Any]] = []
    late: list[dict[str, Any]] = []
    if dice.random() < 0.3:
        messages.append({"role": "system", "content": f"Be brief ~w{next(numbers)}~"})
    for _ in range(dice.randint(1, 4)):
        content: Any = f"Which one? ~w{next(numbers)}~"
        if dice.random() < 0.2:
            image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_IMAGE}"}}
            content = [{"type": "text", "text": content}, image]
        messages.append({"role": "user", "content": content})
        messages += late
        late = []
        for _ in range(dice.randint(0, 2)):
            calls = [
                {
                    "id": f"call_{next(numbers)}",
                    "type": "function",
                    "function": {"name": "weather", "arguments": json.dumps({"city": f"~c{next(numbers)}~"})},
                }
                for _ in range(dice.randint(1, 3))
            ]
            text = f"I look ~w{next(numbers)}~" if dice.random() < 0.5 else None
            messages.append({"role": "assistant", "content": text, "tool_calls": calls})
            results = [
                {"role": "tool", "tool_call_id": call["id"], "content": f"Rain ~r{next(numbers)}~"} for call in calls
            ]
            dice.shuffle(results)  # tools that run at the same time end in any order, and some never do
            results = results[: len(results) - (dice.random() < 0.2)]
            if dice.random() < 0.1:
                late += results
            else:
                messages += results
        if dice.random() < 0.8:
            messages.append({"role": "assistant", "content": f"This one ~w{next(numbers)}~"})
    return _in_chat("openai", messages + late)
