"""
Finding the messages nearest to a query: filters first, then signs, then the vectors of the best.

Blocks are read many at a time; no Python runs for a single message until the best are known.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np

from ..lmdb.environment import Transaction
from .vector_index import SLOTS, Directory, VectorIndex
from .vectors import Probe, best, candidate_count, similarities

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GROUP: Final = 16
"""So many blocks are looked at together: what is worked out of them fits into a processor's cache."""
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
    """

    chat_no: int
    segment: int
    offset: int
    digest: bytes
    similarity: float


class _Filter:
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

    def passing(self, slots: Directory) -> "NDArray[np.int64]":
        """Return the places of the slots that pass, ascending."""
        selection = self._selection
        is_passing = self._of_chats(slots)
        if self._roles is not None:
            is_passing &= np.isin(slots.roles, self._roles)
        if selection.since is not None:
            is_passing &= slots.times >= selection.since
        if selection.until is not None:
            is_passing &= slots.times < selection.until
        if selection.runs is not None:
            segments = np.minimum(slots.segments, len(self._lasts) - 1)
            is_passing &= slots.offsets.astype(np.int64) <= self._lasts[segments]
        return np.flatnonzero(is_passing)

    def _of_chats(self, slots: Directory) -> "NDArray[np.bool_]":
        if self._chats is None:
            return slots.chats != 0
        if not len(self._chats):
            return np.zeros(len(slots.chats), np.bool_)
        at = np.minimum(np.searchsorted(self._chats, slots.chats), len(self._chats) - 1)
        is_passing: NDArray[np.bool_] = self._chats[at] == slots.chats
        if self._selection.counts is not None:
            is_passing &= slots.ordinals < self._counts[at]
        return is_passing


class _Group(NamedTuple):
    """Blocks that are looked at together, and the places of their slots that pass."""

    blocks: list[int]
    slots: Directory
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

    Args:
        index: The vectors.
        txn: A transaction on them.
        query: A vector of length 1.
        selection: The messages to look at.
        limit: At least so many, if there are; some more are returned, as some may not be shown. All when None.
    """
    groups = list(_groups(index, txn, _Filter(selection)))
    total = sum(len(group.places) for group in groups)
    if not total:
        return []
    wanted = candidate_count(total, limit)
    of_group = np.repeat(np.arange(len(groups)), [len(group.places) for group in groups])
    places = np.concatenate([group.places for group in groups])
    if wanted < total:
        probe = Probe(query)
        estimates = [_estimates(index, txn, probe, group) for group in groups if len(group.places)]
        kept = best(np.concatenate(estimates), wanted)
        kept.sort()
        of_group, places = of_group[kept], places[kept]
    return _ranked(index, txn, query, groups, of_group, places)


def _groups(index: VectorIndex, txn: Transaction, only: _Filter) -> "Sequence[_Group]":
    found = list(index.directories(txn))
    groups: list[_Group] = []
    for start in range(0, len(found), _GROUP):
        part = found[start : start + _GROUP]
        columns = zip(*(directory for _, directory in part), strict=True)
        slots = Directory(*(np.concatenate(column) for column in columns))
        groups.append(_Group([block for block, _ in part], slots, only.passing(slots)))
    return groups


def _estimates(index: VectorIndex, txn: Transaction, probe: Probe, group: _Group) -> "NDArray[np.float32]":
    """Return the estimates of the slots of a group that pass."""
    blocks, places = np.array(group.blocks), group.places
    if len(places) * _SPARSE > len(blocks) * SLOTS:
        estimates = probe.estimates(index.signs(txn, group.blocks, len(probe.query)))
        return np.asarray(estimates.reshape(-1)[places], np.float32)
    used = np.unique(places // SLOTS)
    signs = index.signs(txn, blocks[used].tolist(), len(probe.query))
    among = np.searchsorted(used, places // SLOTS)
    return probe.estimates(np.ascontiguousarray(signs[among, :, places % SLOTS].T))


def _ranked(
    index: VectorIndex,
    txn: Transaction,
    query: "NDArray[np.float32]",
    groups: Sequence[_Group],
    of_group: "NDArray[Any]",
    places: "NDArray[Any]",
) -> list[Near]:
    """Look at vectors exactly: the messages of slots, nearest first, each once."""
    slots: list[NDArray[Any]] = []
    columns: list[list[NDArray[Any]]] = []
    for at, group in enumerate(groups):
        mine = places[of_group == at]
        if len(mine):
            slots.append(np.array(group.blocks, np.int64)[mine // SLOTS] * SLOTS + mine % SLOTS)
            shown = group.slots
            columns.append([column[mine] for column in (shown.chats, shown.segments, shown.offsets, shown.times)])
    chats, segments, offsets, times = (np.concatenate(column) for column in zip(*columns, strict=True))
    all_slots = np.concatenate(slots)
    found, digests, kept = index.vectors_at(txn, all_slots, len(query))
    if len(found) != len(all_slots):  # damage; the others are shown
        is_there = np.isin(all_slots, found)
        chats, segments, offsets, times = chats[is_there], segments[is_there], offsets[is_there], times[is_there]
    near = similarities(kept, query)
    order = np.lexsort((-times, -near))
    seen: set[tuple[int, int, int]] = set()
    ranked: list[Near] = []
    rows = zip(
        *(column[order].tolist() for column in (chats, segments, offsets, np.arange(len(chats)), near)),
        strict=True,
    )
    for chat_no, segment, offset, at, similarity in rows:
        key = chat_no, segment, offset
        if key not in seen:
            seen.add(key)
            ranked.append(Near(*key, digests[at], min(similarity, 1.0)))
    return ranked
