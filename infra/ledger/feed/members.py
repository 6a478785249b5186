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


class Member:
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
                found = self._log.load_bookmark(wanted.key)
                if found is None or found.holder != wanted.holder:
                    raise self._lost(is_gone=found is None) from error
                # An earlier save that got no answer, or was interrupted, was carried out; or somebody else acknowledged.
                wanted = structs.replace(wanted, position=max(position, found.position), revision=found.revision)
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


def claim(log: LedgerLog, name: str, share: tuple[int, int], *, after: int | None) -> Member:
    """
    Take a name: from now on whoever used it before cannot keep positions any more.

    Args:
        log: Where the position is kept, and counts.
        name: The name.
        share: Which of its members.
        after: Where a name begins that is new; with the first event of all when None.

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
        found = log.load_bookmark(wanted.key)
        last = log.settled_position(wanted.position if found is None else found.position)
        if found is not None:
            _check_log(log, found, last)
            wanted = structs.replace(wanted, position=found.position, revision=found.revision)
        elif wanted.position > last:
            msg = f"the feed {name!r} cannot begin after {after}: the last position on the log is {last}"
            raise InvalidValueError(msg)
        try:
            saved = log.save_bookmark(wanted)
        except LostRaceError:
            continue  # the reader before us kept a position in between
        if found is None:
            _check_alone(log, saved)
        return Member(log, saved)
    msg = f"the feed {name!r} is being taken by others again and again; let one reader at a time use a name"
    raise ConflictError(msg)


def acknowledge(log: LedgerLog, name: str, share: tuple[int, int], position: int) -> FeedInfo:
    """
    Keep the position of a member for its reader, who goes on having the name; an earlier one than before changes nothing.

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
        found = log.load_bookmark(key)
        if found is None:
            msg = f"there is no feed {name!r} of that share; it begins when somebody reads it under its name"
            raise NotFoundError(msg)
        if position <= found.position:
            return _info(found, last)
        try:
            return _info(log.save_bookmark(structs.replace(found, position=position, saved_at=clock_ms())), last)
        except LostRaceError:
            continue
    msg = f"the feed {name!r} is being acknowledged by others again and again; nothing was kept, try again"
    raise ConflictError(msg)


def _check_shares(log: LedgerLog, name: str, count: int) -> None:
    """Refuse a name that has members of other counts: what one has handled says nothing about a share cut otherwise."""
    others = [bookmark for bookmark in log.bookmarks() if bookmark.name == name and bookmark.count != count]
    if others:
        lowest = min(bookmark.position for bookmark in others)
        known = sorted({bookmark.count for bookmark in others})
        there = "no shares" if known == [1] else f"shares of {', '.join(map(str, known))}"
        msg = (
            f"the feed {name!r} has {there}, so it cannot be read in {count}. Stop its readers, forget_feed({name!r}), and "
            f"begin all new ones with after={lowest}"
        )
        raise InvalidValueError(msg)


def _check_alone(log: LedgerLog, saved: Bookmark) -> None:
    """Refuse a name that another reader began at the same time with another count of shares."""
    try:
        _check_shares(log, saved.name, saved.count)
    except InvalidValueError:
        log.drop_bookmark(saved.key)
        raise


def _check_log(log: LedgerLog, found: Bookmark, last_position: int) -> None:
    if found.log_id == log.identity and found.position <= last_position:
        return
    reason = "belongs to another log" if found.log_id != log.identity else f"is beyond its end, {last_position}"
    msg = (
        f"the feed {_describe(found)} stands at position {found.position}, which {reason}: events that it handled are not "
        f"there. Restore the log, or forget_feed({found.name!r}) and begin with after= where it has to"
    )
    raise ChainIntegrityError(msg, position=found.position)


def _describe(bookmark: Bookmark) -> str:
    share = "" if (bookmark.index, bookmark.count) == WHOLE else f", share {bookmark.index} of {bookmark.count}"
    return f"{bookmark.name!r}{share}"


def list_feeds(log: LedgerLog) -> list[FeedInfo]:
    """All members of named feeds, by name and share."""
    found = sorted(log.bookmarks(), key=lambda bookmark: (bookmark.name, bookmark.count, bookmark.index))
    last = log.last_position() if found else 0
    return [_info(bookmark, last) for bookmark in found]


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
    found = [bookmark for bookmark in log.bookmarks() if bookmark.name == check_id(name, "name")]
    for bookmark in found:
        log.drop_bookmark(bookmark.key)
    return bool(found)
