"""
OpenAssistant Conversations (OASST1, OASST2): message files and tree files, https://huggingface.co/datasets/OpenAssistant.

A message file has one message a line, in any order; a tree file one tree a line, replies nested in replies. One tree is one
chat. Its `main` follows the best ranked replies to a leaf; every other leaf has its own branch.

Dropped, because they describe the collection and not the conversation: rank (beyond choosing `main`), review counts and
results, labels, emojis, detoxify scores, `model_name`, `synthetic`, `deleted`, and the language of single messages.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from chatledger.domain.chat.import_tree import Located, LostMessage, Reporter, branch_leaves, link_messages
from chatledger.domain.chat.interchange import ImportedChat, ImportedMessage
from chatledger.domain.forms.plain import object_at, text_at
from chatledger.domain.values import UI

from .documents import read_documents
from .source import decode_tree, is_id, iso_milliseconds

_NAMES = {"prompter": "user", "assistant": "assistant"}
_TITLE_CHARACTERS = 60
_UNKNOWN_USER = "oasst"


class _Record(NamedTuple):
    message: ImportedMessage
    line: int | None
    rank: float
    user_id: str
    lang: str | None


class _Tree(NamedTuple):
    """A tree, as far as it was read: its messages, and the known parts of those that were skipped."""

    records: list[_Record]
    lost: list[tuple[LostMessage, int | None]]


def read_oasst(path: Path, report: Reporter) -> Iterator[ImportedChat]:
    """
    The trees of a message or tree file.

    Trees of a tree file come one by one. A message file need not be grouped, so its trees come when all of it was read, in
    the order of their first messages.
    """
    scattered: dict[str, _Tree] = {}
    for document in read_documents(path, report, decode=decode_tree):
        line, fields = document.line, document.fields
        if not fields:
            report.broken("not a JSON object; skipped", line=line)
            continue
        if "prompt" in fields:
            tree_id = _tree_id(fields, line, report)
            if tree_id is not None:
                groups = {tree_id: _Tree(list(_flatten(fields["prompt"], line, report)), [])}
                yield from _make_chats(groups, report)
            continue
        record = _make_record(fields, line, report)
        tree_id = _tree_id(fields, line, report) if record is not None else fields.get("message_tree_id")
        if not isinstance(tree_id, str):
            continue
        tree = scattered.setdefault(tree_id, _Tree([], []))
        if record is not None:
            tree.records.append(record)
        elif isinstance(fields.get("message_id"), str) and isinstance(fields.get("parent_id"), str | None):
            tree.lost.append((LostMessage(fields["message_id"], fields.get("parent_id")), line))
    yield from _make_chats(scattered, report)


def _tree_id(fields: Mapping[str, Any], line: int | None, report: Reporter) -> str | None:
    tree_id = fields.get("message_tree_id")
    return tree_id if is_id(tree_id, "message_tree_id", report, line=line) else None


def _flatten(prompt: Any, line: int | None, report: Reporter) -> Iterator[_Record]:
    """The messages of a nested tree, parents first. The nesting counts, whatever `parent_id` says."""
    pending: list[tuple[Any, str | None]] = [(prompt, None)]  # replies are nested deeper than any recursion goes
    while pending:
        node, parent_id = pending.pop()
        if not isinstance(node, dict):
            report.broken("a message is not a JSON object; skipped with its replies", line=line)
            continue
        fields = object_at(cast("Any", node))
        record = _make_record({**fields, "parent_id": parent_id}, line, report)
        if record is not None:
            yield record
            parent_id = record.message.id
        replies: Any = fields.get("replies") or []
        if isinstance(replies, list):
            pending.extend((reply, parent_id) for reply in reversed(cast("list[Any]", replies)))
        else:
            report.broken("replies are not a list; skipped", line=line)


def _make_record(fields: Mapping[str, Any], line: int | None, report: Reporter) -> _Record | None:
    message_id, parent_id, text, rank = (fields.get(key) for key in ("message_id", "parent_id", "text", "rank"))
    name, author = _NAMES.get(text_at(fields, "role") or ""), text_at(fields, "user_id") or None
    if not is_id(message_id, "message_id", report, line=line):
        return None
    what = f"message {message_id!r}"
    if not isinstance(parent_id, str | None):
        report.broken(f"parent_id of {what} is not a text; skipped", line=line)
    elif name is None:
        report.broken(f"role of {what} is neither prompter nor assistant; skipped", line=line)
    elif not isinstance(text, str):
        report.broken(f"text of {what} is not a text; skipped", line=line)
    else:
        message = ImportedMessage(
            id=message_id,
            parent_id=parent_id,
            name=name,
            data={"id": message_id, "role": name, "parts": [{"type": "text", "text": text}]},
            form=UI,
            created_at=iso_milliseconds(fields.get("created_date"), f"created_date of {what}", report, line=line),
            sender_id=author if name == "user" else None,
        )
        return _Record(
            message=message,
            line=line,
            rank=rank if isinstance(rank, int | float) else float("inf"),
            user_id=author or _UNKNOWN_USER,
            lang=text_at(fields, "lang"),
        )
    return None


def _make_chats(groups: dict[str, _Tree], report: Reporter) -> Iterator[ImportedChat]:
    for tree_id, (records, lost) in groups.items():
        located: list[Located] = [*((record.message, record.line) for record in records), *lost]
        messages = link_messages(tree_id, located, report=report).messages
        # A tree without a usable message was reported message by message.
        if messages:
            yield _make_chat(tree_id, messages, {record.message.id: record for record in reversed(records)})


def _make_chat(tree_id: str, messages: tuple[ImportedMessage, ...], by_id: dict[str, _Record]) -> ImportedChat:
    root = by_id[messages[0].id]
    return ImportedChat(
        id=tree_id,
        user_id=root.user_id,
        title=" ".join(root.message.data["parts"][0]["text"].split())[:_TITLE_CHARACTERS] or None,
        metadata={"source": "oasst"} | ({"lang": root.lang} if root.lang else {}),
        messages=messages,
        branches=branch_leaves(messages, main_head=_follow_best(messages, by_id)),
        created_at=root.message.created_at,
    )


def _follow_best(messages: tuple[ImportedMessage, ...], by_id: dict[str, _Record]) -> str | None:
    """The leaf that the best ranked replies lead to, from the first root; ties go to the earlier message."""
    best: dict[str | None, str] = {}
    for message in messages:
        rival = best.setdefault(message.parent_id, message.id)
        if message.parent_id is not None and by_id[message.id].rank < by_id[rival].rank:
            best[message.parent_id] = message.id
    head = best.get(None)
    while head is not None and head in best:
        head = best[head]
    return head
