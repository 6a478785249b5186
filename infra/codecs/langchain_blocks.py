"""
LangChain's content blocks, and the parts of a UIMessage.

There are LangChain's own blocks, such as `{"type": "image", "url": ...}`, those of the OpenAI API, such as
`{"type": "image_url", ...}`, and whatever else a model answers.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from chatledger.domain.context.formats.details import kept, part_details, with_details
from chatledger.domain.context.formats.openai_parts import (
    ANY_FILE,
    REFUSAL,
    base64_data,
    content_part,
    file_id,
    media_type,
    part_of,
)
from chatledger.domain.context.formats.openai_parts import VERBATIM as OPENAI_VERBATIM
from chatledger.domain.context.formats.plain import object_at, text_at, without
from chatledger.domain.rules import same_json

LANGCHAIN: Final = "langchain"
VERBATIM: Final = "data-langchain"
_OPENAI_KINDS: Final = ("image_url", "input_audio", REFUSAL)
_MEDIA: Final = ("image", "audio", "video")
_THOUGHTS: Final = ("reasoning", "thinking")


def part_of_block(block: Any) -> dict[str, Any]:
    """The part of a UIMessage for a block; a verbatim one where there is none from which it could be told again."""
    if isinstance(block, str):
        return with_details({"type": "text", "text": block}, LANGCHAIN, {"style": "plain"})
    if isinstance(block, Mapping):
        block = cast("Mapping[str, Any]", block)
        part = _converted(block)
        if part is not None and same_json(block_of(part), block):
            return part
    return {"type": VERBATIM, "data": block}


def block_of(part: Mapping[str, Any]) -> Any:
    """The block for a part of a UIMessage; None where there is none. Reasoning is given back only to where it came from."""
    details, kind, text = part_details(part, LANGCHAIN), part.get("type"), text_at(part, "text")
    style, fields = text_at(details, "style"), object_at(details, "fields")
    if kind in {VERBATIM, OPENAI_VERBATIM}:
        return part.get("data") if isinstance(part.get("data"), Mapping) else None
    if kind == "text" and text is not None:
        if style == "plain":
            return text
        refused = part_details(part, "openai").get(REFUSAL) is True
        return {"type": REFUSAL, REFUSAL: text} if refused else content_part(part, LANGCHAIN)
    if kind == "reasoning" and text is not None and style in _THOUGHTS:
        return {"type": style, style: text, **fields}
    if kind == "file":
        return content_part(part, LANGCHAIN) if style == "openai" else _media_block(part, fields)
    return None


def _converted(block: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = text_at(block, "type") or ""
    if kind == "text":
        return part_of(block, LANGCHAIN)
    if kind in _OPENAI_KINDS or (kind == "file" and "file" in block):
        return _in_openai_style(part_of(block, LANGCHAIN))
    if kind in _THOUGHTS and (text := text_at(block, kind)) is not None:
        details = kept(style=kind, fields=without(block, "type", kind))
        return with_details({"type": "reasoning", "text": text}, LANGCHAIN, details)
    if kind in _MEDIA or kind == "file":
        return _media_part(kind, block)
    return None


def _in_openai_style(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] != "file":
        return part
    return with_details(part, LANGCHAIN, {"style": "openai", **part_details(part, LANGCHAIN)})


def _media_part(kind: str, block: Mapping[str, Any]) -> dict[str, Any] | None:
    url, data, named = (text_at(block, key) for key in ("url", "base64", "mime_type"))
    if (url is None) == (data is None) or (data is not None and named is None):
        return None
    media = named or (ANY_FILE if kind == "file" else f"{kind}/*")
    part = {"type": "file", "mediaType": media, "url": url if data is None else f"data:{named};base64,{data}"}
    details = kept(kind=kind, fields=without(block, "type", "url", "base64", "mime_type"))
    return with_details(part, LANGCHAIN, details)


def _media_block(part: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any] | None:
    url, media, name = text_at(part, "url"), text_at(part, "mediaType") or "", text_at(part, "filename")
    group = media.partition("/")[0]
    kind = text_at(part_details(part, LANGCHAIN), "kind") or (group if group in _MEDIA else "file")
    named = {} if media.endswith("/*") or media == ANY_FILE else {"mime_type": media}
    extras = {} if name is None else {"extras": {"filename": name}}
    uploaded = file_id(part)
    if uploaded is not None:
        return {"type": kind, "file_id": uploaded, **named, **extras, **fields}
    if url is None:
        return None
    data = base64_data(url)
    if data is None:
        return {"type": kind, "url": url, **named, **extras, **fields}
    return {"type": kind, "base64": data, "mime_type": media_type(url) or media, **extras, **fields}
