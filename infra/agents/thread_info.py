"""What is told of a thread as a whole."""

import msgspec

from chatledger.domain.agents.record import ThreadRecord
from chatledger.projections.agents.indexed_thread import IndexedThread


class ThreadInfo(msgspec.Struct, frozen=True):
    """
    A thread of agents.

    Args:
        thread_id: Its id.
        namespaces: In the order in which they came up.
        checkpoint_count: How many checkpoints there are, in all namespaces.
        created_at: The time of its first event, in ms since the epoch.
        updated_at: That of the last one.
        owner: The user whose it is; None when it is nobody's.
    """

    thread_id: str
    namespaces: list[str]
    checkpoint_count: int
    created_at: int
    updated_at: int
    owner: str | None = None


def info_of(thread: IndexedThread, record: ThreadRecord) -> ThreadInfo:
    """What is told of a living thread."""
    return ThreadInfo(
        thread_id=thread.thread_id,
        namespaces=thread.namespaces(),
        checkpoint_count=record.checkpoint_count,
        created_at=record.created_at,
        updated_at=record.updated_at,
        owner=thread.owner,
    )
