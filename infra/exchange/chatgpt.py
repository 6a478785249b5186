"""
ChatGPT data exports: `conversations.json`, one of its numbered parts, or the .zip that holds them.

A conversation is a `mapping` of nodes with a parent and ordered children; `current_node` is the head of the branch the user
saw last, which becomes `main`. Every other leaf gets a branch. Nodes without a message are structure: their children hang
on the nearest message above, or become roots. A message that ChatGPT hid from the user (custom instructions, what it kept of other
conversations) is a hidden one here. What a model thought is reasoning, and the pages that it cites or found are `source-url` parts
after the text; their `sourceId` is the word of the text that stands for them, such as `turn0search1`.

OpenAI publishes no schema. What is read here is what exports up to 2026 hold: https://github.com/mohamed-chs/convoviz
(docs/dev/chatgpt-spec.md) and https://github.com/mitkury/chatgpt-export-parser.

Of a message, `metadata` keeps the author's name, the recipient, the model, custom instructions, attachments and citations of what has
no address.
Dropped: status, weight, feedback and moderation results.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Final, cast

from chatledger.domain.chat.import_fit import describe_id_fault, fit_message
from chatledger.domain.chat.import_tree import Reporter, branch_leaves, sort_parents_first
from chatledger.domain.chat.interchange import ImportedChat, ImportedMessage
from chatledger.domain.forms.plain import list_at, object_at, text_at
from chatledger.domain.values import UI, Annotation

from .documents import read_conversations
from .parts import Part, SourceLink, data_part, reasoning_part, source_parts, text_part
from .source import is_id

_SOURCE: Final = "chatgpt"
_THOUGHTS: Final = ("thoughts", "reasoning_recap")
_CONTEXT: Final = ("user_editable_context", "model_editable_context")
"""The types of content that ChatGPT gives the model and never shows: custom instructions, and what it remembers."""


def make_parts(content: Any) -> list[Part]:
    """
    Text parts for what is text, reasoning for `thoughts`, and `{"type": "data-chatgpt", "data": ...}` with the original for everything else.

    - `text`, `multimodal_text` and other types with `parts`: neighbouring texts are joined by a line break, objects such as
      image pointers are kept in their place. The words of an `audio_transcription` are a text part before it.
    - types with a `text` (`code`, `execution_output`, `system_error`, `tether_quote`, `sonic_webpage`, ...): that text, then
      the other fields as data.
    - `thoughts`: a part for each, its summary above what was thought; of newer ones, which have `parts`, their texts.
    - any other (`reasoning_recap` without parts, `user_editable_context`, `tether_browsing_display`, ...): data.
    """
    if not isinstance(content, dict):
        return [] if content is None else [data_part(_SOURCE, content)]
    fields = cast("dict[str, Any]", content)
    parts: list[Part] = []
    rest, kind = fields, fields.get("content_type")
    if isinstance(fields.get("parts"), list):
        rest = {key: value for key, value in fields.items() if key not in {"content_type", "parts"}}
        for is_text, group in groupby(fields["parts"], lambda part: isinstance(part, str)):
            if is_text:
                text = "\n".join(group)
                parts.append(reasoning_part(text, _SOURCE) if kind in _THOUGHTS else text_part(text))
                continue
            for part in group:
                words = text_at(object_at(part), "text")
                parts += [text_part(words), data_part(_SOURCE, part)] if words else [data_part(_SOURCE, part)]
    elif isinstance(fields.get("text"), str):
        rest = {key: value for key, value in fields.items() if key != "text"}
        parts.append(text_part(fields["text"]))
    elif kind == "thoughts" and isinstance(fields.get("thoughts"), list):
        rest = {key: value for key, value in fields.items() if key not in {"content_type", "thoughts"}}
        for thought in fields["thoughts"]:
            own_fields = object_at(thought)
            text = "\n\n".join(filter(None, (text_at(own_fields, "summary"), text_at(own_fields, "content"))))
            details = {key: value for key, value in own_fields.items() if key != "content"}
            parts.append(reasoning_part(text, _SOURCE, details) if text else data_part(_SOURCE, thought))
    return [*parts, data_part(_SOURCE, rest)] if rest else parts


def _source_links(metadata: Mapping[str, Any]) -> Iterator[SourceLink]:
    """Yield the pages that a message cites, then those that a search found: from the four places in which exports since 2023 name them."""
    for reference in map(object_at, list_at(metadata, "content_references")):
        pages: list[Mapping[str, Any]] = []
        for page in map(object_at, list_at(reference, "items") or list_at(reference, "sources") or [reference]):
            pages += [page, *map(object_at, list_at(page, "supporting_websites"))]
        # A group that names the words of its pages beside them does so in their order.
        words = [*map(_word_of, list_at(reference, "refs")), *[None] * len(pages)]
        # The last one of a text repeats them all.
        place = None if reference.get("type") == "sources_footnote" else reference.get("start_idx")
        shared = {key: reference[key] for key in ("type", "matched_text", "start_idx", "end_idx") if key in reference}
        for page, word in zip(pages, words, strict=False):
            own_word = next(filter(None, map(_word_of, [page.get("ref_id"), *list_at(page, "refs")])), word)
            record = {key: value for key, value in page.items() if key != "supporting_websites"} | shared
            if url := text_at(page, "url"):
                yield SourceLink(url, text_at(page, "title"), own_word, place, record)
    for citation in map(object_at, list_at(metadata, "citations")):
        page = object_at(citation, "metadata")
        yield SourceLink(text_at(page, "url"), text_at(page, "title"), None, citation.get("start_ix"), dict(citation))
    groups = map(object_at, list_at(metadata, "search_result_groups"))
    hits = [entry for group in groups for entry in list_at(group, "entries")]
    for page in map(object_at, [*hits, *list_at(object_at(metadata, "_cite_metadata"), "metadata_list")]):
        if url := text_at(page, "url"):
            yield SourceLink(url, text_at(page, "title"), _word_of(page.get("ref_id")), None, dict(page))


def _word_of(reference: Any) -> str | None:
    """Return the word by which the text refers to a page: `turn0search1`."""
    fields = object_at(reference)
    turn, kind, number = (fields.get(key) for key in ("turn_index", "ref_type", "ref_index"))
    return None if turn is None or kind is None or number is None else f"turn{turn}{kind}{number}"


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
            yield from _make_chat(chat_id, fields, document.owner or _SOURCE, document.report)


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
        metadata={"source": _SOURCE} | {key: fields[key] for key in _CHAT_FIELDS if fields.get(key) is not None},
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
        "user_context": metadata.get("user_context_message_data"),
        "attachments": metadata.get("attachments"),
    }
    is_hidden = (
        metadata.get("is_visually_hidden_from_conversation") is True
        or text_at(object_at(fields, "content"), "content_type") in _CONTEXT
    )
    imported = ImportedMessage(
        id=key,
        parent_id=parent_id,
        name=role,
        data={
            "id": key,
            "role": role,
            "parts": [*make_parts(fields.get("content")), *source_parts(_SOURCE, _source_links(metadata))],
        },
        form=UI,
        notes={name: value for name, value in notes.items() if value is not None} or None,
        created_at=_milliseconds(fields.get("create_time")),
        annotation=Annotation(hidden=True) if is_hidden else None,
    )
    return fit_message(chat_id, imported, report.broken)


def _milliseconds(seconds: Any) -> int | None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    return round(seconds * 1000) if abs(seconds) < _LAST_SECOND else None
