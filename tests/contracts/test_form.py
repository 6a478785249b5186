"""The contract of forms holds for those that are built in, and tells what is wrong with another one."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest
from tests.domain.forms.rules_of_frameworks import RULES
from tests.support.soak import examples

from chatledger.domain.forms import openai, reading
from chatledger.domain.forms.openai import OpenAIWriter
from chatledger.forms import Form, WrittenTurn, known_forms, register
from chatledger.testing import check_form


class _Silent(OpenAIWriter):
    """Leaves out what an assistant says, and does not say so."""

    def write(self, turn: WrittenTurn) -> None:
        if turn.role != "assistant":
            super().write(turn)


class _Twice(OpenAIWriter):
    def write(self, turn: WrittenTurn) -> None:
        super().write(turn)
        if turn.role == "user":
            super().write(turn)


class _Swapped(OpenAIWriter):
    """Gives each call the result of another one."""

    def write(self, turn: WrittenTurn) -> None:
        super().write(turn)
        results = [message for message in self.messages if message["role"] == "tool"][
            -len(turn.calls) or len(self.messages) :
        ]
        ids = [message["tool_call_id"] for message in results]
        for message, call_id in zip(results, reversed(ids), strict=True):
            message["tool_call_id"] = call_id


class _Counting(OpenAIWriter):
    """Says in each message how many there are."""

    def write(self, turn: WrittenTurn) -> None:
        super().write(turn)
        self.messages = [{**message, "of": len(self.turns)} for message in self.messages]


def _raising(data: Any, name: str, source: Any) -> Any:
    return [*openai.read(data, name, source)] if data["role"] else []


@pytest.fixture
def registered() -> Iterator[Callable[..., Form]]:
    """Registers a form like OpenAI's, but for what is said."""

    def make(**changes: Any) -> Form:
        return register(msgspec.structs.replace(openai.FORM, name="mine", **changes))

    yield make
    reading._registered.pop("mine", None)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("name", known_forms())
def test_forms_that_are_built_in_keep_it(name: str) -> None:
    check_form(name, rules=_strictly(name) if name in RULES else None, stories=examples(200))


def _strictly(name: str) -> Callable[[list[Any]], Sequence[str]]:
    return lambda messages: RULES[name](messages, may_be_open=False)


def test_a_form_of_ones_own_keeps_it(registered: Callable[..., Form]) -> None:
    check_form(registered(), stories=30)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"write": _Silent}, "are lost"),
        ({"write": _Twice}, "more than once"),
        ({"write": _Swapped}, "results of these calls"),
        ({"write": _Counting}, "is not the beginning of"),
    ],
)
def test_a_fault_is_named(registered: Callable[..., Form], changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(AssertionError, match=fault):
        check_form(registered(**changes))


def test_a_reader_must_not_raise(registered: Callable[..., Form]) -> None:
    with pytest.raises((TypeError, KeyError)):
        check_form(registered(read=_raising))


def test_what_the_framework_refuses_is_named(registered: Callable[..., Form]) -> None:
    with pytest.raises(AssertionError, match="too many"):
        check_form(registered(), rules=lambda messages: ["too many"] if len(messages) > 3 else [])


def test_a_form_is_registered_first() -> None:
    with pytest.raises(AssertionError, match="register"):
        check_form(msgspec.structs.replace(openai.FORM, name="nobody's"))
