"""
Loading a transcript: the entries that a chat keeps, in the order in which they were appended.

Where the active branch ends elsewhere than the last turn, since somebody went on with another branch, it is that branch which is
loaded: Claude resumes from the newest entry. Messages that something else wrote become entries as Claude writes them.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from chatledger.domain.context.formats.anthropic import anthropic_messages
from chatledger.domain.context.formats.plain import SYSTEM
from chatledger.domain.context.formats.stored import converted
from chatledger.domain.context.messages import ASSISTANT, object_at
from chatledger.domain.values import Message

from ....ledger.history import History
from .entries import entry_of, is_bookkeeping, iso_time, uuid_before, uuid_of

_MODEL: Final = "chatledger"
"""The name of the model in entries for answers that Claude did not write."""


class _Kept(NamedTuple):
    """A message, and the entry that it keeps, if any."""

    message: Message
    entry: dict[str, Any] | None

    @property
    def is_turn(self) -> bool:
        return self.entry is None or not is_bookkeeping(self.message)


def load_entries(history: History, session_id: str, *, is_main: bool) -> list[dict[str, Any]] | None:
    """
    Return the entries of a transcript; None when there is nothing in it.

    Args:
        history: The active branch of its chat.
        session_id: The session, for entries that are made of messages.
        is_main: Whether it is the main transcript of a session.

    Costs O(chat).
    """
    kept = [_Kept(message, entry_of(message)) for message in history.state.all_messages()]
    if _is_whole(kept, history.branch.head_message_id, is_main=is_main):
        return [one.entry for one in kept if one.entry is not None] or None
    shown = [message.id for message in history.newest()]
    return list(_of_branch(kept, shown, session_id)) or None


def _is_whole(kept: Sequence[_Kept], head: str | None, *, is_main: bool) -> bool:
    """Whether Claude, given all entries, goes on from the head of the active branch, and nothing was hidden from models."""
    if any(one.entry is None for one in kept):
        return False
    said = (one.message.annotation for one in kept)
    if any(annotation is not None and (annotation.hidden or annotation.replaced_by) for annotation in said):
        return False
    turns = (one for one in reversed(kept) if one.is_turn and not (is_main and (one.entry or {}).get("isSidechain")))
    last = next(turns, None)
    return head == (None if last is None else last.message.id)


def _of_branch(kept: Sequence[_Kept], shown: Sequence[str], session_id: str) -> Iterator[dict[str, Any]]:
    """Yield the entries of the turns of a branch, each after one that is among them, and of the bookkeeping of these turns."""
    places = {one.message.id: place for place, one in enumerate(kept)}
    turns = set(shown)
    ordered: list[tuple[int, _Kept]] = []
    at = 0
    for message_id in shown:  # what stands in the place of another was written later than what follows it
        at = max(at, places[message_id])
        ordered.append((at, kept[places[message_id]]))
    for place, one in enumerate(kept):
        if not one.is_turn and one.message.reply_to in turns | {None}:
            ordered.append((place, one))
    given: set[str] = set()
    before: str | None = None
    for _, one in sorted(ordered, key=itemgetter(0)):
        made = _entries_of(one, before, session_id, given)
        given |= {entry["uuid"] for entry in made if "uuid" in entry}
        before = made[-1]["uuid"] if one.is_turn and made else before
        yield from made


def _entries_of(one: _Kept, before: str | None, session_id: str, given: set[str]) -> list[dict[str, Any]]:
    """The entries for a turn that follows the entry `before`, or for bookkeeping."""
    entry = one.entry
    if entry is None:
        return _made(one.message, before, session_id)
    if not one.is_turn:
        return [entry]
    parent = entry.get("parentUuid")
    entry = entry if isinstance(entry.get("uuid"), str) else {**entry, "uuid": uuid_of(one.message)}
    return [entry if parent in given else {**entry, "parentUuid": before}]


def _made(message: Message, before: str | None, session_id: str) -> list[dict[str, Any]]:
    """Entries as Claude writes them, for a message that something else wrote: one for each message of its API."""
    told = [said for said in converted(message, anthropic_messages) if said["role"] != SYSTEM]
    last = uuid_of(message)
    made: list[dict[str, Any]] = []
    for place, said in enumerate(told):
        uuid = last if place == len(told) - 1 else uuid_before(last, len(told) - 1 - place)
        role = ASSISTANT if said["role"] == ASSISTANT else "user"
        made.append(
            {
                "parentUuid": before,
                "isSidechain": False,
                "userType": "external",
                "type": role,
                "message": _answer(said, uuid) if role == ASSISTANT else {**said, "role": role},
                "uuid": uuid,
                "timestamp": iso_time(message.created_at),
                "sessionId": session_id,
            }
        )
        before = uuid
    return made


def _answer(said: Mapping[str, Any], uuid: str) -> dict[str, Any]:
    content: Any = said["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    calls = any(object_at(block).get("type") == "tool_use" for block in blocks)
    return {
        "id": f"msg_{uuid.replace('-', '')}",
        "type": "message",
        "role": ASSISTANT,
        "model": _MODEL,
        "content": blocks,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }
