"""Entries of live streams: their chunks, their bytes, and the state of a stream that they give."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cases import case

from chatledger.domain.chat.live import (
    ENDED_S,
    MAX_CHUNK_BYTES,
    SILENCE_S,
    LiveChunk,
    LiveCommit,
    LiveEntry,
    LiveKey,
    LiveStart,
    LiveStatus,
    LiveStream,
    decode_live,
    describe_live,
    encode_live,
    follows,
    is_due,
    live_key,
    packed_chunk,
    status_of,
    unpacked_chunks,
)
from chatledger.domain.errors import CorruptStateError, InvalidValueError
from chatledger.domain.values import NewMessage

START = LiveStart("c", "s", "assistant", "side", 7, 60.5, 3, "m1")
COMMIT = LiveCommit("m1", "side", NewMessage("assistant", "hi", id="m1"), ("h", None))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def test_the_place_of_a_stream_never_changes() -> None:
    """Streams that an older version began are found: the key is a part of SHA-256 of each id."""
    chat, stream = "2e7d2c03a9507ae265ecf5b5356885a5", "043a718774c572bd8a25adbeb1bfcd5c"

    assert LiveKey(chat, stream) == live_key("c", "s")
    assert f"{chat}.{stream}" == live_key("c", "s").text


@given(st.lists(json_values | st.binary(), max_size=4), st.integers(0, 9))
def test_chunks_are_read_as_they_were_written(data: list[Any], before: int) -> None:
    """Text, bytes and JSON, a list among them; numbered from those before them on, whose number an entry says."""
    chunks = [packed_chunk(value)[0] for value in data]
    entry = LiveEntry("chunks", 1, count=before + len(data), chunks=chunks)

    assert entry == decode_live(encode_live(entry))
    assert [LiveChunk(before + 1 + n, value) for n, value in enumerate(data)] == unpacked_chunks(entry)
    assert [before] == [count for count in range(20) if follows(entry, count)]


def test_the_size_of_a_chunk() -> None:
    """Counted in bytes as they are written: UTF-8, and MessagePack within a list."""
    for data, size in [("", 0), ("é", 2), (b"\xff\xff\xff", 3), (bytearray(b"ab"), 2), (None, 2), ({"a": [1]}, 6)]:
        with case(data):
            assert size == packed_chunk(data)[1]
    full: list[tuple[Any, Any]] = [("x" * MAX_CHUNK_BYTES, "x"), (b"x" * MAX_CHUNK_BYTES, b"x")]
    for largest, more in full:
        assert (largest, MAX_CHUNK_BYTES) == packed_chunk(largest)
        with pytest.raises(InvalidValueError, match="at most 262,144"):
            packed_chunk(largest + more)


def test_a_chunk_is_a_copy() -> None:
    """Plain text and bytes, and values that their writer may go on changing."""

    class Text(str):
        __slots__ = ()

    values = [1]
    chunk, _ = packed_chunk(values)
    values.append(2)

    assert [[1]] == chunk
    assert [str, bytes] == [type(packed_chunk(value)[0]) for value in (Text("a"), bytearray(b"a"))]


def test_a_chunk_that_nobody_could_read_is_refused() -> None:
    for data in (object(), {1: 2, "1": 3}, [10**4300]):
        with case(data), pytest.raises(InvalidValueError, match="a chunk"):
            packed_chunk(data)


def test_what_is_no_entry_is_damage() -> None:
    for raw in (b"", b"\xc1", encode_live(LiveEntry("start", 1))[:-1], b"\x92\xa3odd\x01", b"\x92\xa4take\xa1x"):
        with case(raw), pytest.raises(CorruptStateError, match="newer chatledger"):
            decode_live(raw)


STATUSES: list[tuple[LiveEntry, float, LiveStatus]] = [
    (LiveEntry("start", 1, start=START), 0, "writing"),
    (LiveEntry("chunks", 1), SILENCE_S, "writing"),
    (LiveEntry("chunks", 1), SILENCE_S + 0.1, "interrupted"),
    (LiveEntry("leave", 1), 0, "interrupted"),
    (LiveEntry("take", 2), 0, "writing"),
    (LiveEntry("committing", 1, commit=COMMIT), SILENCE_S + 1, "committing"),
    (LiveEntry("open", 1), 0, "writing"),
    (LiveEntry("end", 1, commit=COMMIT), SILENCE_S + 1, "committed"),
    (LiveEntry("end", 1), 0, "dropped"),
]


def test_the_status_follows_from_the_last_entry_and_its_age() -> None:
    """A writer that was silent for too long is taken for dead; a stream that is closed stays closed, however long ago."""
    for last, idle_s, status in STATUSES:
        with case(last.kind, idle_s):
            assert status == status_of(last, idle_s)


def test_a_stream_is_described_by_its_first_and_its_last_entry() -> None:
    stream = LiveStream(
        chat_id="c", id="s", name="assistant", branch="side", status="committing", epoch=2, chunk_count=5, size_bytes=11,
        started_at=7, keep_s=60.5, idle_s=1.5, message_id="m1",
    )  # fmt: skip

    assert stream == describe_live(START, LiveEntry("committing", 2, 5, 11, commit=COMMIT), 1.5)
    assert describe_live(START, LiveEntry("leave", 2, 5, 11), 1.5).message_id is None


def test_when_the_time_of_a_stream_is_over() -> None:
    """A dropped one at once, a committed one when its readers had time for it, an interrupted one when nobody took it over."""
    for last, idle_s, over in [
        (LiveEntry("end", 1), 0, True),
        (LiveEntry("end", 1, commit=COMMIT), ENDED_S, False),
        (LiveEntry("end", 1, commit=COMMIT), ENDED_S + 0.1, True),
        (LiveEntry("leave", 1), START.keep_s, False),
        (LiveEntry("leave", 1), START.keep_s + 0.1, True),
        (LiveEntry("chunks", 1), START.keep_s + 0.1, True),
        (LiveEntry("committing", 1, commit=COMMIT), START.keep_s + 0.1, False),
    ]:  # fmt: skip
        with case(last.kind, idle_s):
            assert over == is_due(describe_live(START, last, idle_s))
