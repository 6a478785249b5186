"""The messages of a chat in the order of the log, as the search index takes them in."""

from collections.abc import Sequence
from itertools import repeat
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np

from chatledger.domain.errors import ChainIntegrityError
from chatledger.domain.log.parts import list_header
from chatledger.domain.packing import from_extension
from chatledger.domain.search.fields import TEXT, SearchField, search_texts
from chatledger.domain.values import UI

from ..chat.chains import Chains
from ..chat.pages import plain_size
from ..lmdb.checksums import without_checksum
from ..lmdb.environment import prefixed
from ..lmdb.keys import Tag, chat_key, place_key

if TYPE_CHECKING:
    from numpy.typing import NDArray

_u32: Final = Struct(">I")
_PLACE: Final = Struct(">II")
_MOST: Final = 2**32 - 1


class _WrittenPart(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    type: Any = None
    text: Any = None
    tool_call_id: Any = None
    tool_name: Any = None
    state: Any = None
    input: Any = None
    raw_input: Any = None
    output: Any = None
    error_text: Any = None
    approval: Any = None
    parts: Any = None


class _UIMessage(msgspec.Struct, gc=False, omit_defaults=True):
    parts: list[_WrittenPart]
    role: Any = None


class _Written(msgspec.Struct, gc=False):
    """A message whose data is what most have: a string, or a UIMessage."""

    name: str
    created_at: int
    data: str | _UIMessage
    form: str | None = None
    redacted: Any = None


class _WrittenAnyhow(msgspec.Struct, gc=False):
    name: str
    created_at: int
    data: Any
    form: str | None = None
    redacted: Any = None


_decode_written: Final = msgspec.msgpack.Decoder(list[_Written], ext_hook=from_extension).decode
_decode_any: Final = msgspec.msgpack.Decoder(list[_WrittenAnyhow], ext_hook=from_extension).decode


class PageColumns(NamedTuple):
    """
    The pages of a chat, some twenty bytes for each; where they are stays so, whatever is written.

    Args:
        segments: Of each (`uint32`).
        offsets: Of its first message in its segment (`uint32`).
        lowest: The number of its first message in the order of the log (`uint32`).
        highest: That of its last one (`uint32`).
        sizes: About how many bytes one of its messages takes (`uint32`).
    """

    segments: "NDArray[np.uint32]"
    offsets: "NDArray[np.uint32]"
    lowest: "NDArray[np.uint32]"
    highest: "NDArray[np.uint32]"
    sizes: "NDArray[np.uint32]"

    @property
    def end(self) -> int:
        """The number that follows that of the last message."""
        return int(self.highest.max()) + 1 if len(self.highest) else 0


class Places(NamedTuple):
    """
    The places of consecutive messages in the order of the log.

    They stay where they are, whatever is written: this holds also in later transactions.

    Args:
        first: The number of the first.
        segments: Of each (`uint32`).
        offsets: In its segment (`uint32`).
        bytes_before: About how many bytes those before it take, and at the end, all of them (`int64`).
    """

    first: int
    segments: "NDArray[np.uint32]"
    offsets: "NDArray[np.uint32]"
    bytes_before: "NDArray[np.int64]"

    def fitting(self, start: int, count: int, size: int) -> int:
        """Up to where there are at most so many messages of about so many bytes from one of them on; that one at least."""
        end = int(np.searchsorted(self.bytes_before, [self.bytes_before[start] + size], side="right")[0])
        return min(max(end - 1, start + 1), start + count, len(self.segments))

    @property
    def end(self) -> int:
        """The number that follows the last."""
        return self.first + len(self.segments)


class FieldTexts(NamedTuple):
    """The roles, times and texts of messages; and of the other fields which of these messages have them, and what they say."""

    names: list[str]
    times: list[int]
    texts: list[str]
    others: dict[SearchField, tuple[list[int], list[str]]]


class LogOrder(Chains):
    """The chains of one chat, read in the order of the log."""

    def pages(self) -> PageColumns:
        prefix = chat_key(self._chat_no, Tag.PAGE)
        rows: list[tuple[int, int, int, int, int]] = []
        for key, stored in prefixed(self._txn, self._table, prefix):
            value = without_checksum(stored)
            count: int = _u32.unpack_from(value)[0]
            lowest, highest = _u32.unpack_from(value, 4)[0], _u32.unpack_from(value, 4 * count)[0]
            size = min(plain_size(value) // count, _MOST)
            rows.append((*_PLACE.unpack_from(key, len(prefix)), lowest, highest, size))
        return PageColumns(*np.array(rows, dtype=np.uint32).reshape(-1, 5).T)

    def places(self, pages: PageColumns, first: int, count: int) -> Places:
        """
        Return the places of messages from a number on, at least one and at most so many.

        Raises:
            ChainIntegrityError: They are not all there.
        """
        stop = min(first + count, pages.end)
        wanted = np.flatnonzero((pages.lowest < stop) & (pages.highest >= first))
        numbers: list[NDArray[np.uint32]] = []
        for segment, offset in zip(pages.segments[wanted].tolist(), pages.offsets[wanted].tolist(), strict=True):
            stored = self._txn.get(place_key(self._chat_no, Tag.PAGE, segment, offset), db=self._table)
            if stored is None:
                numbers.append(np.empty(0, np.uint32))
            else:
                value = without_checksum(stored)
                numbers.append(np.frombuffer(value, ">u4", _u32.unpack_from(value)[0], 4).astype(np.uint32))
        in_pages = np.concatenate([*numbers, np.empty(0, np.uint32)])
        counts = np.array([len(page) for page in numbers], dtype=np.int64)
        starts = np.cumsum(counts) - counts
        in_page: NDArray[np.int64] = np.arange(len(in_pages)) - np.repeat(starts, counts)
        order = np.argsort(in_pages, kind="stable")
        order = order[slice(*np.searchsorted(in_pages, [first, stop], sorter=order).tolist())]
        if first >= stop or not np.array_equal(in_pages[order], np.arange(first, stop)):
            raise self._lacking()
        segments = np.repeat(pages.segments[wanted], counts)[order]
        offsets = (np.repeat(pages.offsets[wanted], counts) + in_page).astype(np.uint32)[order]
        sizes = np.repeat(pages.sizes[wanted].astype(np.int64), counts)[order]
        return Places(first, segments, offsets, np.concatenate(([0], np.cumsum(sizes))))

    def short(self, first: int, max_bytes: int) -> tuple[Places, FieldTexts] | None:
        """
        Return all messages from a number on, of a chat that is short: sooner than in parts. None when it is longer than so many bytes.

        Raises:
            ChainIntegrityError: They are not all there.
        """
        rows: list[tuple[int, int, int]] = []
        written: list[Written] = []
        size = 0
        for segment, page in self._all_pages():
            size += len(page.array)
            if size > max_bytes:
                return None
            end = page.first_offset + len(page.ordinals)
            rows += zip(page.ordinals, repeat(segment), range(page.first_offset, end))
            written += decode_written(page.array)
        order = sorted(range(len(rows)), key=rows.__getitem__)
        order = order[first:]
        if [rows[at][0] for at in order] != list(range(first, len(rows))):
            raise self._lacking()
        columns = np.array([rows[at] for at in order], dtype=np.uint32).reshape(-1, 3).T
        bytes_before = np.linspace(0, size, len(order) + 1).astype(np.int64)
        return Places(first, columns[1], columns[2], bytes_before), texts_of([written[at] for at in order])

    def _lacking(self) -> ChainIntegrityError:
        return ChainIntegrityError(f"messages of chat {self._chat_id!r} are missing in the index; rebuild it")

    def texts_at(self, places: Places, start: int, end: int) -> FieldTexts:
        """Return the searchable fields of messages at some places. A page is read once, also where segments take turns."""
        segments, offsets = places.segments[start:end], places.offsets[start:end]
        order = None
        if np.any(segments[1:] != segments[:-1]):  # branches that were written in turns
            order = np.lexsort((offsets, segments))
            segments, offsets = segments[order], offsets[order]
        jumps = np.flatnonzero((segments[1:] != segments[:-1]) | (offsets[1:] != offsets[:-1] + 1))
        firsts, lasts = np.concatenate(([0], jumps + 1)), np.append(jumps, end - start - 1)
        runs = zip(segments[firsts].tolist(), offsets[firsts].tolist(), offsets[lasts].tolist(), strict=True)
        written: list[Written] = []
        for segment, first, last in runs:
            for page in self._pages(segment, first, last):
                written += decode_written(page.array)[max(first - page.first_offset, 0) : last + 1 - page.first_offset]
        if order is not None:
            written = [written[at] for at in np.argsort(order).tolist()]
        return texts_of(written)


Written = _Written | _WrittenAnyhow
"""A message, as far as it is searched."""


def texts_in(bodies: Sequence[bytes]) -> FieldTexts:
    """Return the searchable fields of messages as they are stored."""
    return texts_of(decode_written(list_header(len(bodies)) + b"".join(bodies)))


def texts_of(written: Sequence[Written]) -> FieldTexts:
    texts: list[str] = []
    others: dict[SearchField, tuple[list[int], list[str]]] = {}
    for at, message in enumerate(written):
        data = message.data
        if message.redacted is not None:
            texts.append("")
        elif isinstance(data, str):
            texts.append(data)
        elif isinstance(data, _UIMessage) and (text := _only_text(data.parts)) is not None:
            texts.append(text)
        else:
            fields = search_texts(message.form, msgspec.to_builtins(data), message.name)
            texts.append(fields.pop(TEXT, ""))
            for field, text in fields.items():
                having, of_field = others.setdefault(field, ([], []))
                having.append(at)
                of_field.append(text)
    names, times = [message.name for message in written], [message.created_at for message in written]
    return FieldTexts(names, times, texts, others)


def decode_written(page: bytes) -> Sequence[Written]:
    """Decode the msgpack array of a page of messages."""
    try:
        written = _decode_written(page)
    except msgspec.ValidationError:
        return _decode_any(page)
    for message in written:
        if message.form != UI and not isinstance(message.data, str):  # another form that has `parts` too
            return _decode_any(page)
    return written


def _only_text(parts: list[_WrittenPart]) -> str | None:
    """The text of parts that are nothing but text, as `search_texts` has it; None of others."""
    for part in parts:
        if part.type != "text" or not isinstance(part.text, str):
            return None
    return parts[0].text if len(parts) == 1 else "\n".join([part.text for part in parts])
