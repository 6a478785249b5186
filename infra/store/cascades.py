"""Cascades: what goes with a deleted chat or value, and what others need of a deleted stream before its events are erased."""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from chatledger.domain.errors import HeldError, QuarantinedError
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
        """The tombstone up to which this process has followed: much may wait to be erased."""

    def follow(self, *, only_new: bool = False) -> None:
        """
        Delete what goes with what was deleted, and is still to be erased; not what came later.

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
                    if not erasure.targets
                    for of in [kind_of(erasure.stream_id)]
                    for key in [erasure.stream_id if of is CHATS else erasure.key]
                    for deletion in kind.on_deleted(
                        snapshot.txn, snapshot.tables, of.name, key, erasure.tombstone_position
                    )
                ]
            for key, decide in due:
                # It stays until it is given up, or released: a hold that came between the chat's deletion and this.
                with contextlib.suppress(QuarantinedError, HeldError):
                    self._execute(kind, key, decide)
        self._followed = max(self._followed, followed)

    def release(self, erasures: Sequence[Erasure]) -> None:
        """
        Write what others need of deleted streams to their own, before the events of those are erased.

        Not before the tombstones, since what is taken over in between would be forgotten.
        """
        for erasure in erasures:
            kind, released = kind_of(erasure.stream_id), set[str]()
            while True:
                with self._look() as snapshot:
                    reemitted = dict(kind.before_erasure(snapshot.txn, snapshot.tables, erasure.first_position))
                # Again: a copy may have been copied meanwhile, before it had written all that it took over.
                due = reemitted.keys() - released
                if not due:
                    break
                for key in sorted(due):
                    for decide in reemitted[key]:
                        self._execute(kind, key, decide)
                released |= due
            if released:
                self._index.update(partial(_forget, kind=kind, stream_no=erasure.first_position))


def _forget(generation: Generation, txn: Transaction, *, kind: StreamKind[Any], stream_no: int) -> None:
    kind.after_erasure(txn, generation.tables, stream_no)
