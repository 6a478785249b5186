"""
Messages of Pydantic AI: each kept as it was given, beside the UIMessage that all others read; and made of UIMessages.

What others wrote may stand for several messages, such as a call, its result and an answer in one. These get ids of their own:
`m7#0`, `m7#1` and, for the last, `m7`, the id of the message.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, cast

from pydantic_ai import messages as pai
from pydantic_ai.conversation_store import ConversationEntry

from chatledger.domain.context.formats.exchanges import exchanges, turns
from chatledger.domain.context.formats.parts import (
    base64_data,
    call_part,
    input_of,
    is_tool_part,
    outcome_of,
    tool_name,
)
from chatledger.domain.context.formats.plain import TOOL, text_at
from chatledger.domain.context.formats.stored import as_ui_message
from chatledger.domain.context.messages import ASSISTANT, USER, UIMessage, object_at
from chatledger.domain.context.native import native_message, native_of
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.values import Message, NewMessage

FORM: Final = "pydantic-ai"
SYSTEM: Final = "system"
_SYSTEM_PART: Final = "data-pydantic-ai-system"
_adapter: Final = pai.ModelMessagesTypeAdapter


def draft_of(entry: ConversationEntry) -> NewMessage:
    """
    Return the message to store for an entry, under its id and with its parent.

    Raises:
        InvalidValueError: There is something in it that JSON does not know.
    """
    [value] = _adapter.dump_python([entry.message], mode="json")
    parts = [part for one in entry.message.parts for part in _parts_of(one)]
    role = ASSISTANT
    if isinstance(entry.message, pai.ModelRequest):
        role = _role_of(parts)
    if role == SYSTEM:
        parts = [{"type": "text", "text": part["data"]} for part in parts]
    return native_message(FORM, value, id=entry.id, role=role, parts=parts, parent_id=entry.parent_id)


def entries_of(chain: Iterable[Message]) -> list[ConversationEntry]:
    """Return the entries that the messages of a chain stand for, in order."""
    found: list[ConversationEntry] = []
    names: dict[str, str] = {}
    parent_id: str | None = None
    given = list(chain)
    natives = [native_of(message, FORM) for message in given]
    validated = iter(_adapter.validate_python([value for value in natives if value is not None]))
    for message, native in zip(given, natives, strict=True):
        parent_id = message.parent_id
        messages = _messages_of(message, names) if native is None else [next(validated)]
        for number, one in enumerate(messages):
            entry_id = message.id if number == len(messages) - 1 else f"{message.id}#{number}"
            found.append(ConversationEntry(id=entry_id, parent_id=parent_id, message=one))
            parent_id = entry_id
    return found


def _messages_of(message: Message, names: dict[str, str]) -> list[pai.ModelMessage]:
    """Return the messages that one stands for that was not written by Pydantic AI, or was changed since."""
    stored = as_ui_message(message.name, message.data, message.form)
    for part in map(object_at, stored["parts"]):
        if is_tool_part(part) and tool_name(part):
            names[str(part.get("toolCallId"))] = tool_name(part)
    found = [made for turn in turns(stored) for made in _made_of(turn, names)]
    made_at = datetime.fromtimestamp(message.created_at / 1000, UTC)
    for one in found:
        timed: list[Any] = [one, *one.parts]
        for part in timed:
            if hasattr(part, "timestamp"):  # else each reading would be another message
                part.timestamp = made_at
    if found:
        return found
    return [
        pai.ModelResponse(parts=[], timestamp=made_at) if stored["role"] == ASSISTANT else pai.ModelRequest(parts=[])
    ]


def _made_of(stored: UIMessage, names: Mapping[str, str]) -> list[pai.ModelMessage]:
    if stored["role"] != ASSISTANT:
        parts = _request_parts(stored, names)
        return [pai.ModelRequest(parts=parts)] if parts else []
    found: list[pai.ModelMessage] = []
    for exchange in exchanges(stored):
        said = [made for part in exchange.said for made in _response_parts(part)]
        if said:
            found.append(pai.ModelResponse(parts=said))
        answered = [_return_of(part, names) for part in exchange.answered]
        if answered:
            found.append(pai.ModelRequest(parts=answered))
    return found


def _request_parts(stored: UIMessage, names: Mapping[str, str]) -> list[pai.ModelRequestPart]:
    parts = cast("list[Mapping[str, Any]]", [part for part in stored["parts"] if isinstance(part, Mapping)])
    texts = [text for part in parts if part.get("type") == "text" and (text := text_at(part, "text")) is not None]
    if stored["role"] == SYSTEM:
        return [pai.SystemPromptPart("\n".join(texts))] if texts else []
    call_id = text_at(stored.get("metadata", {}).get("chatledger", {}), "tool_call_id")
    if stored["role"] == TOOL and call_id is not None:
        return [pai.ToolReturnPart(names.get(call_id, TOOL), "\n".join(texts), tool_call_id=call_id)]
    found: list[pai.ModelRequestPart] = [_return_of(part, names) for part in parts if is_tool_part(part)]
    files = [file for part in parts if part.get("type") == "file" and (file := _file_of(part)) is not None]
    if files:
        found.append(pai.UserPromptPart([*texts, *files]))
    elif texts:
        found.append(pai.UserPromptPart("\n".join(texts)))
    return found


def _return_of(part: Mapping[str, Any], names: Mapping[str, str]) -> pai.ToolReturnPart:
    call_id = str(part.get("toolCallId"))
    name = tool_name(part) or names.get(call_id, TOOL)
    outcome = outcome_of(part)
    if outcome is not None and outcome.is_error:
        return pai.ToolReturnPart(name, outcome.text, tool_call_id=call_id, outcome="failed")
    return pai.ToolReturnPart(name, part.get("output"), tool_call_id=call_id)


def _response_parts(part: Mapping[str, Any]) -> list[pai.ModelResponsePart]:
    kind, text = part.get("type"), text_at(part, "text")
    if kind == "text" and text is not None:
        return [pai.TextPart(text)]
    if kind == "reasoning" and text is not None:
        return [pai.ThinkingPart(text)]
    if kind == "file":
        file = _file_of(part)
        return [pai.FilePart(file)] if isinstance(file, pai.BinaryContent) else []
    if is_tool_part(part):
        given: Any = input_of(part)
        args: dict[str, Any] = dict(object_at(given)) if isinstance(given, Mapping) else {"input": given}
        return [pai.ToolCallPart(tool_name(part), args, tool_call_id=str(part.get("toolCallId")))]
    return []


def _file_of(part: Mapping[str, Any]) -> pai.BinaryContent | pai.ImageUrl | pai.DocumentUrl | None:
    url, kind = text_at(part, "url"), text_at(part, "mediaType") or ""
    if url is None:
        return None
    if base64_data(url) is not None:
        return pai.BinaryContent.from_data_uri(url)
    if url.startswith(("http:", "https:")):
        media = kind if "/" in kind and "*" not in kind else None
        made = pai.ImageUrl if kind.partition("/")[0] == "image" else pai.DocumentUrl
        return made(url, media_type=media)
    return None


def _role_of(parts: Sequence[Mapping[str, Any]]) -> str:
    if parts and all(part["type"] == _SYSTEM_PART for part in parts):
        return SYSTEM
    said = [part for part in parts if part["type"] != _SYSTEM_PART]
    return TOOL if said and all(map(is_tool_part, said)) else USER


def _parts_of(part: Any) -> list[dict[str, Any]]:
    """The parts of a UIMessage for a part of a request or a response; none for what only Pydantic AI knows."""
    if isinstance(part, pai.SystemPromptPart):
        return [{"type": _SYSTEM_PART, "data": part.content}]
    if isinstance(part, pai.UserPromptPart):
        content = [part.content] if isinstance(part.content, str) else part.content
        return [found for item in content if (found := _content_part(item)) is not None]
    if isinstance(part, pai.TextPart):
        return [{"type": "text", "text": part.content}] if part.content else []
    if isinstance(part, pai.ThinkingPart):
        return [{"type": "reasoning", "text": part.content}]
    if isinstance(part, pai.FilePart):
        return [_file(part.content.media_type, part.content.data_uri)]
    if isinstance(part, pai.BaseToolCallPart):
        return [call_part(part.tool_name, part.tool_call_id, _args_of(cast("Any", part)))]
    if isinstance(part, pai.RetryFeedbackPart):
        return [{"type": "text", "text": part.model_response()}]
    if isinstance(part, pai.RetryPromptPart):  # of earlier versions  # pyright: ignore[reportDeprecated]
        text = part.content if isinstance(part.content, str) else part.model_response()
        if part.tool_name is None:
            return [{"type": "text", "text": text}]
        return [_answer(part.tool_name, part.tool_call_id, {"state": "output-error", "errorText": text})]
    if isinstance(part, pai.BaseToolReturnPart):
        [dumped] = _adapter.dump_python([pai.ModelRequest(parts=[cast("Any", part)])], mode="json", warnings=False)
        output = dumped["parts"][0]["content"]
        if part.outcome == "success":
            return [_answer(part.tool_name, part.tool_call_id, {"state": "output-available", "output": output})]
        failed = {"state": "output-error", "errorText": part.model_response_str()}
        return [_answer(part.tool_name, part.tool_call_id, failed)]
    return []


def _answer(name: str, call_id: str, outcome: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "dynamic-tool", "toolName": name, "toolCallId": call_id, "input": {}, **outcome}


def _args_of(part: pai.BaseToolCallPart[Any]) -> Any:
    """The arguments of a call as JSON; as text where a model wrote none."""
    try:
        [dumped] = _adapter.dump_python(
            [pai.ModelResponse(parts=[pai.ToolCallPart(part.tool_name, part.args_as_dict())])], mode="json"
        )
    except (ValueError, AssertionError):
        return part.args
    return dumped["parts"][0]["args"]


def _content_part(item: Any) -> dict[str, Any] | None:
    if isinstance(item, str):
        return {"type": "text", "text": item}
    if isinstance(item, pai.TextContent):
        return {"type": "text", "text": item.content}
    if isinstance(item, pai.BinaryContent):
        return _file(item.media_type, item.data_uri)
    if isinstance(item, pai.FileUrl):
        try:
            media = item.media_type
        except ValueError:  # nothing says what it is
            media = "image/*" if isinstance(item, pai.ImageUrl) else "application/octet-stream"
        return _file(media, item.url)
    return None


def _file(media_type: str, url: str) -> dict[str, Any]:
    return {"type": "file", "mediaType": media_type, "url": url}


def check_whole(entry_id: str | None) -> None:
    """Raise `InvalidValueError` for an entry that is but a part of a stored message."""
    if entry_id is not None and part_number(entry_id) is not None:
        msg = f"entry {entry_id!r} is in the middle of a message that was not written by Pydantic AI; go on before or after it"
        raise InvalidValueError(msg)


def part_number(entry_id: str) -> tuple[str, int] | None:
    """Return the message and the number of an entry that is a part of it; None for any other."""
    message_id, mark, number = entry_id.rpartition("#")
    return (message_id, int(number)) if mark and message_id and number.isdecimal() else None
