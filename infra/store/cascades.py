"""Cascades: the threads and states that go with a deleted chat, and the copies that outlive a deleted thread."""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from chatledger.domain.chat.events import Body
from chatledger.domain.errors import QuarantinedError
from chatledger.domain.graph.decide import decide_delete_state
from chatledger.domain.graph.events import is_state_stream
from chatledger.domain.log.tombstones import owner_digest
from chatledger.domain.thread.copies import reemitted
from chatledger.domain.thread.decide import decide_delete_namespaces
from chatledger.domain.thread.events import AgentContentPut, CheckpointKey, thread_of
from chatledger.projections.generations import Erasure, Generation
from chatledger.projections.graph.reader import IndexedGraphState, listed_states
from chatledger.projections.index import Snapshot
from chatledger.projections.lmdb.environment import Transaction
from chatledger.projections.thread.reader import IndexedThread
from chatledger.projections.thread.rows import all_copies, forget_copies

_TOGETHER: Final = 20
"""Checkpoints that are written in one commit."""
IsDue = Callable[[IndexedThread], bool]
"""Whether the thread is the one that is meant."""
ExecuteOnThread = Callable[[str, Callable[[IndexedThread, int], list[Body]]], object]
Look = Callable[[], AbstractContextManager[Snapshot]]
Update = Callable[[Callable[[Generation, Transaction], None]], None]
"""Changes the index."""


def delete_thread(execute: ExecuteOnThread, thread_id: str, is_due: IsDue) -> None:
    """
    Remove a thread, if it is due. An unknown one is no error.

    Its events are left to be erased, after `free_copies`.
    """

    def decide(state: IndexedThread, now: int) -> list[Body]:
        del now
        return decide_delete_namespaces(state, within=None, reason="deleted") if is_due(state) else []

    execute(thread_id, decide)


def free_copies(look: Look, execute: ExecuteOnThread, update: Update, erasures: Sequence[Erasure]) -> None:
    """
    Write what threads that were copied from deleted ones have to their own streams, before the events of those are erased.

    Also what was copied from such copies: their events come too late for it. Not before the tombstones, since a copy that is
    made in between would be forgotten.
    """
    for erasure in erasures:
        if thread_of(erasure.stream_id) is None:
            continue
        with look() as snapshot:
            copies = all_copies(snapshot.txn, snapshot.tables, erasure.first_position)
        if copies:
            for number, thread_id in copies.items():
                _free(look, execute, thread_id, number)
            update(partial(_forget_copies, thread_no=erasure.first_position))


def _forget_copies(generation: Generation, txn: Transaction, *, thread_no: int) -> None:
    forget_copies(txn, generation.tables, thread_no)


def delete_threads_of_chats(look: Look, execute: ExecuteOnThread) -> None:
    """Remove the threads with the ids of chats that were deleted, and are still to be erased; not those that came later."""
    with look() as snapshot:
        erasures = [erasure for erasure in snapshot.erasures() if thread_of(erasure.stream_id) is None]
        due = [erasure for erasure in erasures if _is_due(snapshot, erasure)]
    for erasure in due:
        with contextlib.suppress(QuarantinedError):  # it stays until it is given up
            delete_thread(execute, erasure.stream_id, partial(_began_before, position=erasure.tombstone_position))


def _is_due(snapshot: Snapshot, erasure: Erasure) -> bool:
    thread = snapshot.thread(erasure.stream_id, even_quarantined=True)
    if not _began_before(thread, erasure.tombstone_position):
        return False
    owner = None if thread.record is None else thread.record.owner
    tombstone = snapshot.chat(erasure.stream_id, even_quarantined=True).tombstone
    if owner is None or tombstone is None or tombstone.owner_digest is None:
        return True
    return tombstone.owner_digest == owner_digest(erasure.stream_id, owner)


def _began_before(thread: IndexedThread, position: int) -> bool:
    return thread.record is not None and thread.record.first_position < position


def _free(look: Look, execute: ExecuteOnThread, thread_id: str, thread_no: int) -> None:
    """Write what a thread has to its own stream, each piece once; it needs no other one afterwards."""
    with look() as snapshot:
        thread = snapshot.thread(thread_id, even_quarantined=True)
        if thread.thread_no != thread_no:
            return  # it was deleted
        keys = [(name, one) for name in thread.namespaces() for one in thread.checkpoint_ids(name)]
    written: set[bytes] = set()
    for at in range(0, len(keys), _TOGETHER):
        new: set[bytes] = set()

        def decide(
            state: IndexedThread, now: int, some: list[CheckpointKey] = keys[at : at + _TOGETHER], new: set[bytes] = new
        ) -> list[Body]:
            del now
            new.clear()  # it is asked again when another writer was faster
            bodies: list[Body] = []
            if state.thread_no != thread_no:
                return bodies
            for namespace, checkpoint_id in some:
                more = reemitted(state, namespace, checkpoint_id, written | new)
                new.update(_digests(more))
                bodies += more
            return bodies

        execute(thread_id, decide)
        written.update(new)


def _digests(bodies: list[Body]) -> set[bytes]:
    return {piece.digest for body in bodies if isinstance(body, AgentContentPut) for piece in body.pieces}


ExecuteOnState = Callable[[str, Callable[[IndexedGraphState, int], list[Body]]], object]


def delete_states_of_chats(look: Look, execute: ExecuteOnState) -> None:
    """Remove the states of chats that were deleted, and are still to be erased; not those that came later."""
    due: list[tuple[str, int]] = []
    with look() as snapshot:
        for erasure in snapshot.erasures():
            if thread_of(erasure.stream_id) is None and not is_state_stream(erasure.stream_id):
                states = listed_states(snapshot.txn, snapshot.tables, conversation_id=erasure.stream_id)
                tombstone = erasure.tombstone_position
                due += [(state.state_id, tombstone) for state in states if state.first_position < tombstone]
    for state_id, tombstone in due:
        execute(state_id, partial(_end, tombstone=tombstone))


def _end(state: IndexedGraphState, now: int, *, tombstone: int) -> list[Body]:
    del now
    if state.record is None or state.record.first_position > tombstone:
        return []
    return decide_delete_state(state, reason="chat_deleted")
