"""The thread of a store that takes in what others write, and finishes what deletions could not."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

import lmdb

from chatledger.domain.errors import ChainIntegrityError, ChatledgerError
from chatledger.projections.index import Index
from chatledger.projections.projector import Projector

from ..log.port import EventLog

QUIET_S: Final = 0.01
_FOLLOW_S: Final = 5.0
_OTHERS_S: Final = 0.002
"""So long after its event is on the log, another process that shares the index has mostly applied it."""
_TIDY_S: Final = 4.0
_SETTLED_S: Final = 0.1
_MERGE_S: Final = 1.0
"""The search index is merged once nothing came for so long, and this often while something does."""
_MERGE_PAUSE_S: Final = 0.005
"""Between steps of merging the search index, so that other processes come to write."""
_logger = logging.getLogger(__name__)


class Follower(threading.Thread):
    """
    Follows a log until `closing` is set.

    Args:
        log, index, projector: What is followed, and kept up with it.
        tidy: Called every few seconds.
        last_write_s: When this process wrote last, by the monotonic clock.
    """

    def __init__(
        self,
        log: EventLog,
        index: Index,
        projector: Projector,
        closing: threading.Event,
        *,
        tidy: Callable[[], object],
        last_write_s: Callable[[], float],
    ) -> None:
        super().__init__(name="chatledger-follower", daemon=True)
        self._log, self._index, self._projector = log, index, projector
        self._closing, self._tidy, self._last_write_s = closing, tidy, last_write_s

    def run(self) -> None:
        """Take in what others write."""
        pause, tidied_s, merged_s = 0.05, time.monotonic(), 0.0
        is_merge_due = True
        while not self._closing.is_set():
            try:
                position = self._index.state.position
                is_news = self._log.wait(position, _SETTLED_S if is_merge_due else _FOLLOW_S)
                if is_news:
                    # Each write of ours takes in all that stands before it. Following it too would double its cost (960
                    # to 1,440 us for one append), so this thread waits until we pause.
                    while not self._is_quiet and not self._closing.is_set():
                        self._closing.wait(QUIET_S)
                    # The processes of a directory share its index, and the one that wrote is about to apply it: applying it
                    # here would keep that one waiting for the lock. A feed of this process shows it meanwhile.
                    self._closing.wait(_OTHERS_S)
                    if self._index.state.position == position:
                        self._take_in(position)
                    is_merge_due = True
                # Not after each event: a step takes the lock of the index, which the processes of a directory share.
                if is_merge_due and (not is_news or time.monotonic() - merged_s > _MERGE_S):
                    self._merge_search()
                    merged_s, is_merge_due = time.monotonic(), False
                if time.monotonic() - tidied_s > _TIDY_S:
                    tidied_s = time.monotonic()
                    self._tidy()
                pause = 0.05
            except (ChatledgerError, lmdb.Error) as error:
                if self._closing.is_set():
                    return
                # Commands and `sync` meet the same error and raise it; here it must not end the thread for good. A damaged page
                # of the index is met by what merges and tidies too.
                _logger.warning("following the log: %s", error)
                self._closing.wait(pause)
                pause = min(pause * 2, 5.0)

    def _take_in(self, position: int) -> None:
        """Apply what others wrote after a position: what came while this thread waited, without a request, or else what the log has."""
        news = list(self._log.news(position)) if self._log.is_dense else []
        # A commit is applied as a whole.
        while news and news[-1].event.rest:
            news.pop()
        page = self._projector.without_remains(news)
        with contextlib.suppress(
            ChainIntegrityError
        ):  # `catch_up` knows whether an erasure that is under way explains it
            if page and self._index.apply(page, after=position):
                return
        self._projector.catch_up()

    @property
    def _is_quiet(self) -> bool:
        """Whether this process has not written for a moment."""
        return time.monotonic() - self._last_write_s() >= QUIET_S

    def _merge_search(self) -> None:
        """Merge the search index, step by step, as long as this process does not write."""
        while self._is_quiet and self._index.merge_search():
            if self._closing.wait(_MERGE_PAUSE_S):
                return
