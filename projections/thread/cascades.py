"""Cascades: the thread that goes with a deleted chat, and the copies that outlive a deleted thread."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from chatledger.domain.chat.events import Body
from chatledger.domain.limits import COMMIT_EVENTS
from chatledger.domain.log.tombstones import owner_digest
from chatledger.domain.thread.copies import reemitted
from chatledger.domain.thread.decide import decide_delete_namespaces
from chatledger.domain.thread.events import AgentContentPut, AgentWritesPut, CheckpointKey

from ..lmdb.environment import Transaction
from ..lmdb.tables import Tables
from .reader import IndexedThread
from .rows import all_copies

_TOGETHER: Final = 20
"""Checkpoints that are written in one commit, where their events fit into one."""
DecideOnThread = Callable[[IndexedThread, int], list[Body]]


def deletions_of_threads(
    txn: Transaction, tables: Tables, chat_id: str, before: int
) -> list[tuple[str, DecideOnThread]]:
    """Return the thread with the id of a deleted chat, with the decision that deletes it, if it began earlier, for its owner."""
    record = IndexedThread(tables, txn, chat_id).record
    if record is None or record.first_position >= before:
        return []
    tombstone = tables.tombstone(txn, chat_id)
    digest = None if tombstone is None else tombstone.owner_digest
    if record.owner is not None and digest is not None and digest != owner_digest(chat_id, record.owner):
        return []
    return [(chat_id, partial(_delete, before=before))]


def _delete(state: IndexedThread, _now: int, *, before: int) -> list[Body]:
    is_due = state.record is not None and state.record.first_position < before
    return decide_delete_namespaces(state, within=None, reason="deleted") if is_due else []


def reemissions(txn: Transaction, tables: Tables, thread_no: int) -> list[tuple[str, Iterator[DecideOnThread]]]:
    """
    Return what makes the copies of a deleted thread independent of it, and the copies of those, whose events come too late.

    Each thread's decisions write what it has to its own stream, each piece once. Carry one out before asking for the next.
    """
    return [
        (thread_id, _reemissions(_keys(IndexedThread(tables, txn, thread_id), copy_no), copy_no))
        for copy_no, thread_id in all_copies(txn, tables, thread_no).items()
    ]


def _keys(thread: IndexedThread, thread_no: int) -> list[CheckpointKey]:
    """The checkpoints of a thread; none when another one has its id by now."""
    if thread.thread_no != thread_no:
        return []
    return [(name, one) for name in thread.namespaces() for one in thread.checkpoint_ids(name)]


def _reemissions(keys: list[CheckpointKey], thread_no: int) -> Iterator[DecideOnThread]:
    digests: set[bytes] = set()
    for at in range(0, len(keys), _TOGETHER):
        writes: set[Body] = set()
        new: list[Body] = []
        is_whole = False
        while not is_whole:
            yield partial(_reemit, keys=keys[at : at + _TOGETHER], thread_no=thread_no, done=(digests, writes), new=new)
            digests |= _digests(new)
            writes |= {body for body in new if isinstance(body, AgentWritesPut)}
            is_whole = len(new) < COMMIT_EVENTS


def _reemit(
    state: IndexedThread,
    _now: int,
    *,
    keys: list[CheckpointKey],
    thread_no: int,
    done: tuple[set[bytes], set[Body]],
    new: list[Body],
) -> list[Body]:
    """The events of some checkpoints without the pieces and writes that are `done`, as many as fit into a commit."""
    new.clear()  # it is asked again when another writer was faster
    digests, writes = done
    fresh: set[bytes] = set()
    for namespace, checkpoint_id in keys if state.thread_no == thread_no else ():
        more = reemitted(state, namespace, checkpoint_id, lambda digest: digest in digests or digest in fresh)
        fresh.update(_digests(more))
        new += (body for body in more if not (isinstance(body, AgentWritesPut) and body in writes))
    del new[COMMIT_EVENTS:]
    return [*new]


def _digests(bodies: Iterable[Body]) -> set[bytes]:
    return {piece.digest for body in bodies if isinstance(body, AgentContentPut) for piece in body.pieces}
