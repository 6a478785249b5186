"""
Messages of Strands Agents, as its `SessionMessage.to_dict` writes them; Strands itself is not needed.

    {"message": {"role": "assistant", "content": [
        {"toolUse": {"toolUseId": "t1", "name": "weather", "input": {"city": "Riga"}}}]}, "message_id": 1, ...}
    {"message": {"role": "user", "content": [
        {"toolResult": {"toolUseId": "t1", "status": "success", "content": [{"text": "Rain."}]}}]}, "message_id": 2, ...}

The blocks are those of Bedrock's Converse API. `message_id` is the index of the message in the history of its agent. Of a redacted
message `redact_message` counts, and `message` need not be there.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, cast

from .items import ASSISTANT, TOOL, USER, Call, File, FormItem, Json, Own, Piece, Reasoning, Result, Source, Text, Words
from .model import TOOL_NAME, Form, Rules, any_json
from .plain import list_at, object_at, text_at
from .writing import Sources, Writer, WrittenTurn, answers, id_at, object_of, sources_of

NAME: Final = "strands"
_IMAGES: Final = ("png", "jpeg", "gif", "webp")
_OFFICE: Final = "application/vnd.openxmlformats-officedocument."
_DOCUMENTS: Final = {
    "pdf": "application/pdf",
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": f"{_OFFICE}wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": f"{_OFFICE}spreadsheetml.sheet",
    "html": "text/html",
    "txt": "text/plain",
    "md": "text/markdown",
}
_FORMATS: Final = {media_type: ending for ending, media_type in _DOCUMENTS.items()}
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9()\[\] -]+")
"""The characters that Bedrock refuses in names of documents (API_runtime_DocumentBlock)."""


def message_in(data: Any) -> Mapping[str, Any]:
    return object_at(data, "redact_message") or object_at(data, "message")


def index_of(data: Any) -> int | None:
    """Return the index of a stored message in the history of its agent; None where it says none."""
    index = object_at(data).get("message_id")
    return index if isinstance(index, int) else None


def read(data: Any, name: str, source: Any) -> list[FormItem]:
    message = message_in(data)
    role, content = message.get("role"), message.get("content")
    if role not in (USER, ASSISTANT) or not isinstance(content, list):
        return any_json(data, name, source)
    whats = [(_what(block, role), block) for block in cast("list[Any]", content)]
    return [FormItem(TOOL if type(what) is Result else role, what, source, block) for what, block in whats]


def _what(block: Any, role: str) -> Text | Reasoning | File | Call | Result | Own:
    fields = object_at(block)
    if isinstance(text := fields.get("text"), str):
        return Text(text)
    if role == ASSISTANT and (use := object_at(fields, "toolUse")):
        return Call(text_at(use, "toolUseId"), text_at(use, "name") or "", use.get("input"))
    if role != ASSISTANT and (result := object_at(fields, "toolResult")):
        pieces: list[Piece] = []
        for piece in list_at(result, "content"):
            what = Json(piece["json"]) if isinstance(piece, dict) and "json" in piece else _what(piece, TOOL)
            pieces.append(what if isinstance(what, Piece) else Own(NAME, piece))
        content = pieces[0].text if len(pieces) == 1 and type(pieces[0]) is Text else pieces
        return Result(text_at(result, "toolUseId"), None, content, result.get("status") == "error")
    if role == ASSISTANT and (thoughts := object_at(fields, "reasoningContent")):
        thought = object_at(thoughts, "reasoningText")
        is_plain = not thought.get("signature") and "redactedContent" not in thoughts
        text = text_at(thought, "text") or ""
        return Reasoning(text) if is_plain else Reasoning(text, NAME, dict(thoughts))
    if isinstance(text := object_at(fields, "guardContent", "text").get("text"), str):
        return Text(text)
    if cited := list_at(object_at(fields, "citationsContent"), "content"):
        return Text("".join(text_at(object_at(piece), "text") or "" for piece in cited))
    return next((file for kind in _KINDS if (file := _file(kind, object_at(fields, kind)))), None) or Own(NAME, block)


_KINDS: Final = ("image", "document", "audio", "video")


def _file(kind: str, fields: Mapping[str, Any]) -> File | None:
    source, ending = object_at(fields, "source"), str(fields.get("format"))
    is_document = kind == "document"
    media_type = _DOCUMENTS.get(ending, f"application/{ending}") if is_document else f"{kind}/{ending}"
    data, name = text_at(object_at(source, "bytes"), "data"), text_at(fields, "name")
    if data is not None:
        return File(media_type, data=data, name=name)
    uri = text_at(object_at(source, "location"), "uri")
    return None if uri is None else File(media_type, file_id=uri, name=name, origin=NAME)


class StrandsWriter(Writer):
    """
    Writes stored messages: all results of an answer in the very next one, as Strands looks nowhere else for them.

    Their indexes follow those of the messages that Strands wrote; their times are missing.
    """

    form = NAME
    has_files = "it takes images, documents, audio and video of users, by their bytes"

    def takes(self, turns: Sequence[WrittenTurn], sources: Sources) -> bool:  # noqa: ARG002
        """Whether models take them as they came."""
        for turn in turns:
            results = sources_of(turn.results)
            # Strands answers a call itself, and drops the result, where that is not in the very next message
            # (`repository_session_manager._fix_broken_tool_use`).
            if turn.calls and (
                len(sources_of(turn.items)) > 1 or turn.items[-len(turn.calls)] is not turn.calls[0] or len(results) > 1
            ):
                return False
            for source in results:
                if not all("toolResult" in block for block in message_in(source.data)["content"][: len(turn.results)]):
                    return False
        return True

    def write(self, turn: WrittenTurn) -> None:
        """Write a turn anew."""
        self.lose_name(turn)
        blocks = self._blocks(turn.items)
        blocks.sort(key=lambda block: "toolUse" in block)  # nothing stands behind calls
        if blocks:
            self._add(ASSISTANT if turn.role == ASSISTANT else USER, blocks, turn.items[0].source)
        results = [self._result(item, result) for _, _, item, result in answers(turn, is_all=turn.has_results)]
        if results:
            self._add(USER, results, turn.calls[0].source)

    def _add(self, role: str, content: list[Any], source: Source) -> None:
        last = index_of(self.messages[-1]) if self.messages else -1
        told_id = self.free_id(source)
        own = message_in(source.data) if source.form == NAME and told_id == source.id else {}
        # A UUID that is the same at every reading, of version 8, which is free to say what it likes.
        digest = blake2b(told_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        tracking_id = f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-8{digest[17:20]}-{digest[20:]}"
        message = {"tracking_id": tracking_id, **own, "role": role, "content": content}
        self.messages.append({"message": message, "message_id": (-1 if last is None else last) + 1})

    def _call_block(self, item: FormItem, call: Call, native: Any) -> Any:  # noqa: ARG002
        use = object_at(native, "toolUse") or {"input": object_of(call)}
        return {"toolUse": {**use, "toolUseId": call.id, "name": call.name}}

    def _new_block(self, item: FormItem) -> Any:
        what = item.what
        if isinstance(what, Words):
            return {"text": what.text}
        if isinstance(what, Reasoning) and what.text:
            return {"reasoningContent": {"reasoningText": {"text": what.text}}}
        return _file_block(what) if isinstance(what, File) and item.role != ASSISTANT else None

    def _result(self, item: FormItem, result: Result) -> dict[str, Any]:
        native = object_at(self.native(item), "toolResult")
        if native:
            return {"toolResult": {**native, "toolUseId": result.call_id}}
        pieces = [Text(result.content)] if isinstance(result.content, str) else result.content
        content: list[Any] = []
        for piece in pieces:
            if isinstance(piece, Json):
                content.append({"json": piece.value})
            elif not isinstance(piece, Text) or piece.text.strip():
                content += self._blocks([FormItem(TOOL, piece, item.source)])
        status = "error" if result.is_error else "success"
        return {"toolResult": {"toolUseId": result.call_id, "status": status, "content": content}}


def _file_block(file: File) -> dict[str, Any] | None:
    kind, _, ending = file.media_type.partition("/")
    ending = "jpeg" if ending == "jpg" else ending
    if kind not in _KINDS:
        kind, ending = "document", _FORMATS.get(file.media_type, "txt" if kind == "text" else "")
    uri = id_at(file, NAME)
    if not ending or ending == "*" or (kind == "image" and ending not in _IMAGES) or file.data is uri is None:
        return None
    source: dict[str, Any] = {"location": {"type": "s3", "uri": uri}}
    if uri is None:
        source = {"bytes": {"__bytes_encoded__": True, "data": file.data}}
    named = {"name": _NOT_IN_NAMES.sub("-", file.name or kind)} if kind == "document" else {}
    return {kind: {"format": ending, **named, "source": source}}


FORM: Final = Form(
    name=NAME,
    read=read,
    write=StrandsWriter,
    rules=Rules(ids=re.compile(r"[a-zA-Z0-9_-]{1,64}"), names=TOOL_NAME, blank="blank"),
)
