"""Estimates: tokens and cost of what a model is given."""

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.in_form import in_form
from tests.support.json_values import texts

from chatledger.domain.context.estimate import Estimate, ModelInfo, estimate, rough_tokens
from chatledger.domain.context.fragments import Fragment
from chatledger.domain.context.messages import last_assistant_message
from chatledger.domain.errors import InvalidValueError, MissingCodecError, ModelNotFoundError
from chatledger.domain.values import Message, NewMessage
from chatledger.infra.ledger.drafts import assistant, user

MODELS = {
    "small": ModelInfo(provider="openai", input_price=0.5, context=10, output=5),
    "free": ModelInfo(provider="local", input_price=0, context=100, output=50),
}


def characters(text: str) -> int:
    return len(text)


def tagged(fragment: Fragment) -> str:
    return f"<{fragment.name}>{fragment.data}</{fragment.name}>"


def estimated(*fragments: Any, model_id: str = "small", tokenizer: Callable[[str], int] = characters) -> Estimate:
    return estimate(fragments, model_id, models=MODELS, tokenizer=tokenizer, render=tagged)


def counted_text(message: Any) -> str:
    """The text of a message that the tokenizer is given."""
    seen: list[str] = []

    def noted(text: str) -> int:
        seen.append(text)
        return len(text)

    estimated(message, tokenizer=noted)
    return seen[0]


def test_the_shape_is_that_of_the_requirement() -> None:
    """CE-29: model, provider, tokens, cost, limits, and each fragment, as JSON values."""
    found = estimated(Fragment("hint", "Use UTC", id="h"), user("Hello", id="m1"))

    assert {
        "model": "small",
        "provider": "openai",
        "tokens": 25,
        "cost": 25 / 1_000_000 * 0.5,
        "limits": {"context": 10, "output": 5, "exceeds_context": True},
        "fragments": [
            {"id": "h", "name": "hint", "tokens": 20, "cost": 20 / 1_000_000 * 0.5},
            {"id": "m1", "name": "user", "tokens": 5, "cost": 5 / 1_000_000 * 0.5},
        ],
    } == msgspec.to_builtins(found)
    assert found == msgspec.json.decode(msgspec.json.encode(found), type=Estimate)


@given(st.lists(texts, max_size=5))
def test_the_whole_is_the_sum(contents: list[str]) -> None:
    """Tokens and cost are those of the fragments, in their order, and each is counted alone."""
    found = estimated(*(Fragment("hint", text, id=str(place)) for place, text in enumerate(contents)))

    assert [str(place) for place in range(len(contents))] == [one.id for one in found.fragments]
    assert [len(text) + len("<hint></hint>") for text in contents] == [one.tokens for one in found.fragments]
    assert found.tokens == sum(one.tokens for one in found.fragments)
    assert math.isclose(found.cost, math.fsum(one.cost for one in found.fragments))


@pytest.mark.parametrize(("length", "exceeds"), [(9, False), (10, False), (11, True)])
def test_a_context_window_may_be_full(length: int, exceeds: bool) -> None:  # noqa: FBT001 - a case of the table
    assert exceeds is estimated(user("x" * length)).limits.exceeds_context


def test_a_free_model_costs_nothing() -> None:
    assert 0.0 == estimated(user("Hello"), model_id="free").cost


def test_an_unknown_model_is_refused() -> None:
    """The error names it; no price is looked up anywhere else."""
    with pytest.raises(ModelNotFoundError, match="'large'") as caught:
        estimated(user("Hello"), model_id="large")

    assert "large" == caught.value.model_id


@pytest.mark.parametrize("model_id", [None, 5, ["small"]])
def test_the_name_of_a_model_is_text(model_id: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"^model_id must be text"):
        estimated(user("Hello"), model_id=model_id)


CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Riga"}'}}
RESULT = {
    "type": "tool-weather",
    "toolCallId": "c",
    "state": "output-available",
    "input": {"x": 1},
    "output": {"c": 12},
}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (user("Hello"), "Hello"),
        (NewMessage("user", "Hello", id="m"), "Hello"),
        (Message(id="m", name="user", data="Hello", created_at=0), "Hello"),
        (NewMessage("user", {"city": "Rīga"}, id="m"), '{"city":"Rīga"}'),
        (NewMessage("user", None, id="m"), ""),
        (in_form("openai", {"role": "assistant", "content": "Let me look.", "tool_calls": [CALL]}), 'Let me look.\nweather\n{"city": "Riga"}'),
        (in_form("openai", {"role": "assistant", "content": None, "tool_calls": [{"odd": 1}]}), '{"odd":1}'),
        (assistant({"role": "assistant", "parts": [RESULT, {"type": "text", "text": "12"}]}), 'weather\n{"x":1}\n{"c":12}\n12'),
        (assistant({"role": "assistant", "parts": [{"type": "reasoning", "text": "hm"}, {"type": "data-x", "data": "no"}]}), "hm"),
        (user({"role": "user", "parts": [{"type": "source-url", "url": "no"}, {"type": "text", "text": 1}, "no"]}), ""),
    ],
    ids=["text", "new", "stored", "json", "none", "call", "odd call", "result", "reasoning", "nothing"],
)  # fmt: skip
def test_a_message_is_counted_by_what_a_model_reads(message: Any, expected: str) -> None:
    """Not by ids, keys and metadata of the stored form."""
    assert expected == counted_text(message)


@pytest.mark.parametrize(
    ("part", "uncounted"),
    [
        ({"type": "file", "mediaType": "image/png", "url": "data:image/png;base64," + "A" * 1000}, 1),
        ({"type": "data-openai", "data": {"type": "video_url"}}, 1),
        ({"type": "data-langchain", "data": {"type": "tool_use"}}, 0),
        ({"type": "data-weather", "data": {"c": 12}}, 0),
    ],
    ids=["file", "verbatim", "call among content", "data"],
)
def test_what_is_no_text_is_not_counted_as_text(part: dict[str, Any], uncounted: int) -> None:
    """The Base64 of an image is not what it costs; how many such parts there are is said instead."""
    (found,) = estimated(user({"role": "user", "parts": [part, {"type": "text", "text": "what?"}]})).fragments

    assert (5, uncounted) == (found.tokens, found.uncounted)
    assert ("uncounted" in msgspec.to_builtins(found)) is bool(uncounted)


def test_a_lazy_fragment_is_refused() -> None:
    with pytest.raises(MissingCodecError):
        estimated(last_assistant_message("fixed"))


@pytest.mark.parametrize("wrong", [1.5, -1, None, True, [1, 2]])
def test_a_tokenizer_gives_numbers(wrong: Any) -> None:
    """A list of tokens, which encoders give, is not their number."""
    with pytest.raises(InvalidValueError, match="tokenizer"):
        estimated(user("Hello"), tokenizer=lambda text: wrong)


@pytest.mark.parametrize(
    "fields",
    [{"input_price": -1}, {"input_price": math.inf}, {"input_price": math.nan}, {"input_price": "1"}, {"context": -1}, {"output": 1.5}],
    ids=["negative", "infinite", "nan", "text", "context", "output"],
)  # fmt: skip
def test_a_price_table_is_checked(fields: dict[str, Any]) -> None:
    valid: dict[str, Any] = {"provider": "p", "input_price": 1.0, "context": 1, "output": 1}
    with pytest.raises(InvalidValueError, match=next(iter(fields))):
        ModelInfo(**(valid | fields))


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0), ("a", 1), ("four", 1), ("five!", 2), ("🎉🎉🎉🎉", 1), ("ēēēēē", 2)]
)
def test_rough_tokens_are_a_quarter_of_the_characters(text: str, expected: int) -> None:
    """Code points, not bytes, rounded up."""
    assert expected == rough_tokens(text)
