"""The members of named feeds: taking a name, keeping a position under it, losing it to somebody else."""

import uuid
from typing import Final

from msgspec import structs

from chatledger.domain.errors import ChainIntegrityError, ConflictError, InvalidValueError, NotFoundError
from chatledger.domain.limits import check_id
from chatledger.domain.wire import Value

from ...log.bookmarks import Bookmark, bookmark_key
from ...log.envelope import clock_ms
from ..port import LedgerLog

WHOLE: Final = (0, 1)
"""The share of a reader of everything."""
_ATTEMPTS: Final = 20


class FeedInfo(Value, frozen=True, kw_only=True):
    """
    The position of one member of a named feed.

    Args:
        name: Its name.
        share: `(index, count)` of its share; None when it reads everything.
        position: Everything up to this position on the log was handled.
        lag: How many positions the log is ahead, whether or not the feed would let through what is there.
        saved_at: When the position was kept last, or the name was taken; milliseconds since the epoch.
    """

    name: str
    share: tuple[int, int] | None
    position: int
    lag: int
    saved_at: int


class FeedMember:
    """A reader under a name, whose position is kept on the log."""

    def __init__(self, log: LedgerLog, bookmark: Bookmark) -> None:
        self._log, self._bookmark = log, bookmark

    @property
    def position(self) -> int:
        """The position that is kept."""
        return self._bookmark.position

    def save(self, position: int) -> None:
        """
        Keep a position.

        Raises:
            ConflictError: Somebody else took the name, or it was forgotten.
            LogUnavailableError: No answer; the outcome is unknown, and saving again is safe.
        """
        from ...log.port import LostRaceError

        wanted = structs.replace(self._bookmark, position=position, saved_at=clock_ms())
        for _ in range(_ATTEMPTS):
            try:
                self._bookmark = self._log.save_bookmark(wanted)
            except LostRaceError as error:
                bookmark = self._log.load_bookmark(wanted.key)
                if bookmark is None or bookmark.holder != wanted.holder:
                    raise self._lost(is_gone=bookmark is None) from error
                # An earlier save that got no answer, or was interrupted, was carried out; or somebody else acknowledged.
                wanted = structs.replace(wanted, position=max(position, bookmark.position), revision=bookmark.revision)
            else:
                return
        raise self._lost(is_gone=False)

    def _lost(self, *, is_gone: bool) -> ConflictError:
        bookmark = self._bookmark
        what = "was forgotten" if is_gone else "was taken by another reader, which goes on from there"
        return ConflictError(
            f"the feed {_describe(bookmark)} {what}: its position stayed at {bookmark.position}, and what was handled "
            "after that is given again. Let one reader at a time use a name, or give each a share"
        )


def claim(log: LedgerLog, name: str, share: tuple[int, int], *, after: int | None) -> FeedMember:
    """
    Take a name: from now on the reader that used it before cannot keep positions any more.

    `after`: where a name begins that is new; with the first event of all when None.

    Raises:
        InvalidValueError: The name is none, has members of other shares, or would begin beyond the end of the log.
        ChainIntegrityError: The position under that name is not one of this log.
    """
    from ...log.port import LostRaceError

    check_id(name, "name")
    index, count = share
    holder = str(uuid.uuid4())
    for _ in range(_ATTEMPTS):
        _check_shares(log, name, count)
        wanted = Bookmark(
            name=name,
            index=index,
            count=count,
            position=after or 0,
            holder=holder,
            log_id=log.identity,
            saved_at=clock_ms(),
        )
        bookmark = log.load_bookmark(wanted.key)
        # As a majority of a cluster has it: a server that lags would show positions beyond the end.
        last = log.settled_position(wanted.position if bookmark is None else bookmark.position)
        if bookmark is not None:
            _check_log(log, bookmark, last)
            wanted = structs.replace(wanted, position=bookmark.position, revision=bookmark.revision)
        elif wanted.position > last:
            msg = f"the feed {name!r} cannot begin after {after}: the last position on the log is {last}"
            raise InvalidValueError(msg)
        try:
            saved = log.save_bookmark(wanted)
        except LostRaceError:
            continue  # the reader before us kept a position in between
        if bookmark is None:
            # Another reader may have begun the name at the same time with another count of shares.
            try:
                _check_shares(log, name, count)
            except InvalidValueError:
                log.drop_bookmark(saved.key)
                raise
        return FeedMember(log, saved)
    msg = f"the feed {name!r} is being taken by others again and again; let one reader at a time use a name"
    raise ConflictError(msg)


def acknowledge(log: LedgerLog, name: str, share: tuple[int, int], position: int) -> FeedInfo:
    """
    Keep the position of a member on behalf of its reader, which keeps the name; an earlier one than before changes nothing.

    Raises:
        NotFoundError: The name has no such member.
        InvalidValueError: The position is beyond the end of the log.
        ConflictError: Others keep positions under the name again and again.
    """
    from ...log.port import LostRaceError

    key = bookmark_key(check_id(name, "name"), *share)
    last = log.settled_position(position)
    if position > last:
        msg = f"position {position} cannot be acknowledged: the last position on the log is {last}"
        raise InvalidValueError(msg)
    for _ in range(_ATTEMPTS):
        bookmark = log.load_bookmark(key)
        if bookmark is None:
            msg = f"there is no feed {name!r} of that share; it begins when somebody reads it under its name"
            raise NotFoundError(msg)
        if position <= bookmark.position:
            return _info(bookmark, last)
        try:
            return _info(log.save_bookmark(structs.replace(bookmark, position=position, saved_at=clock_ms())), last)
        except LostRaceError:
            continue
    msg = f"the feed {name!r} is being acknowledged by others again and again; nothing was kept, try again"
    raise ConflictError(msg)


def _check_shares(log: LedgerLog, name: str, count: int) -> None:
    # What a member has handled of its share says nothing about shares of another count: events would be lost or given twice.
    others = [bookmark for bookmark in log.bookmarks() if bookmark.name == name and bookmark.count != count]
    if others:
        lowest = min(bookmark.position for bookmark in others)
        counts = sorted({bookmark.count for bookmark in others})
        shares = "no shares" if counts == [1] else f"shares of {', '.join(map(str, counts))}"
        msg = (
            f"the feed {name!r} has {shares}, so it cannot be read in {count}. Stop its readers, forget the feed, and begin all "
            f"new ones with after={lowest}"
        )
        raise InvalidValueError(msg)


def _check_log(log: LedgerLog, bookmark: Bookmark, last_position: int) -> None:
    if bookmark.log_id == log.identity and bookmark.position <= last_position:
        return
    reason = "belongs to another log" if bookmark.log_id != log.identity else f"is beyond its end, {last_position}"
    msg = (
        f"the feed {_describe(bookmark)} stands at position {bookmark.position}, which {reason}: events that it handled are not "
        f"there. Restore the log, or forget the feed and begin with after= where it has to"
    )
    raise ChainIntegrityError(msg, position=bookmark.position)


def _describe(bookmark: Bookmark) -> str:
    share = "" if (bookmark.index, bookmark.count) == WHOLE else f", share {bookmark.index} of {bookmark.count}"
    return f"{bookmark.name!r}{share}"


def list_feeds(log: LedgerLog) -> list[FeedInfo]:
    """All members of named feeds, by name and share."""
    of_feeds = [bookmark for bookmark in log.bookmarks() if bookmark.count]
    bookmarks = sorted(of_feeds, key=lambda bookmark: (bookmark.name, bookmark.count, bookmark.index))
    last = log.last_position() if bookmarks else 0
    return [_info(bookmark, last) for bookmark in bookmarks]


def _info(bookmark: Bookmark, last_position: int) -> FeedInfo:
    return FeedInfo(
        name=bookmark.name,
        share=None if (bookmark.index, bookmark.count) == WHOLE else (bookmark.index, bookmark.count),
        position=bookmark.position,
        lag=max(0, last_position - bookmark.position),
        saved_at=bookmark.saved_at,
    )


def drop_feed(log: LedgerLog, name: str) -> bool:
    """Forget a name with all its members; whether it was known."""
    bookmarks = [bookmark for bookmark in log.bookmarks() if bookmark.name == check_id(name, "name")]
    for bookmark in bookmarks:
        log.drop_bookmark(bookmark.key)
    return bool(bookmarks)
