"""Bookmarks: the positions of members of named feeds, as a log stores them."""

import logging
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import structs

from chatledger.domain.errors import DECODE_ERRORS, CorruptStateError
from chatledger.domain.log.tombstones import owner_digest


class Bookmark(msgspec.Struct, frozen=True, kw_only=True):
    """
    The position of one member of a named feed.

    Args:
        name, index, count: The member: share `index` of `count`; 0 of 1 reads everything. 0 of 0 is no feed, but how far the
            nodes have seen the log, see `SharedWitness`, how far a rule was swept, or how far a backup goes.
        position: Everything up to here was handled.
        holder: The random id of who wrote it. Who finds another's in place of its own was replaced.
        log_id: The `identity` of the log that the position belongs to.
        saved_at: Milliseconds since the epoch.
        revision: Of what is stored, 0 for what is not; the log gives it, and a save names the one that it replaces.
    """

    name: str
    index: int
    count: int
    position: int
    holder: str
    log_id: str
    saved_at: int
    revision: int = 0

    @property
    def key(self) -> str:
        """The name under which a log keeps it, one for each member."""
        return bookmark_key(self.name, self.index, self.count)

    def saved_as(self, revision: int) -> "Bookmark":
        return structs.replace(self, revision=revision)


BACKUP_MARK: Final = "chatledger:backup:"
"""Before the folder of a backup, in the name of its mark."""
_logger: Final = logging.getLogger(__name__)
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Bookmark).decode


def feeds_of(user_id: str) -> str:
    """Return what the names of a user's feeds begin with where they are kept: users may give theirs the same names."""
    return f"{owner_digest('', user_id)}/"  # no chat has the empty id, so this is no tombstone's digest


def bookmark_key(name: str, index: int, count: int) -> str:
    return f"{index}/{count}/{name}"


def encode_bookmark(bookmark: Bookmark) -> bytes:
    """Encode a bookmark for the log; the revision is not part of it."""
    return _encode(bookmark.saved_as(0))


def decode_bookmark(raw: bytes, revision: int) -> Bookmark:
    """Decode the result of `encode_bookmark`. Raises `CorruptStateError` when it is something else."""
    try:
        return _decode(raw).saved_as(revision)
    except DECODE_ERRORS as error:
        msg = f"the position of a feed cannot be read: {error}; a newer chatledger may have written it"
        raise CorruptStateError(msg) from error


def decode_bookmarks(stored: Iterable[tuple[bytes, int]]) -> list[Bookmark]:
    """The bookmarks of feeds and backups among values with their revisions. What is no bookmark is reported and passed over."""
    bookmarks: list[Bookmark] = []
    for raw, revision in stored:
        try:
            bookmarks.append(decode_bookmark(raw, revision))
        # One that a newer version wrote must not keep the feeds of all others from being listed.
        except CorruptStateError as error:
            _logger.warning("among the positions of feeds, at revision %d: %s", revision, error)
    return [bookmark for bookmark in bookmarks if bookmark.count or bookmark.name.startswith(BACKUP_MARK)]
