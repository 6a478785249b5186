"""Counting what a repair keeps and what is lost, by chat and version."""

from collections.abc import Iterable, Mapping

from eventsourcing.persistence import Notification

from .account import LostEvents, ranges_of
from .chains import ChainScan


class Accounts:
    """
    What there is of each chat that lost events.

    Args:
        scan: The chains of all that is there.
        index: How far an index has seen chats, by id; none without one.
    """

    def __init__(self, scan: ChainScan, index: Mapping[str, int]) -> None:
        self._scan, self._index = scan, index
        self._unreadable = {position for position, _, _ in scan.unreadable}
        self._positions: dict[str, dict[int, int]] = {}
        self._named: dict[str, int] = {}
        self.readable_count = 0

    def is_kept(self, record: Notification) -> bool:
        """Whether an event stays where it is."""
        stream, version = str(record.originator_id), record.originator_version
        return record.id not in self._unreadable and version <= self._scan.keeps.get(stream, version)

    def note(self, record: Notification, *, is_readable: bool) -> None:
        """
        Note an event of a chat that lost some.

        Args:
            record: Its record.
            is_readable: Whether it is kept, where it is or written anew.
        """
        stream, version = str(record.originator_id), record.originator_version
        if is_readable:
            self._positions.setdefault(stream, {})[version] = record.id
            self.readable_count += not self.is_kept(record)
        else:
            self._named[stream] = max(self._named.get(stream, 0), version)

    def seen(self, stream: str) -> int:
        """How many events a chat had at least."""
        known = self._positions.get(stream, {})
        sure = max(max(known, default=0), self._index.get(stream, 0), self._scan.heads.get(stream, (0, b""))[0])
        broken = self._scan.breaks.get(stream)
        if broken is not None and broken.position not in self._unreadable:
            sure = max(sure, broken.version)
        # What a damaged record says of its version may be damaged as well.
        named = self._named.get(stream, 0)
        return named if sure < named <= sure + self._scan.lost + 1 else sure

    def lost(self, recreated: Iterable[str], *, count: int) -> tuple[LostEvents, ...]:
        """
        What is lost.

        Args:
            recreated: The chats that the index brought back.
            count: How many events are lost in all.
        """
        found = [
            one for stream in sorted({*self._scan.breaks, *recreated}) if (one := self._lost_of(stream, recreated))
        ]
        named = sum(one.count for one in found)
        if count > named:
            found.append(LostEvents(chat_id=None, count=count - named))
        return tuple(found)

    def _lost_of(self, stream: str, recreated: Iterable[str]) -> LostEvents | None:
        there = self._positions.get(stream, {})
        keeps = self._scan.keeps.get(stream, self._scan.heads.get(stream, (0, b""))[0])
        lost = [version for version in range(keeps + 1, self.seen(stream) + 1) if version not in there]
        if not lost:
            return None
        before = [position for version, position in there.items() if version > lost[-1]]
        after = [position for version, position in there.items() if version < lost[0]]
        return LostEvents(
            chat_id=stream,
            count=len(lost),
            versions=ranges_of(lost),
            after=max(after, default=0),
            before=min(before, default=None),
            is_content_kept=stream in recreated and lost[-1] <= self._index.get(stream, 0),
        )
