"""The hash chains of streams, as far as they are seen while a projection catches up."""

from collections.abc import Iterable
from typing import Final

from chatledger.domain.errors import ChainIntegrityError
from chatledger.domain.events import Recorded, StreamDeleted

_MAX_STREAMS: Final = 65_536


class Links:
    """
    Finds events that are missing, repeated or altered, between those that are read.

    What it remembers is bounded: of streams beyond the 65,536 that were seen last only `verify` tells.
    """

    def __init__(self) -> None:
        self._position = 0
        self._hashes: dict[str, bytes] = {}
        self._is_whole = True

    def check(self, after: int, events: Iterable[Recorded], *, end: int) -> "Links":
        """
        What is known after some more events, those of the log from position `after` up to `end`.

        Raises:
            ChainIntegrityError: They do not follow what was seen before.
        """
        found = Links()
        if after == self._position:
            found._hashes, found._is_whole = dict(self._hashes) if self._hashes else {}, self._is_whole
        else:
            found._is_whole = False
        found._position = end
        for recorded in events:
            found._take(recorded)
        return found

    def _take(self, recorded: Recorded) -> None:
        before = self._hashes.pop(recorded.chat_id, None)
        self._hashes[recorded.chat_id] = recorded.hash
        if len(self._hashes) > _MAX_STREAMS:
            del self._hashes[next(iter(self._hashes))]
            self._is_whole = False
        if isinstance(recorded.body, StreamDeleted):
            return
        follows = recorded.event.previous_hash == before if before is not None else recorded.version == 1
        if not follows and (before is not None or self._is_whole):
            msg = (
                f"position {recorded.position} is version {recorded.version} of chat {recorded.chat_id!r}, which does not "
                "follow the event before it: events are missing or altered. Restore the log from a backup"
            )
            raise ChainIntegrityError(
                msg, chat_id=recorded.chat_id, position=recorded.position, version=recorded.version
            )
