"""
Content parts as the OpenAI Chat Completions API has them, and the parts of a UIMessage.

LangChain takes the same parts, so the name of the format that keeps its details is an argument.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from ...rules import same_json
from .details import kept, part_details, with_details
from .plain import object_at, text_at, without

OPENAI: Final = "openai"
VERBATIM: Final = "data-openai"
"""The type of a part that holds a content part which has no counterpart, as it was given."""

REFUSAL: Final = "refusal"
FIELD: Final = "field"
"""A refusal that is a field of its message, not a content part."""

ANY_IMAGE: Final = "image/*"
ANY_FILE: Final = "application/octet-stream"
_AUDIO: Final = (("wav", "audio/wav"), ("mp3", "audio/mpeg"))


def part_of(block: Any, form: str = OPENAI) -> dict[str, Any]:
    """The part of a UIMessage for a content part; a verbatim one where there is none from which it could be told again."""
    if isinstance(block, Mapping):
        block = cast("Mapping[str, Any]", block)
        part = _converted(block, form)
        if part is not None and same_json(content_part(part, form), block):
            return part
    return {"type": VERBATIM, "data": block}


def content_part(part: Mapping[str, Any], form: str = OPENAI) -> Any:
    """The content part for a part of a UIMessage; None where the API has none."""
    kind, details = part.get("type"), part_details(part, form)
    fields = object_at(details, "fields")
    if kind == VERBATIM:
        return part.get("data")
    text = text_at(part, "text")
    if kind == "text" and text is not None:
        if REFUSAL in details:
            return {"type": REFUSAL, REFUSAL: text, **fields}
        return {"type": "text", "text": text, **fields}
    if kind == "file":
        found = _file_content(part, object_at(details, "inner"))
        return None if found is None else {**found, **fields}
    return None


def refusal_part(text: str) -> dict[str, Any]:
    """The part for a message's field `refusal`."""
    return with_details({"type": "text", "text": text}, OPENAI, {REFUSAL: FIELD})


def refusal_field(part: Mapping[str, Any]) -> str | None:
    """The text of a message's field `refusal`, if this part stands for it."""
    return text_at(part, "text") if part_details(part, OPENAI).get(REFUSAL) == FIELD else None


def media_type(url: str) -> str | None:
    """The media type that a data URL names."""
    return url[5:].partition(",")[0].partition(";")[0] or None if url.startswith("data:") else None


def base64_data(url: str) -> str | None:
    """The Base64 text of a data URL; None of any other."""
    head, comma, data = url.partition(",")
    return data if comma and head.startswith("data:") and head.endswith(";base64") else None


def file_id(part: Mapping[str, Any]) -> str | None:
    """The id that OpenAI gave a file, if it is one that was uploaded there."""
    return text_at(object_at(part, "providerMetadata", OPENAI), "fileId")


def _converted(block: Mapping[str, Any], form: str) -> dict[str, Any] | None:
    kind = text_at(block, "type") or ""
    inner, fields = object_at(block, kind), without(block, "type", kind)
    if kind in {"text", REFUSAL}:
        text = text_at(block, kind)
        details = kept(fields=fields, refusal=kind == REFUSAL)
        return None if text is None else with_details({"type": "text", "text": text}, form, details)
    if kind == "image_url" and (url := text_at(inner, "url")) is not None:
        given = {OPENAI: {"imageDetail": inner["detail"]}} if "detail" in inner else {}
        image = media_type(url) or ""
        part = _file_part(url, image if image.startswith("image/") else ANY_IMAGE, given)
        return with_details(part, form, kept(fields=fields, inner=without(inner, "url", "detail")))
    if kind == "input_audio" and (data := text_at(inner, "data")) is not None:
        named = dict(_AUDIO).get(str(inner.get("format")))
        details = kept(fields=fields, inner=without(inner, "data", "format"))
        return None if named is None else with_details(_file_part(f"data:{named};base64,{data}", named), form, details)
    if kind == "file":
        return _uploaded_or_sent(inner, form, fields)
    return None


def _uploaded_or_sent(inner: Mapping[str, Any], form: str, fields: dict[str, Any]) -> dict[str, Any] | None:
    uploaded, data, name = (text_at(inner, key) for key in ("file_id", "file_data", "filename"))
    if (uploaded is None) == (data is None):
        return None
    url = uploaded or data or ""
    part = _file_part(url, media_type(url) or ANY_FILE, {} if uploaded is None else {OPENAI: {"fileId": uploaded}})
    if name is not None:
        part["filename"] = name
    return with_details(part, form, kept(fields=fields, inner=without(inner, "file_id", "file_data", "filename")))


def _file_part(url: str, kind: str, given: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "file", "mediaType": kind, "url": url} | ({"providerMetadata": given} if given else {})


def _file_content(part: Mapping[str, Any], inner: Mapping[str, Any]) -> dict[str, Any] | None:
    url, kind, name = text_at(part, "url"), text_at(part, "mediaType") or "", text_at(part, "filename")
    uploaded = file_id(part)
    named = {} if name is None else {"filename": name}
    if uploaded is not None:
        return {"type": "file", "file": {"file_id": uploaded, **named, **inner}}
    if url is None:
        return None
    if kind.startswith("image/"):
        given = object_at(part, "providerMetadata", OPENAI)
        detail = {"detail": given["imageDetail"]} if "imageDetail" in given else {}
        return {"type": "image_url", "image_url": {"url": url, **detail, **inner}}
    data = base64_data(url)
    for name_of_format, named_type in (*_AUDIO, ("mp3", "audio/mp3")):
        if kind == named_type and data is not None:
            return {"type": "input_audio", "input_audio": {"data": data, "format": name_of_format, **inner}}
    if data is None:
        return None  # the API fetches images only
    return {"type": "file", "file": {"file_data": url, **named, **inner}}
