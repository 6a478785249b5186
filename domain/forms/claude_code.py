"""
Entries of the transcripts of Claude Code: a message of the Anthropic API, and what the client noted with it.

    {"type": "user", "uuid": "a1...", "parentUuid": null, "sessionId": "...", "timestamp": "2026-11-20T10:00:00.000Z",
     "message": {"role": "user", "content": "Hello"}}

Everything but what the user and the assistant said (summaries, snapshots of files, progress, what the client tells the model by
itself) is bookkeeping, which has no items.
"""

from typing import Any, Final

from . import anthropic
from .model import Form, Item
from .plain import object_at

NAME: Final = "claude-code"
BOOKKEEPING: Final = "bookkeeping"
"""The name of messages that hold bookkeeping."""


def read(data: Any, name: str, source: Any) -> list[Item]:
    """Read the message in an entry."""
    entry = object_at(data)
    message = entry.get("message")
    if entry.get("type") not in ("user", "assistant") or entry.get("isMeta") or entry.get("teamName"):
        return []
    return anthropic.read(message, name, source) if isinstance(object_at(message).get("role"), str) else []


FORM: Final = Form(name=NAME, read=read, blocks=anthropic.NAME)
