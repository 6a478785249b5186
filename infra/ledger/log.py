"""The log behind a ledger: history, feed, positions, rebuilding."""

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Literal

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.events import Recorded
from chatledger.domain.rules import check_count, check_id

from ..context import acting
from ..feed import FeedFilter
from ..store import RETRY_S, Progress, Store, no_progress


class LogMethods:
    """The part of a ledger that is about its log."""

    @property
    def _store(self) -> Store:
        raise NotImplementedError

    def _is_over(self) -> bool:
        raise NotImplementedError

    @property
    def position(self) -> int:
        """The position on the log up to which reads know everything."""
        return self.get_position()

    def get_position(self) -> int:
        """The same as `position`, for `AsyncLedger` too."""
        with self._store.snapshot() as snapshot:
            return snapshot.state.position

    def last_position(self) -> int:
        """The position of the last event on the log, whether or not reads know it yet."""
        self._store.check_open()
        return self._store.log.last_position()

    def wait(self, after: int, *, timeout_s: float = RETRY_S) -> bool:
        """Wait until the log has an event after a position; False when the time is over."""
        self._store.check_open()
        return self._store.log.wait(check_count(after, "after"), timeout_s)

    def sync(self, position: int | None = None, *, timeout_s: float = RETRY_S) -> int:
        """
        Wait until reads know everything that is on the log now, or up to `position`.

        Args:
            position: Where another client's write ended, e.g. its `Recorded.position`.
            timeout_s: How long to wait for a position that is not on the log yet.

        Returns:
            The position reached.

        Raises:
            LogUnavailableError: The log did not answer, or the position did not come.
        """
        if position is not None:
            check_count(position, "position")
        return self._store.catch_up(position, timeout_s)

    def history(
        self, chat_id: str | None = None, *, after: int = 0, until: int | datetime | None = None
    ) -> Iterator[Recorded]:
        """
        What happened, event by event: the audit trail.

        Args:
            chat_id: Of one chat, also a deleted one; of all when None.
            after: Only events at later positions.
            until: Only events up to this position, or up to this time (with a time zone).

        Source: the log itself.
        """
        if chat_id is not None:
            check_id(chat_id, "chat_id")
        check_count(after, "after")
        limit = _until(until)
        return self._history(chat_id, after, limit)

    def _history(self, chat_id: str | None, after: int, until: tuple[int | None, int | None]) -> Iterator[Recorded]:
        last_position, last_time = until
        ended: set[str] = set()
        for recorded in self._store.events(after, chat_id=chat_id, is_closed=self._is_over):
            if last_position is not None and recorded.position > last_position:
                return
            if last_time is not None and recorded.occurred_at > last_time:
                ended.add(recorded.chat_id)  # clocks differ, but of no chat a later event follows a gap
            if recorded.chat_id not in ended:
                yield recorded

    def feed(
        self,
        after: int | None = None,
        *,
        chat_id: str | None = None,
        user_id: str | None = None,
        topics: Collection[str] | None = None,
        follow: bool = True,
    ) -> Iterator[Recorded]:
        """
        Changes in order and without holes, as they happen, from any position.

        Remember the `position` of what you have handled, and go on from there after a restart.

        Args:
            after: Only events at later positions: 0 for all there ever were, None for those from now on.
            chat_id: Of one chat only.
            user_id: Of this owner's chats only. A chat that is deleted already has none: of it, nothing is shown.
            topics: Of these types only, e.g. `{"message_appended", "branch_created"}`.
            follow: Whether to wait for more at the end of the log, until the ledger is closed.

        Raises:
            LogUnavailableError: The log did not answer for long; begin again after the last position handled.
        """
        keep = FeedFilter(self.owner_of, chat_id=chat_id, user_id=user_id, topics=topics)
        store = self._store
        store.check_open()
        start = store.log.last_position() if after is None else check_count(after, "after")
        events = store.follow if follow else store.events
        return filter(keep, events(start, is_closed=self._is_over))

    def owner_of(self, chat_id: str) -> str | None:
        """The owner of a chat; None when there is no such chat, or no more."""
        for may_lag in (True, False):
            with self._store.snapshot() as snapshot:
                profile = snapshot.chat(check_id(chat_id, "chat_id")).profile
            if profile is not None:
                return profile.user_id
            if may_lag:
                self.sync()
        return None

    def rebuild(self, *, only: Literal["search"] | None = None, progress: Progress | None = None) -> None:
        """
        Build the index anew from the log, while the old one goes on serving, and go over to it.

        Args:
            only: With "search" only the search index, from the messages in the index; the log is not read. Until it is
                complete, searches are degraded. When it is interrupted, opening the ledger completes it.
            progress: Called with (events done, events in all); with "search" messages are counted.

        Raises:
            ChainIntegrityError: Events on the log are missing, repeated or altered; the old index stays.
            InvalidValueError: There is no such part of the index.
        """
        if only is not None and only != "search":
            msg = f"only may be 'search' or None, not {only!r}"
            raise InvalidValueError(msg)
        self._store.check_open()
        rebuild = self._store.rebuild if only is None else self._store.rebuild_search
        rebuild(progress or no_progress)

    @staticmethod
    def context(
        *,
        actor: str | None = None,
        correlation_id: str | None = None,
        causation_id: str | None = None,
        command_id: str | None = None,
    ) -> AbstractContextManager[None]:
        """
        Say who acts, and on whose behalf; operations inside the `with` record it. Works across threads and tasks.

        Args:
            actor: Who does it, e.g. a user or an agent.
            correlation_id: What it belongs to, e.g. a request.
            causation_id: What caused it, e.g. an event id.
            command_id: The identity of one command: repeated under the same id on the same chat, however late, it is not
                carried out again and returns what it returned.
        """
        return acting(actor=actor, correlation_id=correlation_id, causation_id=causation_id, command_id=command_id)


def _until(until: int | datetime | None) -> tuple[int | None, int | None]:
    """As (position, time in ms)."""
    if isinstance(until, datetime):
        if until.tzinfo is None:
            msg = "until needs a time zone, e.g. datetime.now(timezone.utc)"
            raise InvalidValueError(msg)
        return None, int(until.timestamp() * 1000)
    return None if until is None else check_count(until, "until"), None
