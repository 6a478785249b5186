"""Readers read whatever they are given: a message may be said to be of a form that it is not of."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.json_values import json_values
from tests.support.soak import examples

from chatledger.domain.context.in_forms import MessageInHand
from chatledger.domain.forms.reading import known_form, known_forms, parts_of, role_of, text_of
from chatledger.domain.forms.translate import translate
from chatledger.domain.search.fields import search_texts

keys = st.sampled_from(
    [
        "type",
        "role",
        "content",
        "parts",
        "tool_calls",
        "output",
        "summary",
        "source",
        "text",
        "state",
        "toolCallId",
        "input",
    ]
)
kinds = st.sampled_from(
    [
        "text", "image", "document", "tool_use", "tool_result", "thinking", "message", "function_call", "refusal",
        "function_call_output", "reasoning", "tool-x", "dynamic-tool", "file", "input_text", "image_url",
    ]
)  # fmt: skip
shapes = st.recursive(
    json_values | kinds,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=8,
)


@given(data=st.dictionaries(keys, shapes, max_size=4) | shapes)
@settings(max_examples=examples(500))
def test_nothing_raises(data: Any) -> None:
    for form in (*known_forms(), "acme", None):
        assert isinstance(text_of(form, data), str), form
        assert isinstance(parts_of(form, data), list), form
        assert isinstance(role_of(form, data), str), form
        assert isinstance(search_texts(form, data, "user"), dict), form


WRITTEN = [name for name in known_forms() if (known := known_form(name)) is not None and known.write is not None]


@given(data=st.lists(st.dictionaries(keys, shapes, max_size=4), min_size=1, max_size=2))
@settings(max_examples=examples(500))
def test_nothing_keeps_a_chain_from_being_told(data: list[Any]) -> None:
    """Also where it is said to be of the form that the chain is told in, and something else is not."""
    for form in WRITTEN:
        said = [MessageInHand(f"m{place}", "user", form, value) for place, value in enumerate(data)]
        chain = [MessageInHand("", "user", None, "Hello"), *said]
        assert isinstance(translate(chain, form, open_calls="keep").messages, list), form
