"""
Lists of messages as the APIs of OpenAI, Anthropic and others take them, and as files for fine-tuning have them.

    [{"role": "user", "content": "Plan a weekend in Riga"}, ...]            one conversation
    {"messages": [...]}                                                     the same, in a file of its own
    {"messages": [...]}                                                     JSONL: one conversation a line
    [{"messages": [...]}, ...]                                              a list of them

Messages may be chat messages or items of OpenAI, Anthropic's with blocks, Gemini's, or UIMessages; each is told by its own shape.
Anthropic's `system` becomes the first message. Whatever else a record says (tools, a model) is kept in the metadata, under `record`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from chatledger.domain.chat.import_tree import Reporter
from chatledger.domain.chat.interchange import ImportedChat
from chatledger.domain.context.formats.stored import of_an_api
from chatledger.domain.context.messages import UIMessage, is_ui_message
from chatledger.domain.errors import InvalidValueError

from .documents import Document, read_documents
from .linear import make_chat

_SOURCE: Final = "messages"
_OF_ONE: Final = ("role", "type")


def read_messages(path: Path, report: Reporter) -> Iterator[ImportedChat]:
    """The conversations of a file, in its order."""
    loose: list[Any] = []
    for document in read_documents(path, report):
        value = document.value
        if isinstance(value, dict) and "messages" in value:
            fields = cast("dict[str, Any]", value)
            found = fields["messages"]
            rest = {key: item for key, item in fields.items() if key not in {"messages", "system"}}
            system = [{"role": "system", "content": fields["system"]}] if fields.get("system") else []
            chat = _made(document, found, system, {"record": rest} if rest else {}, report)
        elif document.line is None and isinstance(value, dict) and any(key in value for key in _OF_ONE):
            loose.append(value)
            continue
        else:
            chat = _made(document, value, [], {}, report)
        if chat is not None:
            yield chat
    if loose:
        chat = _made(Document(loose, 1, None), loose, [], {}, report)
        if chat is not None:
            yield chat


def _made(
    document: Document, found: Any, system: list[Any], metadata: dict[str, Any], report: Reporter
) -> ImportedChat | None:
    if not isinstance(found, list):
        report.broken(f"conversation {document.number} has no list of messages; skipped", line=document.line)
        return None
    return make_chat(_SOURCE, document, [*system, *cast("list[Any]", found)], _convert, metadata, report)


def _convert(message: Any, message_id: str) -> UIMessage:
    found = of_an_api(message, message_id)
    if found is None and is_ui_message(message):
        found = {**cast("Mapping[str, Any]", message), "id": message_id}
    if found is None:
        msg = "it is no message of an API that is known; one has a role, and content or parts"
        raise InvalidValueError(msg)
    return found
