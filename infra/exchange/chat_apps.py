"""
Exports of Open WebUI, LibreChat and DeepSeek, whose messages name their parents.

None of the three publishes a schema. Read is what these have, each in a list or alone:

- Open WebUI (the list of all chats, or one of them): `chat.history.messages` by id, `currentId`. Since 0.7 an answer has an `output` of
  items as in OpenAI's Responses API; before, thoughts stand in the text between `<details type="reasoning">` and `</details>`.
- LibreChat (one conversation): `messages` or `messagesTree`, a flat list or each message with its `children`; what was thought and
  called is in `content`, in newer ones.
- DeepSeek (`conversations.json` or its .zip): a `mapping` of nodes, as ChatGPT has, whose messages are `fragments`. Ids are `1`, `2`, ...
  in each conversation, so here they are `chat:1`, `chat:2`.

What has no part is kept as it is, as a part of type `data-openwebui`, `data-librechat` or `data-deepseek`.
"""

import html
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from chatledger.domain.chat.import_tree import Located, Reporter
from chatledger.domain.chat.import_versions import id_in_chat
from chatledger.domain.chat.interchange import ImportedChat
from chatledger.domain.forms import ui
from chatledger.domain.forms.items import FormItem, Result
from chatledger.domain.forms.model import call_of
from chatledger.domain.forms.plain import list_at, object_at, text_at
from chatledger.domain.forms.reading import items_of
from chatledger.domain.values import Annotation

from .documents import read_conversations
from .parts import Part, SourceLink, data_part, reasoning_part, source_parts, text_part
from .source import decode_tree, is_id, iso_milliseconds
from .trees import has_messages, link_chat, notes_of, parent_of, title_of, ui_record

_OPENWEBUI: Final = "openwebui"
_LIBRECHAT: Final = "librechat"
_DEEPSEEK: Final = "deepseek"
_SECONDS: Final = 10**11
"""A time below it is in seconds, above it in milliseconds; Open WebUI changed from one to the other."""
_THOUGHT: Final = re.compile(
    r"<details type=\"reasoning\"[^>]*>\s*(?:<summary>.*?</summary>)?(.*?)</details>", re.DOTALL
)
_QUOTE: Final = re.compile(r"^> ?", re.MULTILINE)


def read_openwebui(path: Path, report: Reporter) -> Iterator[ImportedChat]:
    """The conversations of an export of Open WebUI, in its order."""
    for document in read_conversations(path, report, key="chat"):
        outer = document.fields
        # A chat that is exported alone may come without what the database says of it.
        fields = object_at(outer, "chat") or outer
        history, report = object_at(fields, "history"), document.report
        by_id = object_at(history, "messages") or {
            str(object_at(message).get("id")): message for message in list_at(fields, "messages")
        }
        chat_id = text_at(outer, "id") or text_at(fields, "id") or next(iter(by_id), None)
        if not is_id(chat_id, f"the id of conversation {document.number}", report):
            continue
        chat = ImportedChat(
            id=chat_id,
            user_id=text_at(outer, "user_id") or _OPENWEBUI,
            title=title_of(outer) or title_of(fields),
            metadata={"source": _OPENWEBUI}
            | (notes_of(fields, ("models", "params", "tags")) or {})
            | (notes_of(outer, ("archived", "pinned", "meta", "folder_id")) or {}),
            messages=(),
            branches=(),
            created_at=_milliseconds(outer.get("created_at") or fields.get("timestamp")),
            updated_at=_milliseconds(outer.get("updated_at")),
        )
        records = _openwebui_records(chat_id, by_id, report)
        yield from has_messages(link_chat(chat, records, leaf=text_at(history, "currentId"), report=report), report)


def _openwebui_records(chat_id: str, by_id: Mapping[str, Any], report: Reporter) -> Iterator[Located]:
    before: str | None = None
    for key, message in by_id.items():
        fields = object_at(message)
        rating = object_at(fields, "annotation")  # a thumb up or down, with its reasons
        yield ui_record(
            key,
            parent_of(fields.get("parentId", before)),
            text_at(fields, "role"),
            _openwebui_parts(fields),
            what=f"message {key!r} of chat {chat_id!r}",
            report=report,
            created_at=_milliseconds(fields.get("timestamp")),
            notes=notes_of(fields, ("model", "usage", "statusHistory")),
            annotation=Annotation(metadata=dict(rating)) if rating else None,
        )
        before = key


def _openwebui_parts(fields: Mapping[str, Any]) -> list[Part]:
    output, content = list_at(fields, "output"), text_at(fields, "content") or ""
    parts: list[Part] = []
    if output:
        items: list[FormItem] = []
        for item in map(object_at, output):
            # Its ids are its own: OpenAI would not find the reasoning that they name.
            own = (
                {key: value for key, value in item.items() if key != "id"} if item.get("type") == "reasoning" else item
            )
            items += items_of("responses", own)
        parts = ui.parts_of(items)
    else:
        # Texts and thoughts in turn: the pattern has one group.
        for number, piece in enumerate(_THOUGHT.split(content)):
            text = _QUOTE.sub("", html.unescape(piece)) if number % 2 else piece
            if text.strip():
                parts.append(reasoning_part(text.strip(), _OPENWEBUI) if number % 2 else text_part(text.strip()))
    parts += _openwebui_files(list_at(fields, "files"))
    parts += source_parts(_OPENWEBUI, _openwebui_sources(list_at(fields, "sources") or list_at(fields, "citations")))
    return parts + ([data_part(_OPENWEBUI, {"error": fields["error"]})] if fields.get("error") else [])


def _openwebui_files(files: list[Any]) -> Iterator[Part]:
    for file in map(object_at, files):
        url = text_at(file, "url")
        if file.get("type") == "image" and url is not None and url.startswith("data:"):
            yield {"type": "file", "mediaType": url[5:].partition(";")[0], "url": url}
        else:
            yield data_part(_OPENWEBUI, file)


def _openwebui_sources(sources: list[Any]) -> Iterator[SourceLink]:
    for source in map(object_at, sources):
        about = object_at(source, "source")
        pages = [object_at(page) for page in list_at(source, "metadata")] or [about]
        for page in pages:
            url = next((text for key in ("url", "source") if (text := text_at(page, key)) and "://" in text), None)
            title = text_at(page, "title") or text_at(page, "name") or text_at(about, "name")
            yield SourceLink(url or text_at(about, "url"), title, None, None, {"source": about, "metadata": page})


def read_librechat(path: Path, report: Reporter) -> Iterator[ImportedChat]:
    for document in read_conversations(path, report, key="conversationId", decode=decode_tree):
        fields, report = document.fields, document.report
        chat_id = fields.get("conversationId")
        if not is_id(chat_id, f"the id of conversation {document.number}", report):
            continue
        chat = ImportedChat(
            id=chat_id,
            user_id=_LIBRECHAT,
            title=title_of(fields),
            metadata={"source": _LIBRECHAT} | (notes_of(fields, ("endpoint", "options")) or {}),
            messages=(),
            branches=(),
        )
        # Depth first, and with a stack: a tree is as deep as its conversation is long.
        pending = [*reversed(list_at(fields, "messagesTree") or list_at(fields, "messages"))]
        records: list[Located] = []
        while pending:
            message = object_at(pending.pop())
            pending += reversed(list_at(message, "children"))
            what = f"message {len(records) + 1} of chat {chat_id!r}"
            if is_id(message.get("messageId"), f"the id of {what}", report):
                records.append(_librechat_record(message, what, report))
        yield from has_messages(link_chat(chat, records, report=report), report)


def _librechat_record(fields: Mapping[str, Any], what: str, report: Reporter) -> Located:
    sender, text = text_at(fields, "sender"), text_at(fields, "text")
    is_user = fields.get("isCreatedByUser", (sender or "").lower() == "user")
    parts = [part for block in list_at(fields, "content") for part in _librechat_parts(object_at(block))]
    if not parts and text:
        parts.append(text_part(text))
    parts += [data_part(_LIBRECHAT, file) for key in ("files", "attachments") for file in list_at(fields, key)]
    rating = object_at(fields, "feedback")
    return ui_record(
        fields["messageId"],
        parent_of(fields.get("parentMessageId")),
        "user" if is_user else "assistant",
        parts,
        what=what,
        report=report,
        created_at=iso_milliseconds(fields.get("createdAt"), f"createdAt of {what}", report),
        notes=notes_of(fields, ("model", "endpoint", "finish_reason", "tokenCount")),
        annotation=Annotation(metadata=dict(rating)) if rating else None,
    )


def _librechat_parts(block: Mapping[str, Any]) -> Iterator[Part]:
    kind = text_at(block, "type") or ""
    text = block.get(kind) if kind in ("text", "think") else None
    text = text if isinstance(text, str) else text_at(object_at(text), "value")  # as OpenAI's assistants said it
    call = object_at(block, "tool_call")
    call_id, name = text_at(call, "id"), text_at(call, "name")
    if text is not None:
        yield reasoning_part(text, _LIBRECHAT) if kind == "think" else text_part(text)
    elif call_id is not None and name is not None:
        part = ui.call_part(call_of(call_id, name, call.get("args")), call_id)
        output = text_at(call, "output")
        yield part if output is None else ui.with_result(part, Result(call_id, name, output))
    else:
        yield data_part(_LIBRECHAT, block)


def read_deepseek(path: Path, report: Reporter) -> Iterator[ImportedChat]:
    """The conversations of an export of DeepSeek, in its order."""
    for document in read_conversations(path, report, key="mapping"):
        fields, report = document.fields, document.report
        what, nodes = f"conversation {document.number}", object_at(fields, "mapping")
        # Some converters leave the id out; when it began stands for it, as no two begin within a microsecond.
        chat_id = fields.get("id") or fields.get("inserted_at") or fields.get("create_time")
        if not is_id(chat_id, f"the id of {what}", report):
            continue
        created_at, updated_at = (
            iso_milliseconds(fields.get(name) or fields.get(other), f"{name} of {what}", report)
            for name, other in (("inserted_at", "create_time"), ("updated_at", "update_time"))
        )
        chat = ImportedChat(
            id=chat_id,
            user_id=document.owner or _DEEPSEEK,
            title=title_of(fields),
            metadata={"source": _DEEPSEEK},
            messages=(),
            branches=(),
            created_at=created_at,
            updated_at=updated_at,
        )
        records = _deepseek_records(chat_id, nodes, report)
        yield from has_messages(link_chat(chat, records, report=report), report)


def _deepseek_records(chat_id: str, nodes: Mapping[str, Any], report: Reporter) -> Iterator[Located]:
    # The root is no message, and what names it is a first one.
    messages = {key: message for key, node in nodes.items() if (message := object_at(node, "message"))}
    for key, fields in messages.items():
        parent = object_at(nodes[key]).get("parent")
        what = f"message {key!r} of chat {chat_id!r}"
        fragments = [object_at(fragment) for fragment in list_at(fields, "fragments")]
        is_user = any(fragment.get("type") == "REQUEST" for fragment in fragments)
        yield ui_record(
            id_in_chat(chat_id, key),
            id_in_chat(chat_id, parent)
            if isinstance(parent, str) and (parent in messages or parent not in nodes)
            else None,
            ("user" if is_user else "assistant") if fragments else None,
            [part for fragment in fragments for part in _deepseek_parts(fragment)]
            + [data_part(_DEEPSEEK, file) for file in list_at(fields, "files")],
            what=what,
            report=report,
            created_at=iso_milliseconds(fields.get("inserted_at"), f"inserted_at of {what}", report),
            notes=notes_of(fields, ("model",)),
        )


def _deepseek_parts(fragment: Mapping[str, Any]) -> Iterator[Part]:
    kind, content, results = fragment.get("type"), text_at(fragment, "content"), list_at(fragment, "results")
    if kind == "THINK" and content is not None:
        yield reasoning_part(content, _DEEPSEEK)
    elif kind in ("REQUEST", "RESPONSE") and content is not None:
        yield text_part(content)
    elif not results:
        yield data_part(_DEEPSEEK, fragment)
    for page in map(object_at, results):
        # The text cites them as [citation:3].
        number = page.get("cite_index")
        name = None if number is None else f"citation:{number}"
        yield from source_parts(
            _DEEPSEEK, [SourceLink(text_at(page, "url"), text_at(page, "title"), name, None, dict(page))]
        )


def _milliseconds(time: Any) -> int | None:
    if isinstance(time, bool) or not isinstance(time, int | float) or not 0 < time < _SECONDS * 1000:
        return None
    return round(time * 1000) if time < _SECONDS else round(time)
