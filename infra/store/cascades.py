"""Cascades: what goes with a deleted chat, and what others need of a deleted stream before its events are erased."""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from chatledger.domain.errors import QuarantinedError
from chatledger.projections.generations import Erasure, Generation
from chatledger.projections.index import Index
from chatledger.projections.lmdb.environment import Transaction
from chatledger.projections.log.kinds import CHATS, STREAM_KINDS, Decision, StreamKind, kind_of
from chatledger.projections.snapshot import Snapshot


class Cascades:
    """
    The cascades of one store; `StreamKind` says what they are.

    Args:
        index: Changed when they are over.
        look: Opens a snapshot.
        execute: Decides, writes and applies; see `Store.execute`.
    """

    def __init__(
        self,
        index: Index,
        look: Callable[[], AbstractContextManager[Snapshot]],
        execute: Callable[[StreamKind[Any], str, Decision[Any]], object],
    ) -> None:
        self._index, self._look, self._execute = index, look, execute
        self._followed = 0
        """The tombstone up to which this process has followed: many chats may wait to be erased."""

    def follow_chats(self, *, only_new: bool = False) -> None:
        """
        Delete what goes with chats that were deleted, and are still to be erased; not what came later.

        With `only_new`, of those that were deleted since this process did so last.
        """
        after = self._followed if only_new else 0
        with self._look() as snapshot:
            followed = max((erasure.tombstone_position for erasure in snapshot.erasures(after=after)), default=after)
        for kind in STREAM_KINDS:
            with self._look() as snapshot:
                due = [
                    deletion
                    for erasure in snapshot.erasures(after=after)
                    if kind_of(erasure.stream_id) is CHATS
                    for deletion in kind.on_chat_deleted(
                        snapshot.txn, snapshot.tables, erasure.stream_id, erasure.tombstone_position
                    )
                ]
            for key, decide in due:
                with contextlib.suppress(QuarantinedError):  # it stays until it is given up
                    self._execute(kind, key, decide)
        self._followed = max(self._followed, followed)

    def release(self, erasures: Sequence[Erasure]) -> None:
        """
        Write what others need of deleted streams to their own, before the events of those are erased.

        Not before the tombstones, since what is taken over in between would be forgotten.
        """
        for erasure in erasures:
            kind = kind_of(erasure.stream_id)
            with self._look() as snapshot:
                reemitted = kind.before_erasure(snapshot.txn, snapshot.tables, erasure.first_position)
            for key, decisions in reemitted:
                for decide in decisions:
                    self._execute(kind, key, decide)
            if reemitted:
                self._index.update(partial(_forget, kind=kind, stream_no=erasure.first_position))


def _forget(generation: Generation, txn: Transaction, *, kind: StreamKind[Any], stream_no: int) -> None:
    kind.after_erasure(txn, generation.tables, stream_no)
