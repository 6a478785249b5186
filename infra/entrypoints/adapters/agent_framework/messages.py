"""Messages of Agent Framework: each kept as it was given, beside the UIMessage that all others read; and made of UIMessages."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from agent_framework import Content
from agent_framework import Message as FrameworkMessage

from chatledger.domain.context.formats.exchanges import exchanges, turns
from chatledger.domain.context.formats.parts import call_part, input_of, is_tool_part, outcome_of, tool_name
from chatledger.domain.context.formats.plain import TOOL, details_of, parsed, text_at
from chatledger.domain.context.formats.stored import as_ui_message
from chatledger.domain.context.messages import ASSISTANT, UIMessage
from chatledger.domain.context.native import native_message, native_of
from chatledger.domain.values import Message, NewMessage

FORM: Final = "agent-framework"


def draft_of(message: FrameworkMessage, message_id: str) -> NewMessage:
    """
    Return the message to store under an id.

    Raises:
        InvalidValueError: There is something in it that JSON does not know.
    """
    parts = [part for content in message.contents if (part := _part_of(content)) is not None]
    return native_message(FORM, message.to_dict(), id=message_id, role=str(message.role), parts=parts)


def messages_of(chain: Iterable[Message]) -> list[FrameworkMessage]:
    """Return the messages that those of a chain stand for, in order."""
    found: list[FrameworkMessage] = []
    for message in chain:
        value = native_of(message, FORM)
        if value is not None:
            found.append(FrameworkMessage.from_dict(value))
            continue
        for turn in turns(as_ui_message(message.name, message.data, message.form)):
            found += _made_of(turn, message.id)
    return found


def _made_of(stored: UIMessage, message_id: str) -> list[FrameworkMessage]:
    role = stored["role"]
    if role == ASSISTANT:
        return _answer_of(stored, message_id)
    parts = [cast("Mapping[str, Any]", part) for part in stored["parts"] if isinstance(part, Mapping)]
    call_id = text_at(details_of(stored), "tool_call_id")
    if role == TOOL and call_id is not None:
        text = "\n".join(text for part in parts if (text := text_at(part, "text")) is not None)
        return [_message(TOOL, [Content.from_function_result(call_id, result=text)], message_id)]
    results = [_result_of(part) for part in parts if is_tool_part(part)]
    said = [content for part in parts if not is_tool_part(part) and (content := _content_of(part)) is not None]
    found = [_message(TOOL, results, message_id)] if results else []
    return found + ([_message("user" if role == TOOL else role, said, message_id)] if said else [])


def _answer_of(stored: UIMessage, message_id: str) -> list[FrameworkMessage]:
    found: list[FrameworkMessage] = []
    for exchange in exchanges(stored):
        said = [content for part in exchange.said if (content := _content_of(part)) is not None]
        if said:
            found.append(_message(ASSISTANT, said, message_id))
        if exchange.answered:
            found.append(_message(TOOL, [_result_of(part) for part in exchange.answered], message_id))
    return found


def _message(role: str, contents: list[Content], message_id: str) -> FrameworkMessage:
    return FrameworkMessage(role, contents, message_id=message_id)


def _content_of(part: Mapping[str, Any]) -> Content | None:
    """The content for a part of a UIMessage; None where the framework has none."""
    kind, text, url = part.get("type"), text_at(part, "text"), text_at(part, "url")
    if kind == "text" and text is not None:
        return Content.from_text(text)
    if kind == "reasoning" and text is not None:
        return Content.from_text_reasoning(text=text)
    if kind == "file" and url is not None:
        return Content.from_uri(url, media_type=text_at(part, "mediaType") or "application/octet-stream")
    if is_tool_part(part):
        given = input_of(part)
        arguments = dict(cast("Mapping[str, Any]", given)) if isinstance(given, Mapping) else {"input": given}
        return Content.from_function_call(str(part.get("toolCallId")), tool_name(part), arguments=arguments)
    return None


def _result_of(part: Mapping[str, Any]) -> Content:
    outcome, call_id = outcome_of(part), str(part.get("toolCallId"))
    if outcome is not None and outcome.is_error:
        return Content.from_function_result(call_id, result=outcome.text, exception=outcome.text)
    return Content.from_function_result(call_id, result="" if outcome is None else outcome.text)


def _part_of(content: Content) -> dict[str, Any] | None:
    """The part of a UIMessage for a content; None for what only the framework knows."""
    if content.type == "text":
        return {"type": "text", "text": content.text or ""}
    if content.type == "text_reasoning":
        return {"type": "reasoning", "text": content.text or ""}
    if content.type in {"data", "uri"} and content.uri:
        return {"type": "file", "mediaType": content.media_type or "application/octet-stream", "url": content.uri}
    if content.type == "function_call":
        given = content.arguments
        arguments = parsed(given)[0] if isinstance(given, str) else given
        return call_part(content.name or "", content.call_id or "", {} if arguments is None else arguments)
    if content.type == "function_result":
        result: dict[str, Any] = {
            "type": "dynamic-tool",
            "toolName": "",
            "toolCallId": content.call_id or "",
            "input": {},
        }
        if content.exception:
            return result | {"state": "output-error", "errorText": content.exception}
        return result | {"state": "output-available", "output": content.to_dict().get("result")}
    return None
