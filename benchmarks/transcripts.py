"""Transcripts of a coding agent, as Claude Code writes them, with text cut from the sources and docs of this checkout."""

import random
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

ENTRIES: Final = 326
"""Entries of one transcript: steps of an answer with a call, its result, and what the agent says of it."""
_RESULT_CHARS: Final = (4_000, 8_000)
"""A result is in its entry twice, as for the model and as the tool gave it: 8 to 16 KB."""
_ROOT: Final = Path(__file__).parents[1]
_START: Final = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


def transcript(seed: int) -> Iterator[dict[str, Any]]:
    """Yield the entries of a transcript, a third of them results of tools; equal seeds make equal ones in one checkout."""
    draw = random.Random(seed)
    session, parent = str(uuid.UUID(int=draw.getrandbits(128), version=4)), None
    call_id = ""
    for number in range(ENTRIES):
        entry_id = str(uuid.UUID(int=draw.getrandbits(128), version=4))
        entry: dict[str, Any] = {
            "parentUuid": parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": "/home/ada/project",
            "sessionId": session,
            "version": "2.1.0",
            "gitBranch": "main",
            "uuid": entry_id,
            "timestamp": (_START + timedelta(seconds=7 * number)).isoformat(timespec="milliseconds"),
        }
        if number % 3 == 0:
            entry |= {"type": "user", "message": {"role": "user", "content": _cut(draw, 40, 600)}}
        elif number % 3 == 1:
            call_id = f"toolu_{draw.getrandbits(96):024x}"
            call = {
                "type": "tool_use",
                "id": call_id,
                "name": "Read",
                "input": {"file_path": f"/home/ada/project/{number}.py"},
            }
            entry |= _answer(draw, [{"type": "text", "text": _cut(draw, 100, 900)}, call])
        else:
            text = _cut(draw, *_RESULT_CHARS)
            result = {"tool_use_id": call_id, "type": "tool_result", "content": text}
            entry |= {"type": "user", "message": {"role": "user", "content": [result]}}
            entry["toolUseResult"] = {
                "type": "text",
                "file": {"filePath": f"/home/ada/project/{number}.py", "content": text},
            }
        parent = entry_id
        yield entry


def text_of(entry: Mapping[str, Any]) -> str:
    """Text of an entry, for a full-text index."""
    content: Any = entry["message"]["content"]
    if isinstance(content, str):
        return content
    return "\n".join(block.get("text") or block.get("content") or block["input"]["file_path"] for block in content)


def _answer(draw: random.Random, content: list[dict[str, Any]]) -> dict[str, Any]:
    usage = {
        "input_tokens": draw.randrange(9000),
        "cache_read_input_tokens": draw.randrange(90_000),
        "output_tokens": draw.randrange(900),
    }
    message_id = f"msg_{draw.getrandbits(96):024x}"
    message = {"id": message_id, "type": "message", "role": "assistant", "model": "claude-opus", "content": content}
    return {"type": "assistant", "message": message | {"stop_reason": "tool_use", "usage": usage}}


def _cut(draw: random.Random, least: int, most: int) -> str:
    text, size = _text(), draw.randint(least, most)
    at = draw.randrange(len(text) - size)
    return text[at : at + size]


@cache
def _text() -> str:
    """All sources of the domain and all guides, one after the other."""
    files = sorted([*(_ROOT / "domain").rglob("*.py"), *(_ROOT / "docs").rglob("*.md")])
    return "\n".join(file.read_text(encoding="utf-8") for file in files)
