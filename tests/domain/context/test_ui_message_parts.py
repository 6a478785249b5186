"""
The parts that UIMessages of version 7 of the npm package `ai` have: stored as they came, with the right text, and for models.

The shapes are those of `src/ui/ui-messages.ts` of `ai` 7.0.173.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.json_values import json_values, objects, texts
from tests.support.soak import examples

import chatledger
from chatledger.codecs import to_anthropic, to_google, to_langchain, to_openai, to_responses

PNG = "data:image/png;base64,AAAA"

Values = st.SearchStrategy[Any]


def shape(part_type: str, optional: dict[str, Values] | None = None, /, **fields: Values) -> Values:
    return st.fixed_dictionaries({"type": st.just(part_type), **fields}, optional=optional or {})


metadata: dict[str, Values] = {"providerMetadata": st.dictionaries(texts, objects, max_size=2)}
progress: dict[str, Values] = {"state": st.sampled_from(["streaming", "done"])}
said = shape("text", {**metadata, **progress, "citations": st.lists(objects, max_size=2)}, text=texts)
files = shape(
    "file",
    {**metadata, "filename": texts, "providerReference": st.dictionaries(texts, texts, max_size=2)},
    mediaType=st.sampled_from(["image", "image/png", "audio", "application/pdf"]),
    url=st.sampled_from([PNG, "https://example.com/a"]),
)
approval = st.fixed_dictionaries(
    {"id": texts, "approved": st.booleans()},
    optional={"reason": texts, "requestReason": texts, "isAutomatic": st.booleans(), "inputSchemaInput": json_values},
)
call: dict[str, Values] = {
    "title": texts,
    "toolMetadata": objects,
    "providerExecuted": st.booleans(),
    "input": json_values,
    "rawInput": json_values,
    "inputEncoding": st.sampled_from(["json", "text"]),
    "output": json_values,
    "errorText": texts,
    "preliminary": st.booleans(),
    "callProviderMetadata": objects,
    "resultProviderMetadata": objects,
    "approval": approval,
}
states = st.sampled_from(
    [
        "input-streaming", "input-available", "approval-requested", "approval-responded", "output-available", "output-error",
        "output-denied",
    ]
)  # fmt: skip
parts = st.one_of(
    said,
    shape("custom", metadata, kind=st.just("openai.compaction")),
    shape("reasoning", {**metadata, **progress, "id": texts}, text=texts),
    shape("tool-weather", call, toolCallId=texts, state=states),
    shape(
        "dynamic-tool", {**call, "dynamic": st.sampled_from([False])}, toolName=texts, toolCallId=texts, state=states
    ),
    shape("source-url", {**metadata, "title": texts}, sourceId=texts, url=texts),
    shape("source-document", {**metadata, "filename": texts}, sourceId=texts, mediaType=texts, title=texts),
    files,
    shape("reasoning-file", metadata, mediaType=texts, url=texts),
    shape("data-weather", {"id": texts}, data=json_values),
    shape("steering-message", id=texts, parts=st.lists(said | files, max_size=2)),
    shape("step-start"),
)


@given(role=st.sampled_from(["system", "user", "assistant"]), kept=st.lists(parts, max_size=4), about=objects)
@settings(max_examples=examples(100))
def test_nothing_is_lost(role: str, kept: list[Any], about: dict[str, Any]) -> None:
    message = {"id": "m1", "role": role, "metadata": about, "parts": kept}
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", message)
        stored = ledger.get_messages("c")

    assert [message] == [one.data for one in stored]
    texts = [one for part in kept for one in (part["parts"] if part["type"] == "steering-message" else [part])]
    assert ["\n".join(part["text"] for part in texts if part["type"] == "text")] == [one.text for one in stored]
    for convert in (to_openai, to_responses, to_anthropic, to_google, to_langchain):
        assert isinstance(convert(stored), list)


def paragraph(text: str, item: str, secret: str | None) -> dict[str, Any]:
    given = {"itemId": item, "reasoningEncryptedContent": secret}
    return {"type": "reasoning", "text": text, "state": "done", "providerMetadata": {"openai": given}}


def test_the_paragraphs_of_a_summary_are_one_item() -> None:
    """The API refuses two items with one id. What is encrypted may come with the last paragraph only."""
    message = {
        "id": "m1",
        "role": "assistant",
        "parts": [
            paragraph("The coast.", "rs_1", None),
            paragraph("The wind.", "rs_1", "gAAA"),
            paragraph("So?", "rs_2", "gBBB"),
        ],
    }

    first, second = to_responses([message])
    assert {
        "type": "reasoning",
        "id": "rs_1",
        "encrypted_content": "gAAA",
        "summary": [
            {"type": "summary_text", "text": "The coast."},
            {"type": "summary_text", "text": "The wind."},
        ],
    } == first
    assert "rs_2" == second["id"]


def test_a_summary_may_be_odd() -> None:
    """Somebody stored an item whose summary is no list, and another part under its id."""
    odd = paragraph("", "rs_1", None)
    odd["providerMetadata"]["chatledger"] = {"responses": {"item": {"summary": 5}}}
    message = {"id": "m1", "role": "assistant", "parts": [odd, paragraph("The wind.", "rs_1", None)]}

    assert [[{"type": "summary_text", "text": "The wind."}]] == [item["summary"] for item in to_responses([message])]


STEERED: dict[str, Any] = {
    "id": "m1",
    "role": "assistant",
    "parts": [
        {"type": "step-start"},
        {"type": "text", "text": "In Fahrenheit:"},
        {
            "type": "tool-weather",
            "toolCallId": "c1",
            "state": "output-available",
            "input": {"city": "Riga"},
            "output": "39 °F",
        },
        {"type": "steering-message", "id": "s1", "parts": [{"type": "text", "text": "Celsius, please"}]},
        {"type": "step-start"},
        {"type": "text", "text": "4 °C."},
    ],
}


@pytest.mark.parametrize("convert", [to_openai, to_responses, to_anthropic, to_google, to_langchain])
def test_a_steering_message_is_from_the_user(convert: Callable[[Any], list[Any]]) -> None:
    """It stands where the user said it: after the step before it, and before the answer to it."""
    told = [str(message) for message in convert([STEERED])]
    places = [next(i for i, one in enumerate(told) if text in one) for text in ("39 °F", "Celsius, please", "4 °C.")]

    assert places == [len(told) - 3, len(told) - 2, len(told) - 1]
    (alone,) = convert([{"role": "user", "parts": [{"type": "text", "text": "Celsius, please"}]}])
    assert getattr(alone, "type", "user") in {"human", "user"}
    said = convert([STEERED])[-2]
    assert said == alone or (said.type, said.content) == (alone.type, alone.content)


def test_messages_of_langchain_have_distinct_ids() -> None:
    assert ["m1", "m1#1", "m1#2", "m1#3"] == [message.id for message in to_langchain([STEERED])]


def test_an_image_may_have_half_a_media_type() -> None:
    message = ("user", {"id": "m1", "role": "user", "parts": [{"type": "file", "mediaType": "image", "url": PNG}]})

    assert ["image_url"] == [block["type"] for block in to_openai([message])[0]["content"]]
    assert ["input_image"] == [block["type"] for block in to_responses([message])[0]["content"]]
    assert ["image"] == [block["type"] for block in to_anthropic([message])[0]["content"]]
    content: Any = to_langchain([message])[0].content
    assert ["image"] == [block["type"] for block in content]
    assert [{"inlineData": {"mimeType": "image/png", "data": "AAAA"}}] == to_google([message])[0]["parts"]


def test_audio_may_have_half_a_media_type() -> None:
    part = {"type": "file", "mediaType": "audio", "url": "data:audio/wav;base64,AAAA"}
    message = ("user", {"id": "m1", "role": "user", "parts": [part]})

    assert [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}] == to_openai([message])[0][
        "content"
    ]


def test_an_uploaded_file_is_named_to_each_provider() -> None:
    """The reference to a provider goes before the address, for this provider; for others there is the address."""
    uploaded = {"openai": "file-1", "anthropic": "file_a", "google": "https://files/abc"}
    part = {"type": "file", "mediaType": "application/pdf", "url": "https://x/a.pdf", "providerReference": uploaded}
    message = ("user", {"id": "m1", "role": "user", "parts": [part]})
    other = ("user", {"id": "m1", "role": "user", "parts": [part | {"providerReference": {"acme": "1"}}]})

    assert [{"type": "file", "file": {"file_id": "file-1"}}] == to_openai([message])[0]["content"]
    assert [{"type": "input_file", "file_id": "file-1"}] == to_responses([message])[0]["content"]
    assert {"type": "file", "file_id": "file_a"} == to_anthropic([message])[0]["content"][0]["source"]
    assert "https://files/abc" == to_google([message])[0]["parts"][0]["fileData"]["fileUri"]
    assert [{"type": "input_file", "file_url": "https://x/a.pdf"}] == to_responses([other])[0]["content"]
    assert {"type": "url", "url": "https://x/a.pdf"} == to_anthropic([other])[0]["content"][0]["source"]
    assert "https://x/a.pdf" == to_google([other])[0]["parts"][0]["fileData"]["fileUri"]


def test_a_call_that_failed_has_what_the_model_wrote() -> None:
    failed = {"type": "tool-weather", "toolCallId": "c1", "state": "output-error", "errorText": "no such city"}
    message = {"id": "m1", "role": "assistant", "parts": [failed | {"rawInput": {"city": "Rga"}}]}

    assert '{"city":"Rga"}' == to_openai([message])[0]["tool_calls"][0]["function"]["arguments"]
    assert '{"city":"Rga"}' == to_responses([message])[0]["arguments"]
    assert {"city": "Rga"} == to_anthropic([message])[0]["content"][0]["input"]
    assert {"city": "Rga"} == to_google([message])[0]["parts"][0]["functionCall"]["args"]
    answer: Any = to_langchain([message])[0]
    assert {"city": "Rga"} == answer.tool_calls[0]["args"]
