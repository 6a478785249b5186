"""
Transcripts as a chat keeps them, in the order in which their entries were appended.

Where the active branch ends elsewhere than the last turn, since somebody went on with another branch, it is that branch which is
loaded: Claude resumes from the newest entry. Messages that something else wrote become entries as Claude writes them.
"""

import json
from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from chatledger.domain.chat.lines import BOOKKEEPING, values_in
from chatledger.domain.forms.claude_code import NAME
from chatledger.domain.forms.plain import last_line
from chatledger.domain.values import Message

from ....exchange.agents.claude_code import uuid_before, uuid_of, whole_entry
from ....ledger.history import History, Told


def entry_in(value: Any) -> dict[str, Any]:
    """Return the entry that a line of a transcript keeps."""
    entry: dict[str, Any] = json.loads(value) if isinstance(value, str) else value
    return entry


def is_bookkeeping(message: Message) -> bool:
    return message.name == BOOKKEEPING and message.form == NAME


def load_entries(history: History, session_id: str, *, is_main: bool) -> list[dict[str, Any]] | None:
    """Return the entries of a transcript, whose active branch is given; None when there is nothing in it. Costs O(chat)."""
    stored = history.state.all_messages()
    is_own = all(message.form == NAME for message in stored)
    if is_own and _is_whole(stored, history.branch.head_message_id, is_main=is_main):
        return [entry_in(value) for message in stored for value in values_in(message.data)] or None
    chain = {message.id for message in history.chain()}
    return _of_branch(stored, chain, history.told(NAME), session_id) or None


def _is_whole(stored: Sequence[Message], head: str | None, *, is_main: bool) -> bool:
    """Whether Claude, given all entries, goes on from the last turn of the active branch, and nothing was hidden from models."""
    annotations = [message.annotation for message in stored if message.annotation is not None]
    if any(annotation.hidden or annotation.replaced_by for annotation in annotations):
        return False
    by_id = {message.id: message for message in stored}
    while head is not None and is_bookkeeping(by_id[head]):
        head = by_id[head].parent_id
    turns = [(message.id, last_line(message.data)) for message in reversed(stored) if not is_bookkeeping(message)]
    last = next((turn_id for turn_id, entry in turns if not (is_main and entry.get("isSidechain"))), None)
    return head == last and all("uuid" in entry for _, entry in turns)  # which others that write this form leave out


def _of_branch(
    stored: Sequence[Message], chain: AbstractSet[str], told: Sequence[Told], session_id: str
) -> list[dict[str, Any]]:
    """The entries of the turns of a branch, each after one that is among them, with the bookkeeping that came before each."""
    places = {message.id: place for place, message in enumerate(stored)}
    turns = {standing.message.id for item in told for standing in item.origin}
    ordered: list[tuple[int, dict[str, Any], Message | None]] = []
    at = 0
    for item in told:  # what stands in the place of another was written later than what follows it
        message = item.origin[-1].message
        at = max(at, places[message.id])
        if not is_bookkeeping(message):
            ordered.append((at, dict(last_line(item.value)), message))
    for place, message in enumerate(stored):
        # Bookkeeping was a branch of its own once, whose messages replied to the turns.
        is_unsaid = is_bookkeeping(message) and (message.id in chain or message.reply_to in turns)
        if message.form == NAME and (is_unsaid or message.id in turns):
            values = values_in(message.data)
            ordered += [(place, entry_in(value), None) for value in (values if is_unsaid else values[:-1])]
    # Several entries may be told of one message: only the last has its uuid, which later entries go on from.
    left = Counter(message.id for _, _, message in ordered if message is not None)
    entries: list[dict[str, Any]] = []
    uuids: set[str] = set()
    before: str | None = None
    for _, entry, turn in sorted(ordered, key=lambda item: (item[0], item[2] is not None)):
        if turn is None:
            entries.append(entry)
            continue
        left[turn.id] -= 1
        uuid = uuid_before(uuid_of(turn), left[turn.id])
        parent = entry.get("parentUuid")
        whole = whole_entry(entry, turn, uuid, session_id)
        entries.append({**whole, "parentUuid": parent if parent in uuids else before})
        before = uuid
        uuids.add(uuid)
    return entries
