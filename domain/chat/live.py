"""
Live streams: what is being written now, such as the tokens of an answer. Entries, their bytes, and the state they give.

A stream begins with a `start`; then `chunks` come, and a `beat` where its writer is quiet. A `leave` ends a writer that goes
without a result, and a `take` begins the next one. `committing` closes the stream for everybody, `open` opens it again when
the message could not be appended, and an `end` is the last entry. Each entry says how many chunks there are with it, so the
first and the last one give the state of the stream.
"""

import hashlib
from typing import Any, Final, Literal, NamedTuple, cast

import msgspec

from ..errors import DECODE_ERRORS, CorruptStateError, InvalidValueError
from ..limits import data_copy
from ..packing import from_extension, joined, pack, packable, text_size, with_packable_data
from ..values import NewMessage
from ..wire import Value

LiveStatus = Literal["writing", "interrupted", "committing", "committed", "dropped"]
"""`interrupted`: its writer went or died. `committing`: it is closed, and its message is about to be on the log."""
Kind = Literal["start", "take", "chunks", "beat", "leave", "committing", "open", "end"]

BEAT_S: Final = 2.0
"""A writer that is quiet for so long says that it is there."""
SILENCE_S: Final = 6.0
"""A writer that says nothing for so long is taken for dead."""
MAX_LIVE_BYTES: Final = 64 * 1024 * 1024
"""The size limit of all chunks of a live stream together."""
MAX_LIVE_CHUNKS: Final = 5_000_000
MAX_LIVE_ENTRIES: Final = 2_000_000
MAX_LIVE_AGE_S: Final = 24 * 60 * 60
"""A stream that was started so long ago takes no more chunks."""
MAX_CHUNK_BYTES: Final = 256 * 1024
KEEP_S: Final = 60 * 60
"""An interrupted stream is dropped after this time, unless another one is given."""
ENDED_S: Final = 30
"""A stream that was committed can be read for so long."""


class LiveKey(NamedTuple):
    """The place of a live stream in a storage: hashes of the ids of its chat and of itself, in hex."""

    chat: str
    stream: str

    @property
    def text(self) -> str:
        """Both, as one text."""
        return f"{self.chat}.{self.stream}"


def chat_key(chat_id: str) -> str:
    """Return the first part of the keys of a chat's live streams."""
    return hashlib.sha256(chat_id.encode()).hexdigest()[:32]


def live_key(chat_id: str, stream_id: str) -> LiveKey:
    return LiveKey(chat_key(chat_id), chat_key(stream_id))


class LiveChunk(Value, frozen=True):
    """
    A chunk of a live stream.

    Args:
        number: 1 for the first chunk; reading with `after=number` goes on behind it.
        data: As it was written: text, bytes, or another JSON value.
    """

    number: int
    data: Any


class LiveStream(Value, frozen=True, kw_only=True):
    """
    A live stream as it stands.

    Args:
        chat_id, id: Its chat, and its id in the chat.
        name: The role of the message that it is to become.
        branch: Where that message goes; the active branch when None.
        status: `writing`, `interrupted`, `committing`, `committed` or `dropped`.
        epoch: 1 for its first writer, one more for each that took it over.
        chunk_count, size_bytes: How many chunks it has, and what they take.
        started_at: Milliseconds since the epoch.
        keep_s: It is dropped when it was interrupted for so many seconds.
        idle_s: Seconds since its last sign of life.
        message_id: The message it becomes or has become; None before.
    """

    chat_id: str
    id: str
    name: str
    branch: str | None
    status: LiveStatus
    epoch: int
    chunk_count: int
    size_bytes: int
    started_at: int
    keep_s: float
    idle_s: float
    message_id: str | None = None


class LiveStart(msgspec.Struct, frozen=True, array_like=True):
    """
    The description of a stream, in its first entry. `born` is the position of the first event of its chat: another
    chat under the same id has another one. `message_id` is that of the message that its text becomes, whoever commits it: so
    it becomes that once.
    """

    chat_id: str
    id: str
    name: str
    branch: str | None
    started_at: int
    keep_s: float
    born: int
    message_id: str


class LiveCommit(msgspec.Struct, frozen=True, array_like=True):
    """
    The message that a stream is to become: `draft`, or else its text, under that id.

    Args:
        expected_heads: Where the branch must be: one message id, or None for an empty branch. Anywhere when there is nothing.
    """

    message_id: str
    branch: str | None
    draft: NewMessage | None = None
    expected_heads: tuple[str | None, ...] = ()


class LiveEntry(msgspec.Struct, frozen=True, array_like=True):
    """
    An entry of a live stream.

    Args:
        kind: The kind of the entry.
        epoch: The number of the writer.
        count, size: Chunks, and their bytes, up to this entry and with it.
        chunks: What it adds. Other JSON values than text are in a list of their own.
        start: Of the first entry.
        commit: Of `committing`, and of an `end` after which there is a message.
    """

    kind: Kind
    epoch: int
    count: int = 0
    size: int = 0
    chunks: list[Any] = []
    start: LiveStart | None = None
    commit: LiveCommit | None = None


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(LiveEntry, ext_hook=from_extension).decode


def encode_live(entry: LiveEntry) -> bytes:
    """Encode an entry; what msgpack has no form for in its chunks, and in the data of its message, is an extension."""
    try:
        return _encode(entry)
    except (UnicodeEncodeError, OverflowError):
        commit = entry.commit
        if commit is not None and commit.draft is not None:
            commit = msgspec.structs.replace(commit, draft=with_packable_data(commit.draft))
        return _encode(msgspec.structs.replace(entry, chunks=packable(entry.chunks), commit=commit))


def decode_live(raw: bytes) -> LiveEntry:
    """Decode the result of `encode_live`. Raises `CorruptStateError` when it is something else."""
    try:
        return _decode(raw)
    except DECODE_ERRORS as error:
        msg = f"an entry of a live stream cannot be read: {error}; a newer chatledger may have written it"
        raise CorruptStateError(msg) from error


def packed_chunk(data: Any) -> tuple[Any, int]:
    """
    A chunk as it stands in an entry, and its size in bytes.

    Raises:
        InvalidValueError: It is neither text, bytes nor another JSON value, or too large.
    """
    if isinstance(data, str):
        chunk: Any = joined(data)
        size = text_size(chunk)
    elif isinstance(data, bytes | bytearray):
        chunk = bytes(data)
        size = len(chunk)
    else:
        chunk = [data_copy(data, "a chunk")]
        size = len(pack(chunk))
    if size > MAX_CHUNK_BYTES:
        msg = f"a chunk takes {size:,} bytes, at most {MAX_CHUNK_BYTES:,} are allowed; write it in parts"
        raise InvalidValueError(msg)
    return chunk, size


def unpacked_chunks(entry: LiveEntry) -> list[LiveChunk]:
    first = entry.count - len(entry.chunks) + 1
    return [
        LiveChunk(number, cast("list[Any]", chunk)[0] if isinstance(chunk, list) else chunk)
        for number, chunk in enumerate(entry.chunks, first)
    ]


def status_of(last: LiveEntry, idle_s: float) -> LiveStatus:
    """Return the status of a stream with this last entry, which was written so many seconds ago."""
    if last.kind == "end":
        return "dropped" if last.commit is None else "committed"
    if last.kind == "committing":
        return "committing"
    return "interrupted" if last.kind == "leave" or idle_s > SILENCE_S else "writing"


def describe_live(start: LiveStart, last: LiveEntry, idle_s: float) -> LiveStream:
    """Return a stream as its first and its last entry describe it."""
    return LiveStream(
        chat_id=start.chat_id,
        id=start.id,
        name=start.name,
        branch=start.branch,
        status=status_of(last, idle_s),
        epoch=last.epoch,
        chunk_count=last.count,
        size_bytes=last.size,
        started_at=start.started_at,
        keep_s=start.keep_s,
        idle_s=idle_s,
        message_id=None if last.commit is None else last.commit.message_id,
    )


def is_due(stream: LiveStream) -> bool:
    """Whether the time of a stream is over: it ended, or was interrupted, long enough ago."""
    if stream.status == "dropped":
        return True
    if stream.status == "committed":
        return stream.idle_s > ENDED_S
    return stream.status == "interrupted" and stream.idle_s > stream.keep_s


def follows(entry: LiveEntry, before: int) -> bool:
    """Whether the chunks of an entry follow so many that stand before it."""
    return entry.count - len(entry.chunks) == before
