"""
Finding the messages nearest to a query: filters first, then signs, then the vectors of the best.

Blocks are read many at a time; no Python runs for a single message until the best are known.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from ..lmdb.environment import Transaction
from .vector_index import SLOTS, SlotDirectory, VectorIndex
from .vectors import Bits, Depths, Probe, best

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GROUP: Final = 16
"""So many blocks are looked at together: what is worked out of them fits into a processor's cache."""
_SPARE: Final = 20
"""So many more are ranked than are asked for: hidden and replaced ones are not shown."""
_SPARSE: Final = 4
"""Where at most a quarter of a group passes the filters, only the signs of these are looked at."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """
    Conditions on messages. None is no condition.

    Args:
        chats: Only those of these chats.
        counts: Only so many of each of `chats`, the first ones in the order of its log: those that there were at an earlier moment.
        roles: Only those of these roles, see `role_key`.
        since: Only those created at or after, in ms.
        until: Only those created before, in ms.
        runs: Of one chat: only those in these runs of its chains, as segment and last offset.
    """

    chats: Sequence[int] | None = None
    counts: Sequence[int] | None = None
    roles: frozenset[int] | None = None
    since: int | None = None
    until: int | None = None
    runs: dict[int, int] | None = None


class Near(NamedTuple):
    """
    A message near to a query.

    Args:
        chat_no, segment, offset: The message: its chat and its place in the chains.
        digest: That of its piece that is nearest.
        similarity: The cosine of the query and that piece.
        created_at: Of the message, in ms.
    """

    chat_no: int
    segment: int
    offset: int
    digest: bytes
    similarity: float
    created_at: int


class _SlotFilter:
    """A selection as arrays, which says of slots whether they pass."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._chats: NDArray[np.uint64] | None = None
        if selection.chats is not None:
            chats = np.array(selection.chats, np.uint64)
            order = np.argsort(chats)
            self._chats = chats[order]
            if selection.counts is not None:
                self._counts = np.array(selection.counts, np.uint32)[order]
        self._roles = None if selection.roles is None else np.array(sorted(selection.roles), np.uint64)
        if selection.runs is not None:
            self._lasts = np.full(max(selection.runs, default=0) + 2, -1, np.int64)
            self._lasts[list(selection.runs)] = list(selection.runs.values())

    def passing(self, directories: Sequence[SlotDirectory]) -> "NDArray[np.int64]":
        """Return the places of the slots that pass, ascending, one directory's after the other's."""
        selection = self._selection
        chats = np.concatenate([directory.chats for directory in directories])
        is_passing: NDArray[np.bool_]
        if self._chats is None:
            is_passing = np.asarray(chats != 0, np.bool_)  # a free slot has chat 0
        elif not len(self._chats):
            is_passing = np.zeros(len(chats), np.bool_)
        else:
            at = np.minimum(np.searchsorted(self._chats, chats), len(self._chats) - 1)
            is_passing = np.asarray(self._chats[at] == chats, np.bool_)
            if selection.counts is not None:
                is_passing &= np.concatenate([directory.ordinals for directory in directories]) < self._counts[at]
        if self._roles is not None:
            is_passing &= np.isin(np.concatenate([directory.roles for directory in directories]), self._roles)
        if selection.since is not None or selection.until is not None:
            times = np.concatenate([directory.times for directory in directories])
            if selection.since is not None:
                is_passing &= times >= selection.since
            if selection.until is not None:
                is_passing &= times < selection.until
        if selection.runs is not None:
            segments = np.concatenate([directory.segments for directory in directories])
            offsets = np.concatenate([directory.offsets for directory in directories])
            is_passing &= offsets.astype(np.int64) <= self._lasts[np.minimum(segments, len(self._lasts) - 1)]
        return np.flatnonzero(is_passing)


class _BlockGroup(NamedTuple):
    """Blocks that are looked at together, and the places of their slots that pass."""

    blocks: list[int]
    places: "NDArray[np.int64]"


def find_near(
    index: VectorIndex,
    txn: Transaction,
    query: "NDArray[np.float32]",
    selection: Selection,
    *,
    limit: int | None,
) -> list[Near]:
    """
    Return the messages nearest to a query, the nearest first; of equally near ones the newest first.

    `query`: a vector of length 1. `limit`: so many and some more, as some may not be shown; all when None.
    """
    only, numbered = _SlotFilter(selection), list(index.directories(txn))
    groups: list[_BlockGroup] = []
    for start in range(0, len(numbered), _GROUP):
        part = numbered[start : start + _GROUP]
        directories = [directory for _, directory in part]
        places = only.passing(directories)
        if len(places):
            groups.append(_BlockGroup([block for block, _ in part], places))
    total = sum(len(group.places) for group in groups)
    depths, probe = Depths.of(total, limit), Probe(query)
    if depths.coarse < total:
        groups = _nearest(groups, [_coarse(index, txn, probe, group) for group in groups], depths.coarse)
    if depths.fine < total:
        groups = _nearest(groups, [_fine(index, txn, probe, group) for group in groups], depths.fine)
    slots = [np.array(group.blocks)[group.places // SLOTS] * SLOTS + group.places % SLOTS for group in groups]
    blocks = dict(numbered)
    if not slots:
        return []
    return _ranked(index, txn, query, blocks, np.concatenate(slots), limit)


def _nearest(
    groups: Sequence[_BlockGroup], estimates: "Sequence[NDArray[np.float32]]", count: int
) -> list[_BlockGroup]:
    """Return the groups with only those so many of all places that have the best estimates; groups without are left out."""
    nearest = np.sort(best(np.concatenate(estimates), count))
    groups_left: list[_BlockGroup] = []
    start = 0
    for group in groups:
        end = start + len(group.places)
        mine = nearest[slice(*np.searchsorted(nearest, [start, end]).tolist())] - start
        if len(mine):
            groups_left.append(group._replace(places=group.places[mine]))
        start = end
    return groups_left


def _coarse(index: VectorIndex, txn: Transaction, probe: Probe, group: _BlockGroup) -> "NDArray[np.float32]":
    """Return the estimates of the slots of a group that pass, by one bit."""
    dimensions = len(probe.query)
    if len(group.places) * _SPARSE > len(group.blocks) * SLOTS:
        estimates = probe.estimates(index.signs(txn, group.blocks, dimensions))
        return np.asarray(estimates.reshape(-1)[group.places], np.float32)
    return probe.estimates(_taken(index.signs, txn, group, dimensions))


def _fine(index: VectorIndex, txn: Transaction, probe: Probe, group: _BlockGroup) -> "NDArray[np.float32]":
    """Return the estimates of the slots of a group that pass, by two bits."""
    signs, fine = (_taken(words, txn, group, len(probe.query)) for words in (index.signs, index.fine))
    return probe.fine_estimates(Bits(signs, fine))


def _taken(
    words: "Callable[[Transaction, Sequence[int], int], NDArray[np.uint64]]",
    txn: Transaction,
    group: _BlockGroup,
    dimensions: int,
) -> "NDArray[np.uint64]":
    """Return the words of those slots of a group that pass, of shape (words, slots)."""
    used, among = np.unique(group.places // SLOTS, return_inverse=True)
    of_blocks = words(txn, np.array(group.blocks)[used].tolist(), dimensions)
    return np.ascontiguousarray(of_blocks[among, :, group.places % SLOTS].T)


def _ranked(
    index: VectorIndex,
    txn: Transaction,
    query: "NDArray[np.float32]",
    blocks: Mapping[int, SlotDirectory],
    slots: "NDArray[np.int64]",
    limit: int | None,
) -> list[Near]:
    """Look at vectors exactly: the messages of ascending slots, nearest first, each once."""
    having, codes = index.vectors_at(txn, slots, len(query))
    slots, similarities = slots[having], codes.similarities(query)
    wanted = len(slots) if limit is None else limit + limit // 2 + _SPARE
    order = best(similarities, len(slots))
    ranked: dict[tuple[int, int, int], Near] = {}
    for slot, similarity in zip(slots[order].tolist(), similarities[order].tolist(), strict=True):
        directory, place = blocks[slot // SLOTS], slot % SLOTS
        key = int(directory.chats[place]), int(directory.segments[place]), int(directory.offsets[place])
        if key in ranked:  # a nearer piece of the same message
            continue
        if len(ranked) >= wanted:
            break
        at = int(directory.times[place])
        ranked[key] = Near(*key, index.digest_at(txn, slot), min(similarity, 1.0), at)
    return sorted(ranked.values(), key=lambda near: (-near.similarity, -near.created_at))
