"""Windows of a conversation: the longest run of whole turns that fits, and no result of a tool without its call."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.soak import examples

from chatledger.domain.context.estimate import rough_tokens, tokens_of_message
from chatledger.domain.context.fitting import Fit, Window, turn_starts
from chatledger.domain.context.formats.message_format import ANTHROPIC, GOOGLE, OPENAI, RESPONSES, MessageFormat
from chatledger.domain.context.formats.stored import name_of
from chatledger.domain.errors import ContextTooLargeError, InvalidValueError
from chatledger.domain.forms.detect import form_of
from chatledger.domain.values import Message

SHAPES = ("ui", "openai", "responses", "anthropic", "google")


def message(number: int, name: str, data: Any) -> Message:
    return Message(id=f"m{number}", chat_id="c", name=name, data=data, created_at=0, form=form_of(data))


def stored(number: int, form: MessageFormat, given: Any) -> Message:
    """A message as it is stored when a program sets one of an API."""
    return msgspec.structs.replace(message(number, name_of(given, form.name), given), form=form.name)


def say(number: int, name: str, text: str = "hello") -> Message:
    return message(number, name, {"id": f"m{number}", "role": name, "parts": [{"type": "text", "text": text}]})


def call(number: int, call_id: str, shape: str) -> Message:
    if shape == "openai":
        tool = {"id": call_id, "type": "function", "function": {"name": "t", "arguments": "{}"}}
        data: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [tool]}
        return stored(number, OPENAI, data)
    if shape == "responses":
        return stored(number, RESPONSES, {"type": "function_call", "call_id": call_id, "name": "t", "arguments": "{}"})
    if shape == "anthropic":
        block: dict[str, Any] = {"type": "tool_use", "id": call_id, "name": "t", "input": {}}
        return stored(number, ANTHROPIC, {"role": "assistant", "content": [block]})
    if shape == "google":
        return stored(
            number, GOOGLE, {"role": "model", "parts": [{"functionCall": {"id": call_id, "name": "t", "args": {}}}]}
        )
    part: dict[str, Any] = {"type": "tool-t", "toolCallId": call_id, "state": "input-available", "input": {}}
    return message(number, "assistant", {"id": f"m{number}", "role": "assistant", "parts": [part]})


def result(number: int, call_id: str, shape: str) -> Message:
    if shape == "openai":
        data = {"role": "tool", "tool_call_id": call_id, "content": "rain"}
        return stored(number, OPENAI, data)
    if shape == "responses":
        return stored(number, RESPONSES, {"type": "function_call_output", "call_id": call_id, "output": "rain"})
    if shape == "anthropic":
        block = {"type": "tool_result", "tool_use_id": call_id, "content": "rain"}
        return stored(number, ANTHROPIC, {"role": "user", "content": [block]})
    if shape == "google":
        answer = {"functionResponse": {"id": call_id, "name": "t", "response": {"is": "rain"}}}
        return stored(number, GOOGLE, {"role": "user", "parts": [answer]})
    part: dict[str, Any] = {"type": "tool-t", "toolCallId": call_id, "state": "output-available", "output": "rain"}
    return message(number, "tool", {"id": f"m{number}", "role": "tool", "parts": [part]})


class Talk(msgspec.Struct):
    """A conversation, with what a naive model needs to know: which messages users wrote, and pairs of call and result."""

    messages: list[Message]
    questions: list[int]
    pairs: list[tuple[int, int]]

    def cuts(self) -> list[int]:
        """All places where a turn begins, the first included."""
        found = [at for at in self.questions if not any(asked < at <= answered for asked, answered in self.pairs)]
        return sorted({0, *found}) if self.messages else []


@st.composite
def talks(draw: st.DrawFn) -> Talk:
    """Questions, answers, calls and their results, some of which come turns later or never."""
    talk, waiting = Talk([], [], []), dict[str, tuple[int, str]]()
    for number in range(draw(st.integers(0, 14))):
        kind = draw(st.sampled_from(["user", "user", "assistant", "system", "synthetic", "call", "result"]))
        if kind == "call":
            shape, call_id = draw(st.sampled_from(SHAPES)), f"call {number}"
            waiting[call_id] = number, shape
            talk.messages.append(call(number, call_id, shape))
        elif kind == "result" and waiting:
            call_id = draw(st.sampled_from(sorted(waiting)))
            asked, shape = waiting.pop(call_id)
            talk.pairs.append((asked, number))
            talk.messages.append(result(number, call_id, shape))
        elif kind == "synthetic":
            one = say(number, "user")
            talk.messages.append(
                msgspec.structs.replace(one, data={**one.data, "metadata": {"synthetic": {"kind": "note"}}})
            )
        else:
            name = "assistant" if kind == "result" else kind
            talk.questions += [number] if name == "user" else []
            talk.messages.append(say(number, name, draw(st.text("abc ", max_size=30))))
    return talk


def naive(talk: Talk, fits: Callable[[Sequence[Message]], bool]) -> int | None:
    """Where the longest run of turns that fits begins; None when not even the newest does."""
    return next((at for at in talk.cuts() if fits(talk.messages[at:])), None)


def growing(fit: Fit, messages: Sequence[Message]) -> tuple[Window, int]:
    """The window that is found when the messages are read from their end, page by page, and how many were read."""
    read = min(2, len(messages))
    while True:
        window = fit.window(messages[len(messages) - read :], is_whole=read == len(messages))
        if window is not None:
            return msgspec.structs.replace(window, start=len(messages) - read + window.start), read
        assert read < len(messages)
        read = min(read + 2, len(messages))


def taken(messages: Sequence[Message]) -> int:
    return sum(tokens_of_message(one, rough_tokens)[0] for one in messages)


@settings(max_examples=examples(200))
@given(talks())
def test_a_turn_begins_with_a_question_and_parts_no_result_from_its_call(talk: Talk) -> None:
    assert sorted(turn_starts(talk.messages, is_whole=True)) == talk.cuts()


@settings(max_examples=examples(200))
@given(talks(), st.integers(1, 12))
def test_last_messages_in_whole_turns(talk: Talk, last_n: int) -> None:
    """As the naive model has it: never more, and no turn fewer than fits."""
    expected = naive(talk, lambda messages: len(messages) <= last_n)
    if expected is None and talk.messages:
        with pytest.raises(ContextTooLargeError) as raised:
            growing(Fit(last_n=last_n), talk.messages)
        newest = len(talk.messages) - talk.cuts()[-1]
        assert (raised.value.size, raised.value.limit) == (newest, last_n)
        return

    window, read = growing(Fit(last_n=last_n), talk.messages)

    assert window.start == (expected or 0)
    assert window.tokens is None
    assert read <= max(2, len(talk.messages))


@settings(max_examples=examples(200))
@given(talks(), st.integers(1, 60), st.integers(0, 20))
def test_budget_in_whole_turns(talk: Talk, max_tokens: int, system_tokens: int) -> None:
    """The same for tokens, of which the system prompt takes its share."""
    fit = Fit(max_tokens=max_tokens, system_tokens=system_tokens)
    expected = naive(talk, lambda messages: taken(messages) + system_tokens <= max_tokens)
    if expected is None and talk.messages:
        with pytest.raises(ContextTooLargeError) as raised:
            growing(fit, talk.messages)
        assert raised.value.size == taken(talk.messages[talk.cuts()[-1] :]) + system_tokens > max_tokens
        return
    if not talk.messages and system_tokens > max_tokens:
        with pytest.raises(ContextTooLargeError):
            growing(fit, talk.messages)
        return

    window, _ = growing(fit, talk.messages)

    assert window.start == (expected or 0)
    assert window.tokens == taken(talk.messages[window.start :])


@settings(max_examples=examples(200))
@given(talks(), st.integers(1, 12), st.integers(1, 60))
def test_both_limits_hold(talk: Talk, last_n: int, max_tokens: int) -> None:
    expected = naive(talk, lambda messages: len(messages) <= last_n and taken(messages) <= max_tokens)
    if expected is None and talk.messages:
        with pytest.raises(ContextTooLargeError):
            growing(Fit(last_n=last_n, max_tokens=max_tokens), talk.messages)
        return

    window, _ = growing(Fit(last_n=last_n, max_tokens=max_tokens), talk.messages)

    assert window.start == (expected or 0)


def test_reading_stops_when_there_is_enough() -> None:
    """Not one page further than what shows that the next turn does not fit."""
    messages = [say(number, ("user", "assistant")[number % 2], "x" * 40) for number in range(1_000)]
    for fit in (Fit(last_n=6), Fit(max_tokens=60)):
        window, read = growing(fit, messages)

        assert window.start == 994
        assert read <= 8


def test_a_result_whose_call_is_nowhere_holds_nothing_up() -> None:
    """Its call was hidden, or never stored: once all is read, turns are cut as if it were any message."""
    messages = [say(0, "user"), say(1, "assistant"), say(2, "user"), result(3, "lost", "openai"), say(4, "assistant")]

    assert growing(Fit(last_n=3), messages)[0].start == 2


@pytest.mark.parametrize("shape", SHAPES)
def test_a_late_result_keeps_the_turns_together(shape: str) -> None:
    """The user said more before the tool answered: the turn of the call and that of the result come together, or not at all."""
    messages = [say(0, "user"), call(1, "a", shape), say(2, "user"), result(3, "a", shape), say(4, "user")]

    assert list(turn_starts(messages, is_whole=True)) == [4, 0]
    assert growing(Fit(last_n=4), messages)[0].start == 4


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "3"])
@pytest.mark.parametrize("name", ["last_n", "max_tokens"])
def test_limits_are_whole_numbers_from_one(name: str, limit: Any) -> None:
    with pytest.raises(InvalidValueError, match=name):
        Fit(**{name: limit})


def test_the_counter_must_count() -> None:
    with pytest.raises(InvalidValueError, match="tokenizer"):
        Fit(max_tokens=5, counter=lambda _text: "many").window([say(0, "user")], is_whole=True)  # type: ignore[arg-type,return-value]


def test_a_system_prompt_that_leaves_no_room() -> None:
    with pytest.raises(ContextTooLargeError) as raised:
        Fit(max_tokens=5, system_tokens=6).window([], is_whole=True)
    assert (raised.value.size, raised.value.limit, raised.value.system_tokens) == (6, 5, 6)
