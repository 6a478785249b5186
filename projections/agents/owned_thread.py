"""A thread as one user may see it."""

from chatledger.domain.agents.record import ThreadRecord

from ..environment import Transaction
from ..tables import Tables
from .indexed_thread import IndexedThread


class OwnedThread(IndexedThread):
    """A thread of one user, or none. `is_taken` says that its id is another user's, or belongs to a thread of nobody."""

    def __init__(self, tables: Tables, txn: Transaction, thread_id: str, *, user_id: str) -> None:
        super().__init__(tables, txn, thread_id)
        self._user_id = user_id
        self.is_taken = not self.is_of(user_id) and (self.owner is not None or super().record is not None)
        if self.is_taken:
            self.thread_no = None

    @property
    def record(self) -> ThreadRecord | None:
        """None when the user has no such thread."""
        return None if self.thread_no is None else super().record

    def beside(self, thread_id: str) -> "OwnedThread":
        """Another thread at the same moment."""
        return OwnedThread(self._tables, self._txn, thread_id, user_id=self._user_id)
