"""The log behind a ledger: history, feed, positions, backups; and what is built from it, the index and projections of users."""

import os
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING

from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.limits import NO_ID, check_position, sought_id
from chatledger.domain.moments import Moment
from chatledger.domain.values import Progress, no_progress
from chatledger.projections.lmdb.system_errors import system_errors
from chatledger.projections.log.kinds import CHATS, STATES, THREADS, kind_of

from ..log.envelope import acting
from ..store.commands import RETRY_S, ChatsToRead
from .feed import WHOLE, Cursor, Feed, FeedFilter, FeedInfo, acknowledge, check_share, claim, drop_feed, list_feeds
from .feed.filter import HistoryFilter, is_gone
from .port import LedgerPart, StorePort, store_of

if TYPE_CHECKING:
    from ..store.backup.manifest import Backup
if TYPE_CHECKING:
    from chatledger.projections.custom.rows import ProjectionView

    from ..store.custom_projections import CustomProjections, ProjectionInfo

__all__ = ["CHATS", "STATES", "THREADS", "LogMethods", "Recorded", "kind_of"]


class LogMethods(LedgerPart):
    """The part of a ledger that is about its log."""

    @property
    def position(self) -> int:
        """The position on the log up to which reads know everything."""
        return self.get_position()

    def get_position(self) -> int:
        """Return `position`, by a method."""
        with self._store.snapshot() as snapshot:
            return snapshot.state.position

    def last_position(self) -> int:
        """
        The position of the last event on the log, whether or not reads know it yet.

        Never ahead of the log. On a cluster it may be behind for some seconds while a leader is replaced; what `sync` returns is not.
        """
        self._store.check_open()
        return self._store.log.last_position()

    def wait(self, after: int, *, timeout_s: float = RETRY_S) -> bool:
        """Wait until the log has an event after a position; False when the time is over."""
        self._store.check_open()
        return self._store.log.wait(check_position(after, "after"), min(timeout_s, TIMEOUT_MAX))

    def sync(self, position: int | None = None, *, timeout_s: float = RETRY_S) -> int:
        """
        Wait until reads know everything that is on the log now, or up to `position`.

        What was acknowledged to anybody before the call is in all reads after it (they are linearizable). On a cluster this takes
        about as long as a write, as a majority has to agree on where the log ends; with a login that may not delete, a second at most.

        Args:
            position: Where another client's write ended, e.g. its `Recorded.position`.
            timeout_s: How long to wait for a position that is not on the log yet.

        Returns:
            The position reached.

        Raises:
            LogUnavailableError: The log did not answer, or the position did not come.
        """
        if position is not None:
            check_position(position, "position")
        return self._store.catch_up(position, min(timeout_s, TIMEOUT_MAX))

    @system_errors("reading the history")
    def history(
        self,
        chat_id: str | None = None,
        *,
        after: int = 0,
        up_to: int | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        user_id: str | None = None,
        topics: Collection[str] | None = None,
        actor: str | None = None,
    ) -> Iterator[Recorded]:
        """
        Yield the events of the log: the audit trail. Filters combine.

        Args:
            chat_id: Of one chat, also a deleted one; of all when None.
            after: Only events at later positions.
            up_to: Only events up to this position.
            since: Only events at or after this time: ms since the epoch, an aware datetime, or a text such as `yesterday`, `7d` or ISO 8601.
            until: Only events up to this time, given likewise.
            user_id: Of this owner's chats only, with the tombstones of those that were deleted.
            topics: Of these types only, e.g. `{"message_appended", "chat_deleted"}`.
            actor: Only what was done in this name, see `context`.

        Source: the log itself, which is read from `after` on, and no further than `up_to`. Of one chat only its own events are read.
        """
        if chat_id is not None:
            chat_id = sought_id(chat_id, "chat_id")
        check_position(after, "after")
        if up_to is not None:
            check_position(up_to, "up_to")
        from .scopes.user_store import Owners

        store = self._store
        keep = HistoryFilter(Owners(store), user_id=user_id, topics=topics, actor=actor, since=since, until=until)
        # Not a generator itself: its arguments are refused by the call, and not when the first event is asked for.
        return self._history(chat_id, after, up_to, keep)

    def _history(self, chat_id: str | None, after: int, up_to: int | None, keep: HistoryFilter) -> Iterator[Recorded]:
        if chat_id == NO_ID:
            return
        for recorded in self._store.events(after, up_to=up_to, stream_id=chat_id, is_closed=self._is_over):
            if keep(recorded) and not is_gone(self._store, recorded):
                yield recorded

    @system_errors("beginning a feed")
    def feed(
        self,
        after: int | None = None,
        *,
        name: str | None = None,
        share: tuple[int, int] | None = None,
        chat_id: str | None = None,
        user_id: str | None = None,
        topics: Collection[str] | None = None,
        follow: bool = True,
        auto_ack: bool = True,
    ) -> Feed:
        """
        Changes in order and without holes, as they happen, from any position.

        A feed with a name goes on after a restart where it was: its position is kept in the log's server. Each event is
        given at least once; again only what was handled just before a crash, see `Feed`. Without a name, remember the
        `position` of what you have handled, and go on from there.

        Args:
            after: Only events at later positions: 0 for all there ever were, None for those from now on. With a name, where
                a new one begins, None for all there ever were; one that is known goes on where it was.
            name: Keeps the position under this name. One reader at a time: a later one goes on, the earlier one gets
                a `ConflictError` when it keeps its next position.
            share: `(index, count)`: of the chats whose ids fall into share `index` (from 0) of `count`; all shares together
                are everything. Each member of a name has a position of its own; the count cannot be changed while the name
                is known.
            chat_id: Of one chat only; the others are not read.
            user_id: Of this owner's chats only.
            topics: Of these types only, e.g. `{"message_appended", "branch_created"}`.
            follow: Whether to wait for more at the end of the log, until the ledger is closed.
            auto_ack: Whether asking for the next event says that the last one was handled; else only `Feed.ack` does.

        Raises:
            InvalidValueError: A value breaks a rule, or the name is read in other shares.
            ChainIntegrityError: The log does not reach to the position under that name.
            LogUnavailableError: The log did not answer for long; ask the feed again, or begin again after its `position`.
        """
        from .scopes.user_store import Owners

        store = self._store
        store.check_open()
        keep = FeedFilter(Owners(store).is_owner, chat_id=chat_id, user_id=user_id, topics=topics, share=share)
        if after is not None:
            check_position(after, "after")
        member = None if name is None else claim(store.log, name, share or WHOLE, after=after)
        cursor = Cursor(
            store,
            keep,
            after=store.log.last_position() if after is None and member is None else after or 0,
            chat_id=chat_id,
            is_following=follow,
            is_auto=auto_ack,
            is_closed=self._is_over,
            member=member,
        )
        self._cursors.add(cursor)
        return Feed(cursor)

    def feeds(self) -> list[FeedInfo]:
        """
        Return the positions of the members of named feeds, by name and share.

        Source: the log's server. What was handled in the last quarter of a second may not be counted yet.
        """
        self._store.check_open()
        return list_feeds(self._store.log)

    def ack_feed(self, name: str, position: int, *, share: tuple[int, int] | None = None) -> FeedInfo:
        """
        Say for the reader of a named feed that everything up to a position was handled, from wherever the `Feed` is not at hand.

        The reader goes on as before; use it with `feed(..., auto_ack=False)`. An earlier position than before changes nothing.

        Args:
            name: The name.
            position: Of an event that the reader was given.
            share: `(index, count)`, where the name is read in shares.

        Raises:
            NotFoundError: Nobody has read under that name, or such a share of it.
            InvalidValueError: The position is beyond the end of the log, or a value breaks a rule.
            LogUnavailableError: No answer; whether it is kept is unknown, and trying again is safe.
        """
        self._store.check_open()
        return acknowledge(
            self._store.log, name, WHOLE if share is None else check_share(share), check_position(position, "position")
        )

    def forget_feed(self, name: str) -> bool:
        """
        Forget a named feed with all its shares; False when there is none. A reader under the name gets a `ConflictError`.

        The name may be used again, as a new one.
        """
        self._store.check_open()
        return drop_feed(self._store.log, name)

    def owner_of(self, chat_id: str) -> str | None:
        """The owner of a chat; None when there is no such chat, or no more."""
        chat_id = sought_id(chat_id, "chat_id")
        for may_lag in (True, False):
            with self._store.snapshot(ChatsToRead(chat_id)) as snapshot:
                profile = snapshot.chat(chat_id).profile
            if profile is not None:
                return profile.user_id
            if may_lag:  # that there is no such chat is believed at the end of the log
                self.sync()
        return None

    def rebuild(
        self, *, only: str | None = None, progress: Progress | None = None, processes: int | None = None
    ) -> None:
        """
        Build the index anew from the log, while the old one goes on serving, and go over to it.

        Args:
            only: With "search" only the search index, from the messages in the index; the log is not read. Until it is
                complete, searches are degraded. When it is interrupted, opening the ledger completes it. With the name of a
                projection only its rows, from the log; the old ones serve until then.
            progress: Called with (events done, events in all); with "search" messages are counted.
            processes: The number of processes that build the whole index, this one included (>= 1); one a processor, at most
                8, when None. More than one are used for some 50,000 messages and more; a part of the index takes one.

        Raises:
            ChainIntegrityError: Events on the log are missing, repeated or altered; the old index stays.
            InvalidValueError: There is no such part of the index, or `processes` is less than 1.
            ProjectionError: The projection failed again.
        """
        store = self._store.whole("rebuild")
        store.check_open()
        if only is None:
            store.rebuild(progress or no_progress, processes=processes)
        elif only == "search":
            store.rebuild_search(progress or no_progress)
        elif isinstance(only, str) and store.projections.has(only):  # pyright: ignore[reportUnnecessaryIsInstance]  # users'
            store.projections.rebuild(only, progress or no_progress)
        else:
            msg = f"only may be 'search' or None, or the name of a projection that the ledger was opened with, not {only!r}"
            raise InvalidValueError(msg)

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

    @contextmanager
    def projection(self, name: str) -> Generator["ProjectionView"]:
        """
        The rows of a projection that the ledger was opened with: use it in a `with`.

        What is read inside belongs to one moment; everything that this ledger wrote before is in it. Where the projection
        lags, because another process wrote without it, it catches up first. Inside, the ledger itself cannot be used.

        Raises:
            NotFoundError: The ledger was not opened with it.
            ProjectionError: It failed, or another process brought another version.
        """
        view, end, inside = begin_view(self, name)
        try:
            with inside():
                yield view
        finally:
            end()

    def projections(self) -> "list[ProjectionInfo]":
        """
        The projections that the index has, by name, also those that this ledger was not opened with.

        Source: the LMDB index at `position`.
        """
        return _of_all_users(self._store).infos()

    def drop_projection(self, name: str) -> bool:
        """
        Remove a projection with its rows; False when there is none. A ledger that is opened with it builds it anew.

        A process that still has it builds it anew as well, when it reads it.
        """
        return _of_all_users(self._store).drop(name)


class BackupMethods(LedgerPart):
    """The part of a ledger that takes backups."""

    @system_errors("the backup cannot be taken")
    def backup(self, folder: str | os.PathLike[str], *, progress: Progress | None = None) -> "Backup":
        """
        Take a backup of the log into a folder, or bring the one there up to date, while others read and write.

        It has all commits up to one position, with their positions, as they are stored: what is encrypted or compressed stays
        so, and no key is in it. Every event is checked on the way. A second run into the same folder adds what is new, and
        removes what was deleted since. Killed at any point, it leaves the backup that was there before. Of a chat in quarantine it
        has what is left, and notes that it is not all.

        Args:
            folder: New, empty, or with an earlier backup of this log. It holds conversations: it gets mode 0700.
            progress: Called with (position reached, position to reach).

        Raises:
            ConfigurationError: The folder cannot be written, or holds something else, or the backup of another log.
            LedgerLockedError: Another process writes a backup into it.
            ChainIntegrityError, CorruptStateError: The log is not sound, or lost events since the last run. The backup stays
                as it was.
            LogUnavailableError: The log did not answer.

        Source: the log itself; the index is not asked. `chatledger.admin.check_backup` reads a backup back, `chatledger.admin.restore`
        makes a ledger of it.
        """
        from ..store.backup.writing import write_backup
        from ..store.quarantine import QuarantineRefusal

        store = self._store.whole("backup")
        store.check_open()
        refuse = store.index.refuse
        quarantined = refuse.streams if isinstance(refuse, QuarantineRefusal) else ()
        return write_backup(store.log, folder, quarantined=quarantined, progress=progress or no_progress)

    def forget_backup(self, folder: str | os.PathLike[str]) -> bool:
        """
        Say that the backup in a folder was deleted: reports of erasures do not name it any more. False when they did not.

        Args:
            folder: As the report names it, also one of another machine, which nobody looks at from here.

        Raises:
            ConfigurationError: There is a backup on this machine: delete it first.
        """
        from ..store.backup.writing import forget_mark

        return forget_mark(self._store.whole("forget_backup").log, folder)


def begin_view(
    ledger: LedgerPart, name: str
) -> tuple["ProjectionView", Callable[[], None], Callable[[], AbstractContextManager[None]]]:
    """The rows of a projection, what ends them, and what is entered for as long as they are open."""
    projections = _of_all_users(store_of(ledger))
    view = projections.view(name)
    return view, lambda: projections.end_view(view), projections.inside


def _of_all_users(store: StorePort) -> "CustomProjections":
    whole = store.whole("projections")
    whole.check_open()
    return whole.projections
