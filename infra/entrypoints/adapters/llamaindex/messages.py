"""Messages of LlamaIndex: each kept as it was given, beside the UIMessage that all others read; and made of UIMessages."""

import base64
from collections.abc import Mapping
from typing import Any, Final, cast

from llama_index.core.base.llms.types import (
    AudioBlock,
    ChatMessage,
    DocumentBlock,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    VideoBlock,
)
from pydantic_core import PydanticSerializationError

from chatledger.domain.context.formats.exchanges import exchanges, turns
from chatledger.domain.context.formats.parts import (
    base64_data,
    call_part,
    input_of,
    is_image,
    is_tool_part,
    outcome_of,
    tool_name,
)
from chatledger.domain.context.formats.plain import TOOL, details_of, parsed, text_at
from chatledger.domain.context.formats.stored import as_ui_message
from chatledger.domain.context.messages import ASSISTANT, UIMessage
from chatledger.domain.context.native import native_message, native_of
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.values import Message

from ..histories import Draft

FORM: Final = "llamaindex"
MESSAGE_ID: Final = "message_id"
"""The key of `additional_kwargs` under which a message may have an id, which makes a repeated write one write."""
_ROLES: Final = {MessageRole.CHATBOT: ASSISTANT, MessageRole.MODEL: ASSISTANT, MessageRole.FUNCTION: TOOL}
_ANY: Final = "application/octet-stream"


def value_of(message: ChatMessage) -> dict[str, Any]:
    """
    Return a message as JSON.

    Raises:
        InvalidValueError: There is something in it that JSON does not know.
    """
    try:
        return message.model_dump(mode="json")
    except PydanticSerializationError as error:
        msg = f"a message must be JSON to be stored: {error}"
        raise InvalidValueError(msg) from error


def draft_of(message: ChatMessage, chat_id: str, unique_id: str) -> Draft:
    """
    Return the message to store in a chat; its id is made of `unique_id` where it has none of its own.

    Raises:
        InvalidValueError: There is something in it that JSON does not know.
    """
    own = message.additional_kwargs.get(MESSAGE_ID)
    has_own_id = isinstance(own, str) and own != ""
    draft = native_message(
        FORM,
        value_of(message),
        id=f"{chat_id}:{own if has_own_id else unique_id}",
        role=_ROLES.get(message.role, message.role.value),
        parts=_parts_of(message),
    )
    return Draft(draft, has_own_id)


def messages_of(message: Message) -> list[ChatMessage]:
    """Return the messages of LlamaIndex that a stored one stands for, in order."""
    value = native_of(message, FORM)
    if value is not None:
        return [ChatMessage.model_validate(value)]
    return [made for turn in turns(as_ui_message(message.name, message.data, message.form)) for made in _made_of(turn)]


def _parts_of(message: ChatMessage) -> list[dict[str, Any]]:
    if message.role in {MessageRole.TOOL, MessageRole.FUNCTION}:
        result: dict[str, Any] = {
            "type": "dynamic-tool",
            "toolName": str(message.additional_kwargs.get("name") or ""),
            "toolCallId": str(message.additional_kwargs.get("tool_call_id") or ""),
            "input": {},
            "state": "output-available",
            "output": message.content or "",
        }
        return [result]
    return [part for block in message.blocks if (part := _part_of(block)) is not None]


def _part_of(block: Any) -> dict[str, Any] | None:
    """The part of a UIMessage for a block; None for what only LlamaIndex knows."""
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if isinstance(block, ThinkingBlock):
        return {"type": "reasoning", "text": block.content or ""}
    if isinstance(block, ToolCallBlock):
        given = block.tool_kwargs
        arguments = parsed(given)[0] if isinstance(given, str) else given
        return call_part(block.tool_name, block.tool_call_id or "", arguments)
    if isinstance(block, ImageBlock):
        return _file_part(block.image, block.url, block.image_mimetype or "image/*")
    if isinstance(block, AudioBlock):
        return _file_part(block.audio, block.url, f"audio/{block.format or '*'}")
    if isinstance(block, VideoBlock):
        return _file_part(block.video, block.url, block.video_mimetype or "video/*")
    if isinstance(block, DocumentBlock):
        part = _file_part(block.data, block.url, block.document_mimetype or _ANY)
        return part if part is None or block.title is None else {**part, "filename": block.title}
    return None


def _file_part(encoded: Any, url: Any, media_type: str) -> dict[str, Any] | None:
    """The part of a file that is given as Base64 or by its address; None when it is on some disk only."""
    if isinstance(encoded, bytes):
        return {"type": "file", "mediaType": media_type, "url": f"data:{media_type};base64,{encoded.decode('ascii')}"}
    return None if url is None else {"type": "file", "mediaType": media_type, "url": str(url)}


def _made_of(stored: UIMessage) -> list[ChatMessage]:
    role = stored["role"]
    if role == ASSISTANT:
        return _answer_of(stored)
    parts = [cast("Mapping[str, Any]", part) for part in stored["parts"] if isinstance(part, Mapping)]
    call_id = text_at(details_of(stored), "tool_call_id")
    if role == TOOL and call_id is not None:
        text = "\n".join(text for part in parts if (text := text_at(part, "text")) is not None)
        return [_result(text, call_id, None)]
    results = [_result_of(part) for part in parts if is_tool_part(part)]
    said = [block for part in parts if not is_tool_part(part) and (block := _block_of(part)) is not None]
    return results + ([ChatMessage(role=_role(role), blocks=said)] if said else [])


def _answer_of(stored: UIMessage) -> list[ChatMessage]:
    found: list[ChatMessage] = []
    for exchange in exchanges(stored):
        said = [block for part in exchange.said if (block := _block_of(part)) is not None]
        if said:
            found.append(ChatMessage(role=MessageRole.ASSISTANT, blocks=said))
        found += [_result_of(part) for part in exchange.answered]
    return found


def _role(role: str) -> MessageRole:
    """The role of that name; a participant of any other name is a user."""
    found = role in {MessageRole.SYSTEM.value, MessageRole.DEVELOPER.value}
    return MessageRole(role) if found else MessageRole.USER


def _block_of(part: Mapping[str, Any]) -> Any | None:
    """The block for a part of a UIMessage; None where LlamaIndex has none."""
    kind, text, url = part.get("type"), text_at(part, "text"), text_at(part, "url")
    if kind == "text" and text is not None:
        return TextBlock(text=text)
    if kind == "reasoning" and text is not None:
        return ThinkingBlock(content=text)
    if kind == "file" and url is not None:
        return _file_block(part, url)
    if is_tool_part(part):
        given = input_of(part)
        arguments = dict(cast("Mapping[str, Any]", given)) if isinstance(given, Mapping) else {"input": given}
        return ToolCallBlock(tool_call_id=str(part.get("toolCallId")), tool_name=tool_name(part), tool_kwargs=arguments)
    return None


def _file_block(part: Mapping[str, Any], url: str) -> Any:
    media_type, data = text_at(part, "mediaType") or _ANY, base64_data(url)
    decoded = None if data is None else base64.b64decode(data)
    if is_image(part):
        return ImageBlock(url=url) if decoded is None else ImageBlock(image=decoded, image_mimetype=media_type)
    name = text_at(part, "filename")
    if decoded is None:
        return DocumentBlock(url=url, title=name, document_mimetype=media_type)
    return DocumentBlock(data=decoded, title=name, document_mimetype=media_type)


def _result_of(part: Mapping[str, Any]) -> ChatMessage:
    outcome = outcome_of(part)
    return _result("" if outcome is None else outcome.text, str(part.get("toolCallId")), tool_name(part) or None)


def _result(text: str, call_id: str, name: str | None) -> ChatMessage:
    named = {} if name is None else {"name": name}
    return ChatMessage(text, role=MessageRole.TOOL, additional_kwargs={"tool_call_id": call_id, **named})
