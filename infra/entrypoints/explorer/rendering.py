"""Messages as a page shows them: blocks of text, reasoning, tool calls, images and files, whatever form they were stored in."""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import quote, unquote_to_bytes

import msgspec
from markupsafe import Markup
from starlette.responses import Response

from chatledger.domain.forms import langchain, reading
from chatledger.domain.forms.items import ASSISTANT, Refusal, Result, Text
from chatledger.domain.forms.plain import compact, object_at, text_at
from chatledger.domain.forms.ui import DYNAMIC_TOOL, STEP_START, TOOL_PREFIX
from chatledger.domain.forms.writing import result_text
from chatledger.domain.values import UI, Message
from chatledger.domain.wire import iso

from .markup import as_said, is_followed, is_shown_image, json_code, markdown
from .page import SAFE_HEADERS

_ROLES: Final = frozenset({"user", "assistant", "system", "tool"})
_PREPARING: Final = "input-streaming"
_MOST_LINES: Final = 40
"""Longer texts are cut on the screen until somebody asks for the rest."""

_MOST_OF_A_LINE: Final = 200
"""Characters of arguments and results in the line of a call; the widest window has room for fewer."""

_DOWNLOAD: Final = "application/octet-stream"


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """
    A part of a message.

    Args:
        kind: `text`, `refusal`, `reasoning`, `tool`, `image`, `file`, `source` or `data`: how the template shows it.
        html: What it says.
        lines: How many the text has, where these are too many to be shown at once; else 0.
        title: The name of a tool, a file or a source, or what kind of data it is.
        detail: The id of a call, or the media type of a file.
        index: Of the part in the message, by which its file is asked for.
        address: Where a file or a source is elsewhere; None where it is here, or no link leads there.
        outcome: The result of a tool; None while there is none.
        state: How far a call of a tool is: `preparing`, `running`, `done` or `failed`.
        arguments: Those of a call in one line: `city="Riga" days=3`.
        first_line: The beginning of a result.
        result_id: The message that brought the result, where another one did.
        took_ms: The milliseconds between the message with the call and that with the result, where these are two.
    """

    kind: str
    html: Markup = Markup()
    lines: int = 0
    title: str = ""
    detail: str = ""
    index: int = 0
    address: str | None = None
    outcome: Markup | None = None
    state: str = ""
    arguments: str = ""
    first_line: str = ""
    result_id: str | None = None
    took_ms: int | None = None

    @property
    def is_result(self) -> bool:
        """Whether it is the result of a tool without the call."""
        return self.kind == "tool" and self.outcome is not None and not self.html


def blocks_of(message: Message, *, is_raw: bool = False) -> list[Block]:
    """
    Return the blocks of a message, of whatever form that is known, or text.

    Only what assistants wrote is Markdown. What users, tools and systems said is shown as they said it: formatting would show
    `2*3*4` as 234, and pasted code without its indentation. A message of no known form, or that cannot be read as the form it
    names, is one block with its JSON.
    """
    if (why := message.redacted) is not None and isinstance(message.shown, str):
        facts = [f"redacted {iso(why.at)}", f"by {why.by}" if why.by else "", why.reason or ""]
        return [Block(kind="data", title=", ".join(filter(None, facts)), html=as_said(message.shown))]
    items = reading.items_of(message.form, message.data, message.name, message)
    is_read = reading.known_form(message.form) is not None and all(item.source is message for item in items)
    if not is_read and not isinstance(message.data, str | None):
        return [Block(kind="data", title=message.name, html=json_code(message.data))]
    refusals = {item.what.text for item in items if isinstance(item.what, Refusal)}
    form = as_said if is_raw or role_of(message) != ASSISTANT else markdown
    shown = (_block(index, part, refusals, form) for index, part in enumerate(message.parts))
    return [block for block in shown if block is not None]


_ROLES_OF_TYPES: Final = {
    "AIMessageChunk": "ai",
    "HumanMessageChunk": "human",
    "SystemMessageChunk": "system",
    "ToolMessageChunk": "tool",
}
_NAMES: Final = {"human": "user", "ai": ASSISTANT}


def as_message(fields: Mapping[str, Any], place: int) -> Message:
    """Return a message of an agent's state, which is LangChain's or has a role, as one that can be shown; its id is its place."""
    kind = fields.get("type")
    kind = _ROLES_OF_TYPES.get(str(kind), kind)
    if "role" in fields or kind not in langchain.TYPES:
        return Message(
            id=str(place), name=str(fields.get("role", kind)), data=dict(fields), created_at=0, form="openai"
        )
    usage, details = fields.get("usage_metadata"), fields.get("response_metadata")
    model = cast("dict[str, Any]", details).get("model_name") if isinstance(details, dict) else None
    return Message(
        id=str(place),
        name=_NAMES.get(str(kind), str(kind)),
        agent_id=fields.get("name") or None,
        data={"type": kind, "data": dict(fields)},
        created_at=0,
        form=langchain.NAME,
        notes={"usage": usage, "model": model} if isinstance(usage, dict) else None,
    )


def of_state(blocks: Sequence[Block]) -> list[Block]:
    """Return blocks of a message in a state: files that lie in it have no address, only names, and nobody knows how long a call took."""
    return [
        msgspec.structs.replace(block, kind="named", title=block.title or block.kind.capitalize())
        if block.kind in {"image", "file"} and block.address is None
        else msgspec.structs.replace(block, took_ms=None)
        for block in blocks
    ]


def paired(messages: Sequence[Message], *, is_raw: bool) -> dict[str, list[Block]]:
    """
    Return what is shown of messages that follow each other, by id. A result of a tool is shown with its call, and not by itself.

    A message whose blocks are all with their calls has none. Without its call, which may be in no part that is shown, a result
    stands alone.
    """
    shown: dict[str, list[Block]] = {}
    calls: dict[str, tuple[Message, int]] = {}
    for message in messages:
        blocks = blocks_of(message, is_raw=is_raw)
        alone: list[Block] = []
        for block in blocks:
            call = calls.pop(block.detail, None) if block.is_result else None
            if call is None:
                alone.append(block)
                continue
            caller, at = call
            answered = shown[caller.id][at]
            shown[caller.id][at] = msgspec.structs.replace(
                answered,
                outcome=block.outcome,
                first_line=block.first_line,
                state=block.state,
                result_id=message.id,
                took_ms=max(message.created_at - caller.created_at, 0),
            )
        shown[message.id] = alone
        for at, block in enumerate(alone):
            if block.kind == "tool" and block.outcome is None and block.detail:
                calls[block.detail] = message, at
    return shown


def figures_of(message: Message) -> str:
    """Return what its metadata say a message took: `gpt-5 · 638 → 94 tokens · $0.0052`; empty where they say nothing."""
    usage = usage_of(message) or {}
    model = next((str(noted) for noted in (usage.get("model"), (message.metadata or {}).get("model")) if noted), "")
    sent, received = (
        next((usage[name] for name in names if type(usage.get(name)) is int), None)
        for names in (
            ("input_tokens", "inputTokens", "prompt_tokens"),
            ("output_tokens", "outputTokens", "completion_tokens"),
        )
    )
    tokens = tokens_of(usage)
    if sent is not None and received is not None:
        words = f"{sent:,} → {received:,} tokens"
    else:
        words = "" if tokens is None else f"{tokens:,} tokens"
    cost = usage.get("cost")
    return " · ".join(part for part in (model, words, f"${cost:.4f}" if isinstance(cost, int | float) else "") if part)


def usage_of(message: Message) -> Mapping[str, Any] | None:
    """Return the usage that a message came with, or that an annotation added later."""
    annotated = {} if message.annotation is None else message.annotation.metadata
    for metadata in (message.metadata, annotated):
        usage = metadata.get("usage")
        if isinstance(usage, Mapping):
            return cast("Mapping[str, Any]", usage)
    return None


def tokens_of(usage: Mapping[str, Any]) -> int | None:
    """Return the sum of tokens, by the names that providers and SDKs give it."""
    for names in (
        ("totalTokens",),
        ("total_tokens",),
        ("input_tokens", "output_tokens"),
        ("inputTokens", "outputTokens"),
        ("prompt_tokens", "completion_tokens"),
    ):
        counts = [usage.get(name) for name in names]
        if all(type(count) is int for count in counts):
            return sum(cast("list[int]", counts))
    return None


def role_of(message: Message) -> str:
    """Return the role by which a message is styled: `user`, `assistant`, `system`, `tool` or `other`."""
    role = message.role
    return role if role in _ROLES else "other"


def _block(index: int, part: Any, refusals: set[str], form: Callable[[str], Markup]) -> Block | None:
    if not isinstance(part, Mapping):
        return Block(kind="data", html=json_code(part), index=index)
    part = {**cast("Mapping[str, Any]", part)}
    kind, text = str(part.get("type")), text_at(part, "text")
    if kind == STEP_START:
        return None
    if kind == "text" and text is not None:
        lines = text.count("\n") + 1
        return (
            Block(
                kind="refusal" if text in refusals else "text",
                html=form(text),
                lines=lines if lines > _MOST_LINES else 0,
                index=index,
            )
            if text
            else None
        )
    if kind == "reasoning" and text is not None:
        return Block(kind="reasoning", html=form(text), index=index) if text else None
    if kind == DYNAMIC_TOOL or kind.startswith(TOOL_PREFIX):
        return _call(index, part, kind)
    if kind == "file" and (url := text_at(part, "url")) is not None:
        return _file(index, part, url)
    if kind in {"source-url", "source-document"}:
        return _source(index, part)
    return Block(kind="data", title=kind, html=json_code(part.get("data", part)), index=index)


def _call(index: int, part: dict[str, Any], kind: str) -> Block:
    read = reading.items_of(UI, {"role": ASSISTANT, "parts": [part]})
    result = next((item.what for item in read if isinstance(item.what, Result)), None)
    if result is None:
        state = "preparing" if part.get("state") == _PREPARING else "running"
    else:
        state = "failed" if result.is_error else "done"
    arguments: Any = part.get("input", part.get("rawInput"))
    outcome = None if result is None else _text_of(result, part)
    return Block(
        kind="tool",
        title=(text_at(part, "toolName") or "") if kind == DYNAMIC_TOOL else kind.removeprefix(TOOL_PREFIX),
        detail=text_at(part, "toolCallId") or "",
        html=Markup() if arguments is None else json_code(arguments),
        outcome=None if outcome is None else json_code(outcome),
        state=state,
        arguments=_in_one_line(arguments),
        first_line="" if outcome is None else outcome.strip().partition("\n")[0][:_MOST_OF_A_LINE],
        index=index,
    )


def _in_one_line(arguments: Any) -> str:
    if not isinstance(arguments, dict):
        return "" if arguments is None else compact(arguments)[:_MOST_OF_A_LINE]
    fields = cast("dict[str, Any]", arguments)
    return " ".join(f"{name}={compact(value)}" for name, value in fields.items())[:_MOST_OF_A_LINE]


def _text_of(result: Result, part: dict[str, Any]) -> str:
    is_text = isinstance(result.content, str) or all(isinstance(piece, Text) for piece in result.content)
    return result_text(result) if is_text else compact(part.get("output"))


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

    The browser shows images of kinds in which nothing runs; everything else it saves, and opens nothing.
    """
    parts = message.parts
    fields = object_at(parts[index] if index < len(parts) else None)
    url = text_at(fields, "url")
    if url is None or not url.startswith("data:"):
        return None
    head, _, data = url[5:].partition(",")
    try:
        content = base64.b64decode(data, validate=False) if head.endswith(";base64") else unquote_to_bytes(data)
    except (binascii.Error, ValueError):
        return None
    media = head.partition(";")[0].lower() if is_shown_image(url) else _DOWNLOAD
    name = quote(
        text_at(fields, "filename") or "file", safe="", errors="replace"
    )  # RFC 8187: a name may be in any script
    headers = SAFE_HEADERS | {
        # Opened by itself it would be a page of this server; sandboxed it has no origin, and no session.
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Content-Disposition": f"{'attachment' if media == _DOWNLOAD else 'inline'}; filename*=UTF-8''{name}",
        "Cache-Control": "private, max-age=3600",
        "Vary": "Cookie",
    }
    return Response(content, 200, headers, media)
