"""The rules themselves: they take what the providers' own documents show, and refuse what providers refused in public threads."""

from typing import Any

import pytest
from tests.domain.forms.rules import DUMMY_SIGNATURE, broken_rules

pytestmark = pytest.mark.guard

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
Json = dict[str, Any]


def openai_call(*ids: Any, name: str = "weather", content: Any = None) -> Json:
    calls = [{"id": call, "type": "function", "function": {"name": name, "arguments": "{}"}} for call in ids]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def openai_result(call: str, content: Any = "rain") -> Json:
    return {"role": "tool", "tool_call_id": call, "content": content}


def function_call(call: str, **more: Any) -> Json:
    return {"type": "function_call", "call_id": call, "name": "weather", "arguments": "{}"} | more


def function_output(call: str, output: Any = "rain") -> Json:
    return {"type": "function_call_output", "call_id": call, "output": output}


def reasoning(name: str = "rs_1") -> Json:
    return {"type": "reasoning", "id": name, "summary": [], "encrypted_content": "gAAA"}


def message(role: str, *content: Any) -> Json:
    return {"role": role, "content": content[0] if len(content) == 1 and isinstance(content[0], str) else list(content)}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def tool_use(call: str, name: str = "weather") -> Json:
    return {"type": "tool_use", "id": call, "name": name, "input": {"city": "Oslo"}}


def tool_result(call: str, content: Any = "rain", **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": call, "content": content} | more


def thinking(signature: str = "EqQB") -> Json:
    return {"type": "thinking", "thinking": "hm", "signature": signature}


def search(call: str = "srvtoolu_1") -> Json:
    return {"type": "server_tool_use", "id": call, "name": "web_search", "input": {"query": "rain"}}


def search_result(call: str = "srvtoolu_1") -> Json:
    return {"type": "web_search_tool_result", "tool_use_id": call, "content": []}


IMAGE: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


def content(role: str | None, *parts: Json) -> Json:
    return ({"role": role} if role else {}) | {"parts": list(parts)}


def google_call(name: str = "weather", *, signature: str | None = DUMMY_SIGNATURE, **more: Any) -> Json:
    call: Json = {"functionCall": {"name": name, "args": {}} | more}
    return call | ({"thoughtSignature": signature} if signature else {})


def google_result(name: str = "weather", **more: Any) -> Json:
    return {"functionResponse": {"name": name, "response": {"output": "rain"}} | more}


def ui(name: str, role: str, *parts: Json) -> Json:
    return {"id": name, "role": role, "parts": list(parts)}


def tool_part(call: str, state: str = "output-available", **more: Any) -> Json:
    part = {"type": "dynamic-tool", "toolName": "weather", "toolCallId": call, "state": state, "input": {}}
    return part | ({"output": "rain"} if state == "output-available" else {}) | more


HI = message("user", "hi")
GOOGLE_HI = content("user", {"text": "hi"})
UI_HI = ui("m1", "user", text("hi"))
STEP: Json = {"type": "step-start"}

RIGHT: dict[str, tuple[str, list[Json]]] = {
    "openai, a question": ("openai", [message("system", "be brief"), HI, message("assistant", "hello")]),
    "openai, parallel calls": ("openai", [HI, openai_call("a", "b"), openai_result("b"), openai_result("a"), HI]),
    "openai, two steps": ("openai", [openai_call("a"), openai_result("a"), openai_call("b"), openai_result("b")]),
    "openai, empty text beside calls": ("openai", [openai_call("a", content=""), openai_result("a", "")]),
    "openai, a refusal": ("openai", [HI, {"role": "assistant", "content": None, "refusal": "no"}]),
    "openai, an image": (
        "openai",
        [message("user", {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}})],
    ),
    "openai, a custom call": (
        "openai",
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "sql", "input": "x"}}],
            },
            openai_result("a"),
        ],
    ),
    "responses, parallel calls": (
        "responses",
        [HI, function_call("a"), function_call("b"), function_output("b"), function_output("a")],
    ),
    "responses, words between call and output": ("responses", [function_call("a"), HI, function_output("a")]),
    "responses, a pair": ("responses", [HI, reasoning(), function_call("a", id="fc_1"), function_output("a")]),
    "responses, reasoning twice": ("responses", [reasoning("rs_1"), reasoning("rs_2"), message("assistant", "hello")]),
    "responses, an answer": (
        "responses",
        [
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "hello", "annotations": []}],
            }
        ],
    ),
    "responses, an image of a tool": (
        "responses",
        [
            function_call("a"),
            function_output(
                "a", [{"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"}]
            ),
        ],
    ),
    "anthropic, parallel calls": (
        "anthropic",
        [
            HI,
            message("assistant", thinking(), text("so"), tool_use("a"), tool_use("b")),
            message("user", tool_result("b"), tool_result("a", [text("x"), IMAGE]), text("and?")),
            message("assistant", "rain"),
        ],
    ),
    "anthropic, one answer in two messages": (
        "anthropic",
        [
            HI,
            message("assistant", tool_use("a")),
            message("assistant", tool_use("b")),
            message("user", tool_result("a"), tool_result("b")),
        ],
    ),
    "anthropic, a search": ("anthropic", [HI, message("assistant", search(), search_result(), text("rain"))]),
    "anthropic, an error": (
        "anthropic",
        [message("assistant", tool_use("a")), message("user", tool_result("a", [text("no")], is_error=True))],
    ),
    "google, parallel calls": (
        "google",
        [
            GOOGLE_HI,
            content("model", {"text": "so"}, google_call(), google_call("time", signature=None)),
            content("user", google_result("time"), google_result()),
            content("model", {"text": "rain"}),
        ],
    ),
    "google, calls with ids": (
        "google",
        [GOOGLE_HI, content("model", google_call(id="a")), content("user", google_result(id="a"))],
    ),
    "google, two steps": (
        "google",
        [
            GOOGLE_HI,
            content("model", google_call()),
            content("user", google_result()),
            content("model", google_call()),
            content("user", google_result()),
        ],
    ),
    "google, a signature in a part of no text": (
        "google",
        [GOOGLE_HI, content("model", {"text": "so"}, {"text": "", "thoughtSignature": "AAAA"})],
    ),
    "ui, an answer of two steps": (
        "ui",
        [UI_HI, ui("m2", "assistant", STEP, text("so"), tool_part("a"), tool_part("b"), STEP, text("rain"))],
    ),
    "ui, an error": ("ui", [UI_HI, ui("m2", "assistant", STEP, tool_part("a", "output-error", errorText="no"))]),
    "ui, a file": (
        "ui",
        [
            ui(
                "m1",
                "user",
                text("see"),
                {"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{PNG}"},
            )
        ],
    ),
}

WRONG: dict[str, tuple[str, str, list[Json]]] = {
    # form, a word of what is said, messages
    "openai#873: a message for each call": (
        "openai",
        "no result",
        [openai_call("a"), openai_call("b"), openai_result("a"), openai_result("b")],
    ),
    "words between call and result (openai)": ("openai", "no result", [openai_call("a"), HI, openai_result("a")]),
    "a stray result (openai)": ("openai", "answers no call", [HI, openai_result("a")]),
    "a second result (openai)": (
        "openai",
        "answers no call",
        [openai_call("a"), openai_result("a"), openai_result("a")],
    ),
    "an open call (openai)": ("openai", "have no result", [openai_call("a")]),
    "an id that repeats (openai)": (
        "openai",
        "2 times",
        [openai_call("weather", "weather"), openai_result("weather"), openai_result("weather")],
    ),
    "an id of 41 letters (agno#5382)": ("openai", "id 'x", [openai_call("x" * 41), openai_result("x" * 41)]),
    "no id (openai)": ("openai", "type", [openai_call(None)]),
    "tool_calls of nothing": ("openai", "is empty", [{"role": "assistant", "content": "x", "tool_calls": []}]),
    "an answer of nothing (openai)": ("openai", "nothing", [HI, message("assistant", "")]),
    "content of nothing (openai)": ("openai", "nothing", [{"role": "user", "content": []}]),
    "Gemini's name (openai)": ("openai", "name", [openai_call("a", name="my.tool"), openai_result("a")]),
    "a name with a space": ("openai", "name", [{"role": "user", "content": "x", "name": "Ada L"}]),
    "an image as a result (openai)": (
        "openai",
        "type",
        [openai_call("a"), openai_result("a", [{"type": "image_url", "image_url": {"url": "https://x.org/a.png"}}])],
    ),
    "a role that is none (openai)": ("openai", "role", [message("critic", "x")]),
    "calls of a user": ("openai", "calls of", [openai_call("a") | {"role": "user"}, openai_result("a")]),
    "an output without call (AgentTeams#299)": ("responses", "no call before", [HI, function_output("a")]),
    "an output before its call": ("responses", "no call before", [function_output("a"), function_call("a")]),
    "a call without output (req_llm#454)": ("responses", "without output", [function_call("a"), HI]),
    "a second output": ("responses", "or has one", [function_call("a"), function_output("a"), function_output("a")]),
    "one id of two calls (responses)": (
        "responses",
        "2 times",
        [function_call("a"), function_output("a"), function_call("a")],
    ),
    "an id of 65 letters (Roo-Code#10763)": (
        "responses",
        "id 'x",
        [function_call("x" * 65), function_output("x" * 65)],
    ),
    "input_text of the assistant (rust-genai#119)": (
        "responses",
        "input_text of",
        [message("assistant", {"type": "input_text", "text": "x"})],
    ),
    "reasoning at the end (vercel/ai#7099)": ("responses", "reasoning", [HI, reasoning()]),
    "reasoning before words of a user": ("responses", "reasoning", [reasoning(), HI]),
    "an id of other API (inspect_ai#1545)": ("responses", "id 'call_1'", [function_call("a", id="call_1")]),
    "an item twice": ("responses", "items of one id", [reasoning(), message("assistant", "x"), reasoning(), HI]),
    "a message of nothing (responses)": ("responses", "nothing", [message("user", "")]),
    "text behind a call (mecatl#1465)": (
        "anthropic",
        "behind a tool_use",
        [HI, message("assistant", tool_use("a"), text("so")), message("user", tool_result("a"))],
    ),
    "text between calls (litellm#22947)": (
        "anthropic",
        "behind a tool_use",
        [
            HI,
            message("assistant", tool_use("a")),
            message("assistant", text("so"), tool_use("b")),
            message("user", tool_result("a"), tool_result("b")),
        ],
    ),
    "text before results (hermes-agent#65369)": (
        "anthropic",
        "before a tool_result",
        [message("assistant", tool_use("a")), message("user", text("so"), tool_result("a"))],
    ),
    "results of two messages (picoclaw)": (
        "anthropic",
        "no result",
        [
            message("assistant", tool_use("a"), tool_use("b")),
            message("user", tool_result("a")),
            message("user", tool_result("b")),
        ],
    ),
    "words between call and result (anthropic)": (
        "anthropic",
        "no result",
        [message("assistant", tool_use("a")), HI, message("user", tool_result("a"))],
    ),
    "one result twice (anthropic)": (
        "anthropic",
        "answers no call",
        [message("assistant", tool_use("a")), message("user", tool_result("a"), tool_result("a"))],
    ),
    "an id with a colon (langchain#37756)": (
        "anthropic",
        "id 'functions.Bash:0'",
        [message("assistant", tool_use("functions.Bash:0")), message("user", tool_result("functions.Bash:0"))],
    ),
    "an id of two turns (cua#524)": (
        "anthropic",
        "2 times",
        [message("assistant", tool_use("a")), message("user", tool_result("a"))] * 2,
    ),
    "a blank text (anthropic-sdk-python#461)": ("anthropic", "blank", [HI, message("assistant", text(" "), text("x"))]),
    "an empty text beside a call (claude-code#59812)": (
        "anthropic",
        "blank",
        [HI, message("assistant", text(""), tool_use("a")), message("user", tool_result("a"))],
    ),
    "an answer of nothing (litellm#2549)": ("anthropic", "nothing", [HI, message("assistant", "")]),
    "an empty list of a result": (
        "anthropic",
        "empty list",
        [message("assistant", tool_use("a")), message("user", tool_result("a", []))],
    ),
    "an image in an error (vellum-assistant#18387)": (
        "anthropic",
        "file in an error",
        [message("assistant", tool_use("a")), message("user", tool_result("a", [text("x"), IMAGE], is_error=True))],
    ),
    "an unsigned thought (pi#9048)": ("anthropic", "signature", [HI, message("assistant", thinking(""), text("x"))]),
    "a search without result": ("anthropic", "without result", [HI, message("assistant", search(), text("x"))]),
    "a result without search (claude-code#64383)": (
        "anthropic",
        "without its server_tool_use",
        [HI, message("assistant", search_result(), text("x"))],
    ),
    "five marks for the cache": (
        "anthropic",
        "cache_control",
        [message("user", text("hi") | {"cache_control": {"type": "ephemeral"}})] * 5,
    ),
    "an image of the assistant": ("anthropic", "image of assistant", [HI, message("assistant", IMAGE)]),
    "input that is no object": (
        "anthropic",
        "type",
        [message("assistant", tool_use("a") | {"input": "x"}), message("user", tool_result("a"))],
    ),
    "calls behind the model (gemini-cli#26486)": (
        "google",
        "behind no user",
        [
            GOOGLE_HI,
            content("model", {"text": "so"}),
            content("model", google_call()),
            content("user", google_result()),
        ],
    ),
    "calls at the beginning": (
        "google",
        "behind no user",
        [content("model", google_call()), content("user", google_result())],
    ),
    "a response too few (gemini-cli#17208)": (
        "google",
        "1 responses to 2 calls",
        [GOOGLE_HI, content("model", google_call(), google_call()), content("user", google_result())],
    ),
    "an id for a name (any-llm#1318)": (
        "google",
        "names",
        [GOOGLE_HI, content("model", google_call()), content("user", google_result("call_1"))],
    ),
    "text beside responses (pydantic-ai#4210)": (
        "google",
        "beside",
        [GOOGLE_HI, content("model", google_call()), content("user", google_result(), {"text": "so"})],
    ),
    "an unsigned call (Gemini 3)": (
        "google",
        "no signature",
        [GOOGLE_HI, content("model", google_call(signature=None)), content("user", google_result())],
    ),
    "responses of an id that no call has": (
        "google",
        "ids of",
        [GOOGLE_HI, content("model", google_call(id="a")), content("user", google_result(id="b"))],
    ),
    "a call without response (google)": (
        "google",
        "without responses",
        [GOOGLE_HI, content("model", google_call()), GOOGLE_HI],
    ),
    "no parts (vercel/ai#3775)": ("google", "nothing", [content("model")]),
    "an empty text (CLIProxyAPI#1292)": ("google", "empty text", [GOOGLE_HI, content("model", {"text": ""})]),
    "a part of two things": (
        "google",
        "part of",
        [content("user", {"text": "x", "inlineData": {"mimeType": "image/png", "data": PNG}})],
    ),
    "a system content": ("google", "role", [content("system", {"text": "x"})]),
    "a response that is no object": (
        "google",
        "type",
        [GOOGLE_HI, content("model", google_call()), content("user", google_result(response="rain"))],
    ),
    "an open call (vercel/ai#7097)": (
        "ui",
        "without result",
        [ui("m2", "assistant", tool_part("a", "input-available")), UI_HI],
    ),
    "one id of two calls (ui)": (
        "ui",
        "2 times",
        [UI_HI, ui("m2", "assistant", STEP, tool_part("a"), STEP, tool_part("a"))],
    ),
    "one id of two messages": ("ui", "2 times", [UI_HI, UI_HI]),
    "no part (ui)": ("ui", "no parts", [ui("m1", "user")]),
    "a file of the system": (
        "ui",
        "of the system",
        [ui("m1", "system", {"type": "file", "mediaType": "a/b", "url": "https://x.org"})],
    ),
    "a call of a user": ("ui", "of a user", [ui("m1", "user", tool_part("a"))]),
    "a tool's message": ("ui", "type", [ui("m1", "tool", text("x"))]),
}


@pytest.mark.guard
@pytest.mark.parametrize("case", RIGHT)
def test_what_providers_take_keeps_the_rules(case: str) -> None:
    form, messages = RIGHT[case]

    assert [] == broken_rules(form, messages)


@pytest.mark.parametrize("case", WRONG)
def test_what_providers_refused_breaks_a_rule(case: str) -> None:
    form, word, messages = WRONG[case]

    assert any(word in fault for fault in broken_rules(form, messages)), broken_rules(form, messages)


@pytest.mark.parametrize(
    ("form", "messages"),
    [
        ("openai", [HI, openai_call("a")]),
        ("responses", [HI, function_call("a")]),
        ("anthropic", [HI, message("assistant", tool_use("a"))]),
        ("google", [GOOGLE_HI, content("model", google_call())]),
        ("ui", [UI_HI, ui("m2", "assistant", tool_part("a", "input-available"))]),
    ],
)
def test_calls_that_still_run_may_be_open(form: str, messages: list[Json]) -> None:
    assert [] != broken_rules(form, messages)
    assert [] == broken_rules(form, messages, may_be_open=True)
