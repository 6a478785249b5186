"""
Entries of a transcript, lines that Claude writes: one is one message, as it came; and a transcript as a chat keeps it.

A transcript is loaded in the order in which its entries were appended. Where the active branch ends elsewhere than the last turn,
since somebody went on with another branch, it is that branch which is loaded: Claude resumes from the newest entry. Messages that
something else wrote become entries as Claude writes them.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, Final, NamedTuple, cast
from uuid import UUID, uuid5

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.forms.claude_code import BOOKKEEPING, NAME
from chatledger.domain.forms.items import ASSISTANT
from chatledger.domain.forms.plain import list_at, object_at, text_at
from chatledger.domain.forms.reading import name_of, text_of
from chatledger.domain.limits import data_copy
from chatledger.domain.values import Message, NewMessage

from ....ledger.drafts import new_id
from ....ledger.history import History, Told
from ..access import utc

BOOKKEEPING_BRANCH: Final = "claude-bookkeeping"
_AS_TEXT: Final = "chatledgerJson"
"""The key of an entry as JSON text in the one that is stored of it: it has what data of messages have not, such as too many levels."""
_MADE_FROM: Final = UUID("6f0c3f3e-5a83-4c1b-9d0e-0f5c2b7a9e11")
_MAX_TITLE: Final = 100


class EntryDraft(NamedTuple):
    """An entry to be appended: the message that keeps it, without its parent, and what tells where it goes."""

    message: NewMessage
    entry: Mapping[str, Any]
    uuid: str | None
    is_aside: bool
    """Whether it is of a conversation beside the main one of its transcript."""

    @property
    def is_turn(self) -> bool:
        """Whether it is something that was said."""
        return self.message.name != BOOKKEEPING


def draft_of_entry(entry: Mapping[str, Any], chat_id: str, *, is_main: bool) -> EntryDraft:
    """Return the draft of an entry; with a `uuid` its message has an id made of that. Only a main transcript has subagents beside it."""
    uuid, written = text_at(entry, "uuid") or None, text_at(entry, "timestamp")
    try:
        data = cast("dict[str, Any]", data_copy(dict(entry), "an entry"))
    except InvalidValueError:  # it is loaded as it was all the same: Claude may read what JSON of a log cannot hold
        data = {"type": BOOKKEEPING, _AS_TEXT: json.dumps(entry)}
    try:
        created_at = None if written is None else int(datetime.fromisoformat(written).timestamp() * 1000)
    except (ValueError, OverflowError):
        created_at = None
    message = NewMessage(name_of(data, NAME), data, NAME, id=f"{chat_id}:{uuid or new_id()}", created_at=created_at)
    return EntryDraft(message, entry, uuid, is_aside=is_main and data.get("isSidechain") is True)


def entry_of(message: Message) -> dict[str, Any] | None:
    """Return the entry that a message is; None when it is none."""
    if message.form != NAME:
        return None
    entry: dict[str, Any] = message.data
    return json.loads(entry[_AS_TEXT]) if _AS_TEXT in entry else entry


def is_bookkeeping(message: Message) -> bool:
    """Whether a message is bookkeeping."""
    return message.name == BOOKKEEPING and message.form == NAME


def uuid_of(message: Message) -> str:
    """Return the `uuid` of the (last) entry for a message: its own, or one made from the id of the message."""
    own = text_at(object_at(entry_of(message)), "uuid")
    if own:
        return own
    last = message.id.rpartition(":")[2]
    try:
        return str(UUID(last))
    except ValueError:
        return str(uuid5(_MADE_FROM, message.id))


def uuid_before(uuid: str, number: int) -> str:
    """Return the `uuid` of the entry that comes so many before the last one for a message."""
    return str(uuid5(_MADE_FROM, f"{uuid}:{number}")) if number else uuid


def is_result(entry: Mapping[str, Any]) -> bool:
    """Whether an entry has results of tools."""
    blocks = list_at(object_at(entry, "message"), "content")
    return entry.get("type") == "user" and any(object_at(block).get("type") == "tool_result" for block in blocks)


def answer_id(entry: Mapping[str, Any]) -> str | None:
    """Return the id of the answer of the API that an assistant's entry is a part of."""
    return text_at(object_at(entry, "message"), "id") if entry.get("type") == "assistant" else None


def title_in(draft: EntryDraft) -> tuple[str | None, bool]:
    """Return a title for the chat, and whether it was given as one: by a user or a model, or the text of a prompt."""
    for key in ("customTitle", "aiTitle"):
        title = text_at(draft.entry, key)
        if title is not None and title.strip() and not draft.is_turn:
            return _title(title), True
    if draft.message.name != "user" or draft.is_aside:
        return None, False
    return _title(text_of(NAME, draft.message.data)), False


def _title(text: str) -> str | None:
    readable = text.encode(errors="ignore").decode()
    return " ".join(readable.replace("\0", "").split())[:_MAX_TITLE] or None


_MODEL: Final = "chatledger"
"""The name of the model in entries for answers that Claude did not write."""


def load_entries(history: History, session_id: str, *, is_main: bool) -> list[dict[str, Any]] | None:
    """Return the entries of a transcript, whose active branch is given; None when there is nothing in it. Costs O(chat)."""
    stored = history.state.all_messages()
    entries = [entry for message in stored if (entry := entry_of(message)) is not None]
    if len(entries) == len(stored) and _is_whole(stored, history.branch.head_message_id, is_main=is_main):
        return entries or None
    return _of_branch(stored, history.told(NAME), session_id) or None


def _is_whole(stored: Sequence[Message], head: str | None, *, is_main: bool) -> bool:
    """Whether Claude, given all entries, goes on from the head of the active branch, and nothing was hidden from models."""
    annotations = [message.annotation for message in stored if message.annotation is not None]
    if any(annotation.hidden or annotation.replaced_by for annotation in annotations):
        return False
    turns = [message for message in reversed(stored) if not is_bookkeeping(message)]
    last = next((turn.id for turn in turns if not (is_main and turn.data.get("isSidechain"))), None)
    return head == last and all("uuid" in turn.data for turn in turns)  # which others that write this form leave out


def _of_branch(stored: Sequence[Message], told: Sequence[Told], session_id: str) -> list[dict[str, Any]]:
    """The entries of the turns of a branch, each after one that is among them, and of the bookkeeping of these turns."""
    places = {message.id: place for place, message in enumerate(stored)}
    turns = {standing.message.id for item in told for standing in item.origin}
    ordered: list[tuple[int, dict[str, Any], Message | None]] = []
    at = 0
    for item in told:  # what stands in the place of another was written later than what follows it
        message = item.origin[-1].message
        at = max(at, places[message.id])
        ordered.append((at, item.value, message))
    for place, noted in enumerate(stored):
        if is_bookkeeping(noted) and (noted.reply_to is None or noted.reply_to in turns):
            ordered.append((place, entry_of(noted) or {}, None))
    # Several entries may be told of one message: only the last has its uuid, which later entries go on from.
    left = Counter(message.id for _, _, message in ordered if message is not None)
    entries: list[dict[str, Any]] = []
    uuids: set[str] = set()
    before: str | None = None
    for _, entry, turn in sorted(ordered, key=itemgetter(0)):
        if turn is None:
            entries.append(entry)
            continue
        left[turn.id] -= 1
        uuid = uuid_before(uuid_of(turn), left[turn.id])
        parent = entry.get("parentUuid")
        entries.append({**_noted(entry, turn, uuid, session_id), "parentUuid": parent if parent in uuids else before})
        before = uuid
        uuids.add(uuid)
    return entries


def _noted(entry: dict[str, Any], message: Message, uuid: str, session_id: str) -> dict[str, Any]:
    """An entry with its `uuid`; one that was made of what something else wrote with all that Claude notes."""
    if "uuid" in entry:
        return {**entry, "uuid": uuid}
    answer: Any = entry["message"]
    if entry["type"] == ASSISTANT:
        content = answer["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        calls = any(object_at(block).get("type") == "tool_use" for block in blocks)
        answer = {
            "id": f"msg_{uuid.replace('-', '')}",
            "type": "message",
            "role": ASSISTANT,
            "model": _MODEL,
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
            **answer,
            "content": blocks,
        }
    return {
        "parentUuid": None,
        "isSidechain": False,
        "userType": "external",
        "timestamp": utc(message.created_at).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "sessionId": session_id,
        **entry,
        "message": answer,
        "uuid": uuid,
    }
