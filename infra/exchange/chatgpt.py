"""
ChatGPT data exports: `conversations.json`, one of its numbered parts, or the .zip that holds them.

A conversation is a `mapping` of nodes with a parent and ordered children; `current_node` is the head of the branch the user
saw last, which becomes `main`. Every other leaf gets a branch. Nodes without a message are structure: their children hang
on the nearest message above, or become roots. Hidden and empty system messages are messages like any other.

OpenAI publishes no schema. What is read here is what exports up to 2026 hold: https://github.com/mohamed-chs/convoviz
(docs/dev/chatgpt-spec.md) and https://github.com/mitkury/chatgpt-export-parser.

Of a message, `metadata` keeps the author's name, the recipient, the model, whether it was hidden, custom instructions and
attachments.
Dropped: citations, status, weight, feedback and moderation results.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from chatledger.domain.chat.import_fit import describe_id_fault, fit_message
from chatledger.domain.chat.import_tree import Reporter, branch_leaves, sort_parents_first
from chatledger.domain.chat.interchange import ImportedChat, ImportedMessage
from chatledger.domain.forms.plain import list_at, object_at, text_at
from chatledger.domain.values import UI

from .documents import read_conversations
from .source import is_id

_DATA_TYPE = "data-chatgpt"


def make_parts(content: Any) -> list[dict[str, Any]]:
    """
    Text parts for what is text, and `{"type": "data-chatgpt", "data": ...}` with the original for everything else.

    - `text`, `multimodal_text` and other types with `parts`: neighbouring texts are joined by a line break, objects such as
      image pointers are kept in their place. The words of an `audio_transcription` are a text part before it.
    - types with a `text` (`code`, `execution_output`, `system_error`, `tether_quote`, `sonic_webpage`, ...): that text, then
      the other fields as data.
    - any other (`thoughts`, `reasoning_recap`, `user_editable_context`, `tether_browsing_display`, ...): data.
    """
    if not isinstance(content, dict):
        return [] if content is None else [_data(content)]
    fields = cast("dict[str, Any]", content)
    parts: list[dict[str, Any]] = []
    rest = fields
    if isinstance(fields.get("parts"), list):
        rest = {key: value for key, value in fields.items() if key not in {"content_type", "parts"}}
        for is_text, group in groupby(fields["parts"], lambda part: isinstance(part, str)):
            if is_text:
                parts.append(_text("\n".join(group)))
                continue
            for part in group:
                words = text_at(object_at(part), "text")
                parts += [_text(words), _data(part)] if words else [_data(part)]
    elif isinstance(fields.get("text"), str):
        rest = {key: value for key, value in fields.items() if key != "text"}
        parts.append(_text(fields["text"]))
    return [*parts, _data(rest)] if rest else parts


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _data(original: Any) -> dict[str, Any]:
    return {"type": _DATA_TYPE, "data": original}


_UNKNOWN_USER = "chatgpt"
# The end of the year 9999; what lies beyond is no time, and may not even be a finite number.
_LAST_SECOND = 253_402_300_800
_CHAT_FIELDS = ("default_model_slug", "gizmo_id", "is_archived", "is_starred", "conversation_origin")


def read_chatgpt(path: Path, report: Reporter) -> Iterator[ImportedChat]:
    """The conversations of an export, in its order. Raises `InvalidValueError` when a .zip is no export at all."""
    for document in read_conversations(path, report, key="mapping"):
        what, fields = f"conversation {document.number}", document.fields
        chat_id = fields.get("conversation_id") or fields.get("id")
        if not isinstance(fields.get("mapping"), dict):
            document.report.broken(f"{what} has no mapping of messages; skipped")
        elif is_id(chat_id, f"the id of {what}", document.report):
            yield from _make_chat(chat_id, fields, document.owner or _UNKNOWN_USER, document.report)


def _make_chat(chat_id: str, fields: Mapping[str, Any], user_id: str, report: Reporter) -> Iterator[ImportedChat]:
    nodes = {key: object_at(node) for key, node in fields["mapping"].items()}
    parents = _link_nodes(chat_id, nodes, report)
    readable: list[ImportedMessage] = []
    # The message a node stands for: its own, or that of the nearest node above which has one.
    stands_for: dict[str, str | None] = {}
    for key in _walk_in_order(parents, nodes):
        parent = parents[key]
        above = stands_for[parent] if parent is not None else None
        message = _make_message(chat_id, key, nodes[key].get("message"), above, report)
        readable += [] if message is None else [message]
        stands_for[key] = above if message is None else message.id
    messages = tuple(readable)
    if not messages and any(node.get("message") is not None for node in nodes.values()):
        report.broken(f"chat {chat_id!r} has no message that can be read; skipped")
        return
    current = fields.get("current_node")
    head = messages[-1].id if messages else None
    if isinstance(current, str) and current in stands_for:
        head = stands_for[current]
    elif head is not None:
        report.unlinked(f"chat {chat_id!r}: current_node names no node; main ends at {head!r}")
    yield ImportedChat(
        id=chat_id,
        user_id=text_at(fields, "owner") or user_id,
        title=text_at(fields, "title"),
        metadata={"source": "chatgpt"} | {key: fields[key] for key in _CHAT_FIELDS if fields.get(key) is not None},
        messages=messages,
        branches=branch_leaves(messages, main_head=head),
        created_at=_milliseconds(fields.get("create_time")),
        updated_at=_milliseconds(fields.get("update_time")),
    )


_Nodes = Mapping[str, Mapping[str, Any]]


def _link_nodes(chat_id: str, nodes: _Nodes, report: Reporter) -> dict[str, str | None]:
    """The parent of each node. Where a node names none, being listed as a child counts."""
    listed: dict[str, str] = {}
    for key, node in nodes.items():
        for child in list_at(node, "children"):
            if isinstance(child, str):
                listed.setdefault(child, key)
    named: dict[str, str | None] = {}
    for key, node in nodes.items():
        parent = node.get("parent") if "parent" in node else listed.get(key)
        named[key] = parent if isinstance(parent, str) else None
    return sort_parents_first(
        named, on_fault=lambda _, fault: report.unlinked(f"chat {chat_id!r}: {fault}; it becomes a root")
    )


def _walk_in_order(parents: dict[str, str | None], nodes: _Nodes) -> Iterator[str]:
    """Depth first, children as their parent lists them, those it does not list after them."""
    below: dict[str | None, dict[str, None]] = {}
    for key, parent in parents.items():
        siblings = below.get(parent)
        if siblings is None:
            listed = list_at(nodes[parent], "children") if parent is not None else []
            siblings = {child: None for child in listed if isinstance(child, str) and parents.get(child) == parent}
            below[parent] = siblings
        siblings.setdefault(key)
    # A loop: a chat may be deeper than the interpreter's stack.
    pending = list(reversed(below.get(None, {})))
    while pending:
        key = pending.pop()
        yield key
        pending.extend(reversed(below.get(key, {})))


def _make_message(
    chat_id: str, key: str, message: Any, parent_id: str | None, report: Reporter
) -> ImportedMessage | None:
    if message is None:
        return None
    fields, author = object_at(message), object_at(message, "author")
    role, fault = text_at(author, "role"), describe_id_fault(key)
    if fault is not None or not role:
        report.broken(f"chat {chat_id!r}: message {key!r} {fault or 'has no author role'}; skipped")
        return None
    metadata, recipient = object_at(fields, "metadata"), fields.get("recipient")
    notes = {
        "author_name": author.get("name"),
        "recipient": None if recipient == "all" else recipient,
        "model": metadata.get("model_slug"),
        "is_hidden": metadata.get("is_visually_hidden_from_conversation") or None,
        "user_context": metadata.get("user_context_message_data"),
        "attachments": metadata.get("attachments"),
    }
    imported = ImportedMessage(
        id=key,
        parent_id=parent_id,
        name=role,
        data={"id": key, "role": role, "parts": make_parts(fields.get("content"))},
        form=UI,
        notes={name: value for name, value in notes.items() if value is not None} or None,
        created_at=_milliseconds(fields.get("create_time")),
    )
    return fit_message(chat_id, imported, report.broken)


def _milliseconds(seconds: Any) -> int | None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    return round(seconds * 1000) if abs(seconds) < _LAST_SECOND else None
