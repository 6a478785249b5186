"""Messages as a page shows them: blocks of text, reasoning, tool calls, images and files, whatever form they were stored in."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import quote, unquote_to_bytes

import msgspec
from markupsafe import Markup
from starlette.responses import Response

from chatledger.domain.context.formats.parts import is_result, is_tool_part, objects, outcome_of, tool_name
from chatledger.domain.context.formats.plain import details_of, part_details, text_at
from chatledger.domain.context.formats.stored import CODECS, as_ui_message
from chatledger.domain.context.messages import UIMessage, object_at
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.values import UI, Message

from .markup import is_followed, is_shown_image, json_code, markdown
from .page import SAFE_HEADERS

_ROLES: Final = frozenset({"user", "assistant", "system", "tool"})
_PREPARING: Final = "input-streaming"
_DOWNLOAD: Final = "application/octet-stream"


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """
    A part of a message.

    Args:
        kind: `text`, `refusal`, `reasoning`, `tool`, `image`, `file`, `source` or `data`: how the template shows it.
        html: What it says.
        title: The name of a tool, a file or a source, or what kind of data it is.
        detail: The id of a call, or the media type of a file.
        index: Of the part in the message, by which its file is asked for.
        address: Where a file or a source is elsewhere; None where it is here, or no link leads there.
        outcome: The result of a tool; None while there is none.
        state: How far a call of a tool is: `preparing`, `running`, `done` or `failed`.
    """

    kind: str
    html: Markup = Markup()
    title: str = ""
    detail: str = ""
    index: int = 0
    address: str | None = None
    outcome: Markup | None = None
    state: str = ""


def blocks_of(message: Message) -> list[Block]:
    """
    Return the blocks of a message, which may be stored as text, as a UIMessage, or as a message of any API that is known.

    What is none of them, or cannot be read as what it seems to be, is one block with its JSON.
    """
    found = _ui_of(message)
    if found is None:
        return [Block(kind="data", title=message.name, html=json_code(message.data))]
    call_id = text_at(details_of(found), "tool_call_id")
    blocks = [block for index, part in enumerate(found["parts"]) if (block := _block(index, part)) is not None]
    if call_id is None or found["role"] != "tool":
        return blocks
    return [_result(call_id, text_at(details_of(found), "name") or "", found["parts"]), *_without_text(blocks)]


def role_of(message: Message) -> str:
    """Return the role by which a message is styled: `user`, `assistant`, `system`, `tool` or `other`."""
    found = _ui_of(message)
    role: str = message.name if found is None else found["role"]
    return role if role in _ROLES else "other"


def _ui_of(message: Message) -> UIMessage | None:
    """The common reading of all forms; None for JSON that is a message of none."""
    data, form = message.data, message.form
    if form in CODECS:
        try:
            return CODECS[form](object_at(data), message.id)
        except InvalidValueError:
            return None
    return as_ui_message(message.name, data, form) if data is None or isinstance(data, str) or form == UI else None


def _block(index: int, part: Any) -> Block | None:
    if not isinstance(part, Mapping):
        return Block(kind="data", html=json_code(part), index=index)
    part = {**cast("Mapping[str, Any]", part)}
    kind, text = str(part.get("type")), text_at(part, "text")
    if kind == "step-start":
        return None
    if kind == "text" and text is not None:
        is_refused = "refusal" in part_details(part, "openai")
        return Block(kind="refusal" if is_refused else "text", html=markdown(text), index=index) if text else None
    if kind == "reasoning" and text is not None:
        return Block(kind="reasoning", html=markdown(text), index=index) if text else None
    if is_tool_part(part):
        return _call(index, part)
    if kind == "file" and (url := text_at(part, "url")) is not None:
        return _file(index, part, url)
    if kind in {"source-url", "source-document"}:
        return _source(index, part)
    return Block(kind="data", title=kind, html=json_code(part.get("data", part)), index=index)


def _call(index: int, part: dict[str, Any]) -> Block:
    outcome = outcome_of(part)
    given: Any = None if is_result(part) else part.get("input", part.get("rawInput"))
    if outcome is None:
        state = "preparing" if part.get("state") == _PREPARING else "running"
    else:
        state = "failed" if outcome.is_error else "done"
    return Block(
        kind="tool",
        title=tool_name(part),
        detail=text_at(part, "toolCallId") or "",
        html=Markup() if given is None else json_code(given),
        outcome=None if outcome is None else json_code(outcome.text),
        state=state,
        index=index,
    )


def _result(call_id: str, name: str, parts: Any) -> Block:
    text = "\n".join(text for part in objects(parts) if (text := text_at(part, "text")) is not None)
    return Block(kind="tool", title=name, detail=call_id, outcome=json_code(text), state="done")


def _without_text(blocks: list[Block]) -> list[Block]:
    return [block for block in blocks if block.kind != "text"]


def _file(index: int, part: dict[str, Any], url: str) -> Block:
    name, media = text_at(part, "filename") or "", text_at(part, "mediaType") or ""
    if is_shown_image(url):
        return Block(kind="image", title=name, detail=media, index=index)
    is_here = url.startswith("data:")
    address = url if not is_here and is_followed(url) else None
    # Neither here nor anywhere: the id of a file that was uploaded somewhere.
    title = name or (url if not is_here else "")
    return Block(kind="file" if is_here or address else "data", title=title, detail=media, address=address, index=index)


def _source(index: int, part: dict[str, Any]) -> Block:
    url = text_at(part, "url") or ""
    title = text_at(part, "title") or text_at(part, "filename") or url
    return Block(kind="source", title=title, address=url if is_followed(url) else None, index=index)


def file_of(message: Message, index: int) -> Response | None:
    """
    Return the answer with the file that a part of a message holds; None where it holds none.

    Images of kinds in which nothing runs are shown by the browser; everything else it keeps, and opens nothing.
    """
    found = _ui_of(message)
    parts: list[Any] = [] if found is None else found["parts"]
    part: Any = parts[index] if index < len(parts) else None
    fields = object_at(part)
    url = text_at(fields, "url")
    if url is None or not url.startswith("data:"):
        return None
    head, _, data = url[5:].partition(",")
    try:
        content = base64.b64decode(data, validate=False) if head.endswith(";base64") else unquote_to_bytes(data)
    except (binascii.Error, ValueError):
        return None
    media = head.partition(";")[0].lower() if is_shown_image(url) else _DOWNLOAD
    name = quote(text_at(fields, "filename") or "file", safe="", errors="replace")
    headers = SAFE_HEADERS | {
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Content-Disposition": f"{'attachment' if media == _DOWNLOAD else 'inline'}; filename*=UTF-8''{name}",
        "Cache-Control": "private, max-age=3600",
        "Vary": "Cookie",
    }
    return Response(content, 200, headers, media)
