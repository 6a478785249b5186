"""
The store of a node that holds a share of the chats.

Its index follows the chats of its share, and answers for them as any other. What is elsewhere is not read here:
`OtherShareError` says which share has it. It can be written to, though: a *guest* is a store of that chat alone, built from
the chat's events for as long as it is in use, so that decisions are made on the same state as where the chat is held.
"""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final

from chatledger.domain.chat.events import Recorded, StreamDeleted
from chatledger.domain.chat.state import stream_head
from chatledger.domain.errors import (
    AccessDeniedError,
    ChainIntegrityError,
    InvalidValueError,
    LogUnavailableError,
    OtherShareError,
)
from chatledger.domain.holds import hold_key
from chatledger.domain.legal_hold import HoldKind, LegalHold
from chatledger.domain.log.shares import UNSHARED, Share, bucket_of
from chatledger.domain.versioned.keys import ITEM, THREAD_PREFIX
from chatledger.projections.index import Index
from chatledger.projections.log.holds import find_hold
from chatledger.projections.log.kinds import Decision, R, StreamKind, kind_of
from chatledger.projections.snapshot import Snapshot

from ..log.port import EventLog
from .commands import NO_CHATS, RETRY_S, ChatsToRead, EventKind, Take, View
from .store import Store

_MOST_GUESTS: Final = 16
"""So many chats of other shares stay ready to be written to."""
_COUNTS: Final = 10
"""So often the events are counted, while others write."""
_FORGOES: Final = (
    "anchor",
    "backup",
    "hold",
    "holds",
    "import_bundle",
    "pull",
    "release",
    "remove_retention",
    "repair",
    "retention",
    "set_retention",
)
"""Tasks that concern the log as a whole."""


class _MovedError(Exception):
    """A chat was made in another share while a command was about to make one of its id here."""


def _refuse_threads(stream: str) -> None:
    if stream.startswith(THREAD_PREFIX):
        what = f"thread {stream.removeprefix(THREAD_PREFIX)!r}"
        raise OtherShareError(what, None)


class Guests:
    """
    Stores of single chats of other shares, the ones used last; the others make room, as do those that are not used for a while.

    Args:
        make: Returns the store of a stream.
    """

    def __init__(self, make: Callable[[str], Store]) -> None:
        self._make = make
        self._stores: OrderedDict[str, Store] = OrderedDict()
        self._users: dict[str, int] = {}
        self._recent: set[str] = set()
        self._lock = threading.Lock()

    def __contains__(self, stream_id: str) -> bool:
        return stream_id in self._stores

    @contextlib.contextmanager
    def store(self, stream_id: str) -> Generator[Store]:
        """The store of a stream; it stays open inside the `with`."""
        with self._lock:
            store = self._stores.get(stream_id)
            if store is None:
                store = self._stores[stream_id] = self._make(stream_id)
            self._stores.move_to_end(stream_id)
            self._users[stream_id] = self._users.get(stream_id, 0) + 1
            self._recent.add(stream_id)
            left = self._taken_out(self._idle()[: max(0, len(self._stores) - _MOST_GUESTS)])
        for guest in left:
            guest.close()
        try:
            yield store
        finally:
            with self._lock:
                self._users[stream_id] -= 1

    def _idle(self) -> list[str]:
        return [stream for stream in self._stores if not self._users.get(stream)]

    def _taken_out(self, streams: Sequence[str]) -> list[Store]:
        for stream in streams:
            self._users.pop(stream, None)
        return [self._stores.pop(stream) for stream in streams]

    def drop_unused(self) -> None:
        """Close those that were not used since the last call: nobody tells them that their chat was deleted elsewhere."""
        with self._lock:
            left = self._taken_out([stream for stream in self._idle() if stream not in self._recent])
            self._recent.clear()
        for store in left:
            store.close()

    def close(self) -> None:
        with self._lock:
            stores, self._stores = list(self._stores.values()), OrderedDict()
        for store in stores:
            store.close()


class ShareStore(Store):
    """
    A store whose log follows a share of the chats.

    Args:
        log, index: As of `Store`; the log has a share.
        share: The share.
        settings: The other arguments of `Store`.
    """

    def __init__(self, log: EventLog, index: Index, *, share: Share, **settings: Any) -> None:
        self._share, self._settings = share, settings
        self._guests = Guests(self._guest)
        index.refuse, index.hold_elsewhere = _refuse_threads, self._hold_elsewhere
        super().__init__(log, index, **settings)
        try:
            self._check_count()
        except BaseException:
            self.close()
            raise

    def _check_count(self) -> None:
        """
        Raise `ChainIntegrityError` when the server counts more events of the share than it gave.

        The positions of a share have gaps, so a lost event shows by the next one of its chat only. This finds the last ones.
        """
        count = indexed = reached = 0
        for _ in range(_COUNTS):
            before, reached = reached, self.projector.catch_up()
            count = self.log.count() or 0
            with self.index.snapshot() as snapshot:
                indexed, has_erasures = snapshot.entry_count, bool(snapshot.erasures())
            if has_erasures or count <= indexed:
                return
            if before == reached:
                break
        msg = (
            f"the server has {count} events of share {self._share}, and {indexed} could be read: events are lost. Restore the "
            "log from a backup, or compare the replicas of a cluster"
        )
        raise ChainIntegrityError(msg)

    def _guest(self, stream_id: str) -> Store:
        folder = self.scratch.take()
        log = self.log.stream_alone(stream_id)
        index = Index(folder.path, identity=log.identity)
        index.hold_elsewhere = self._hold_elsewhere
        limits = {name: self._settings[name] for name in ("max_event_bytes", "max_message_bytes")}
        return Store(log, index, scratch=self.scratch, on_close=(folder.remove,), is_following=False, **limits)

    def _hold_elsewhere(self, kind: HoldKind, some_id: str) -> LegalHold | None:
        """
        Return the hold on a user or a chat, wherever the item that it is lies among the shares; None for none.

        That is not followed, so the log is asked: once for each stream that begins or is destroyed here.
        """
        try:
            stream_id = ITEM.stream_of(hold_key(kind, some_id))
        except InvalidValueError:
            return None  # too long an id for a hold
        if self.log.bucket(stream_id) is None:
            return None
        with self._guests.store(stream_id) as guest:
            guest.projector.catch_up()
            with guest.index.snapshot() as snapshot:
                return find_hold(snapshot.txn, snapshot.tables, kind, some_id)

    def _other_share(self, stream_id: str) -> Share | None:
        if self._is_indexed(stream_id):
            return None
        bucket = self.log.bucket(stream_id)
        if bucket is None or self._share.holds(bucket):
            return None
        if bucket == UNSHARED:
            raise OtherShareError(kind_of(stream_id).describe(stream_id), None)
        return self._share.same_for(bucket)

    def _is_indexed(self, stream_id: str) -> bool:
        with self.index.snapshot() as snapshot:
            stream = kind_of(stream_id).read(snapshot.tables, snapshot.txn, stream_id)
            return stream_head(stream).position > 0

    @contextlib.contextmanager
    def snapshot(self, chats: ChatsToRead = NO_CHATS, /) -> Generator[Snapshot]:
        """
        The index as it is now; of a chat of another share only for who writes to it.

        Raises:
            OtherShareError: The chat, or those of the user, are not held here.
        """
        self.check_open()
        if chats.user_id is not None and not self._share.holds(bucket_of(chats.user_id)):
            msg = "what that user owns"
            raise OtherShareError(msg, self._share.same_for(bucket_of(chats.user_id)))
        other = None if chats.chat_id is None else self._other_share(chats.chat_id)
        if other is None or chats.chat_id is None:
            with super().snapshot() as snapshot:
                yield snapshot
            return
        if not chats.is_written:
            raise OtherShareError(kind_of(chats.chat_id).describe(chats.chat_id), other)
        with self._guests.store(chats.chat_id) as guest, guest.snapshot() as snapshot:
            yield snapshot

    def execute(
        self,
        streams: StreamKind[R],
        key: str,
        decide: Decision[R],
        *,
        kind: EventKind | None = None,
        timeout_s: float = RETRY_S,
        view: View | None = None,
    ) -> list[Recorded]:
        """Decide, write and apply as `Store.execute` does, wherever the stream is held."""
        stream_id = streams.stream_of(key)
        _refuse_threads(stream_id)
        while True:
            self.check_open()
            if self._other_share(stream_id) is not None:
                with self._guests.store(stream_id) as guest:
                    written = guest.execute(streams, key, decide, kind=kind, timeout_s=timeout_s, view=view)
                    if written and isinstance(written[-1].body, StreamDeleted):
                        guest.finish_erasures()
                    return written
            try:
                return super().execute(streams, key, decide, kind=kind, timeout_s=timeout_s, view=view)
            except _MovedError:
                continue

    def begin(
        self, streams: StreamKind[R], decisions: Sequence[tuple[str, Decision[R]]], *, view: View | None = None
    ) -> list[Callable[[], list[Recorded]]]:
        """Begin what `Store.begin` does; what is held elsewhere is written when it is waited for."""
        held = [decision for decision in decisions if self._other_share(streams.stream_of(decision[0])) is None]
        begun = dict(zip([key for key, _ in held], super().begin(streams, held, view=view), strict=True))

        def finish(key: str, decide: Decision[R]) -> list[Recorded]:
            if key in begun:
                with contextlib.suppress(_MovedError):
                    return begun[key]()
            return self.execute(streams, key, decide, view=view)

        return [partial(finish, *decision) for decision in decisions]

    def adopt(
        self, streams: StreamKind[R], takes: Sequence[tuple[str, Take[R]]], *, view: View | None = None
    ) -> list[Callable[[], list[Recorded]]]:
        """Refuse: which chats of another ledger are new is said by who has all chats."""
        return self.whole("import_bundle").adopt(streams, takes, view=view)

    def _await_other(self, stream_id: str, attempts: int, deadline: float) -> int:
        if self._other_share(stream_id) is not None:
            raise _MovedError
        return super()._await_other(stream_id, attempts, deadline)

    def catch_up(self, position: int | None, timeout_s: float) -> int:
        """Take in what the log has of the share, once it has `position`, which need not be of it; returns the position reached."""
        if position is not None and self.log.settled_position(position) < position:
            msg = f"the log does not have position {position} yet"
            raise LogUnavailableError(msg)
        return super().catch_up(None, timeout_s)

    def _tidy(self) -> None:
        super()._tidy()
        self._guests.drop_unused()

    def whole(self, task: str) -> Store:
        """Return this store, but for tasks that need all chats."""
        if task in _FORGOES:
            msg = (
                f"{task} needs all chats, and agents' threads, which are in no share; this ledger holds share {self._share}. Open "
                "the ledger without share="
            )
            raise AccessDeniedError(msg)
        return self

    def close(self) -> None:
        """Close it and its guests; calling it again does nothing."""
        self._guests.close()
        super().close()
