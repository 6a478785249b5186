"""
Lists of messages as the APIs of OpenAI, Anthropic and others take them, and as files for fine-tuning have them.

    [{"role": "user", "content": "Plan a weekend in Riga"}, ...]            one conversation
    {"messages": [...]}                                                     the same, in a file of its own
    {"messages": [...]}                                                     JSONL: one conversation a line
    [{"messages": [...]}, ...]                                              a list of them
    {"role": "user", "content": "Plan a weekend in Riga"}                   JSONL: one message a line, one conversation

Messages may be chat messages or items of OpenAI, Anthropic's with blocks, Gemini's, or UIMessages; each is told by its own shape, and
kept as it is.
Anthropic's `system` becomes the first message. Whatever else a record says (tools, a model) is kept in the metadata, under `record`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from chatledger.domain.chat.import_tree import Reporter
from chatledger.domain.chat.interchange import ImportedChat
from chatledger.domain.context.formats.stored import name_of
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.forms.detect import form_of

from .linear import Dialect, read_linear


def read_messages(path: Path, report: Reporter) -> Iterator[ImportedChat]:
    """The conversations of a file, in its order."""
    return read_linear(path, report, _DIALECT)


def _convert(message: Any, _message_id: str) -> tuple[str, Any, str]:
    form = form_of(message)
    if form is None:
        msg = "it is no message of an API that is known; one has a role, and content or parts"
        raise InvalidValueError(msg)
    return name_of(message, form), message, form


_DIALECT: Final = Dialect("messages", ("role", "type"), _convert, ("role", "content"))
