"""Shared witness: the last position that any node has seen of a log on a remote server, kept beside the log."""

import logging

from msgspec import structs

from chatledger.domain.errors import AccessDeniedError, ChatledgerError

from .bookmarks import Bookmark
from .envelope import clock_ms
from .port import EventLog, LostRaceError
from .witness import LastSeen

_logger = logging.getLogger(__name__)


class SharedWitness:
    """
    The position that the nodes of a log have reached, as a bookmark that is of no feed.

    It is lost with the server, but not with the stream of the log. A login that may not write it goes without.

    Args:
        log: Where it is kept.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._empty = Bookmark(name="witness", index=0, count=0, position=0, holder="", log_id=log.identity, saved_at=0)
        self._is_allowed = True

    def read(self) -> LastSeen | None:
        """Return how far the log went; None where that is not known, or this login may not read it."""
        try:
            shared = self._log.load_bookmark(self._empty.key)
        except AccessDeniedError as error:
            _logger.info("what other nodes have seen of the log cannot be read: %s", error)
            return None
        # A stream that was made anew under the same name is another log, which has not gone as far.
        if shared is None or shared.log_id != self._log.identity:
            return None
        return LastSeen(shared.position, bytes.fromhex(shared.holder))

    def write(self, seen: LastSeen) -> None:
        """Keep a position, unless another node has kept a later one. What fails is tried again at the next one."""
        if not self._is_allowed:
            return
        try:
            self._write(seen)
        except LostRaceError:
            return  # another node was first, with what it has seen
        except AccessDeniedError as error:
            self._is_allowed = False
            _logger.info("this login may not keep on the server how far the log went: %s", error)
        except ChatledgerError as error:
            _logger.debug("how far the log went was not kept on the server: %s", error)

    def _write(self, seen: LastSeen) -> None:
        there = self._log.load_bookmark(self._empty.key)
        # It never goes back: another node may have seen more.
        if there is not None and there.log_id == self._log.identity and there.position >= seen.position:
            return
        bookmark = structs.replace(
            self._empty,
            position=seen.position,
            holder=seen.hash.hex(),
            saved_at=clock_ms(),
            revision=0 if there is None else there.revision,
        )
        self._log.save_bookmark(bookmark)
