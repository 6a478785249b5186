"""
Entries of the transcripts of Claude Code: a message of the Anthropic API, and what the client noted with it.

    {"type": "user", "uuid": "a1...", "parentUuid": null, "sessionId": "...", "timestamp": "2026-11-20T10:00:00.000Z",
     "message": {"role": "user", "content": "Hello"}}

Everything but what the user and the assistant said (snapshots of files, progress, what the client tells the model by itself) is
bookkeeping, which has no items. A message may be a list of entries: bookkeeping, and what was said last.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from . import anthropic
from .anthropic import AnthropicWriter
from .items import ASSISTANT, USER, FormItem
from .model import Form
from .plain import last_line, object_at, text_at
from .writing import Sources, WrittenTurn

NAME: Final = "claude-code"
BOOKKEEPING: Final = "bookkeeping"
"""The name of messages that hold bookkeeping."""

SEARCHED_OUTPUT: Final = 1000
"""Characters at each end of an output of a tool that can be searched: most of a transcript is files and logs, whose errors are at the ends."""
_COMMANDS: Final = re.compile(r"\s*(<((?:local-)?command-[a-z]+)>.*?</\2>\s*)+", re.DOTALL)
"""Commands of the client that a user typed, and what they printed: nothing that a model was told."""


def message_in(data: Any) -> Mapping[str, Any] | None:
    """Return the message in an entry; None of bookkeeping."""
    entry = last_line(data)
    if entry.get("type") not in (USER, ASSISTANT) or entry.get("isMeta") or entry.get("teamName"):
        return None
    # The summary of a compaction is in transcripts only, too, and all that a model knows of what was before.
    if entry.get("isVisibleInTranscriptOnly") and not entry.get("isCompactSummary"):
        return None
    message = object_at(entry, "message")
    content = message.get("content")
    is_said = message.get("role") in (USER, ASSISTANT) and isinstance(content, str | list)
    is_command = isinstance(content, str) and _COMMANDS.fullmatch(content)
    return message if is_said and not is_command else None


def read(data: Any, name: str, source: Any) -> list[FormItem]:
    message = message_in(data)
    return [] if message is None else anthropic.read(message, name, source)


class ClaudeCodeWriter(AnthropicWriter):
    """Writes entries without what the client notes: `type` and `message`."""

    form = NAME

    def takes(self, turns: Sequence[WrittenTurn], sources: Sources) -> bool:  # noqa: ARG002
        """Whether Claude resumes from them as they came: it brings its own in the order that the API wants."""
        return True

    def put(self, sources: Sources) -> None:
        """Give entries as they came."""
        self.messages += [last_line(source.data) for source in sources]

    def write(self, turn: WrittenTurn) -> None:
        """Write a turn anew."""
        entries, self.messages = self.messages, []
        super().write(turn)
        self.messages = entries + [{"type": message["role"], "message": message} for message in self.messages]


FORM: Final = Form(
    name=NAME,
    read=read,
    write=ClaudeCodeWriter,
    rules=anthropic.FORM.rules,
    blocks=anthropic.NAME,
    role=lambda data: text_at(message_in(data) or {}, "role"),
    unsaid=BOOKKEEPING,
    searched_output=SEARCHED_OUTPUT,
)
