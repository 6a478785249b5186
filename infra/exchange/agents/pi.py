"""pi: one file for each session, a tree of entries with an `id` and the `parentId` of what they follow."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import UNSET

from chatledger.domain.chat.lines import TranscriptLine, values_in
from chatledger.domain.forms.items import ASSISTANT, USER
from chatledger.domain.forms.pi import NAME
from chatledger.domain.forms.plain import last_line, object_at, text_at
from chatledger.domain.forms.reading import role_of
from chatledger.domain.forms.translate import translate
from chatledger.domain.values import Message

from .agent import (
    Agent,
    NewSession,
    SessionFile,
    WrittenSession,
    prompt_title,
    time_of,
    time_text,
    title_of,
)

_NO_USAGE: Final = {
    **dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "totalTokens"), 0),
    "cost": dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "total"), 0),
}
_ANSWERED: Final = {"api": "anthropic-messages", "provider": "chatledger", "model": "chatledger", "usage": _NO_USAGE}
"""Fields of each answer without which pi does not read it."""


def _line_of(value: Any, line_id: str) -> TranscriptLine:
    entry = last_line(value)
    is_entry = entry.get("type") != "session"
    parent = entry.get("parentId", UNSET) if is_entry else UNSET
    name = role_of(NAME, entry, "")
    title = title_of(text_at(entry, "name")) if entry.get("type") == "session_info" else None
    return TranscriptLine(
        value,
        (text_at(entry, "id") if is_entry else None) or line_id,
        parent if isinstance(parent, str | None) else UNSET,
        name,
        time_of(text_at(entry, "timestamp")),
        title=prompt_title(NAME, entry) if name == USER else title,
        is_titled=title is not None,
    )


def _lines_in(message: Message) -> list[TranscriptLine]:
    return [_line_of(value, f"#{message.id}:{number}") for number, value in enumerate(values_in(message.data))]


def _roots(environ: Mapping[str, str], home: Path) -> list[Path]:
    own = environ.get("PI_CODING_AGENT_SESSION_DIR")
    return [Path(own) if own else Path(environ.get("PI_CODING_AGENT_DIR") or home / ".pi" / "agent") / "sessions"]


def _sessions(root: Path) -> Iterator[SessionFile]:
    for path in sorted(root.rglob("*_*.jsonl")):
        session = path.stem.rpartition("_")[2]
        yield SessionFile(path, f"{NAME}/{session}", {"session": session})


def _described(value: Any) -> dict[str, str]:
    entry = last_line(value)
    if entry.get("type") != "session":
        model = text_at(object_at(entry, "message"), "model")
        return {"model": model} if model else {}
    forked = text_at(entry, "parentSession")
    fields = {
        "cwd": text_at(entry, "cwd"),
        "forked_from": f"{NAME}/{Path(forked).stem.rpartition('_')[2]}" if forked else None,
    }
    return {key: text for key, text in fields.items() if text}


def _blocks(content: Any) -> list[dict[str, Any]]:
    """Blocks of Anthropic's API as pi has them, but for results."""
    blocks: list[dict[str, Any]] = []
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        kind, source = block.get("type"), object_at(block, "source")
        if kind == "text":
            blocks.append({"type": "text", "text": block["text"]})
        elif kind == "tool_use":
            blocks.append({"type": "toolCall", "id": block["id"], "name": block["name"], "arguments": block["input"]})
        elif kind == "thinking":
            blocks.append({"type": "thinking", "thinking": block["thinking"]})
        elif kind == "image" and "data" in source:
            blocks.append({"type": "image", "data": source["data"], "mimeType": source.get("media_type", "image/png")})
    return blocks


def _messages(value: Mapping[str, Any], names: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The messages of pi for one of Anthropic's API; `names` are those of the tools by the ids of their calls."""
    content = value["content"]
    for block in () if isinstance(content, str) else content:
        if block["type"] == "tool_use":
            names[block["id"]] = block["name"]
        if block["type"] == "tool_result":
            call_id, texts = block["tool_use_id"], block.get("content") or ""
            result = {"role": "toolResult", "toolCallId": call_id, "toolName": names.get(call_id, "")}
            yield {**result, "content": _blocks(texts), "isError": block.get("is_error") is True}
    blocks = _blocks(content)
    if blocks and value["role"] == ASSISTANT:
        reason = "toolUse" if blocks[-1]["type"] == "toolCall" else "stop"
        yield {"role": ASSISTANT, "content": blocks, **_ANSWERED, "stopReason": reason}
    elif blocks:
        yield {"role": USER, "content": blocks}


def _written(messages: Sequence[Message], session: NewSession) -> WrittenSession:
    translated = translate(messages, "anthropic")
    begun = time_text(session.at.timestamp() * 1000)
    entries: list[dict[str, Any]] = [
        {"type": "session", "version": 3, "id": session.id, "timestamp": begun, "cwd": session.cwd}
    ]
    names: dict[str, str] = {}
    for value, places in zip(translated.messages, translated.origins, strict=True):
        said_at = messages[places[-1]].created_at
        for message in _messages(value, names):
            number = len(entries)
            entries.append(
                {
                    "type": "message",
                    "id": f"{number:08x}",
                    "parentId": f"{number - 1:08x}" if number > 1 else None,
                    "timestamp": time_text(said_at),
                    "message": {**message, "timestamp": said_at},
                }
            )
    content = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
    name = f"{session.at:%Y-%m-%dT%H-%M-%S-000Z}_{session.id}.jsonl"
    return WrittenSession(content, translated.dropped, name, (NAME, "--fork", "{file}"))


AGENT: Final = Agent(NAME, NAME, _roots, _sessions, _line_of, _lines_in, _described, _written)
