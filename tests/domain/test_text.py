from typing import Any

import pytest
from hypothesis import given
from tests.support.json_values import json_values

from chatledger.domain.forms.detect import form_of
from chatledger.domain.forms.reading import text_of
from chatledger.domain.values import preview

UI = {
    "id": "u1",
    "role": "user",
    "parts": [{"type": "text", "text": "Old"}, {"type": "file", "url": "x"}, {"type": "text", "text": "Town"}],
}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (UI, "Old\nTown"),
        ({"parts": []}, ""),
        ({"parts": "text"}, "text"),
        ({"parts": [{"type": "text"}, {"type": "file"}]}, ""),
        ({"parts": ["x", None]}, "x"),
        ({"b": "one", "a": ["two", {"c": "three"}], "n": 5}, "one\ntwo\nthree"),
        (None, ""),
        (5, ""),
        ([True, "x", None], "x"),
    ],
)
def test_plain_text(data: Any, text: str) -> None:
    """The string; the text parts of a UIMessage by lines; else all strings in order, without keys (PS-41)."""
    assert text == text_of(form_of(data), data)


@pytest.mark.parametrize(
    ("data", "content"),
    [
        ("plain", "plain"),
        ("x" * 50, "x" * 50),
        ("x" * 51, "x" * 50 + "..."),
        ("🦜" * 51, "🦜" * 50 + "..."),
        (UI, "Old Town"),
        (None, "null"),
        (True, "true"),
        ({"a": [1, "é"]}, '{"a":[1,"é"]}'),
        ([], "[]"),
    ],
)
def test_preview(data: Any, content: str) -> None:
    """The string, the text parts joined by a blank, or compact JSON; cut after 50 characters (PS-50)."""
    assert content == preview(data, form_of(data))


@given(json_values)
def test_every_value_has_text_and_preview(data: Any) -> None:
    """No JSON value raises, and a preview is short."""
    assert isinstance(text_of(form_of(data), data), str)
    assert len(preview(data, form_of(data))) <= 53
