"""The parts of messages: content parts, tool calls, and the steps of an assistant."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import msgspec

from ...limits import same_json
from ...values import OWNER
from ..messages import ASSISTANT, object_at
from .plain import CALL_PROVIDER, compact, kept, parsed, part_details, text_at, with_details, without

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


def is_image(part: Mapping[str, Any]) -> bool:
    """Whether a file part is an image: of a media type such as `image/png`, or just `image`."""
    return (text_at(part, "mediaType") or "").partition("/")[0] == "image"


def file_id(part: Mapping[str, Any], provider: str = OPENAI) -> str | None:
    """The id that a provider gave a file, or its address there, if it was uploaded to this provider."""
    uploaded = text_at(object_at(part, "providerReference"), provider)
    return text_at(object_at(part, "providerMetadata", provider), "fileId") if uploaded is None else uploaded


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
    if is_image(part):
        given = object_at(part, "providerMetadata", OPENAI)
        detail = {"detail": given["imageDetail"]} if "imageDetail" in given else {}
        return {"type": "image_url", "image_url": {"url": url, **detail, **inner}}
    data = base64_data(url)
    kind = kind if "/" in kind else media_type(url) or kind  # `audio` alone
    for name_of_format, named_type in (*_AUDIO, ("mp3", "audio/mp3")):
        if kind == named_type and data is not None:
            return {"type": "input_audio", "input_audio": {"data": data, "format": name_of_format, **inner}}
    if data is None:
        return None  # the API fetches images only
    return {"type": "file", "file": {"file_data": url, **named, **inner}}


DYNAMIC_TOOL: Final = "dynamic-tool"
TOOL_PREFIX: Final = "tool-"
DENIED: Final = "Tool execution denied."


class Outcome(msgspec.Struct, frozen=True):
    """The result of a tool call, as text."""

    text: str
    is_error: bool


def is_tool_part(part: Mapping[str, Any]) -> bool:
    """Whether this part is the call of a tool, with its result or without."""
    kind = part.get("type")
    return isinstance(kind, str) and (kind == DYNAMIC_TOOL or kind.startswith(TOOL_PREFIX))


def is_complete_call(part: Mapping[str, Any]) -> bool:
    """Whether the call has arrived as a whole and can be answered: it has an id and is not being streamed."""
    return text_at(part, "toolCallId") is not None and part.get("state") != "input-streaming"


def verbatim_call_type(form: str) -> str:
    """The type of a part that holds a call of this format which has no counterpart, as it was given."""
    return f"data-{form}-call"


def verbatim_call(form: str, call: Any) -> dict[str, Any]:
    """A part that holds a call as it was given."""
    return {"type": verbatim_call_type(form), "data": call}


def is_verbatim_call(part: Mapping[str, Any]) -> bool:
    """Whether this part holds a call as some format gave it."""
    kind = part.get("type")
    return isinstance(kind, str) and kind.startswith("data-") and kind.endswith("-call")


def tool_name(part: Mapping[str, Any]) -> str:
    """The name of the tool: of a static part, such as `tool-weather`, the rest of its type."""
    if part["type"] == DYNAMIC_TOOL:
        return text_at(part, "toolName") or ""
    return str(part["type"]).removeprefix(TOOL_PREFIX)


def tool_part(name: str, call_id: str, arguments: str) -> dict[str, Any]:
    """
    The part of a call that has no result yet.

    `input` is the decoded `arguments`. Where encoding it again would give another text, because that is no JSON or is formatted
    differently, `rawInput` holds the text itself.
    """
    value, is_json = parsed(arguments)
    part = call_part(name, call_id, value)
    return part if is_json and compact(value) == arguments else part | {"rawInput": arguments}


def call_part(name: str, call_id: str, value: Any) -> dict[str, Any]:
    """The part of a call that has no result yet, with its parsed input."""
    return {"type": DYNAMIC_TOOL, "toolName": name, "toolCallId": call_id, "state": "input-available", "input": value}


def arguments_of(part: Mapping[str, Any]) -> str:
    """The arguments of a call as text: as the model wrote them, unless somebody changed the `input` since."""
    raw, value = text_at(part, "rawInput"), input_of(part)
    if raw is not None and (value == raw or same_json(parsed(raw)[0], value)):
        return raw
    return compact({} if value is None else value)


def input_of(part: Mapping[str, Any]) -> Any:
    """The input of a call; of one that failed before it was parsed, what the model wrote; None where there is neither."""
    value = part.get("input")
    return part.get("rawInput") if value is None else value


def outcome_of(part: Mapping[str, Any]) -> Outcome | None:
    """Return the result of a tool call; None while there is none."""
    state = part.get("state")
    if state == "output-available":
        output = part.get("output")
        return Outcome(output if isinstance(output, str) else compact(output), is_error=False)
    if state == "output-error":
        return Outcome(text_at(part, "errorText") or "", is_error=True)
    approval = object_at(part, "approval")
    if state == "output-denied" or (state == "approval-responded" and approval.get("approved") is False):
        return Outcome(text_at(approval, "reason") or DENIED, is_error=True)
    return None


class Step(msgspec.Struct, frozen=True):
    """One answer of a model: content, and calls of tools, whose results come after it."""

    content: list[Mapping[str, Any]]
    calls: list[Mapping[str, Any]]


def steps_of(parts: Iterable[Any]) -> list[Step]:
    """
    The parts of an assistant's UIMessage, which holds a whole turn, as the answers that a model gave one after another.

    A step ends at a `step-start` part, and where content follows the result of a tool. Calls that are still being streamed
    are left out.
    """
    steps = [Step([], [])]
    for part in objects(parts):
        current = steps[-1]
        if is_tool_part(part) or is_verbatim_call(part):
            if is_verbatim_call(part) or is_complete_call(part):
                current.calls.append(part)
            continue
        is_next = part.get("type") == "step-start" or any(outcome_of(call) for call in current.calls)
        if is_next and (current.content or current.calls):
            current = Step([], [])
            steps.append(current)
        if part.get("type") != "step-start":
            current.content.append(part)
    return steps


def objects(parts: Iterable[Any]) -> list[Mapping[str, Any]]:
    """The parts that are objects: all of them, unless somebody stored something else."""
    return [cast("Mapping[str, Any]", part) for part in parts if isinstance(part, Mapping)]


def is_result(part: Mapping[str, Any]) -> bool:
    """Whether this part stands for a result alone, as APIs have it whose call is in an earlier message."""
    forms = object_at(part, CALL_PROVIDER, OWNER)
    return any("result" in object_at(forms, form) for form in forms)


def without_calls(stored: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The parts of a message that is no assistant's: of those of tools only the ones that hold a result."""
    is_tool = stored["role"] == "tool"
    return [
        part
        for part in objects(stored["parts"])
        if not is_tool_part(part)
        or (is_complete_call(part) and outcome_of(part) is not None and (is_tool or is_result(part)))
    ]


def model_steps(role: str, stored: Mapping[str, Any]) -> list[Step]:
    """The steps of an assistant; of anybody else one, with calls only where a tool's message, or one of an API, holds results."""
    if role == ASSISTANT:
        return steps_of(stored["parts"])
    parts = without_calls(stored)
    return [Step([part for part in parts if not is_tool_part(part)], list(filter(is_tool_part, parts)))]
