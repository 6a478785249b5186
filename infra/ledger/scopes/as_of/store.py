"""A store as it stood at a moment: what a ledger reads through, to answer as it did then."""

import contextlib
import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Never

from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import LedgerClosedError
from chatledger.projections.as_of_index import PastIndex
from chatledger.projections.chat.reader import IndexedChat

from ....store.temp_folders import Scratch
from ...port import LedgerSnapshot, LedgerStore, refused
from .folding import fold_chats
from .moment import Moment, position_of
from .snapshot import WHY, MomentSnapshot, UnfoldedError


class MomentRefusals:
    """The members of `LedgerStore` that a store of a moment refuses: what writes, and what is not of that moment."""

    delete_thread = refused("delete_thread", WHY)
    execute = refused("execute", WHY)
    execute_on_state = refused("execute_on_state", WHY)
    execute_on_thread = refused("execute_on_thread", WHY)
    finish_erasures = refused("finish_erasures", WHY)
    page = refused("page", WHY)
    submit = refused("submit", WHY)
    sweep_large = refused("sweep_large", WHY)
    whole = refused("whole", WHY)

    @property
    def log(self) -> Never:
        """Raise `AccessDeniedError`: the log has what was written since."""
        refused("log", WHY)()


class MomentStore(MomentRefusals):
    """
    The `LedgerStore` of a moment. A question about chats that changed since raises `UnfoldedError`; after `prepare` it is answered.

    Args:
        source: The store as it is now, or what shows a part of it; asked for it every time, so that closing is noticed.
        moment: Which moment.
        scratch: Where chats may lie that were folded.
    """

    def __init__(self, source: Callable[[], LedgerStore], moment: Moment, scratch: Scratch) -> None:
        self._source, self._moment, self._scratch = source, moment, scratch
        self._folding = threading.Lock()
        self._past: PastIndex | None = None
        self._position: int | None = None
        self._is_closed = False

    @property
    def moment(self) -> Moment:
        """Which moment."""
        return self._moment

    @property
    def position(self) -> int:
        """The position of the last event up to the moment."""
        source = self.source
        source.check_open()
        if self._position is None:
            self._position = position_of(source, self._moment)
        return self._position

    @property
    def log_only(self) -> "PastEvents":
        """The events up to the moment, beside the index as it is now."""
        return PastEvents(self)

    @property
    def source(self) -> LedgerStore:
        """
        The store as it is now.

        Raises:
            LedgerClosedError: This was closed.
        """
        if self._is_closed:
            msg = "the view is closed; ask for another one with as_of"
            raise LedgerClosedError(msg)
        return self._source()

    @contextlib.contextmanager
    def snapshot(self) -> Generator[MomentSnapshot]:
        """The index as it stood then."""
        past = self._past
        with self.source.snapshot() as live:
            if past is None:
                yield MomentSnapshot(live, self._moment, None)
            else:
                with past.reading() as txn:
                    yield MomentSnapshot(live, self._moment, (past, txn))

    def prepare(self, needed: UnfoldedError) -> None:
        """
        Do what a question needs, but for what others did meanwhile. No snapshot may be open in this thread.

        Raises:
            ChainIntegrityError: Events of a chat are missing on the log, repeated or altered.
            LogUnavailableError: The log did not answer.
        """
        with self._folding:
            source = self.source
            past = self._past or self._open_past()
            with past.reading() as txn:
                missing = [chat for chat in needed.chats if not past.is_complete(txn, chat.chat_no)]
            fold_chats(source, past, self._moment, missing)
            if needed.searched:
                with source.snapshot() as live:
                    past.copy_chats(live.txn, live.tables, self._unchanged(live, needed.searched))

    def _unchanged(self, live: LedgerSnapshot, chat_numbers: Sequence[int]) -> list[int]:
        """Those chats that are still as they were."""
        records = ((chat_no, IndexedChat(live.tables, live.txn, "", chat_no).record) for chat_no in chat_numbers)
        return [chat_no for chat_no, record in records if record is not None and self._moment.is_after(record.head)]

    def events(
        self, after: int, *, stream_id: str | None = None, is_closed: Callable[[], bool] = lambda: False
    ) -> Iterator[Recorded]:
        """The events that were on the log after a position; those of chats that were deleted since are erased."""
        ended: set[str] = set()
        for recorded in self.source.events(after, stream_id=stream_id, is_closed=is_closed):
            if recorded.position > self._moment.position:
                return
            if not self._moment.includes(recorded):
                ended.add(recorded.chat_id)
            if recorded.chat_id not in ended:
                yield recorded

    def catch_up(self, position: int | None, timeout_s: float) -> int:
        """Nothing is added to the past; returns the moment's position."""
        del position, timeout_s
        return self._moment.position

    def check_open(self) -> None:
        """Raise `LedgerClosedError` after this or what it reads was closed."""
        self.source.check_open()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    def close(self) -> None:
        """Remove what was folded; calling it again does nothing."""
        self._is_closed = True
        with self._folding:
            past, self._past = self._past, None
        if past is not None:
            past.close()

    def _open_past(self) -> PastIndex:
        # The folder is removed at once: its files live on without a name as long as they are open, so that nothing stays
        # behind, even of a process that is killed.
        with self._scratch.folder() as folder:
            past = PastIndex(folder)
        weakref.finalize(self, past.close)
        self._past = past
        return past


class PastEvents(MomentRefusals):
    """
    The `LedgerStore` of a history: the events up to a moment, beside the index as it is now.

    Whose chat an event belongs to is a question about the present: the owner of a chat never changes, and of a deleted one the
    tombstone tells.
    """

    def __init__(self, moments: MomentStore) -> None:
        self._moments = moments

    def snapshot(self) -> contextlib.AbstractContextManager[LedgerSnapshot]:
        """The index as it is now."""
        return self._moments.source.snapshot()

    def events(
        self, after: int, *, stream_id: str | None = None, is_closed: Callable[[], bool] = lambda: False
    ) -> Iterator[Recorded]:
        """The events that were on the log after a position."""
        return self._moments.events(after, stream_id=stream_id, is_closed=is_closed)

    def catch_up(self, position: int | None, timeout_s: float) -> int:
        """Take in everything up to the present end of the log; returns the position reached."""
        return self._moments.source.catch_up(position, timeout_s)

    def check_open(self) -> None:
        """Raise `LedgerClosedError` after it was closed."""
        self._moments.check_open()
