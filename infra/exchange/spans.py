"""
A chat as spans of OpenTelemetry, after its GenAI conventions: `invoke_agent`, `chat` and `execute_tool`.

A turn, from a user's message on, is a trace. Ids of traces and spans follow from those of chats, messages and runs, so that a span that
is exported again is the same. By default a span says of what was said only where it is: ids of messages, with the position and the hash
of the event that brought them. Who may read the chat finds it by these, `Ledger.prove` proves it, and what is erased is gone.
"""

import os
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from chatledger.domain.chat.events import MessagesAppended
from chatledger.domain.chat.interchange import ImportedMessage
from chatledger.domain.chat.runs import MessageRun
from chatledger.domain.extras import needing
from chatledger.domain.forms import otel
from chatledger.domain.forms.items import ASSISTANT, SYSTEM, TOOL, USER, Call, FormItem, Result
from chatledger.domain.forms.plain import object_at, text_at
from chatledger.domain.forms.reading import items_of, role_of

from ..ledger.ledger import Ledger

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan

CAPTURE_ENV: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURES: Final = {"true", "span_only", "span_and_event"}
_NS: Final = 1_000_000
_PROVIDERS: Final = {"anthropic": "anthropic", "google": "gcp.gemini", "openai": "openai", "responses": "openai"}
"""The providers whose forms messages have, as the conventions call them."""
_USAGE: Final = {
    "gen_ai.usage.input_tokens": ("input_tokens", "prompt_tokens"),
    "gen_ai.usage.output_tokens": ("output_tokens", "completion_tokens"),
}


class _Brought(NamedTuple):
    position: int
    hash: str


class _Turn(NamedTuple):
    """A message among others of its chat."""

    message: ImportedMessage
    role: str
    items: list[FormItem]


def spans_of(
    ledger: Ledger,
    chat_id: str,
    *,
    after: int = 0,
    content: bool | None = None,
    resource: "Resource | None" = None,
) -> "list[ReadableSpan]":
    """
    Return a chat as spans of OpenTelemetry, for any `SpanExporter`: runs, answers of models, and calls of tools with their results.

    Example:
        exporter.export(spans_of(ledger, "trip"))

    Args:
        ledger: The ledger, of all users or of one.
        chat_id: The chat.
        after: Only of messages that came after this position on the log, and of runs that ended with one of them.
        content: Whether spans hold what was said, which is then wherever they go, also when it is erased here. None leaves it to
            the environment, `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`, which is off without it.
        resource: Says what the spans come from; that of the environment without it.

    Raises:
        ChatNotFoundError: There is no such chat.
        ConfigurationError: `opentelemetry-sdk` is missing.

    Source: the log and the index. Costs reading the chat.
    """
    with needing("otel", "spans_of"):
        from opentelemetry.sdk.resources import Resource as SdkResource
    if content is None:
        content = os.environ.get(CAPTURE_ENV, "").lower() in _CAPTURES
    chat = ledger.export_chat(chat_id)
    places = {
        message.id: _Brought(recorded.position, recorded.hash.hex())
        for recorded in ledger.history(chat_id, after=after)
        if isinstance(recorded.body, MessagesAppended)
        for message in recorded.body.messages
    }
    turns = {
        message.id: _Turn(
            message,
            role_of(message.form or None, message.data, message.name),
            items_of(message.form or None, message.data, message.name),
        )
        for message in chat.messages
    }
    spans = _ChatSpans(chat_id, turns, places, chat.runs, resource or SdkResource.create(), is_told=content)
    return [*spans.of_runs(), *spans.of_answers(), *spans.of_tools()]


class _ChatSpans:
    """The spans of one chat."""

    def __init__(
        self,
        chat_id: str,
        turns: Mapping[str, _Turn],
        places: Mapping[str, _Brought],
        runs: "tuple[MessageRun, ...]",
        resource: "Resource",
        *,
        is_told: bool,
    ) -> None:
        from opentelemetry import trace
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        self._trace, self._scope, self._resource = trace, InstrumentationScope("chatledger"), resource
        self._chat_id, self._turns, self._places, self._is_told = chat_id, turns, places, is_told
        self._runs = [run for run in runs if run.is_ended and run.message_id in turns]
        self._run_of: dict[str, MessageRun] = {}
        for run in self._runs:
            at: str | None = run.message_id
            while at is not None and at != run.trigger_message_id and at not in self._run_of:
                self._run_of[at] = run
                at = turns[at].message.parent_id

    def of_runs(self) -> "list[ReadableSpan]":
        """A span for each run that ended with a message."""
        spans: list[ReadableSpan] = []
        for run in self._runs:
            place = self._places.get(run.message_id or "")
            if place is None:
                continue
            turn = self._turns[run.message_id or ""]
            about: dict[str, Any] = {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.id": run.assistant_id,
                "gen_ai.agent.name": run.assistant_id,
                "chatledger.run.id": run.run_id,
                "chatledger.trigger.message.id": run.trigger_message_id,
                **self._common(turn, place, run),
                **({"error.type": "_OTHER"} if run.status == "error" else {}),
            }
            trigger = self._turns.get(run.trigger_message_id or "")
            if self._is_told and trigger is not None:
                about["gen_ai.input.messages"] = _encoded([trigger])
                about["gen_ai.output.messages"] = _encoded([turn])
            name = f"invoke_agent {run.assistant_id}"
            times = (run.created_at, max(run.created_at, run.updated_at))
            spans.append(
                self._span(name, f"run {run.run_id}", turn, None, times, about, is_error=run.status == "error")
            )
        return spans

    def of_answers(self) -> "list[ReadableSpan]":
        """A span for each message of a model."""
        spans: list[ReadableSpan] = []
        for turn in self._turns.values():
            message = turn.message
            place = self._places.get(message.id)
            if turn.role != ASSISTANT or place is None:
                continue
            run = self._run_of.get(message.id)
            about: dict[str, Any] = {"gen_ai.operation.name": "chat", **self._common(turn, place, run)}
            if self._is_told:
                prompt = self._before(message)
                conversation = [each for each in prompt if each.role != SYSTEM]
                instructions = [item for each in prompt if each.role == SYSTEM for item in each.items]
                about["gen_ai.input.messages"] = _encoded(conversation)
                about["gen_ai.output.messages"] = _encoded([turn])
                if instructions:
                    parts = otel.message_of(instructions, SYSTEM)["parts"]
                    about["gen_ai.system_instructions"] = msgspec.json.encode(parts).decode()
            model = about.get("gen_ai.request.model")
            parent = None if run is None else f"run {run.run_id}"
            name = "chat" if model is None else f"chat {model}"
            spans.append(
                self._span(name, f"message {message.id}", turn, parent, self._times(message), about, is_client=True)
            )
        return spans

    def of_tools(self) -> "list[ReadableSpan]":
        """A span for each result of a tool whose call stands above it."""
        spans: list[ReadableSpan] = []
        for turn in self._turns.values():
            message = turn.message
            place = self._places.get(message.id)
            results = [item.what for item in turn.items if isinstance(item.what, Result)]
            if place is None or not results:
                continue
            calls = self._calls_above(message)
            for number, result in enumerate(results):
                call, above = calls.get(result.call_id, (None, None))
                if call is None or above is None:
                    continue
                about: dict[str, Any] = {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": call.name,
                    "gen_ai.tool.call.id": call.id,
                    "gen_ai.conversation.id": self._chat_id,
                    **({"error.type": "_OTHER"} if result.is_error else {}),
                    **self._reference(message, place),
                }
                if self._is_told:
                    called = otel.message_of([FormItem(ASSISTANT, call), FormItem(TOOL, result)], TOOL)["parts"]
                    about["gen_ai.tool.call.arguments"] = _text(called[0]["arguments"])
                    about["gen_ai.tool.call.result"] = _text(called[1]["result"])
                times = (above.message.created_at or 0, message.created_at or 0)
                own = f"tool {message.id} {number}"
                parent = f"message {above.message.id}"
                name = f"execute_tool {call.name}"
                spans.append(self._span(name, own, turn, parent, times, about, is_error=result.is_error))
        return spans

    def _common(self, turn: _Turn, place: _Brought, run: MessageRun | None) -> dict[str, Any]:
        message = turn.message
        about = {**(run.metadata if run is not None else {}), **(message.notes or {})}
        usage = object_at(about.get("usage")) or object_at(message.data, "usage") or about
        model = text_at(about, "model") or text_at(object_at(message.data), "model")
        provider = text_at(about, "provider") or _PROVIDERS.get(str(message.form)) or (run.runtime if run else "_OTHER")
        return {
            "gen_ai.conversation.id": self._chat_id,
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
            **{
                key: next((usage[name] for name in names if isinstance(usage.get(name), int)), None)
                for key, names in _USAGE.items()
            },
            **self._reference(message, place),
        }

    def _reference(self, message: ImportedMessage, place: _Brought) -> dict[str, Any]:
        return {
            "chatledger.message.id": message.id,
            "chatledger.parent.message.id": message.parent_id,
            "chatledger.event.position": place.position,
            "chatledger.event.hash": place.hash,
        }

    def _before(self, message: ImportedMessage) -> list[_Turn]:
        chain: list[_Turn] = []
        at = message.parent_id
        while at is not None:
            chain.append(self._turns[at])
            at = self._turns[at].message.parent_id
        return chain[::-1]

    def _calls_above(self, message: ImportedMessage) -> dict[str | None, tuple[Call, _Turn]]:
        """The calls of the turn of a message that come before it, by their ids."""
        calls: dict[str | None, tuple[Call, _Turn]] = {}
        at = message.parent_id
        while at is not None and (above := self._turns[at]).role != USER:
            for item in above.items:
                if isinstance(item.what, Call):
                    calls.setdefault(item.what.id, (item.what, above))
            at = above.message.parent_id
        return calls

    def _times(self, message: ImportedMessage) -> tuple[int, int]:
        ended = message.created_at or 0
        asked_at = self._turns[message.parent_id].message.created_at if message.parent_id is not None else None
        return min(ended if asked_at is None else asked_at, ended), ended

    def _beginning(self, message: ImportedMessage) -> str:
        """The message with which the turn of a message began."""
        at = message
        while self._turns[at.id].role != USER and at.parent_id is not None:
            at = self._turns[at.parent_id].message
        return at.id

    def _span(
        self,
        name: str,
        own: str,
        turn: _Turn,
        parent: str | None,
        times: tuple[int, int],
        about: Mapping[str, Any],
        *,
        is_client: bool = False,
        is_error: bool = False,
    ) -> "ReadableSpan":
        from opentelemetry.sdk.trace import ReadableSpan

        trace = self._trace
        trace_id = _number(16, self._chat_id, "turn", self._beginning(turn.message))
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
        contexts = [
            None
            if each is None
            else trace.SpanContext(trace_id, _number(8, self._chat_id, each), is_remote=False, trace_flags=flags)
            for each in (own, parent)
        ]
        started, ended = times
        return ReadableSpan(
            name,
            context=contexts[0],
            parent=contexts[1],
            resource=self._resource,
            attributes={key: value for key, value in about.items() if value is not None},
            kind=trace.SpanKind.CLIENT if is_client else trace.SpanKind.INTERNAL,
            status=trace.Status(trace.StatusCode.ERROR) if is_error else trace.Status(),
            start_time=started * _NS,
            end_time=max(started, ended) * _NS,
            instrumentation_scope=self._scope,
        )


def _number(size: int, *names: str) -> int:
    return int.from_bytes(sha256("\0".join(names).encode()).digest()[:size])


def _encoded(turns: list[_Turn]) -> str:
    return msgspec.json.encode([otel.message_of(turn.items, turn.role) for turn in turns]).decode()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
