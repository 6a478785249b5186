"""Ranking with BM25, filters of documents, and the shape of an answer."""

import math
from collections.abc import Callable
from typing import Final

import msgspec

from chatledger.domain.search.fields import SearchField
from chatledger.domain.search.snippets import KnownWords

LEAST_IDF: Final = 1e-6
"""The inverse document frequency of a term that most documents have; as in FTS5."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """
    Conditions on the documents that match. None is no condition.

    Args:
        roles: Only messages of these names.
        since: Only those created at or after, in ms.
        until: Only those created before, in ms.
        runs: Of one chat: only those in these runs of its chains, as segment and last offset.
    """

    roles: frozenset[str] | None = None
    since: int | None = None
    until: int | None = None
    runs: dict[int, int] | None = None


class DocumentHit(msgspec.Struct, frozen=True, gc=False):
    """
    A document: its chat, its rank (lower is better) and its place in the chains of the chat.

    And the field to show, with what it has of the query.
    """

    chat_no: int
    rank: float
    segment: int
    offset: int
    field: SearchField
    known: KnownWords


IsLeftOut = Callable[[int, int, int], bool]
"""Whether a search leaves out the document of a chat, by the number of that, at a segment and an offset."""


def rarity(having: int, total: int) -> float:
    """The inverse document frequency of a term that so many of all documents have."""
    return max(math.log((total - having + 0.5) / (having + 0.5)), LEAST_IDF)
