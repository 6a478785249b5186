"""Documents that are taken in together."""

from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np

from chatledger.domain.search.tokens import LANDMARK_TERMS, landmarks_of

from .inversion import Inverted, invert
from .log_order import LogOrder, Places
from .vocabulary import Vocabulary

if TYPE_CHECKING:
    from numpy.typing import NDArray

_RECORD: Final = np.dtype(
    [("length", "<u4"), ("role", "<u4"), ("created_at", "<i8"), ("segment", "<u4"), ("offset", "<u4")]
)
_STEP_MESSAGES: Final = 2_048
_STEP_BYTES: Final = 1 << 20


class Batch:
    """
    Messages of a chat that follow each other in the order of the log: what the search index keeps of them.

    Args:
        first_document: The number of the first.
        names: The roles that occur.
    """

    def __init__(self, order: LogOrder, places: Places, start: int, end: int, vocabulary: Vocabulary) -> None:
        """Read the messages from one of these places to before another; fewer, but one at least, if the vocabulary is full."""
        self.first_document = places.first + start
        self.landmarks: list[tuple[int, list[int]]] = []
        """Of long documents: the number and the landmarks."""
        roles: dict[str, int] = {}
        numbers: list[int] = []
        times: list[int] = []
        codes: list[NDArray[np.int32]] = []
        lengths: list[NDArray[np.int64]] = []
        at = start
        while at < end and (at == start or not vocabulary.is_full):
            stop = min(places.fitting(at, _STEP_MESSAGES, _STEP_BYTES), end)
            said = order.said(places, at, stop)
            coded = vocabulary.code(said.texts)
            codes.append(coded.codes)
            lengths.append(coded.lengths)
            self.landmarks += [
                (self.first_document + len(numbers) + one, landmarks_of(said.texts[one]))
                for one in np.flatnonzero(coded.lengths > LANDMARK_TERMS).tolist()
            ]
            numbers += [roles.setdefault(name, len(roles)) for name in said.names]
            times += said.times
            at = stop
        self.names = list(roles)
        self._terms = vocabulary.terms
        self._codes, self._lengths = np.concatenate(codes), np.concatenate(lengths)
        self._roles = np.array(numbers)
        self._records = np.empty(at - start, _RECORD)
        self._records["length"], self._records["created_at"] = self._lengths, times
        self._records["segment"], self._records["offset"] = places.segments[start:at], places.offsets[start:at]

    @property
    def document_count(self) -> int:
        """How many messages there are."""
        return len(self._records)

    @property
    def term_count(self) -> int:
        """How many terms all of them have."""
        return len(self._codes)

    def records(self, roles: Sequence[int]) -> bytes:
        """The records of the documents, with these numbers for `names`."""
        self._records["role"] = np.array(roles)[self._roles]
        return self._records.tobytes()

    @property
    def texts(self) -> list[list[str]]:
        """The terms of each document."""
        codes: list[int] = self._codes.tolist()
        terms = iter([self._terms[code] for code in codes])
        lengths: list[int] = self._lengths.tolist()
        return [list(islice(terms, length)) for length in lengths]

    @cached_property
    def inverted(self) -> Inverted:
        """The postings of the documents."""
        return invert(self._codes, self._lengths, self._terms, first_document=self.first_document)
