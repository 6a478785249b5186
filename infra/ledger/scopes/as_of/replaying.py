"""
Replay of the chats that a question touches, up to an as-of point, into an as-of index; the kept index that a replay may begin with,
and the anchors that a long one leaves on its way.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import Final, NamedTuple

from chatledger.domain.chat.events import ChatDeleted, MessagesAppended, Recorded
from chatledger.domain.chat.state import NO_STREAM, Tombstone
from chatledger.domain.errors import ChainIntegrityError, ChatledgerError
from chatledger.projections.as_of_index import AsOfIndex
from chatledger.projections.chat.reader import IndexedChat

from ....store.commands import RETRY_S
from ...port import LedgerSnapshot, StorePort
from .snapshot import AsOfPoint, ChatToReplay

_REQUEST_EVENTS: Final = 50
"""A request of the log takes as long as reading so many events in a row."""
_CHUNK_EVENTS: Final = 1000
_PART_COST: Final = 500
"""Events are applied in parts of about that cost, between which anchors may be left."""
_NEAR_STEPS: Final = 50
"""People mostly go back by little: by so many events at most."""

Anchor = Callable[[Recorded, int, bool], None]
"""Called in a replay with the last event that was applied, what applying the part cost, and whether the end is near."""


def no_anchor(last: Recorded, cost: int, is_near_end: bool) -> None:  # noqa: FBT001 - `Anchor`
    del last, cost, is_near_end


def replay_chats(
    store: StorePort,
    past: AsOfIndex,
    point: AsOfPoint,
    chats: Sequence[ChatToReplay],
    *,
    anchor: Anchor = no_anchor,
) -> None:
    """
    Replay chats up to a point, and note which are complete. Those that were deleted meanwhile are not.

    Each chat's events are read by themselves, or, where that is less, the log is read once in order. What the index has
    already of a chat is not read again.

    `anchor`: called in the replay of one chat alone, after each part of its events, and before the last ones.

    Raises:
        ChainIntegrityError: Events of a living chat are missing, repeated or altered.
        LogUnavailableError: The log did not answer; asking again goes on where this ended.
    """
    rest = list(chats)
    past.hold(chat.chat_no for chat in rest)
    if len(rest) > 1:
        first = min(_start(past, chat) for chat in rest)
        in_order = _last_position(point, rest) - first
        if in_order < sum(chat.event_count + _REQUEST_EVENTS for chat in rest):
            wanted = {chat.chat_id: chat for chat in rest}
            tombstones = _tombstones(rest)
            last = _last_position(point, rest)
            of_point = _select(store.events(min(_start(past, chat) for chat in rest), up_to=last), point, wanted)
            broken: set[str] = set()
            while chunk := list(islice(of_point, _CHUNK_EVENTS)):
                while kept := [recorded for recorded in chunk if recorded.chat_id not in broken]:
                    try:
                        past.apply(kept, tombstones=tombstones)
                    except ChainIntegrityError as error:
                        if error.chat_id is None:
                            raise
                        broken.add(error.chat_id)
                    else:
                        break
            store.catch_up(None, RETRY_S)  # a chat that was erased while it was read is known to be deleted from now on
            past.note_complete([chat.chat_no for chat in rest if chat.chat_id not in broken])
            rest = [chat for chat in rest if chat.chat_id in broken]
    for chat in rest:
        try:
            following = _apply_up_to(store, past, point, chat, anchor if len(chats) == 1 else no_anchor)
            _check_follows(past, chat, following)
        except ChainIntegrityError:
            # A deletion erases its events, maybe just now, and maybe before this index has heard of it.
            if _is_living(store, chat):
                raise
        else:
            past.note_complete([chat.chat_no])


def _start(past: AsOfIndex, chat: ChatToReplay) -> int:
    """Return the position after which the events of a chat are read: of its first one, or of what the index has."""
    return max(chat.chat_no - 1, past.head(chat.chat_id).position)


def _last_position(point: AsOfPoint, chats: Iterable[ChatToReplay]) -> int:
    """Return the last position at which events of these chats may belong to the point."""
    return min(point.position, max(chat.last_position for chat in chats))


def _apply_up_to(
    store: StorePort, past: AsOfIndex, point: AsOfPoint, chat: ChatToReplay, anchor: Anchor
) -> Recorded | None:
    """Apply the events of a chat up to the point, and return the one after them; None when there is none."""
    after = _start(past, chat)
    last: Recorded | None = None
    while events := store.page(after, stream_id=chat.chat_id):
        after = events[-1].position
        taken = list(takewhile(point.includes, events))
        is_last = len(taken) < len(events)
        parts = list(_parts(taken))
        # The anchor near the end is a few dozen steps before it, or what takes a moment to replay.
        near = steps = to_replay = 0
        for near in range(len(parts) - 1, -1, -1):
            steps, to_replay = steps + len(parts[near][0]), to_replay + parts[near][1]
            if steps >= _NEAR_STEPS or to_replay >= 2 * _PART_COST:
                break
        for number, (part, cost) in enumerate(parts):
            if is_last and last is not None and number == near:
                anchor(last, 0, True)  # noqa: FBT003 - `Anchor`
            past.apply(part, tombstones=_tombstones([chat]))
            last = part[-1]
            anchor(last, cost, False)  # noqa: FBT003
        if is_last:
            return events[len(taken)]
    return None


def _parts(events: Sequence[Recorded]) -> Iterator[tuple[list[Recorded], int]]:
    """Yield events in parts, each with its cost: an event counts as one, and so does each message in it, as of an import."""
    part: list[Recorded] = []
    cost = 0
    for recorded in events:
        part.append(recorded)
        cost += len(recorded.body.messages) if isinstance(recorded.body, MessagesAppended) else 1
        if cost >= _PART_COST:
            yield part, cost
            part, cost = [], 0
    if part:
        yield part, cost


def _check_follows(past: AsOfIndex, chat: ChatToReplay, following: Recorded | None) -> None:
    """Raise `ChainIntegrityError` unless the last event that was applied is the one before `following`."""
    head = past.head(chat.chat_id)
    if head is NO_STREAM and chat.tombstone is not None:
        head = chat.tombstone.head
    if following is not None and isinstance(following.body, ChatDeleted):
        return
    if following is None or (following.version, following.event.previous_hash) != (head.version + 1, head.hash):
        msg = (
            f"events of chat {chat.chat_id!r} are missing on the log after version {head.version}, at position "
            f"{head.position}. Restore the log from a backup"
        )
        raise ChainIntegrityError(msg, chat_id=chat.chat_id)


def _is_living(store: StorePort, chat: ChatToReplay) -> bool:
    store.catch_up(None, RETRY_S)
    with store.snapshot() as snapshot:
        return snapshot.chat(chat.chat_id).chat_no == chat.chat_no


def _select(events: Iterable[Recorded], point: AsOfPoint, wanted: dict[str, ChatToReplay]) -> Iterator[Recorded]:
    ended: set[str] = set()
    for recorded in events:
        chat = wanted.get(recorded.chat_id)
        if chat is None or recorded.position < chat.chat_no:
            continue
        # No event of a chat is older than the one before it, so nothing that follows belongs to the point either.
        if not point.includes(recorded):
            ended.add(recorded.chat_id)
            if len(ended) == len(wanted):
                return
        if recorded.chat_id not in ended:
            yield recorded


def _tombstones(chats: Iterable[ChatToReplay]) -> dict[str, Tombstone]:
    return {chat.chat_id: chat.tombstone for chat in chats if chat.tombstone is not None}


_WORTH_COST: Final = 1000
"""A copy costs about as much as the replay of so many events of one message each."""
_ANCHOR_COST: Final = 5000
_MOST_ANCHORS: Final = 3


class KeptIndex(NamedTuple):
    """An index with chats as of a point, or with the first events of them up to it."""

    point: AsOfPoint
    chats: AsOfIndex


def has_deleted(live: LedgerSnapshot, chat_numbers: Iterable[int]) -> bool:
    """Whether one of these chats was deleted since."""
    return any(IndexedChat(live.tables, live.txn, "", number).record is None for number in chat_numbers)


def carry_on(
    store: StorePort, point: AsOfPoint, kept: Iterable[KeptIndex], to_replay: Sequence[ChatToReplay]
) -> tuple[AsOfIndex, KeptIndex] | None:
    """Return a copy of the kept index that is nearest before a point, to be carried on, and its original; None where none helps."""
    long = {chat.chat_no for chat in to_replay if chat.cost >= _WORTH_COST}
    usable = [index for index in kept if point.covers(index.point) and long & index.chats.held]
    for nearest in sorted(usable, key=lambda index: index.point.position, reverse=True):
        copy = _copied(store, nearest.chats)
        if copy is None:
            continue
        # An index that holds a deleted chat is not copied: nothing of the chat may outlive what was kept when it was deleted.
        # Looked at after copying, as the deletion may come meanwhile.
        with store.snapshot() as live:
            is_clean = not has_deleted(live, copy.held)
        if is_clean:
            return copy, nearest
        copy.close()
    return None


def _copied(store: StorePort, index: AsOfIndex) -> AsOfIndex | None:
    """Return a copy; None where the index is closed, or there is no room."""
    try:
        with store.scratch.folder() as folder:  # removed at once: the open files live on without a name
            return AsOfIndex.copied(index, folder)
    except (ChatledgerError, OSError):
        return None


class Anchors:
    """
    Copies of the index of one chat at even distances on the way of its replay, at most three, for points in between, and one
    shortly before its end, as people mostly go back by little.

    They belong to the store that has replayed it, and end with it.
    """

    def __init__(self) -> None:
        self.kept: list[KeptIndex] = []
        self._is_closed = False

    @property
    def used_bytes(self) -> int:
        """Bytes of their files. Not to be asked for after they were closed."""
        return sum(anchor.chats.used_bytes for anchor in list(self.kept))

    def leaving(self, store: StorePort, past: AsOfIndex, chat: ChatToReplay) -> Anchor:
        """Return what leaves an anchor in the replay of a chat when enough events came since the one before."""
        step = max(_ANCHOR_COST, chat.cost // (_MOST_ANCHORS + 1))
        since = 0

        def anchor(last: Recorded, cost: int, is_near_end: bool) -> None:  # noqa: FBT001 - `Anchor`
            nonlocal since
            since += cost
            is_due = since >= step and len(self.kept) < _MOST_ANCHORS
            if not (is_due or (is_near_end and since)) or self._is_closed:
                return
            copy = _copied(store, past)
            if copy is not None:
                # In one chat no event is older than the one before, so this time says for which points it serves.
                self.kept.append(KeptIndex(AsOfPoint(last.position, last.occurred_at), copy))
                since = 0

        return anchor

    def close(self) -> None:
        self._is_closed = True
        kept, self.kept = self.kept, []
        for anchor in kept:
            anchor.chats.close()
