"""Kept as-of indexes: the start of a replay to a later point, and the anchors that a long replay leaves on its way."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import ChatledgerError
from chatledger.projections.as_of_index import AsOfIndex
from chatledger.projections.chat.reader import IndexedChat

from ...port import LedgerSnapshot, StorePort
from .point import AsOfPoint
from .replaying import Anchor
from .snapshot import ChatToReplay

_WORTH_EVENTS: Final = 1000
"""A copy costs about as much as the replay of so many events."""
_ANCHOR_EVENTS: Final = 5000
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
    long = {chat.chat_no for chat in to_replay if chat.event_count >= _WORTH_EVENTS}
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
    up to a page before its end, as people mostly go back by little.

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
        step = max(_ANCHOR_EVENTS, chat.event_count // (_MOST_ANCHORS + 1))
        done = past.head(chat.chat_id).version

        def anchor(last: Recorded, is_near_end: bool) -> None:  # noqa: FBT001 - `Anchor`
            nonlocal done
            is_due = last.version - done >= step and len(self.kept) < _MOST_ANCHORS
            if not (is_due or (is_near_end and last.version > done)) or self._is_closed:
                return
            copy = _copied(store, past)
            if copy is not None:
                # In one chat no event is older than the one before, so this time says for which points it serves.
                self.kept.append(KeptIndex(AsOfPoint(last.position, last.occurred_at), copy))
                done = last.version

        return anchor

    def close(self) -> None:
        """Remove them; calling it again does nothing."""
        self._is_closed = True
        kept, self.kept = self.kept, []
        for anchor in kept:
            anchor.chats.close()
