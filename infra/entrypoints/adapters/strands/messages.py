# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false
# strands-agents is not among the development dependencies, with some of which it conflicts.
"""
Messages of Strands as messages of a ledger, and back: those that Strands wrote as they were, others by what their parts say.

Strands has content blocks as Bedrock's Converse API does, which are those of Anthropic's API by other names:

    {"toolUse": {"toolUseId": "t1", "name": "weather", "input": {"city": "Riga"}}}
    {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Riga"}}
"""

import base64
import binascii
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final, cast

import msgspec
from strands.types.session import SessionMessage, decode_bytes_values

from chatledger.domain.context.formats.anthropic import anthropic_messages, ui_of_anthropic
from chatledger.domain.context.formats.plain import compact
from chatledger.domain.context.formats.stored import as_ui_message
from chatledger.domain.context.messages import ASSISTANT, USER, object_at
from chatledger.domain.context.native import native_message, native_of
from chatledger.domain.limits import same_json
from chatledger.domain.values import Message, NewMessage

FORM: Final = "strands"
INDEX: Final = "strands_index"
"""The key in the data of a message of Strands: its index in the agent's history."""
ORIGINAL: Final = "strands_original"
"""The key in the data of a message that took the place of another one: the id of that."""
_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_FIELDS: Final = frozenset(field.name for field in fields(SessionMessage))
_DOCUMENTS: Final = {
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "html": "text/html",
    "csv": "text/csv",
}


def draft_of(stored: SessionMessage, chat_id: str) -> NewMessage:
    """
    Return a message as it is to be stored.

    Its id is made from its index and its tracking id, so that the same call writes the same message.

    Raises:
        InvalidValueError: It has something that JSON does not know.
    """
    value = stored.to_dict()
    tracked = object_at(value, "message").get("tracking_id") or _digest(value.get("message"))
    return _draft(stored, value, f"{chat_id}:{stored.message_id}:{tracked}", {INDEX: stored.message_id})


def replacement_of(stored: SessionMessage, original: Message) -> NewMessage:
    """
    Return the message that takes the place of a stored one: it says what `stored` says now.

    Of a redacted message it has the new content only; the old one stays with the original.
    """
    value = stored.to_dict()
    if value.get("redact_message") is not None and same_json(
        value["message"], object_at(native_of(original, FORM)).get("message")
    ):
        del value["message"]
    told = _digest({key: value.get(key) for key in ("message", "redact_message")})
    keys = {INDEX: stored.message_id, ORIGINAL: original.id}
    draft = _draft(stored, value, f"{original.id}:{told}", keys)
    return msgspec.structs.replace(draft, parent_id=original.parent_id)


def is_same(message: Message, stored: SessionMessage) -> bool:
    """Whether a message of the ledger is this one of Strands, whenever it was made."""
    return same_json(object_at(native_of(message, FORM)).get("message"), stored.to_dict()["message"])


def index_of(message: Message) -> int | None:
    """Return the index of a message that Strands wrote, or None."""
    found = object_at(message.data).get(INDEX)
    return found if isinstance(found, int) else None


def session_messages(message: Message, original: Message | None, index: int) -> list[SessionMessage]:
    """
    Return the messages of Strands that a message stands for: the one that it was stored with, or those that its parts make.

    Args:
        message: A stored message.
        original: The message that it took the place of, if it did.
        index: The index of the first of them, where it is not known.
    """
    native = native_of(message, FORM)
    if isinstance(native, Mapping):
        kept = cast("Mapping[str, Any]", native)
        if original is not None:
            kept = {"message": object_at(native_of(original, FORM)).get("message"), **kept}
        return [_restored(kept)]
    at = iso_time(message.created_at)
    return [
        SessionMessage(message=told, message_id=index + place, created_at=at, updated_at=at)
        for place, told in enumerate(_told(message))
    ]


def made_at(message: Message) -> str:
    """Return when a message was made, as Strands writes it."""
    found = object_at(native_of(message, FORM)).get("created_at")
    return found if isinstance(found, str) else iso_time(message.created_at)


def iso_time(at_ms: int) -> str:
    """Return a time in ms as Strands writes it: `2026-11-23T16:00:00+00:00`."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


def _draft(stored: SessionMessage, value: dict[str, Any], message_id: str, keys: dict[str, Any]) -> NewMessage:
    shown = cast("Mapping[str, Any]", value.get("redact_message") or value["message"])
    role = USER if shown.get("role") == USER else ASSISTANT
    blocks = [block for given in shown.get("content", []) for block in _blocks(given)]
    ui = ui_of_anthropic({"role": role, "content": blocks}, message_id)
    draft = native_message(
        FORM,
        value,
        id=message_id,
        role=ui["role"],
        parts=ui["parts"],
        created_at=_moment(stored.created_at),
        metadata=ui.get("metadata"),
    )
    return msgspec.structs.replace(draft, data={**draft.data, **keys})


def _restored(kept: Mapping[str, Any]) -> SessionMessage:
    """Do what `SessionMessage.from_dict` does, which looks at the class anew for each key: most of the time of reading a history."""
    return SessionMessage(**decode_bytes_values({key: value for key, value in kept.items() if key in _FIELDS}))


def _digest(value: Any) -> str:
    return blake2b(_encode(value), digest_size=8).hexdigest()


def _moment(written: str) -> int | None:
    try:
        return round(datetime.fromisoformat(written).timestamp() * 1000)
    except ValueError:
        return None


def _blocks(given: Any) -> list[dict[str, Any]]:
    """A content block of Strands, whose bytes are encoded, as blocks of Anthropic's API; none where that has no such thing."""
    block = object_at(given)
    if isinstance(text := block.get("text"), str):
        return [{"type": "text", "text": text}]
    if use := object_at(block, "toolUse"):
        return [{"type": "tool_use", "id": use.get("toolUseId"), "name": use.get("name"), "input": use.get("input")}]
    if result := object_at(block, "toolResult"):
        return [_result(result)]
    if thought := object_at(block, "reasoningContent", "reasoningText"):
        signed = {"signature": thought["signature"]} if thought.get("signature") else {}
        return [{"type": "thinking", "thinking": str(thought.get("text", "")), **signed}]
    if image := object_at(block, "image"):
        return _media("image", f"image/{image.get('format')}", image)
    if document := object_at(block, "document"):
        kind = str(document.get("format"))
        return _media("document", _DOCUMENTS.get(kind, f"application/{kind}"), document, title=document.get("name"))
    if isinstance(guarded := object_at(block, "guardContent", "text").get("text"), str):
        return [{"type": "text", "text": guarded}]
    cited = object_at(block, "citationsContent").get("content")
    return [one for each in cast("list[Any]", cited) for one in _blocks(each)] if isinstance(cited, list) else []


def _result(result: Mapping[str, Any]) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    for each in cast("Iterable[Any]", result.get("content") or []):
        one = object_at(each)
        content += [{"type": "text", "text": compact(one["json"])}] if "json" in one else _blocks(one)
    failed = {"is_error": True} if result.get("status") == "error" else {}
    return {"type": "tool_result", "tool_use_id": result.get("toolUseId"), "content": content, **failed}


def _media(kind: str, named: str, given: Mapping[str, Any], **more: Any) -> list[dict[str, Any]]:
    data = object_at(given, "source", "bytes").get("data")
    if not isinstance(data, str):
        return []
    source = {"type": "base64", "media_type": named, "data": data}
    return [{"type": kind, "source": source, **{key: value for key, value in more.items() if value is not None}}]


def _told(message: Message) -> list[Any]:
    """Messages of Strands for one that somebody else wrote."""
    found: list[dict[str, Any]] = []
    for given in anthropic_messages(as_ui_message(message.name, message.data, message.form)):
        content = given["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        told = [one for block in blocks if (one := _content(object_at(block))) is not None]
        if told:
            tracked = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{message.id}.{len(found)}"))  # the same at every reading
            role = ASSISTANT if given["role"] == ASSISTANT else USER
            found.append({"role": role, "content": told, "tracking_id": tracked})
    return found


def _content(block: Mapping[str, Any]) -> dict[str, Any] | None:
    """The content block of Strands for one of Anthropic's API; None where it has none."""
    kind = block.get("type")
    if kind == "text":
        return {"text": block["text"]}
    if kind == "tool_use":
        return {"toolUse": {"toolUseId": block["id"], "name": block["name"], "input": block["input"]}}
    if kind == "tool_result":
        content = block.get("content", "")
        told = [{"text": content}] if isinstance(content, str) else [_content(object_at(one)) for one in content]
        status = "error" if block.get("is_error") is True else "success"
        kept = [one for one in told if one is not None]
        return {"toolResult": {"toolUseId": block["tool_use_id"], "status": status, "content": kept}}
    if kind == "thinking":
        return {"reasoningContent": {"reasoningText": {"text": block["thinking"], "signature": block.get("signature")}}}
    if kind in {"image", "document"}:
        return _file(kind, block)
    return None


def _file(kind: str, block: Mapping[str, Any]) -> dict[str, Any] | None:
    source = object_at(block, "source")
    data, named = source.get("data"), str(source.get("media_type"))
    if not isinstance(data, str):
        return None
    try:
        given = base64.b64decode(data, validate=True)
    except binascii.Error:
        return None
    if kind == "image":
        return {"image": {"format": named.partition("/")[2], "source": {"bytes": given}}}
    ending = next((ending for ending, known in _DOCUMENTS.items() if known == named), None)
    if ending is None:
        return None
    return {"document": {"format": ending, "name": str(block.get("title") or "document"), "source": {"bytes": given}}}
