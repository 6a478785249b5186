"""
Loading a transcript: the entries that a chat keeps, in the order in which they were appended.

Where the active branch ends elsewhere than the last turn, since somebody went on with another branch, it is that branch which is
loaded: Claude resumes from the newest entry. Messages that something else wrote become entries as Claude writes them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from chatledger.domain.forms.claude_code import NAME
from chatledger.domain.forms.items import ASSISTANT
from chatledger.domain.forms.plain import object_at
from chatledger.domain.values import Message

from ....ledger.history import History, Told
from .entries import entry_of, is_bookkeeping, iso_time, uuid_before, uuid_of

_MODEL: Final = "chatledger"
"""The name of the model in entries for answers that Claude did not write."""


def load_entries(history: History, session_id: str, *, is_main: bool) -> list[dict[str, Any]] | None:
    """
    Return the entries of a transcript; None when there is nothing in it.

    Args:
        history: The active branch of its chat.
        session_id: The session, for entries that are made of messages.
        is_main: Whether it is the main transcript of a session.

    Costs O(chat).
    """
    stored = history.state.all_messages()
    entries = [entry for message in stored if (entry := entry_of(message)) is not None]
    if len(entries) == len(stored) and _is_whole(stored, history.branch.head_message_id, is_main=is_main):
        return entries or None
    return _of_branch(stored, history.told(NAME), session_id) or None


def _is_whole(stored: Sequence[Message], head: str | None, *, is_main: bool) -> bool:
    """Whether Claude, given all entries, goes on from the head of the active branch, and nothing was hidden from models."""
    if any((said := one.annotation) is not None and (said.hidden or said.replaced_by) for one in stored):
        return False
    turns = [one for one in reversed(stored) if not is_bookkeeping(one)]
    last = next((one.id for one in turns if not (is_main and one.data.get("isSidechain"))), None)
    return head == last and all("uuid" in one.data for one in turns)  # which others that write this form leave out


def _of_branch(stored: Sequence[Message], told: Sequence[Told], session_id: str) -> list[dict[str, Any]]:
    """The entries of the turns of a branch, each after one that is among them, and of the bookkeeping of these turns."""
    places = {message.id: place for place, message in enumerate(stored)}
    turns = {one.message.id for item in told for one in item.origin}
    ordered: list[tuple[int, dict[str, Any], Message | None]] = []
    at = 0
    for item in told:  # what stands in the place of another was written later than what follows it
        message = item.origin[-1].message
        at = max(at, places[message.id])
        ordered.append((at, item.value, message))
    for place, noted in enumerate(stored):
        if is_bookkeeping(noted) and noted.reply_to in turns | {None}:
            ordered.append((place, entry_of(noted) or {}, None))
    left = Counter(message.id for _, _, message in ordered if message is not None)
    entries: list[dict[str, Any]] = []
    given: set[str] = set()
    before: str | None = None
    for _, entry, said in sorted(ordered, key=itemgetter(0)):
        if said is None:
            entries.append(entry)
            continue
        left[said.id] -= 1
        uuid = uuid_before(uuid_of(said), left[said.id])
        parent = entry.get("parentUuid")
        entries.append({**_noted(entry, said, uuid, session_id), "parentUuid": parent if parent in given else before})
        before = uuid
        given.add(uuid)
    return entries


def _noted(entry: dict[str, Any], message: Message, uuid: str, session_id: str) -> dict[str, Any]:
    """An entry with its `uuid`; one that was made of what something else wrote with all that Claude notes."""
    if "uuid" in entry:
        return {**entry, "uuid": uuid}
    said = entry["message"]
    return {
        "parentUuid": None,
        "isSidechain": False,
        "userType": "external",
        "timestamp": iso_time(message.created_at),
        "sessionId": session_id,
        **entry,
        "message": _answer(said, uuid) if entry["type"] == ASSISTANT else said,
        "uuid": uuid,
    }


def _answer(said: Mapping[str, Any], uuid: str) -> dict[str, Any]:
    content: Any = said["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    calls = any(object_at(block).get("type") == "tool_use" for block in blocks)
    return {
        "id": f"msg_{uuid.replace('-', '')}",
        "type": "message",
        "role": ASSISTANT,
        "model": _MODEL,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
        **said,
        "content": blocks,
    }
