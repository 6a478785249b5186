"""Searched fields of a message: its text, what its tools took and gave, its reasoning."""

import json
from typing import Any, cast

import pytest
from hypothesis import example, given
from tests.support.json_values import json_values

from chatledger.domain.search.fields import FIELDS, field_text, search_texts
from chatledger.domain.values import Message

BASE64 = "iVBORw0KGgo" * 100


def call(**fields: Any) -> dict[str, Any]:
    return {"type": "tool-weather", "toolCallId": "call-1", "state": "output-available", **fields}


def message(*parts: Any) -> dict[str, Any]:
    return {"id": "m1", "role": "assistant", "parts": list(parts)}


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (call(input={"city": "Riga", "days": 3}, output={"sky": ["clear", -1.5]}), "Riga\n3\nclear\n-1.5"),
        (call(input="Riga", output="clear"), "Riga\nclear"),
        (call(input={"flags": [True, False, None]}), None),
        (call(state="output-error", errorText="no such city"), "no such city"),
        (call(state="output-error", rawInput='{"city": Riga', errorText="not JSON"), '{"city": Riga\nnot JSON'),
        (call(input={"city": "Riga"}, rawInput='{"city":  "Riga"}'), "Riga"),
        (call(input={}, output=0), "0"),
        (call(output={"image": BASE64, "alt": "a map"}), "a map"),
        (call(output=f"data:image/png;base64,{BASE64}"), None),
        (call(output="word " * 500), "word " * 500),
        (call(state="output-error", errorText=7), ""),
        ({"type": "dynamic-tool", "toolName": "weather", "input": {"city": "Riga"}}, None),
        ({"type": "tool", "input": "hidden"}, None),
        ({"type": "data-weather", "data": "hidden", "output": "hidden"}, None),
        ({"type": ["tool-x"], "input": "hidden"}, None),
        ({"input": "hidden"}, None),
        ("loose", None),
    ],
)
def test_the_text_of_a_tool_part(part: Any, expected: str | None) -> None:
    """Strings and numbers of input and output in order, and the error; no keys, ids, names, states and no base64."""
    assert ({} if expected is None else {"tools": expected}) == search_texts("ui", message(part), "assistant")


def test_the_text_of_reasoning_parts() -> None:
    """Several are joined by line breaks; those of other forms have none."""
    parts = [{"type": "reasoning", "text": "first"}, {"type": "reasoning", "text": "then", "state": "done"}]

    expected = {"reasoning": "first\nthen", "text": "said"}
    assert expected == search_texts("ui", message(*parts, {"type": "text", "text": "said"}), "assistant")
    assert {} == search_texts("ui", message({"type": "reasoning"}, {"type": "reasoning", "text": 7}), "assistant")


@pytest.mark.parametrize(("length", "is_cut"), [(2000, False), (2001, True)])
def test_of_a_long_output_in_a_transcript_both_ends_are_searched(length: int, *, is_cut: bool) -> None:
    """What was asked of the tool is searched whole, and so are outputs in messages of an API."""
    output = f"began {'word ' * 500}"[: length - 5] + "ended"
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": output}]}
    asked = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {"text": output}}]}
    entries = [{"type": message["role"], "uuid": "u1", "message": message} for message in (result, asked)]
    cut, whole = (search_texts("claude-code", entry, "user")["tools"] for entry in entries)

    assert whole == output == search_texts("anthropic", result, "user")["tools"]
    assert (cut == f"{output[:1000]}\n\u2026\n{output[-1000:]}") is is_cut
    assert (cut == output) is not is_cut


@given(json_values)
@example({"parts": "none"})
@example({"name": "tool", "content": "a result"})
def test_other_data_has_a_text_only(data: Any) -> None:
    """Whatever is in no known form is text."""
    said = Message(id="m", name="tool", data=data, created_at=0)

    assert {*search_texts(None, data, "user")} <= {"text"}
    assert [said.text, "", ""] == [field_text(said, field) for field in FIELDS]


@given(json_values, json_values)
def test_all_strings_and_numbers_of_values_are_there(given_input: Any, output: Any) -> None:
    """In the order of the JSON text."""
    found: list[str] = []

    def leaves(value: Any) -> None:
        if isinstance(value, str) or (isinstance(value, int | float) and not isinstance(value, bool)):
            found.append(value if isinstance(value, str) else json.dumps(value))
        elif isinstance(value, list | dict):
            inner = cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
            for one in inner:
                leaves(one)

    leaves([given_input, output])
    data = message({"type": "text", "text": "said"}, call(input=given_input, output=output))

    said = Message(id="m", name="assistant", data=data, created_at=0, form="ui")

    assert "\n".join(found) == field_text(said, "tools")
    assert "said" == field_text(said, "text") == said.text
