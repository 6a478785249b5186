"""
Entries of Pydantic AI's conversations: stored messages, and what is told of those that something else wrote.

Several entries may be told of one message, such as a call, its return and an answer. The last of them has the message's id; those
before it are `m7#1`, `m7#2` and so on, counted from the end, and nothing goes on from these.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter
from pydantic_ai.conversation_store import ConversationEntry
from pydantic_ai.messages import ModelMessage

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.forms.pydantic_ai import NAME
from chatledger.domain.forms.reading import name_of
from chatledger.domain.values import NewMessage

from ....ledger.history import History, Told

# Theirs (`ModelMessagesTypeAdapter`) writes NaN and infinities as null.
_MESSAGES: Final[TypeAdapter[list[ModelMessage]]] = TypeAdapter(
    list[ModelMessage],
    config=ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants"),
)


def drafts_of(entries: Sequence[ConversationEntry]) -> list[NewMessage]:
    """Return the messages to store for entries, under their ids and with their parents."""
    values: list[Any] = _MESSAGES.dump_python([entry.message for entry in entries], mode="json")
    return [
        NewMessage(name_of(value, NAME), value, form=NAME, id=entry.id, parent_id=entry.parent_id)
        for entry, value in zip(entries, values, strict=True)
    ]


def entries_of(history: History, limit: int | None = None) -> list[ConversationEntry]:
    """Return the entries of a history, oldest first; the last `limit` of them, all when None."""
    wanted = None if limit is None else limit + 1  # one more, which may be the parent of the first
    chain = history.chain(wanted)
    if all(message.form == NAME and message.annotation is None for message in chain):  # each stands for itself
        values, ids = [message.data for message in chain], [message.id for message in chain]
        first_parent = chain[0].parent_id if chain else None
    else:
        told = history.told(NAME, wanted)
        values, ids = [value for value, _ in told], [origin[0].base.id for _, origin in told]
        first_parent = told[0].origin[0].base.parent_id if told else None
        if len({*ids}) < len(ids) or any(len(origin) > 1 for _, origin in told):
            ids = _ids_of_parts(history, told)
    messages = _MESSAGES.validate_python(values)
    parent_ids = [first_parent, *ids[:-1]][: len(ids)]
    entries = [
        ConversationEntry(id=entry_id, parent_id=parent_id, message=message)
        for entry_id, parent_id, message in zip(ids, parent_ids, messages, strict=True)
    ]
    return entries if limit is None else entries[-limit:]


def _ids_of_parts(history: History, told: Sequence[Told]) -> list[str]:
    depths = {standing.base.id: history.state.depth(standing.base.id) for _, origin in told for standing in origin}
    ids = {depth: message_id for message_id, depth in depths.items()}
    places = [[depths[standing.base.id] for standing in origin] for _, origin in told]
    ends = list(accumulate(map(max, places), max))
    ids_backwards: list[str] = []
    following, number = history.branch.message_count, 0
    for at in range(len(told) - 1, -1, -1):
        is_same = at + 1 < len(told) and ends[at] == ends[at + 1]
        number = 0 if ends[at] < following else number + 1 if is_same else 1
        ids_backwards.append(f"{ids[ends[at]]}#{number}" if number else ids[ends[at]])
        following = min(following, *places[at])
    return ids_backwards[::-1]


def check_whole(entry_id: str | None) -> None:
    """Raise `InvalidValueError` for an entry that is but a part of a stored message."""
    if entry_id is not None and part_number(entry_id) is not None:
        msg = f"entry {entry_id!r} is in the middle of a message that was not written by Pydantic AI; go on before or after it"
        raise InvalidValueError(msg)


def part_number(entry_id: str) -> tuple[str, int] | None:
    """Return the message and the number of an entry that is a part of it; None for any other."""
    message_id, mark, number = entry_id.rpartition("#")
    return (message_id, int(number)) if mark and message_id and number.isdecimal() and int(number) else None
