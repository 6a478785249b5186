"""Chats go out as spans of OpenTelemetry, and come in from traces: with the real SDK, and by its documented JSON."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import chatledger
from chatledger import Ledger, NewMessage, user
from chatledger.domain.forms.items import Call, File, Reasoning, Result, Text
from chatledger.domain.forms.otel import message_of
from chatledger.domain.forms.reading import items_of
from chatledger.errors import ChatNotFoundError
from chatledger.exporters import spans_of
from chatledger.forms import translate
from chatledger.importers import ImportedChat, Problem, detect_format, read_chats

SECRET = "leeks for mother"
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Riga"}'}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "rainy"}
ANSWER = {"role": "assistant", "content": "Take a coat."}


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append(
            "trip",
            [
                NewMessage("system", {"role": "system", "content": "Be brief."}, id="s", created_at=1_000),
                NewMessage("user", {"role": "user", "content": SECRET}, id="q", created_at=2_000),
                NewMessage("assistant", CALL, id="call", created_at=3_000),
                NewMessage("tool", RESULT, id="result", created_at=4_000),
                NewMessage("assistant", ANSWER, id="answer", created_at=6_000),
            ],
        )
        ledger.record_run("trip", thread_id="t", assistant_id="guide", trigger_message_id="q", run_id="r1")
        ledger.complete_run(
            "trip",
            "r1",
            message_id="answer",
            metadata={"model": "m-1", "usage": {"input_tokens": 7, "output_tokens": 3}},
        )
        yield ledger


def exported(spans: Sequence[ReadableSpan]) -> dict[str, ReadableSpan]:
    exporter = InMemorySpanExporter()
    exporter.export(spans)
    return {
        f"{span.name} {dict(span.attributes or {})['chatledger.message.id']}": span
        for span in exporter.get_finished_spans()
    }


def about(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def ids(span: ReadableSpan) -> tuple[int, int, int | None]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id, None if span.parent is None else span.parent.span_id


def test_a_turn_is_a_trace_of_runs_answers_and_tools(ledger: Ledger) -> None:
    spans = exported(spans_of(ledger, "trip", resource=Resource({"service.name": "trips"})))
    assert set(spans) == {
        "invoke_agent guide answer",
        "chat m-1 call",
        "chat m-1 answer",
        "execute_tool weather result",
    }
    run, call, answer, tool = (
        spans[name]
        for name in ("invoke_agent guide answer", "chat m-1 call", "chat m-1 answer", "execute_tool weather result")
    )
    assert len({ids(span)[0] for span in spans.values()}) == 1
    assert ids(run)[2] is None
    assert (ids(call)[2], ids(answer)[2], ids(tool)[2]) == (ids(run)[1], ids(run)[1], ids(call)[1])
    assert (answer.start_time, answer.end_time) == (4_000_000_000, 6_000_000_000)
    assert (tool.start_time, tool.end_time) == (3_000_000_000, 4_000_000_000)
    assert (answer.kind, tool.kind) == (SpanKind.CLIENT, SpanKind.INTERNAL)
    assert answer.resource.attributes["service.name"] == "trips"
    told = about(answer)
    assert told["gen_ai.operation.name"] == "chat"
    assert (told["gen_ai.conversation.id"], told["gen_ai.provider.name"]) == ("trip", "openai")
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (7, 3)
    assert (about(tool)["gen_ai.tool.name"], about(tool)["gen_ai.tool.call.id"]) == ("weather", "c1")
    assert about(run)["gen_ai.agent.id"] == "guide"


def test_spans_have_no_content_unless_asked_for(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """They name the event, which proves what was said for as long as it is there."""
    spans = spans_of(ledger, "trip")
    assert all(word not in span.to_json() for span in spans for word in (SECRET, "coat", "rainy", "city", "Be brief"))
    answer = about(exported(spans)["chat m-1 answer"])
    event = next(event for event in ledger.history("trip") if event.position == answer["chatledger.event.position"])
    assert event.hash.hex() == answer["chatledger.event.hash"]
    again = spans_of(ledger, "trip", content=True)
    assert [ids(span) for span in again] == [ids(span) for span in spans], "a span that is exported again is the same"
    told = about(exported(again)["chat m-1 answer"])
    assert json.loads(told["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief."}]
    assert json.loads(told["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": SECRET}]},
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c1", "name": "weather", "arguments": '{"city":"Riga"}'}],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "result": "rainy"}]},
    ]
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "span_only")
    assert "coat" in about(exported(spans_of(ledger, "trip"))["chat m-1 answer"])["gen_ai.output.messages"]
    ledger.redact("q")
    assert all(SECRET not in span.to_json() for span in spans_of(ledger, "trip", content=True))


def test_only_what_came_after_a_position(ledger: Ledger) -> None:
    position = ledger.position
    assert spans_of(ledger, "trip", after=position) == []
    ledger.append("trip", [user("And on Sunday?", id="q2"), NewMessage("assistant", "Sun.", id="a2")])
    ledger.record_run("trip", thread_id="t", assistant_id="guide", trigger_message_id="q2", run_id="r2")
    ledger.fail_run("trip", "r2")
    assert [about(span)["chatledger.message.id"] for span in spans_of(ledger, "trip", after=position)] == ["a2"]
    with pytest.raises(ChatNotFoundError):
        spans_of(ledger.for_user("ben"), "trip")


def test_a_tool_that_failed_says_so(ledger: Ledger) -> None:
    content = [{"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True}]
    ledger.append(
        "trip",
        [
            NewMessage("user", {"role": "user", "content": "x"}, id="u2"),
            NewMessage(
                "assistant",
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]},
                id="c2",
            ),
            NewMessage("user", {"role": "user", "content": content}, id="r2"),
        ],
    )
    span = exported(spans_of(ledger, "trip"))["execute_tool look r2"]
    assert (span.status.status_code, about(span)["error.type"]) == (StatusCode.ERROR, "_OTHER")


def otlp(spans: Sequence[ReadableSpan]) -> str:
    """The JSON of OTLP that the spans are sent as."""

    def value(some: Any) -> dict[str, Any]:
        return {"intValue": str(some)} if isinstance(some, int) else {"stringValue": some}

    rows = [
        {
            "traceId": f"{ids(span)[0]:032x}",
            "spanId": f"{ids(span)[1]:016x}",
            "parentSpanId": "" if span.parent is None else f"{span.parent.span_id:016x}",
            "name": span.name,
            "startTimeUnixNano": str(span.start_time),
            "endTimeUnixNano": str(span.end_time),
            "attributes": [{"key": key, "value": value(each)} for key, each in about(span).items()],
        }
        for span in spans
    ]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "trips"}}]}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": rows}]}]}) + "\n"


def read(folder: Path, text: str) -> tuple[list[ImportedChat], list[Problem]]:
    file, problems = folder / "traces.jsonl", list[Problem]()
    file.write_text(text, encoding="utf-8")
    assert detect_format(file) == "otlp"
    return list(read_chats(file, on_problem=problems.append)), problems


def texts(chat: ImportedChat) -> list[tuple[str, str]]:
    return [(message.name, message.text) for message in chat.messages]


def test_a_chat_comes_back_from_its_spans(ledger: Ledger, tmp_path: Path) -> None:
    (chat,), problems = read(tmp_path, otlp(spans_of(ledger, "trip", content=True)))
    assert problems == []
    assert (chat.id, chat.title, chat.metadata and chat.metadata["service"]) == ("trip", SECRET, "trips")
    assert texts(chat) == [
        ("system", "Be brief."),
        ("user", SECRET),
        ("assistant", ""),
        ("tool", ""),
        ("assistant", "Take a coat."),
    ]
    answer = chat.messages[-1]
    assert answer.created_at == 6_000
    assert answer.notes is not None
    assert (answer.notes["model"], answer.notes["input_tokens"]) == ("m-1", 7)
    with chatledger.open("memory:") as other:
        other.import_chat(chat)
        assert other.import_chat(chat).messages_added == 0
        assert [message.name for message in other.get_messages("trip")] == [message.name for message in chat.messages]
        (hit,) = other.search("coat")
        assert hit.message.id == answer.id


def test_a_trace_as_the_collector_writes_it_is_a_chat() -> None:
    """Reasoning, calls, results and files are what they are in any form, and a text is asked for by its words."""
    (chat,) = read_chats(Path(__file__).parents[2] / "data" / "otlp_traces.jsonl", on_problem=refuse)
    assert (chat.id, len(chat.messages), len(chat.branches)) == ("conv_riga", 7, 1)
    items = [item.what for message in chat.messages for item in items_of(message.form or None, message.data)]
    assert items == [
        Text("Be brief."),
        Text("Rain in Riga?"),
        Reasoning("I should look."),
        Call("call_1", "weather", {"city": "Riga"}),
        Result("call_1", None, "rainy, 9 °C"),
        Text("Yes: take a coat."),
        Text("And tomorrow?"),
        File("image/png", url="https://example.com/map.png"),
        Text("Dry."),
    ]
    again = [
        item.what
        for message in chat.messages
        for item in items_of("otel", message_of(items_of("otel", message.data), message.name))
    ]
    assert again == items
    with chatledger.open("memory:") as ledger:
        ledger.import_chat(chat)
        translated = translate(ledger.get_messages(chat.id), "openai").messages
    assert [message["role"] for message in translated][:4] == ["system", "user", "assistant", "tool"]


def refuse(problem: Problem) -> None:
    pytest.fail(str(problem))


def span_row(number: int, asked: list[str], answer: str, **more: Any) -> dict[str, Any]:
    def said(role: str, text: str) -> dict[str, Any]:
        return {"role": role, "parts": [{"type": "text", "content": text}]}

    roles = ("user", "assistant")
    told = {
        "gen_ai.conversation.id": "talk",
        "gen_ai.input.messages": json.dumps([said(roles[at % 2], text) for at, text in enumerate(asked)]),
        "gen_ai.output.messages": json.dumps([said("assistant", answer) | {"finish_reason": "stop"}]),
    }
    return {
        "traceId": "t",
        "spanId": str(number),
        "startTimeUnixNano": str(number * 10**9),
        "endTimeUnixNano": str(number * 10**9 + 1),
        "attributes": [{"key": key, "value": {"stringValue": text}} for key, text in told.items()],
        **more,
    }


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [row]}]}]}) + "\n" for row in rows)


def test_spans_that_repeat_what_was_said_are_one_conversation(tmp_path: Path) -> None:
    """In whatever order they come; another answer is a branch, and a turn that is sent alone follows the one before."""
    rows = [
        span_row(2, ["a", "b", "c"], "d"),
        span_row(1, ["a"], "b"),
        span_row(3, ["a", "b", "c"], "e"),
        span_row(4, ["f"], "g"),
    ]
    (chat,), problems = read(tmp_path, lines(*rows))
    assert problems == []
    by_text = {message.text: message for message in chat.messages}
    assert [message.text for message in chat.messages] == ["a", "b", "c", "d", "e", "f", "g"]
    assert by_text["e"].parent_id == by_text["d"].parent_id == by_text["c"].id
    assert by_text["f"].parent_id == by_text["e"].id
    assert {branch.name: branch.head_message_id for branch in chat.branches} == {
        "main": by_text["g"].id,
        "main-v2": by_text["d"].id,
    }
    (grown,), _ = read(tmp_path, lines(*rows, span_row(5, ["h"], "i")))
    assert {message.id for message in chat.messages} < {message.id for message in grown.messages}


def test_the_span_of_an_agent_says_nothing_again(tmp_path: Path) -> None:
    agent = span_row(1, ["a"], "d")
    inner = [span_row(2, ["a"], "b", parentSpanId="9"), span_row(3, ["a", "b", "c"], "d", parentSpanId="9")]
    tool = {"traceId": "t", "spanId": "9", "parentSpanId": "1", "startTimeUnixNano": "1"}
    (chat,), _ = read(tmp_path, lines(agent, *inner, tool))
    assert [message.text for message in chat.messages] == ["a", "b", "c", "d"]


def test_values_and_events_are_read_like_attributes(tmp_path: Path) -> None:
    """Of one with a value in place of a text, on an event, and without a conversation, which is that of its trace."""
    text = {
        "kvlistValue": {
            "values": [
                {"key": "type", "value": {"stringValue": "text"}},
                {"key": "content", "value": {"stringValue": "hi"}},
            ]
        }
    }
    message = {
        "kvlistValue": {
            "values": [
                {"key": "role", "value": {"stringValue": "user"}},
                {"key": "parts", "value": {"arrayValue": {"values": [text]}}},
            ]
        }
    }
    row = {
        "traceId": "abc",
        "spanId": "1",
        "events": [{"attributes": [{"key": "gen_ai.input.messages", "value": {"arrayValue": {"values": [message]}}}]}],
    }
    (chat,), _ = read(tmp_path, lines(row))
    assert (chat.id, texts(chat)) == ("abc", [("user", "hi")])


def test_traces_without_messages_are_told(tmp_path: Path) -> None:
    chats, problems = read(tmp_path, lines({"traceId": "a", "spanId": "1"}, {"name": "no ids"}))
    assert chats == []
    assert "no ids" in problems[0].message
    assert "capture" in problems[1].message
