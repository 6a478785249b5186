"""The form of a message, told by its shape."""

from pkgutil import resolve_name
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.json_values import json_values

from chatledger.domain.forms.detect import API_FORMS, form_of

USE = {"type": "tool_use", "id": "t", "name": "weather", "input": {}}
PNG = {"type": "base64", "media_type": "image/png", "data": "AA=="}


@pytest.mark.parametrize(
    ("data", "form"),
    [
        ({"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]}, "ui"),
        ({"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}], "content": "hi"}, "ui"),
        ({"role": "assistant", "parts": []}, "ui"),
        ({"parts": [{"type": "text", "text": "hi"}]}, "ui"),
        ({"role": "user", "parts": [{"text": "hi"}]}, "google"),
        ({"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {}}}]}, "google"),
        ({"role": "function", "parts": [{"function_response": {"name": "w", "response": {}}}]}, "google"),
        ({"parts": [{"text": "hi"}]}, "google"),
        ({"type": "user", "uuid": "u", "sessionId": "s", "message": {"role": "user", "content": "hi"}}, "claude-code"),
        ({"type": "assistant", "uuid": "u", "message": {"role": "assistant", "content": [USE]}}, "claude-code"),
        ({"type": "custom-title", "customTitle": "Trip", "sessionId": "s"}, "claude-code"),
        ({"role": "assistant", "content": [{"type": "text", "text": "hm"}, USE]}, "anthropic"),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "rain"}]}, "anthropic"),
        ({"role": "user", "content": [{"type": "image", "source": PNG}]}, "anthropic"),
        ({"role": "user", "content": [{"type": "document", "source": PNG}]}, "anthropic"),
        ({"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]}, "anthropic"),
        ({"role": "assistant", "content": [{"type": "mcp_tool_use", "id": "t"}]}, "anthropic"),
        ({"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {}}]}, "anthropic"),
        ({"role": "assistant", "content": [{"type": "text", "text": "hi", "citations": []}]}, "anthropic"),
        ({"type": "message", "role": "assistant", "stop_reason": "end_turn", "content": []}, "anthropic"),
        ({"type": "message", "role": "user", "content": "hi"}, "responses"),
        ({"role": "user", "content": [{"type": "input_text", "text": "hi"}]}, "responses"),
        ({"role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}, "responses"),
        ({"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"}, "responses"),
        ({"type": "reasoning", "id": "r", "summary": []}, "responses"),
        ({"type": "mcp_call", "id": "c", "name": "w", "arguments": "{}", "server_label": "s"}, "responses"),
        ({"role": "user", "content": "hi"}, "openai"),
        ({"role": "assistant", "content": None, "tool_calls": []}, "openai"),
        ({"role": "assistant", "tool_calls": []}, "openai"),
        ({"role": "tool", "tool_call_id": "c", "content": "rain"}, "openai"),
        ({"role": "user", "content": [{"type": "text", "text": "hi"}]}, "openai"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "openai"),
        ({"type": "human", "data": {"content": "hi"}}, "langchain"),
        ({"role": "user"}, None),
        ({"name": "hint", "data": "Use UTC"}, None),
        ({"type": "opened", "at": 1}, None),
        ({"type": "poem", "uuid": "u"}, None),
        ({"parts": "none"}, None),
        ({"role": "user", "parts": ["hi"]}, None),
        ({"role": "planner", "parts": [{"text": "hi"}]}, None),
        ({"type": ["message"], "role": ["user"], "content": [{"type": []}]}, None),
        ("hi", None),
        (None, None),
        ([{"role": "user", "content": "hi"}], None),
    ],
)
def test_the_form_follows_from_the_shape(data: Any, form: str | None) -> None:
    """The first row of the table that fits counts; what no row fits is any JSON."""
    assert form == form_of(data)
    assert form is None or form in API_FORMS


fields = st.dictionaries(
    st.sampled_from(["type", "role", "content", "parts", "data", "uuid", "message", "tool_calls", "x"]),
    json_values | st.lists(st.dictionaries(st.sampled_from(["type", "text", "citations"]), json_values, max_size=2)),
    max_size=4,
)


@given(json_values | fields)
def test_whatever_is_asked_is_answered(data: Any) -> None:
    """Nothing raises; a form is told of objects alone."""
    assert form_of(data) is None or isinstance(data, dict)


def types_of(union: Any) -> set[str]:
    """The values that `type` has in a union of `TypedDict`s."""
    found: set[str] = set()
    for member in get_args(union):
        hints = get_type_hints(member)
        kind = hints.get("type")
        while kind is not None and get_origin(kind) is not Literal:
            kind = next((one for one in get_args(kind) if one is not type(None)), None)
        found |= set(get_args(kind))
    return found


@pytest.mark.xdist_group("sdks")
def test_the_table_has_all_types_of_the_sdks() -> None:
    """A block or an item that an SDK knows is told; when this fails, the table is older than the SDK."""
    blocks = types_of(resolve_name("anthropic.types:ContentBlockParam")) - {"text"}
    items = types_of(resolve_name("openai.types.responses:ResponseInputItemParam")) - {"message"}

    assert {"tool_use", "search_result"} <= blocks
    assert {"function_call", "compaction"} <= items
    assert {"anthropic"} == {form_of({"role": "user", "content": [{"type": kind}]}) for kind in blocks}
    assert {"responses"} == {form_of({"type": kind}) for kind in items}
