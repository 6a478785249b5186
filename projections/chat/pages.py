"""
Pages: the stored form of consecutive messages of a segment, and decoding many of them.

Where messages are long, what follows the numbers in a page is one frame of zstd. Chats of short messages are read as they are stored.
"""

import contextlib
import gc
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from struct import Struct
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

import msgspec

from chatledger.domain.errors import DECODE_ERRORS, CorruptStateError
from chatledger.domain.log.parts import list_header
from chatledger.domain.packing import from_extension, unpack
from chatledger.domain.values import Message

from ..lmdb.checksums import CHECKSUM_BYTES
from ..operating_system import call_in_forked_child
from ..zstd import MAGIC, FrameError, compress, content_size, decompress

MAX_BYTES: Final = 64 * 1024 * 1024
"""Longer pages stay as they are, and no frame that claims to be longer is decompressed."""
LONG_BYTES: Final = 1024
"""Pages whose messages take so many bytes each, on average, are compressed, and hold more of them."""
_COMPRESSED_FROM: Final = 4096
_KEPT: Final = 0.9


T = TypeVar("T")

_chat_of: Final = vars(Message)["chat_id"].__get__
_data_of: Final = vars(Message)["data"].__get__
_lock: Final = threading.Lock()


class UndecodedMessage:
    """
    The placeholder that lazy messages of a chat hold in place of its id, until their data are decoded.

    Encoders of msgspec read what a message holds, and would write its data as they are stored. They refuse this, which comes first.
    """

    __slots__ = ("chat_id",)

    def __init__(self, chat_id: str) -> None:
        self.chat_id = chat_id


class _RawDataMessage(Message, frozen=True, kw_only=True, gc=False):
    """A message with undecoded data: a part of the bytes that it was decoded from, which stay in memory with it."""

    data: msgspec.Raw


class LazyMessage(_RawDataMessage, frozen=True, kw_only=True, gc=False):
    """
    A message that decodes its data when they are asked for, and is a `Message` like any other from then on.

    Safe for threads. Comparing it, showing it and pickling it ask for its data.
    """

    # The fields that the properties below hide, under names of their own. Only for code that holds `_lock` or has made the object
    # just now: at any other time another thread may turn it into a `Message`, which has no such names.
    held_chat: ClassVar[Any] = vars(Message)["chat_id"]
    held_data: ClassVar[Any] = vars(Message)["data"]

    @property  # type: ignore[misc]  # it reads as the field does
    def chat_id(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # as above
        held: UndecodedMessage | str = _chat_of(self)
        return held.chat_id if isinstance(held, UndecodedMessage) else held

    @property  # type: ignore[misc]  # as above
    def data(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]  # as above
        """
        Any JSON value.

        Raises:
            CorruptStateError: They cannot be decoded.
        """
        return _data_of(_decoded(self))

    def __eq__(self, other: object) -> bool:
        return Message.__eq__(_decoded(self), _decoded(other))

    def __ne__(self, other: object) -> bool:  # the struct's own would compare what both hold, undecoded
        return Message.__ne__(_decoded(self), _decoded(other))

    def __hash__(self) -> int:
        return Message.__hash__(_decoded(self))

    def __repr__(self) -> str:
        return Message.__repr__(_decoded(self))

    def __reduce__(self) -> Any:
        return Message.__reduce__(_decoded(self))


def _decoded(message: T) -> T:
    """Return the object, with its data decoded if it is a lazy message."""
    if not isinstance(message, LazyMessage):
        return message
    with _lock:  # so that all threads get the same data
        if isinstance(message, LazyMessage):
            if isinstance(message.held_data, msgspec.Raw):
                try:
                    data = unpack(message.held_data)
                except DECODE_ERRORS as error:
                    msg = (
                        f"the data of message {message.id!r} of chat {message.chat_id!r} cannot be decoded: {error}; "
                        "rebuild the index, the log is not affected"
                    )
                    raise CorruptStateError(msg) from error
                _set(message, "held_data", data)
            _set(message, "held_chat", message.chat_id)
            # It has no fields that a message has not, so from now on it is read as fast as any message.
            _set(message, "__class__", Message)
    return message


decode_lazily: Final = msgspec.msgpack.Decoder(list[LazyMessage]).decode
"""A page of messages, without chat and parent."""


def place_lazily(chat: UndecodedMessage, messages: Iterable[Message], parent_id: str | None) -> str | None:
    """Set chat and parents of lazy messages that follow each other; return the id of the last one."""
    for message in messages:
        _set(message, "held_chat", chat)
        _set(message, "parent_id", parent_id)
        parent_id = message.id
    return parent_id


PAGE_MESSAGES: Final = 64
PAGE_BYTES: Final = 16 * 1024
LONG_PAGE_BYTES: Final = 64 * 1024
"""The most bytes of a page of long messages, before they are compressed: together they take two thirds of what they take in frames of their own."""

_NARROW: Final = 0xFFFF
_SHORT_ARRAY: Final = 16
_FRAMED: Final = MAGIC[0]
"""No msgpack array begins with this byte."""
_FEW: Final = 8
"""So many messages are decoded in the time that leaving them out takes."""
_u32: Final = Struct(">I")
_u16: Final = Struct(">H")
_narrow_start: Final = _u16.unpack_from
_wide_start: Final = _u32.unpack_from
_SHAPES: Final = [
    (4 + 4 * count, 4 + 4 * count + (1 if count < _SHORT_ARRAY else 3), _NARROW + 4 + 6 * count)
    for count in range(PAGE_MESSAGES + 1)
]
"""By the number of messages in a page: where its array begins, where its first message begins, and the most bytes of a page with starts of two bytes."""


Page = bytes | memoryview


class MessagePage(NamedTuple):
    """Messages that follow each other in a segment, as msgpack, each with its number in the log order of the chat."""

    first_offset: int
    ordinals: tuple[int, ...]
    array: bytes


def is_full(count: int, size: int, left: int = 0) -> bool:
    """Whether a page is full that has so many messages of so many bytes, and so many bytes are left: few long ones still go into it."""
    if count >= PAGE_MESSAGES:
        return True
    return (size >= LONG_PAGE_BYTES and not 0 < left < LONG_PAGE_BYTES // 2) or PAGE_BYTES <= size < LONG_BYTES * count


def pack_page(ordinals: Sequence[int], bodies: Sequence[bytes]) -> bytes:
    """
    The stored form of a page: count, ordinals, a msgpack array of messages, and where each of them begins in it.

    The beginnings take two bytes each, or four where the array is longer than two bytes can count. Array and beginnings are a frame
    where messages are long, and that saves a tenth.
    """
    count = len(ordinals)
    header = list_header(count)
    starts = list(accumulate(map(len, bodies), initial=len(header)))
    size = starts.pop()
    code = "H" if size <= _NARROW else "I"
    numbers = Struct(f">I{count}I").pack(count, *ordinals)
    content = b"".join((header, *bodies, Struct(f">{count}{code}").pack(*starts)))
    if max(_COMPRESSED_FROM, LONG_BYTES * count) <= size and len(content) <= MAX_BYTES:
        frame = compress(content)
        if len(frame) <= _KEPT * len(content):
            return numbers + frame
    return numbers + content


def plain_page(page: Page) -> Page:
    """
    Return the stored form of a page with nothing in it compressed.

    Raises:
        CorruptStateError: Its frame is damaged.
    """
    at = 4 + 4 * count_in(page)
    if page[at] != _FRAMED:
        return page
    try:
        return bytes(page[:at]) + decompress(page[at:], MAX_BYTES)
    except FrameError as error:
        msg = f"a page of messages in the index is damaged: {error}; rebuild the index, the log is not affected"
        raise CorruptStateError(msg) from error


def plain_size(page: Page) -> int:
    """The bytes that the stored form of a page takes when nothing in it is compressed; no frame is decompressed."""
    at = 4 + 4 * count_in(page)
    return len(page) if page[at] != _FRAMED else at + content_size(page[at:])


def unpack_page(key: bytes, value: bytes) -> MessagePage:
    """The page at a key. Raises as `plain_page` does."""
    page, count = plain_page(value), count_in(value)
    return MessagePage(
        _u32.unpack_from(key, len(key) - 4)[0],
        ordinals_in(value),
        bytes(page[4 + 4 * count : -_width(page, count) * count]),
    )


def ordinals_in(page: Page) -> tuple[int, ...]:
    """The numbers in log order of the messages in the stored form of a page."""
    return Struct(f">{count_in(page)}I").unpack_from(page, 4)


def split_page(page: Page) -> list[bytes]:
    """The messages in the stored form of a page. Raises as `plain_page` does."""
    plain, count = bytes(plain_page(page)), count_in(page)
    width = _width(plain, count)
    array, end = 4 + 4 * count, len(plain) - width * count
    starts = [array + start for start in Struct(f">{count}{'H' if width == 2 else 'I'}").unpack_from(plain, end)]
    return [plain[start:end] for start, end in pairwise([*starts, end])]


def bodies_in(page: Page, number: int) -> tuple[Page, Page]:
    """The message with this number in a plain page, after the message before it, which is empty for the first."""
    count = count_in(page)
    width = _width(page, count)
    start_at = (_u16 if width == 2 else _u32).unpack_from
    array, starts = 4 + 4 * count, len(page) - width * count
    at = starts + width * number
    start = array + start_at(page, at)[0]
    end = starts if number + 1 == count else array + start_at(page, at + width)[0]
    before = array + start_at(page, at - width)[0] if number else start
    return page[before:start], page[start:end]


def count_in(stored: Page) -> int:
    """The number of messages in the stored form of a page."""
    return stored[3]  # the last of four bytes: a page has at most `PAGE_MESSAGES`


def first_bodies(stored: bytes, wanted: int) -> bytes:
    """
    The first `wanted` messages of a page with its checksum, one after the other; all that it has where these are fewer.

    Raises as `plain_page` does.
    """
    # Called once for each segment of a chain that forks at every message, so what depends on the count only is in a table.
    count = stored[3]
    begin, first, most_narrow = _SHAPES[count]
    size = len(stored) - CHECKSUM_BYTES
    if stored[begin] == _FRAMED:
        stored = bytes(plain_page(stored[:size]))
        size = len(stored)
    if wanted >= count:
        return stored[first : size - (2 if size <= most_narrow else 4) * count]
    if size <= most_narrow:
        return stored[first : begin + _narrow_start(stored, size - 2 * (count - wanted))[0]]
    return stored[first : begin + _wide_start(stored, size - 4 * (count - wanted))[0]]


def part_of_page(page: Page, page_first: int, first: int, last: int) -> tuple[int, Page]:
    """
    The msgpack array of the messages from one offset to another in the stored form of a page, with the offset it begins at.

    May give some more on both sides, where decoding them takes less time than leaving them out. Raises as `plain_page` does.
    """
    page, count = plain_page(page), count_in(page)
    width = _width(page, count)
    array, starts = 4 + 4 * count, len(page) - width * count
    start, stop = max(first - page_first, 0), min(last + 1 - page_first, count)
    if count - (stop - start) < _FEW:
        return page_first, page[array:starts]
    start_at = (_u16 if width == 2 else _u32).unpack_from
    begin = array + start_at(page, starts + width * start)[0]
    end = starts if stop == count else array + start_at(page, starts + width * stop)[0]
    return page_first + start, b"".join((list_header(stop - start), page[begin:end]))


def _width(page: Page, count: int) -> int:
    """Return the bytes that the beginning of a message takes in a page."""
    # Not stored: `pack_page` takes four exactly where the array is too long for two, so no length fits both.
    return 2 if len(page) - 4 - 6 * count <= _NARROW else 4


WORTH_FROM: Final = 500
"""The number of messages whose decoding takes long enough for setting the thresholds to pay."""

_NEVER: Final = 2**31 - 1
_AT_ONCE: Final = -1
"""The second threshold with which objects that survive their first collection belong to the oldest generation at once, and are not looked at again."""
_MANY: Final = 20_000
"""The first threshold then: most of what comes and goes while messages are written is gone before it is looked at."""
_HAS_GENERATIONS: Final = sys.version_info < (3, 14)  # what thresholds mean has changed there


class _Decoding:
    """The decodings under way in this process, in any thread: the first sets the thresholds, the last one resets them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._before = self._meanwhile = gc.get_threshold()

    def begin(self) -> None:
        with self._lock:
            if not self._count:
                self._before = gc.get_threshold()
                self._meanwhile = (max(self._before[0], _MANY), _AT_ONCE, _NEVER)
                gc.set_threshold(*self._meanwhile)
            self._count += 1

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if not self._count:
                self._restore()

    def _restore(self) -> None:
        if gc.get_threshold() == self._meanwhile:  # the program may have set others meanwhile, which must stay
            gc.set_threshold(*self._before)

    def end_in_child(self) -> None:
        """Restore the thresholds in a forked process, whose only thread is the one that forked, and was not decoding."""
        self._lock = threading.Lock()  # another thread may have held the old one, and is not here to release it
        if self._count:
            self._count = 0
            self._restore()


_decoding: Final = _Decoding()
call_in_forked_child(_decoding.end_in_child)


@contextlib.contextmanager
def only_new_collected(messages: int = WORTH_FROM) -> Generator[None]:
    """Keep the garbage collector to new containers, in the whole process, while this many messages are decoded; not for few."""
    # None of the containers is garbage, nor part of a cycle: full collections took more than half of the time of 100,000 messages.
    if messages < WORTH_FROM or not _HAS_GENERATIONS:
        yield
        return
    _decoding.begin()
    try:
        yield
    finally:
        _decoding.end()


_COLLECTED_EVERY: Final = 64


@contextlib.contextmanager
def seldom_collected() -> Generator[Callable[[], None]]:
    """
    Keep the garbage collector to new containers during a long work; call what it yields after each part.

    Everything is looked at once in 64 parts, for what other threads leave, and not after each.
    """
    parts = 0

    def end_part() -> None:
        nonlocal parts
        parts += 1
        if parts % _COLLECTED_EVERY == 0 and _HAS_GENERATIONS:
            gc.collect()

    with only_new_collected():
        yield end_part


Run = tuple[int, int, int]
"""Messages of a chain that follow each other in a segment: its number, the first offset and the last one."""


class RunReader(Protocol):
    """The messages of one chat, as they are stored, for `read_runs`."""

    def arrays(self, number: int, first: int, last: int) -> Iterator[tuple[int, bytes | memoryview]]:
        """Yield the pages that hold a run: the offset of the first message, and the msgpack array of the messages."""
        ...

    def join_runs(self, runs: Sequence[Run], at: int) -> tuple[int, bytes]:
        """Return how many runs, from number `at` on, are read together, and the msgpack array of their messages."""
        ...

    def parent_id(self, place: tuple[int, int]) -> str | None:
        """Return the id of the parent of the message at a place: segment and offset."""
        ...


_decode: Final = msgspec.msgpack.Decoder(list[Message], ext_hook=from_extension).decode
_set: Final = msgspec.structs.force_setattr


def read_runs(runs: Sequence[Run], reader: RunReader, *, chat_id: str, lazy_data: bool) -> list[Message]:
    """The messages of runs that follow each other, root first. `lazy_data`: whether data are decoded when they are asked for."""
    decode: Callable[[bytes | memoryview], Sequence[Message]] = decode_lazily if lazy_data else _decode
    place = partial(place_lazily, UndecodedMessage(chat_id)) if lazy_data else partial(_place, chat_id)
    messages: list[Message] = []
    parent_id: str | None = None
    at = 0
    while at < len(runs):
        # The first run is read by itself, as the chain may begin in the middle of it, with a parent that is to be looked up.
        count, joined = reader.join_runs(runs, at) if at else (0, b"")
        at += count
        if count:
            page = decode(joined)
            parent_id = place(page, parent_id)
            messages += page
            continue
        number, first, last = runs[at]
        at += 1
        for page_first, array in reader.arrays(number, first, last):
            page = decode(array)
            start = first - page_first if first > page_first else 0
            if not messages:
                parent_id = page[start - 1].id if start else reader.parent_id((number, first))
            if start or last - page_first + 1 < len(page):
                page = page[start : last - page_first + 1]
            parent_id = place(page, parent_id)
            messages += page
    return messages


def _place(chat_id: str, messages: Iterable[Message], parent_id: str | None) -> str | None:
    """Set chat and parents of messages that follow each other; return the id of the last one."""
    for message in messages:
        _set(message, "chat_id", chat_id)
        _set(message, "parent_id", parent_id)
        parent_id = message.id
    return parent_id
