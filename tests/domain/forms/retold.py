"""A small reader of messages in these forms, for counting: where each mark of a story stands. It knows nothing of chatledger's own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tests.domain.forms.stories import Json, marks_in

Place = Literal["words", "call", "result"]


@dataclass(frozen=True, slots=True)
class Retold:
    """A mark in a list of messages: its place, who says it, and, of a result, the mark of the call that it answers."""

    mark: str
    place: Place
    role: str
    answers: str | None = None


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of a message. `pair` joins a result with its call: an id, or the name of a function."""

    place: Place
    role: str
    value: Any
    pair: str = ""


def retold(form: str, messages: Sequence[Any]) -> list[Retold]:
    """The marks in `messages`, in order."""
    read, calls = list[Retold](), list[tuple[str, str]]()
    for piece in _PIECES[form](messages):
        marks = [Retold(mark, piece.place, piece.role) for mark in marks_in(piece.value)]
        if piece.place == "call":
            calls += [(piece.pair, mark.mark) for mark in marks]
        if piece.place == "result":
            call = next((call for call in calls if call[0] == piece.pair), None)
            if call:  # with ids that repeat, results come in the order of their calls
                calls.remove(call)
            marks = [replace(mark, answers=call[1] if call else None) for mark in marks]
        read += marks
    return read


def _openai(messages: Sequence[Any]) -> Iterator[_Piece]:
    for message in messages:
        if message["role"] == "tool":
            yield _Piece("result", "tool", message["content"], message["tool_call_id"])
            continue
        others = {key: value for key, value in message.items() if key not in {"role", "tool_calls"}}
        yield _Piece("words", _role(message["role"]), others)
        for call in message.get("tool_calls") or []:
            yield _Piece("call", "assistant", call[call["type"]], call["id"])


def _responses(items: Sequence[Any]) -> Iterator[_Piece]:
    for item in items:
        kind = item.get("type")
        if kind == "function_call":
            yield _Piece("call", "assistant", item["arguments"], item["call_id"])
        elif kind == "function_call_output":
            yield _Piece("result", "tool", item["output"], item["call_id"])
        else:
            yield _Piece("words", _role(item.get("role", "assistant")), item)


def _anthropic(messages: Sequence[Any]) -> Iterator[_Piece]:
    for message in messages:
        content = message["content"]
        blocks: list[Json] = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            kind = block["type"]
            if kind == "tool_use":
                yield _Piece("call", "assistant", block["input"], block["id"])
            elif kind == "tool_result":
                yield _Piece("result", "tool", block.get("content"), block["tool_use_id"])
            else:
                yield _Piece("words", message["role"], block)


def _google(contents: Sequence[Any]) -> Iterator[_Piece]:
    for content in contents:
        for part in content["parts"]:
            call, response = part.get("functionCall"), part.get("functionResponse")
            if call:
                yield _Piece("call", "assistant", call["args"], call.get("id") or call["name"])
            elif response:
                answer = [response["response"], response.get("parts", [])]
                yield _Piece("result", "tool", answer, response.get("id") or response["name"])
            else:
                yield _Piece("words", _role(content["role"]), part)


def _ui(messages: Sequence[Any]) -> Iterator[_Piece]:
    for message in messages:
        results = list[_Piece]()
        for part in message["parts"]:
            kind = part["type"]
            if kind == "step-start":
                yield from results
                results = []
            elif kind == "dynamic-tool" or kind.startswith("tool-"):
                yield _Piece("call", "assistant", part["input"], part["toolCallId"])
                answer: Json = {key: part[key] for key in ("output", "errorText") if key in part}
                results += [_Piece("result", "tool", answer, part["toolCallId"])] if answer else []
            else:
                yield _Piece("words", message["role"], part)
        yield from results  # behind the last call of their step


def _agent_framework(messages: Sequence[Any]) -> Iterator[_Piece]:
    for message in messages:
        for content in message["contents"]:
            if content["type"] == "function_call":
                yield _Piece("call", "assistant", content["arguments"], content["call_id"])
            elif content["type"] == "function_result":
                yield _Piece("result", "tool", content.get("items") or content["result"], content["call_id"])
            else:
                yield _Piece("words", message["role"], content)


def _pydantic_ai(messages: Sequence[Any]) -> Iterator[_Piece]:
    for message in messages:
        for part in message["parts"]:
            kind = part["part_kind"]
            if kind == "tool-call":
                yield _Piece("call", "assistant", part["args"], part["tool_call_id"])
            elif kind == "tool-return":
                yield _Piece("result", "tool", part["content"], part["tool_call_id"])
            else:
                role = "system" if kind == "system-prompt" else "user" if message["kind"] == "request" else "assistant"
                yield _Piece("words", role, part)


def _llamaindex(messages: Sequence[Any]) -> Iterator[_Piece]:
    for message in messages:
        if message["role"] == "tool":
            yield _Piece("result", "tool", message["blocks"], message["additional_kwargs"]["tool_call_id"])
            continue
        for block in message["blocks"]:
            if block["block_type"] == "tool_call":
                yield _Piece("call", "assistant", block["tool_kwargs"], block["tool_call_id"])
            else:
                yield _Piece("words", _role(message["role"]), block)


def _strands(messages: Sequence[Any]) -> Iterator[_Piece]:
    for stored in messages:
        message = stored["message"]
        for block in message["content"]:
            ((kind, value),) = block.items()
            if kind == "toolUse":
                yield _Piece("call", "assistant", value["input"], value["toolUseId"])
            elif kind == "toolResult":
                yield _Piece("result", "tool", value["content"], value["toolUseId"])
            else:
                yield _Piece("words", message["role"], value)


def _adk(events: Sequence[Any]) -> Iterator[_Piece]:
    return _google([event["content"] for event in events])


def _role(role: str) -> str:
    return {"model": "assistant", "developer": "system"}.get(role, role)


_PIECES = {
    "openai": _openai,
    "responses": _responses,
    "anthropic": _anthropic,
    "google": _google,
    "ui": _ui,
    "agent-framework": _agent_framework,
    "pydantic-ai": _pydantic_ai,
    "llamaindex": _llamaindex,
    "strands": _strands,
    "adk": _adk,
}
