"""`Ledger`: conversations on a log, read from an index."""

from collections.abc import Mapping
from typing import Final, Self
from weakref import WeakSet

from chatledger.domain.chat.members import User, check_roles
from chatledger.domain.errors import AccessDeniedError, InvalidValueError, LedgerClosedError
from chatledger.domain.holds import LEDGER_OWNER
from chatledger.domain.limits import check_id
from chatledger.domain.values import MemberRole

from .port import HeldStore, StorePort
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
        self._sweeper = None
        if sweep_every_s is not None:
            from .sweeper import Sweeper

            self._sweeper = Sweeper(self.sweep, every_s=sweep_every_s)

    @property
    def _store(self) -> StorePort:
        if self._is_closed:
            raise LedgerClosedError(_CLOSED)
        return self._held.store

    def _is_over(self) -> bool:
        return self._is_closed

    def for_user(self, user_id: str, *, grants: Mapping[str, MemberRole] | None = None) -> "Ledger":
        """
        Return this ledger limited to what one user owns or is a member of: for code that acts for that user.

        A reader of a chat is refused to write to it (`AccessDeniedError`), a writer what is the owner's: deleting it, saying
        when it ends, choosing its members. A thread of agents is as open as the chat with its id. What a user is no
        member of is not there: the same answers and errors as if it did not exist, in reads, writes, search,
        history, feeds and `as_of`. An id that somebody else uses cannot be used, which is all that can be found out; so use
        random ids. `rebuild`, `verify`, and what else concerns everybody, is refused. Positions count over everybody's events.

        What it writes is by that user, as the history's `actor` says, unless a `context` names another one.

        It is ready at once, costs nothing, and ends when either of the two is closed.

        Args:
            user_id: The user, whom the caller has identified; may be empty.
            grants: Roles in chats by id, for an application that keeps elsewhere who belongs to a chat: they count besides the
                members, where a chat is named. Lists, and what goes over all chats, show members only what their chats say.

        Raises:
            AccessDeniedError: This ledger is limited to another user already.
            InvalidValueError: The id breaks a rule; None is no user.
        """
        if user_id == LEDGER_OWNER:
            msg = f"no user has the id {user_id!r}: what is under it is the ledger's own"
            raise InvalidValueError(msg)
        return UserLedger(
            self, User(check_id(user_id, "user_id", empty=True), check_roles(grants, "grants", "chat_id"))
        )

    @property
    def location(self) -> str:
        """The location of the log, without secrets."""
        return self._held.location

    def close(self) -> None:
        """Close the ledger; calling it again does nothing. What was written stays."""
        if not self._is_closed:
            if self._sweeper is not None:
                self._sweeper.close()
            # Before the store is given up: feeds keep their positions on the log, and writes of tasks still wait to be stored.
            for cursor in list(self._cursors):
                cursor.close_quietly()
            try:
                self._held.store.task_writes.close()
            finally:
                self._is_closed = True
                self._held.release()

    def __enter__(self) -> Self:
        if self._is_over():
            raise LedgerClosedError(_CLOSED)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Ledger {self.location}{' (closed)' if self._is_closed else ''}>"


class UserLedger(Ledger):
    """A ledger that is limited to what one user owns or is a member of. Made by `Ledger.for_user`."""

    def __init__(self, whole: Ledger, user: User) -> None:
        super().__init__(whole._held)  # noqa: SLF001 - it stands on the same store
        from .scopes.user_store import UserStore

        self._whole, self.user_id, self._user, self._of_user = whole, user.id, user, UserStore

    @property
    def _store(self) -> StorePort:
        if self._is_over():
            raise LedgerClosedError(_CLOSED)
        return self._of_user(self._held.store, self._user)

    def _is_over(self) -> bool:
        return self._is_closed or self._whole._is_over()  # noqa: SLF001 - as above

    def for_user(self, user_id: str, *, grants: Mapping[str, MemberRole] | None = None) -> Ledger:
        """Return this ledger for its own user, with the same grants; refused for another one, and for more grants."""
        if check_id(user_id, "user_id", empty=True) != self.user_id or grants:
            msg = "this ledger is limited to another user; use the ledger that it was made from"
            raise AccessDeniedError(msg)
        return UserLedger(self._whole, self._user)

    def close(self) -> None:
        """End this view; calling it again does nothing. The ledger that it was made from stays open."""
        if not self._is_closed:
            for cursor in list(self._cursors):
                cursor.close_quietly()
            self._is_closed = True
