"""
Messages of Pydantic AI, as its `ModelMessagesTypeAdapter` writes them; Pydantic AI itself is not needed.

    {"kind": "response", "parts": [
        {"part_kind": "tool-call", "tool_name": "weather", "args": {"city": "Riga"}, "tool_call_id": "call_1"}]}
    {"kind": "request", "parts": [
        {"part_kind": "tool-return", "tool_name": "weather", "content": "Rain.", "tool_call_id": "call_1"}]}
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, cast

import msgspec

from .items import (
    ASSISTANT,
    DEVELOPER,
    SYSTEM,
    TOOL,
    USER,
    Call,
    File,
    FormItem,
    Json,
    Own,
    Piece,
    Reasoning,
    Result,
    Text,
    Words,
)
from .model import ANY, Form, Rules, any_json
from .plain import ANY_FILE, ANY_IMAGE, list_at, object_at, text_at
from .writing import NO_SIGNATURE, Sources, Writer, WrittenTurn, answers, object_of, result_text, sources_of

NAME: Final = "pydantic-ai"
_RETURNS: Final = ("tool-return", "retry-prompt")
_URLS: Final = {
    "image-url": ANY_IMAGE,
    "audio-url": "audio/*",
    "video-url": "video/*",
    "document-url": ANY_FILE,
}
_PROVIDERS: Final = {"openai": "responses", "google-gla": "google"}
"""The forms of the APIs of providers that go by another name."""
_STANDARD: Final = str.maketrans("-_", "+/")
"""Pydantic writes the Base64 of URLs, which APIs do not read."""
_REDACTED: Final = "redacted_thinking"


def read(data: Any, name: str, source: Any) -> list[FormItem]:
    kind, parts = (data.get("kind"), data.get("parts")) if isinstance(data, dict) else (None, None)
    if kind not in ("request", "response") or not isinstance(parts, list):
        return any_json(data, name, source)
    role = ASSISTANT if kind == "response" else USER
    items: list[FormItem] = []
    for part in parts:
        fields = part if isinstance(part, dict) else {}
        kind, content = fields.get("part_kind"), fields.get("content")
        if kind == "user-prompt" and isinstance(content, list):
            items += [FormItem(role, _content(piece), source, piece) for piece in content]
        elif kind in _RETURNS and isinstance(tool := fields.get("tool_name"), str):
            is_error = kind == "retry-prompt" or fields.get("outcome") in ("failed", "retried")
            result = Result(text_at(fields, "tool_call_id"), tool, _returned(content), is_error)
            items.append(FormItem(TOOL, result, source, part))
        else:
            items.append(FormItem(SYSTEM if kind == "system-prompt" else role, _what(kind, fields), source, part))
    return items


def _what(kind: Any, fields: Mapping[str, Any]) -> Text | Reasoning | File | Call | Own:
    content = fields.get("transcript" if kind == "speech" else "content")
    if kind == "tool-call":
        args = fields.get("args")
        head = (text_at(fields, "tool_call_id"), text_at(fields, "tool_name") or "")
        signature = text_at(object_at(fields, "provider_details"), "thought_signature")
        return Call(
            *head,
            msgspec.UNSET if args is None or isinstance(args, str) else args,
            args if isinstance(args, str) else None,
            None if signature is None else "google",
            signature,
        )
    if kind == "thinking" and isinstance(content, str):
        return Reasoning(content, *_signed(fields))
    if kind == "file" and (file := _file(object_at(content))) is not None:
        return file
    # What a provider has compacted goes back to that provider alone.
    if isinstance(content, str) and not (kind == "compaction" and fields.get("provider_name")):
        return Text(content)
    return Own(NAME, fields)


def _signed(fields: Mapping[str, Any]) -> tuple[str | None, dict[str, Any] | None]:
    """Return the form of the API that signed a thought, and what it takes back."""
    provider, signature = text_at(fields, "provider_name") or "", text_at(fields, "signature")
    origin = _PROVIDERS.get(provider, provider)
    inline = text_at(object_at(fields, "provider_details"), "thought_signature")
    if origin == "google" and (signature or inline):
        return origin, {"thoughtSignature": inline or signature}
    if not signature:
        return None, None
    if origin == "responses":
        return origin, {"id": fields.get("id"), "encrypted_content": signature}
    return origin, {"data" if fields.get("id") == _REDACTED else "signature": signature}


def _content(content: Any) -> Text | File | Own:
    if isinstance(content, str):
        return Text(content)
    fields = object_at(content)
    text = text_at(fields, "content")
    return Text(text) if text is not None else _file(fields) or Own(NAME, content)


def _file(fields: Mapping[str, Any]) -> File | None:
    kind = fields.get("kind")
    media_type = text_at(fields, "media_type")
    data, url, file_id = (text_at(fields, key) for key in ("data", "url", "file_id"))
    if kind == "binary" and data is not None:
        return File(media_type or ANY_FILE, data=data.translate(_STANDARD))
    if kind == "uploaded-file" and file_id is not None:
        provider = (text_at(fields, "provider_name") or "").removesuffix("-gla")
        return File(media_type or ANY_FILE, file_id=file_id, origin=provider)
    return File(media_type or _URLS[cast("str", kind)], url=url) if kind in _URLS and url is not None else None


def _returned(value: Any) -> str | list[Piece]:
    if isinstance(value, str):
        return value
    values: list[Any] = value if isinstance(value, list) else [value]
    files = [_file(object_at(piece)) for piece in values]
    if not any(files):
        return [Json(value)]
    return [
        file or (Text(piece) if isinstance(piece, str) else Json(piece))
        for file, piece in zip(files, values, strict=True)
    ]


class PydanticAIWriter(Writer):
    """Writes messages: an answer is one response, and its returns are one request behind it. Times are those of the sources."""

    form = NAME
    has_files = "it has files of users, and those of models by data"

    def takes(self, turns: Sequence[WrittenTurn], sources: Sources) -> bool:
        """Whether models take them as they came: one response, then one request with all returns, before anything else."""
        for turn in turns:
            if turn.role == ASSISTANT and (len(sources_of(turn.items)) > 1 or len(sources_of(turn.results)) > 1):
                return False
        for source in sources:
            returns = [object_at(part).get("part_kind") in _RETURNS for part in list_at(source.data, "parts")]
            if True in returns[returns.count(True) :]:
                return False
        return True

    def write(self, turn: WrittenTurn) -> None:
        """Write a turn anew."""
        self.lose_name(turn)
        blocks = self._blocks(turn.items)
        parts = [block for block in blocks if isinstance(block, dict) and "part_kind" in block]
        if len(parts) < len(blocks):  # texts and files of users stand together in one part
            content: list[Any] = [block for block in blocks if isinstance(block, str) or "part_kind" not in block]
            alone = content[0] if len(content) == 1 and isinstance(content[0], str) else content
            parts.append({"part_kind": "user-prompt", "content": alone, **_timed(turn.items[0])})
        if parts:
            self._add("response" if turn.role == ASSISTANT else "request", turn.items[0], parts)
        returns = [self._return(call, item, result) for _, call, item, result in answers(turn)] if turn.calls else []
        if returns:
            self._add("request", next(result for result in turn.results if result is not None), returns)

    def _add(self, kind: str, item: FormItem, parts: list[Any]) -> None:
        """Add a message with the fields that it has if it came in this form."""
        own = item.source.data if item.source.form == NAME and object_at(item.source.data).get("kind") == kind else {}
        self.messages.append({**_timed(item), **own, "kind": kind, "parts": parts})

    def _call_block(self, item: FormItem, call: Call, native: Any) -> Any:  # noqa: ARG002
        if native is not None:
            return {**native, "tool_call_id": call.id, "tool_name": call.name}
        args = object_of(call) if call.raw is None else call.raw
        head = {"part_kind": "tool-call", "tool_name": call.name, "args": args, "tool_call_id": call.id}
        is_signed = call.origin == "google" and call.opaque not in (None, NO_SIGNATURE)
        return head | (_by_google(call.opaque) if is_signed else {})

    def _new_block(self, item: FormItem) -> Any:
        what, is_answer, is_system = item.what, item.role == ASSISTANT, item.role in (SYSTEM, DEVELOPER)
        if isinstance(what, Words):
            if is_answer:
                return {"part_kind": "text", "content": what.text}
            return {"part_kind": "system-prompt", "content": what.text, **_timed(item)} if is_system else what.text
        if isinstance(what, Reasoning):
            # Signed only by those whose API takes it without the ids of what is around it.
            part: dict[str, Any] = {"part_kind": "thinking", "content": what.text}
            opaque = what.opaque or {}
            if what.origin == "anthropic" and (signature := opaque.get("signature") or opaque.get("data")):
                redacted = {} if opaque.get("signature") else {"id": _REDACTED}
                return {**part, **redacted, "signature": signature, "provider_name": "anthropic"}
            if what.origin == "google" and (signature := opaque.get("thoughtSignature")):
                return {**part, **_by_google(signature)}
            return part if what.text else None
        if not isinstance(what, File) or is_system or (is_answer and what.data is None):
            return None
        content = _file_content(what)
        return {"part_kind": "file", "content": content} if is_answer else content

    def _return(self, call: Call, item: FormItem, result: Result) -> dict[str, Any]:
        native = self.native(item)
        if native is not None:
            return {**native, "tool_call_id": call.id, "tool_name": call.name}
        content: Any = result.content
        if not isinstance(content, str):
            files = [_file_content(piece) if isinstance(piece, File) else None for piece in result.content]
            content = [
                file or (piece.text if isinstance(piece, Text) else piece.value)
                for piece, file in zip(content, files, strict=True)
                if file is not None or isinstance(piece, Text | Json)
            ]
            for piece, file in zip(result.content, files, strict=True):
                if file is None and isinstance(piece, File | Own):
                    self.lose(FormItem(TOOL, piece, item.source), "it has files by data, URL or ids of providers")
            if not any(files):
                content = content[0] if len(content) == 1 else result_text(result)
        part = {"part_kind": "tool-return", "tool_name": call.name, "content": content, "tool_call_id": call.id}
        return {**part, **({"outcome": "failed"} if result.is_error else {}), **_timed(item)}


def _timed(item: FormItem) -> dict[str, str]:
    """Return the time of a message in hand as it is stored; else each reading would be another message."""
    created_at: int | None = getattr(item.source, "created_at", None)
    return {} if created_at is None else {"timestamp": datetime.fromtimestamp(created_at / 1000, UTC).isoformat()}


def _by_google(signature: Any) -> dict[str, Any]:
    return {"provider_name": "google", "provider_details": {"thought_signature": signature}}


def _file_content(file: File) -> dict[str, Any] | None:
    if file.data is not None:
        return {"kind": "binary", "data": file.data, "media_type": file.media_type}
    if file.url is not None:
        group = f"{file.media_type.partition('/')[0]}-url"
        is_range = file.media_type.endswith("/*") or file.media_type == ANY_FILE
        kind = group if group in _URLS else "document-url"
        return {"kind": kind, "url": file.url, "media_type": None if is_range else file.media_type}
    if file.file_id is None or file.origin not in ("openai", "anthropic", "google"):
        return None
    typed = {} if file.media_type.endswith("/*") or file.media_type == ANY_FILE else {"media_type": file.media_type}
    return {"kind": "uploaded-file", "file_id": file.file_id, "provider_name": file.origin, **typed}


FORM: Final = Form(name=NAME, read=read, write=PydanticAIWriter, rules=Rules(ids=ANY, names=ANY))
