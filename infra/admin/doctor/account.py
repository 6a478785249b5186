"""The account of a repair: lost, corrected and kept events, by chat and version."""

from collections.abc import Iterable, Mapping

from eventsourcing.persistence import Notification

from chatledger.domain.wire import Value

from .chains import ChainScan

Ranges = tuple[tuple[int, int], ...]
"""Numbers as ranges, first and last of each."""


class LostEvents(Value, frozen=True, kw_only=True):
    """
    Events that nothing has any more.

    Args:
        chat_id: The chat; of a thread of agents or a state of a graph the id of its stream. None where nothing says whose they
            were.
        versions: Their versions in the chat; empty without a chat.
        count: How many they are.
        after, before: The positions of the events of the chat around them; `before` is None where none follows.
        is_content_kept: Whether the index had what they said, so that only the history is lost.
    """

    chat_id: str | None
    count: int
    versions: Ranges = ()
    after: int = 0
    before: int | None = None
    is_content_kept: bool = False


class KeptEvents(Value, frozen=True, kw_only=True):
    """
    Events behind the damage of a chat, whose content was written anew at the end of the log.

    Args:
        chat_id: The chat, or the id of the stream.
        versions: The versions that they had.
        unusable: Versions that could be read, and say nothing without what is lost.
        placeholders: The ids of lost messages, which messages named `lost` stand for.
    """

    chat_id: str
    versions: Ranges
    unusable: Ranges = ()
    placeholders: tuple[str, ...] = ()


class LostData(Value, frozen=True, kw_only=True):
    """
    A message of which large data are damaged. What else it says was kept.

    Args:
        chat_id, message_id, version: Which one.
        size: How many bytes are lost.
    """

    chat_id: str
    message_id: str
    version: int
    size: int


class CorrectedEvent(Value, frozen=True, kw_only=True):
    """
    A record in which one flipped bit was found by its checksum and corrected.

    Args:
        file: The block file, in the directory that is kept.
        offset: Where the record begins in it, in bytes.
        bit: Which bit of the record it was.
        position: The position on its stream.
        chat_id, version: Of which event, where it is one.
    """

    file: str
    offset: int
    bit: int
    position: int
    chat_id: str | None = None
    version: int | None = None


class Repair(Value, frozen=True, kw_only=True):
    """
    The result of a repair.

    Args:
        location: The directory, which has the sound log now.
        kept_as: Where the damaged directory is now; None when nothing was damaged, and nothing done.
        event_count: How many events were kept where they were.
        from_backup: How many of them only the backup had.
        lost_count: How many events are lost: neither the log nor the backup has them. What the index brought back is counted,
            too, since the events are gone.
        recreated: The chats whose present state was written anew, from what the index holds of it.
        cut: The chats and threads that lost events which nothing could bring back. They are in quarantine: not
            served until they are restored from a backup, or given up.
        released: Those that an earlier repair had cut, and that this one brought back.
        index_kept_as: Where a damaged index is now; the log was sound, and another index was built from it.
        correlation_id: What the events of this repair carry in the history, with the actor `chatledger:doctor`.
        corrected: Records with one flipped bit, which are whole again.
        lost: The lost events by chat and version, `lost_count` in all.
        kept_after: What could be read behind the damage in chats that lost events, and was written anew.
        lost_data: Messages whose large data are damaged.
        not_replaced: Chats of which the backup has what was lost, but which were written to since an earlier repair.
        removed_count: How many foreign messages were removed.
    """

    location: str
    kept_as: str | None = None
    event_count: int
    correlation_id: str
    from_backup: int = 0
    lost_count: int = 0
    recreated: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    index_kept_as: str | None = None
    corrected: tuple[CorrectedEvent, ...] = ()
    lost: tuple[LostEvents, ...] = ()
    kept_after: tuple[KeptEvents, ...] = ()
    lost_data: tuple[LostData, ...] = ()
    not_replaced: tuple[str, ...] = ()
    removed_count: int = 0

    def describe(self) -> list[str]:
        """For people, line by line."""
        if self.index_kept_as is not None:
            return [f"The log is sound. The damaged index is kept as {self.index_kept_as}; another one was built."]
        if self.removed_count and self.kept_as is None:
            lines = [f"Removed {self.removed_count:,} foreign messages from {self.location}."]
            return lines + [f"  served again: {stream!r}" for stream in self.released]
        if self.kept_as is None:
            return ["The log is sound; nothing was done."]
        lines = [
            f"Repaired {self.location}. The damaged directory is kept as {self.kept_as}.",
            f"Kept {self.event_count:,} events, {self.from_backup:,} of them from the backup; {self.lost_count:,} are lost.",
        ]
        if self.corrected:
            lines.append(f"  corrected exactly, one flipped bit each: {len(self.corrected):,} records")
        lines += map(_describe_lost, self.lost)
        lines += map(_describe_kept, self.kept_after)
        lines += [
            f"  {data.size:,} bytes of large data of message {data.message_id!r} of chat {data.chat_id!r} are lost"
            for data in self.lost_data
        ]
        lines += [f"  from the index, without its history since: chat {chat_id!r}" for chat_id in self.recreated]
        lines += [f"  whole again: {stream!r}" for stream in self.released]
        touched = "  not restored from the backup, because it was written to since"
        lines += [f"{touched}: {chat_id!r}" for chat_id in self.not_replaced]
        lines += [f"  in quarantine: {stream!r}" for stream in self.cut]
        if self.cut:
            lines.append("With a backup run it again (--backup FOLDER). To serve what is left of one: --give-up CHAT.")
        return lines


def ranges_of(numbers: Iterable[int]) -> Ranges:
    ranges: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return tuple(ranges)


def describe_ranges(ranges: Ranges) -> str:
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _versions(ranges: Ranges) -> str:
    is_one = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return f"{'version' if is_one else 'versions'} {describe_ranges(ranges)}"


def _describe_lost(lost: LostEvents) -> str:
    if lost.chat_id is None:
        return f"  lost: {lost.count:,} positions of chats that cannot be named"
    where = (
        f"after position {lost.after}" if lost.before is None else f"between positions {lost.after} and {lost.before}"
    )
    content = "; the index had what they said" if lost.is_content_kept else ""
    return f"  lost: {_versions(lost.versions)} of {lost.chat_id!r}, {where}{content}"


def _describe_kept(events: KeptEvents) -> str:
    what = (
        f"{_versions(events.versions)} of {events.chat_id!r}" if events.versions else f"nothing of {events.chat_id!r}"
    )
    line = f"  behind the damage, written anew: {what}"
    if events.placeholders:
        line += f"; placeholders stand for lost messages: {len(events.placeholders):,}"
    if events.unusable:
        line += f"; of no use without what is lost: {_versions(events.unusable)}"
    return line


class Accounts:
    """The events that are left of each chat that lost some, by the chains of all that is there, and how far an index has seen chats."""

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
        """Note an event of a chat that lost some; one that is readable is kept, where it is or written anew."""
        stream, version = str(record.originator_id), record.originator_version
        if is_readable:
            self._positions.setdefault(stream, {})[version] = record.id
            self.readable_count += not self.is_kept(record)
        else:
            self._named[stream] = max(self._named.get(stream, 0), version)

    def seen(self, stream: str) -> int:
        """Return the least number of events that a chat had."""
        readable = self._positions.get(stream, {})
        sure = max(max(readable, default=0), self._index.get(stream, 0), self._scan.heads.get(stream, (0, b""))[0])
        broken = self._scan.breaks.get(stream)
        # An event that does not follow, and can be read, proves that there was one of each version before it.
        if broken is not None and broken.position not in self._unreadable:
            sure = max(sure, broken.version)
        # What a damaged record says of its version may be damaged as well.
        named = self._named.get(stream, 0)
        return named if sure < named <= sure + self._scan.lost + 1 else sure

    def lost(self, recreated: Iterable[str], *, count: int) -> tuple[LostEvents, ...]:
        """Return the lost events, `count` in all; `recreated` are the chats that the index brought back."""
        losses: list[LostEvents] = []
        for stream in sorted({*self._scan.breaks, *recreated}):
            readable = self._positions.get(stream, {})
            keeps = self._scan.keeps.get(stream, self._scan.heads.get(stream, (0, b""))[0])
            lost = [version for version in range(keeps + 1, self.seen(stream) + 1) if version not in readable]
            if not lost:
                continue
            before = [position for version, position in readable.items() if version > lost[-1]]
            after = [position for version, position in readable.items() if version < lost[0]]
            # What happened behind the position of the index it cannot bring back, though it brings back the chat.
            is_content_kept = stream in recreated and lost[-1] <= self._index.get(stream, 0)
            losses.append(
                LostEvents(
                    chat_id=stream,
                    count=len(lost),
                    versions=ranges_of(lost),
                    after=max(after, default=0),
                    before=min(before, default=None),
                    is_content_kept=is_content_kept,
                )
            )
        # A hole of the log does not say whose events were in it.
        rest = count - sum(loss.count for loss in losses)
        return (*losses, LostEvents(chat_id=None, count=rest)) if rest > 0 else tuple(losses)
