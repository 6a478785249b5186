"""`Ledger`: conversations on a log, read from an index."""

from types import TracebackType
from typing import Final, Self
from weakref import WeakSet

from chatledger.domain.errors import AccessDeniedError, LedgerClosedError
from chatledger.domain.limits import check_id

from .port import HeldStore, LedgerStore
from .sweeper import Sweeper
from .view import LedgerMethods, TimeTravelMethods

_CLOSED: Final = "the ledger is closed; open it again"


class Ledger(LedgerMethods, TimeTravelMethods):
    """
    Conversations, kept as events on a log and answered from an index. Made by `chatledger.open`.

    Safe for threads. Every write is one commit: on the log before the call returns, and in what this ledger reads next.
    """

    def __init__(self, held: HeldStore, *, sweep_every_s: float | None = None) -> None:
        self._held = held
        self._is_closed = False
        self._cursors = WeakSet()
        self._sweeper = None if sweep_every_s is None else Sweeper(self.sweep, every_s=sweep_every_s)

    @property
    def _store(self) -> LedgerStore:
        if self._is_closed:
            raise LedgerClosedError(_CLOSED)
        return self._held.store

    def _is_over(self) -> bool:
        return self._is_closed

    def for_user(self, user_id: str) -> "Ledger":
        """
        Return this ledger limited to what one user owns: for code that acts for that user.

        What belongs to others is not there: the same answers and errors as if it did not exist, in reads, writes, search,
        history, feeds and `as_of`. An id that somebody else uses cannot be used, which is all that can be found out; so use
        random ids. `rebuild`, `verify`, and what else concerns everybody, is refused. Positions count over everybody's events.

        What it writes is by that user, as the history's `actor` says, unless a `context` names another one.

        It is ready at once, costs nothing, and ends when either of the two is closed.

        Args:
            user_id: The owner, whom the caller has identified; may be empty.

        Raises:
            AccessDeniedError: This ledger is limited to another user already.
            InvalidValueError: The id breaks a rule; None is no user.
        """
        return UserLedger(self, check_id(user_id, "user_id", empty=True))

    @property
    def location(self) -> str:
        """The location of the log, without secrets."""
        return self._held.location

    def close(self) -> None:
        """Close the ledger; calling it again does nothing. What was written stays."""
        if not self._is_closed:
            if self._sweeper is not None:
                self._sweeper.close()
            for cursor in list(self._cursors):
                cursor.close_quietly()
            self._is_closed = True
            self._held.release()

    def __enter__(self) -> Self:
        if self._is_over():
            raise LedgerClosedError(_CLOSED)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Ledger {self.location}{' (closed)' if self._is_closed else ''}>"


class UserLedger(Ledger):
    """A ledger that is limited to what one user owns. Made by `Ledger.for_user`."""

    def __init__(self, whole: Ledger, user_id: str) -> None:
        super().__init__(whole._held)  # noqa: SLF001 - it stands on the same store
        from .scopes.user_store import UserStore

        self._whole, self.user_id, self._of_user = whole, user_id, UserStore

    @property
    def _store(self) -> LedgerStore:
        if self._is_over():
            raise LedgerClosedError(_CLOSED)
        return self._of_user(self._held.store, self.user_id)

    def _is_over(self) -> bool:
        return self._is_closed or self._whole._is_over()  # noqa: SLF001 - as above

    def for_user(self, user_id: str) -> Ledger:
        """Return this ledger for its own user; refused for another one."""
        if check_id(user_id, "user_id", empty=True) != self.user_id:
            msg = "this ledger is limited to another user; use the ledger that it was made from"
            raise AccessDeniedError(msg)
        return UserLedger(self._whole, user_id)

    def close(self) -> None:
        """End this view; calling it again does nothing. The ledger that it was made from stays open."""
        if not self._is_closed:
            for cursor in list(self._cursors):
                cursor.close_quietly()
            self._is_closed = True
