"""The description of a chat at an earlier moment: counted back from the present one, by what each event since has changed."""

from typing import Final

from msgspec import UNSET, UnsetType

from chatledger.domain.chat.events import ChatUpdated, Recorded
from chatledger.domain.chat.state import ChatProfile, ChatRecord
from chatledger.domain.values import Chat

from ..lmdb.environment import Transaction
from ..lmdb.tables import Tables
from ..log.entries import Step, entry_at

_NO_STEP: Final = ()
_FAR: Final = 2**62  # no entry has a greater number
_ONLY_TIME: Final = 2
_MOST: Final = 10_000
"""So many events are counted back in some 20 ms. A chat that had more since is better replayed, which is kept."""


def step_of(before: object, recorded: Recorded, after: object) -> Step:
    """
    Return the step by which an event brought a chat from one record to the next, for its entry.

    The step is: messages added, milliseconds since the event before, by how much more `updated_at` moved, branches added; zeros
    at the end are left out. It is empty where numbers cannot undo the event: a chat begins, ends, or is described anew.
    """
    if not (isinstance(before, ChatRecord) and isinstance(after, ChatRecord)) or isinstance(
        recorded.event.body, ChatUpdated
    ):
        return _NO_STEP
    elapsed = after.head.occurred_at - before.head.occurred_at
    lag = after.updated_at - before.updated_at - elapsed
    branches = after.branch_count - before.branch_count
    if not (-_FAR < elapsed < _FAR and -_FAR < lag < _FAR):
        return _NO_STEP
    messages = after.message_count - before.message_count
    return (messages, elapsed, lag, branches) if lag or branches else (messages, elapsed)


def describe_earlier(
    txn: Transaction, tables: Tables, record: ChatRecord, profile: ChatProfile, *, position: int, time: int | None
) -> Chat | UnsetType | None:
    """
    Return a living chat as it stood after its last event up to a position, and up to `time` (ms), unless it is None.

    Costs a row for each event since.

    Returns:
        None when there was no such chat. UNSET where only a replay can answer: the chat was described anew, or had very many events
        since.

    Raises:
        CorruptStateError: A row is damaged.
    """
    at, occurred_at, updated_at = record.head.position, record.head.occurred_at, record.updated_at
    messages, branches = record.message_count, record.branch_count
    steps = 0
    while at > position or (time is not None and occurred_at > time):
        if at == record.first_position:
            return None
        entry = entry_at(txn, tables, at)
        steps += 1
        if entry is None or not entry.step or steps > _MOST:
            return UNSET
        added, elapsed = entry.step[:_ONLY_TIME]
        lag, branched = entry.step[_ONLY_TIME:] or (0, 0)
        messages, branches = messages - added, branches - branched
        occurred_at, updated_at = occurred_at - elapsed, updated_at - elapsed - lag
        at = entry.previous
    return Chat(
        id=profile.id,
        user_id=profile.user_id,
        title=profile.title,
        metadata=profile.metadata,
        created_at=record.created_at,
        updated_at=updated_at,
        message_count=messages,
        branch_count=branches,
        expires_at=profile.expires_at,
    )
