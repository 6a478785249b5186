"""Finding stored states: all, those of a user or of a conversation, and those that are due to end."""

from collections.abc import Iterator

from chatledger.domain.graph_state.ids import parse_state_id
from chatledger.domain.graph_state.record import GraphStateRecord

from ..environment import Transaction, prefixed
from ..keys import to_number
from ..tables import Tables
from . import keys
from .indexed_state import record_at


def listed_states(
    txn: Transaction, tables: Tables, *, user_id: str | None = None, conversation_id: str | None = None
) -> Iterator[GraphStateRecord]:
    """Stored states, in the order in which they began; of a user or of a conversation (and a user). Expired ones too."""
    prefix = keys.ALL
    if user_id is not None:
        prefix = keys.user_prefix(user_id)
    elif conversation_id is not None:
        prefix = keys.conversation_prefix(conversation_id)
    for key, _ in prefixed(txn, tables.state_order, prefix):
        yield record_at(txn, tables, to_number(key[-8:]))


def outdated_states(
    txn: Transaction,
    tables: Tables,
    *,
    expired_at: int,
    updated_before: int | None,
    user_id: str | None = None,
    limit: int,
) -> list[str]:
    """The ids of at most so many states (of a user) that have expired, or whose last version is too old. Costs what is found."""
    found: dict[str, None] = {}
    bounds = [keys.time_key(keys.BY_EXPIRY, expired_at + 1)]
    if updated_before is not None:
        bounds.append(keys.time_key(keys.BY_UPDATE, updated_before))
    for bound in bounds:
        for key, _ in prefixed(txn, tables.state_order, bound[:1]):
            if key[:-8] >= bound or len(found) == limit:
                break
            state_id = record_at(txn, tables, to_number(key[-8:])).state_id
            if user_id in {None, parse_state_id(state_id).user_id}:
                found[state_id] = None
    return [*found]
