"""
Loading a transcript: the entries that a chat keeps, in the order in which they were appended.

Where the active branch ends elsewhere than the last turn, since somebody went on with another branch, it is that branch which is
loaded: Claude resumes from the newest entry. Messages that something else wrote become entries as Claude writes them.
"""

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

from chatledger.domain.forms.claude_code import NAME
from chatledger.domain.forms.items import ASSISTANT
from chatledger.domain.forms.plain import object_at
from chatledger.domain.values import Message

from ....ledger.history import History, Told
from ..access import utc
from .entries import entry_of, is_bookkeeping, uuid_before, uuid_of

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
