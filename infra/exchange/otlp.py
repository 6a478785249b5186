"""
Traces of OpenTelemetry as JSON: conversations from spans that hold their messages, as the GenAI conventions have them.

    {"resourceSpans": [{"resource": {...}, "scopeSpans": [{"spans": [{"traceId": "5b8e...", "spanId": "eee1...", "name": "chat m",
     "startTimeUnixNano": "1790000000000000000", "endTimeUnixNano": "1790000001000000000",
     "attributes": [{"key": "gen_ai.input.messages", "value": {"stringValue": "[...]"}}, ...]}]}]}]}

As the Collector writes them, one export a line or a file. Messages are in `gen_ai.system_instructions`, `gen_ai.input.messages` and
`gen_ai.output.messages`, as JSON in text or as values, of the span or of an event in it. Spans of one `gen_ai.conversation.id` are one
chat, else those of one trace. Of spans within each other the innermost count: an agent's says again what those of its model say.

Spans repeat what was said before. What begins as another one does shares its messages; what begins with something new, as agents
do that send the last turn alone, follows what came before it.
"""

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

from chatledger.domain.chat.import_tree import Reporter, branch_leaves, link_messages
from chatledger.domain.chat.interchange import ImportedChat, ImportedMessage
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.forms import otel
from chatledger.domain.forms.plain import list_at, object_at, text_at
from chatledger.domain.packing import ordered_json

from .documents import read_documents
from .source import decode_json, is_id

SOURCE: Final = "otlp"
_TITLE_CHARACTERS: Final = 60
_MOST_DEPTH: Final = 100
_NOTES: Final = {
    "gen_ai.request.model": "model",
    "gen_ai.response.model": "model",
    "gen_ai.provider.name": "provider",
    "gen_ai.response.id": "response_id",
    "gen_ai.usage.input_tokens": "input_tokens",
    "gen_ai.usage.output_tokens": "output_tokens",
}
"""Attributes that are kept beside an answer, and what they are called there; the last ones count."""


class _Span(NamedTuple):
    trace_id: str
    span_id: str
    parent_id: str | None
    started_at: int
    ended_at: int
    about: Mapping[str, Any]

    @property
    def conversation(self) -> str:
        return text_at(self.about, "gen_ai.conversation.id") or self.trace_id

    def said(self, key: str) -> list[dict[str, Any]]:
        """Return the messages of an attribute."""
        value = self.about.get(f"gen_ai.{key}")
        if isinstance(value, str):
            try:
                value, _ = decode_json(value.encode())
            except InvalidValueError:
                return []
        return [dict(fields) for message in list_at({"said": value}, "said") if (fields := object_at(message))]


def read_otlp(path: Path, report: Reporter) -> Iterator[ImportedChat]:
    """The conversations of a file of traces, in the order in which they began."""
    spans: dict[tuple[str, str], _Span] = {}
    parents: dict[tuple[str, str], str | None] = {}
    for document in read_documents(path, report):
        for fields, resource in _spans_of(document.fields):
            try:
                span = _span(fields, resource)
            except (TypeError, ValueError, OverflowError):
                document.report.broken(f"a span of record {document.number} has no ids or no times; skipped")
                continue
            key = (span.trace_id, span.span_id)
            parents[key] = span.parent_id
            if span.said("input.messages") or span.said("output.messages"):
                spans[key] = span
    for key in list(spans):
        # Whatever holds a span with messages says them again.
        trace_id, at = key[0], parents[key]
        for _ in range(_MOST_DEPTH):
            if at is None:
                break
            spans.pop((trace_id, at), None)
            at = parents.get((trace_id, at))
    chats: dict[str, list[_Span]] = {}
    for span in sorted(spans.values(), key=lambda span: (span.started_at, span.ended_at)):
        chats.setdefault(span.conversation, []).append(span)
    if not chats:
        report.broken(
            "no span holds messages: traces have them only where their application was told to capture the content of messages"
        )
    for chat_id, of_chat in chats.items():
        if is_id(chat_id, "the id of a conversation", report):
            yield from _chat(chat_id, of_chat, report)


def _chat(chat_id: str, spans: list[_Span], report: Reporter) -> Iterator[ImportedChat]:
    records: dict[str, ImportedMessage] = {}
    head: str | None = None
    for span in spans:
        instructions = span.about.get("gen_ai.system_instructions")
        parts = span.said("system_instructions") if instructions else []
        line = [{"role": "system", "parts": parts}] if parts else []
        prompt = [*line, *span.said("input.messages")]
        answers = span.said("output.messages")
        # Further choices are no part of what follows.
        line = [*prompt, *answers[:1]]
        parent = None if _id_of(chat_id, None, line[0]) in records else head
        for number, message in enumerate(line):
            message_id = _id_of(chat_id, parent, message)
            if message_id not in records:
                records[message_id] = _message(message_id, parent, message, span, is_answer=number >= len(prompt))
            parent = message_id
        head = parent
    linked = link_messages(chat_id, ((record, None) for record in records.values()), report=report)
    if not linked.messages:
        return
    head = linked.instead.get(head, head) if head is not None else None
    first = next((message for message in linked.messages if message.name == "user"), linked.messages[0])
    about = spans[0].about
    yield ImportedChat(
        id=chat_id,
        user_id=text_at(about, "user.id") or text_at(about, "enduser.id") or SOURCE,
        title=" ".join(first.text.split())[:_TITLE_CHARACTERS] or None,
        metadata={"source": SOURCE}
        | ({"service": about["service.name"]} if text_at(about, "service.name") else {})
        | {"trace_ids": list(dict.fromkeys(span.trace_id for span in spans))},
        messages=linked.messages,
        branches=branch_leaves(linked.messages, main_head=head),
    )


def _message(
    message_id: str, parent_id: str | None, message: dict[str, Any], span: _Span, *, is_answer: bool
) -> ImportedMessage:
    notes: dict[str, Any] = {"trace_id": span.trace_id, "span_id": span.span_id}
    agent_id: str | None = None
    if is_answer:
        notes |= {name: span.about[key] for key, name in _NOTES.items() if key in span.about}
        agent_id = text_at(span.about, "gen_ai.agent.id") or text_at(span.about, "gen_ai.agent.name")
        if "finish_reason" in message:
            notes["finish_reason"] = message["finish_reason"]
    return ImportedMessage(
        id=message_id,
        parent_id=parent_id,
        name=text_at(message, "role") or "user",
        data=_said(message),
        form=otel.NAME,
        created_at=((span.ended_at if is_answer else span.started_at) // 1_000_000) or None,
        agent_id=agent_id,
        notes=notes,
    )


def _said(message: dict[str, Any]) -> dict[str, Any]:
    # An answer comes back among what the next question follows, without why it ended.
    return {key: value for key, value in message.items() if key != "finish_reason"}


def _id_of(chat_id: str, parent_id: str | None, message: dict[str, Any]) -> str:
    return blake2b(ordered_json([chat_id, parent_id, _said(message)]), digest_size=12).hexdigest()


def _spans_of(fields: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield each span of an export, with the attributes of its resource."""
    for of_resource in map(object_at, list_at(fields, "resourceSpans")):
        resource = _attributes(object_at(of_resource, "resource"))
        for of_scope in map(object_at, list_at(of_resource, "scopeSpans")):
            for span in map(object_at, list_at(of_scope, "spans")):
                yield span, resource


def _span(fields: Mapping[str, Any], resource: Mapping[str, Any]) -> _Span:
    about = {**resource}
    for event in map(object_at, list_at(fields, "events")):
        about |= _attributes(event)
    trace_id, span_id = text_at(fields, "traceId"), text_at(fields, "spanId")
    if not trace_id or not span_id:
        raise ValueError
    return _Span(
        trace_id,
        span_id,
        text_at(fields, "parentSpanId") or None,
        int(fields["startTimeUnixNano"]) if "startTimeUnixNano" in fields else 0,
        int(fields["endTimeUnixNano"]) if "endTimeUnixNano" in fields else 0,
        about | _attributes(fields),
    )


def _attributes(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _value(attribute.get("value"))
        for attribute in map(object_at, list_at(fields, "attributes"))
        if (key := text_at(attribute, "key")) is not None
    }


def _value(value: Any, depth: int = 0) -> Any:
    """Return what a value of OTLP stands for: JSON of the mapping of protocol buffers, in which whole numbers are texts."""
    fields = object_at(value)
    if depth > _MOST_DEPTH:
        return None
    for key in ("stringValue", "boolValue", "doubleValue", "bytesValue"):
        if key in fields:
            return fields[key]
    if "intValue" in fields:
        try:
            return int(fields["intValue"])
        except (TypeError, ValueError, OverflowError):
            return None
    if "arrayValue" in fields:
        return [_value(each, depth + 1) for each in list_at(object_at(fields, "arrayValue"), "values")]
    if "kvlistValue" in fields:
        pairs = map(object_at, list_at(object_at(fields, "kvlistValue"), "values"))
        return {str(pair.get("key")): _value(pair.get("value"), depth + 1) for pair in pairs}
    return None
