"""Rows of messages with long data: compressed, decompressed by whoever reads them, and compared by what they say."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from tests.projections.verify.test_verify_rows import compared, pages
from tests.support.files_in_clear import in_clear

import chatledger
from chatledger import CorruptStateError, NewMessage
from chatledger.domain.log.large_data import LARGE_BYTES
from chatledger.domain.log.parts import list_header
from chatledger.domain.packing import pack, pack_message
from chatledger.domain.values import Message
from chatledger.projections import zstd
from chatledger.projections.chat.pages import (
    COMPRESSED_FROM,
    MAX_BYTES,
    LazyMessage,
    compressed,
    from_row_extension,
    plain_body,
    unpack_row,
)
from chatledger.projections.generations import Generation
from chatledger.projections.lmdb.environment import INITIAL_MAP_BYTES
from chatledger.projections.search.log_order import decode_written, texts_in, texts_of

DECODER = msgspec.msgpack.Decoder(Message, ext_hook=from_row_extension)
WORDS = " ".join(f"{number * 2_654_435_761 % 2**32:x}" for number in range(400))


def message(data: Any) -> Message:
    return Message(id="m", name="tool", data=data, created_at=7)


def row(data: Any) -> bytes:
    one = message(data)
    return compressed(one, pack_message(one))


def of_size(size: int) -> str:
    """A text that takes so many bytes, packed."""
    return (WORDS * (size // len(WORDS) + 1))[: size - 3]


def is_compressed(body: bytes) -> bool:
    return zstd.MAGIC in body


@given(st.integers(0, 9000), st.sampled_from(["text", {"half": "\ud83d", "n": 2**70}, [1.5, None, "x" * 5000]]))
def test_any_message_is_read_as_it_was(size: int, more: Any) -> None:
    data = {"said": of_size(size + 3), "more": more}
    body = row(data)

    assert message(data) == DECODER.decode(body)
    assert pack_message(message(data)) == plain_body(body)


def test_what_is_compressed() -> None:
    """Data of 4 KiB and more, if that saves a tenth; longer ones than anybody would decompress are left as they are."""
    assert not is_compressed(row(of_size(COMPRESSED_FROM - 1)))
    assert is_compressed(row(of_size(COMPRESSED_FROM)))
    assert len(row(of_size(100_000))) < 10_000
    assert is_compressed(row(os.urandom(6000).hex()))
    assert not is_compressed(row([int.from_bytes(os.urandom(8)) | 1 << 63 for _ in range(1000)]))
    assert not is_compressed(row("x" * MAX_BYTES))
    assert is_compressed(row("x" * (MAX_BYTES - 5)))


@pytest.mark.parametrize("wrong", ["no frame", "too large", "says no size", "twice"])
def test_a_frame_that_is_none(wrong: str) -> None:
    frame = {
        "no frame": b"abc",
        "too large": zstandard.compress(bytes(MAX_BYTES + 1)),
        "says no size": zstandard.ZstdCompressor(write_content_size=False).compress(pack("x" * 9000)),
        "twice": zstandard.compress(pack(msgspec.msgpack.Ext(90, zstandard.compress(pack("x" * 9000))))),
    }[wrong]
    with pytest.raises(msgspec.DecodeError):
        unpack_row(msgspec.msgpack.encode(msgspec.msgpack.Ext(90, frame)))


def test_the_sizes_that_frames_claim() -> None:
    """Whoever reads many messages knows what they take before they are decompressed."""
    data = [pack(of_size(size)) for size in (5_000, 300_000)]

    assert sum(map(len, data)) == zstd.claimed_size(b"abc" + b"x".join(map(zstd.compress, data)) + zstd.MAGIC)
    assert 0 == zstd.claimed_size(WORDS.encode())


def test_what_is_searched_in_compressed_rows() -> None:
    call = {"type": "tool-x", "toolCallId": "1", "output": [WORDS, 5]}
    said: list[Any] = [
        WORDS * 2,
        {"parts": [{"type": "text", "text": WORDS * 2}, call]},
        {"a": [WORDS, WORDS]},
        "short",
    ]
    plain = texts_in([pack_message(message(data)) for data in said])
    array = list_header(len(said)) + b"".join(map(row, said))

    assert is_compressed(array)
    assert plain == texts_of(decode_written(array))


def test_rows_are_compared_by_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of another version of zstd are other bytes, and the same messages."""
    data = [of_size(size) for size in (6_000, 10, 9_000)]
    ours = [row(one) for one in data]
    monkeypatch.setattr(zstd, "_LEVEL", 19)
    monkeypatch.setattr(zstd, "_loaded", [])
    theirs, wrong = [row(one) for one in data], [row(one) for one in (data[0], data[1], data[2] + "!")]
    here, there = (Generation(number, tmp_path / str(number), map_bytes=INITIAL_MAP_BYTES) for number in (0, 1))

    assert ours != theirs
    assert compared(here, pages(0, ours, set()), there, pages(0, theirs, {2}))[0] is None
    assert compared(here, pages(0, ours, {1}), there, pages(0, wrong, set()))[0] is not None
    for generation in (here, there):
        generation.close()


def test_large_data_are_known_by_their_plain_size(tmp_path: Path) -> None:
    """A long text that is short when compressed lies beside the log, and goes with its chat."""
    text = WORDS * (LARGE_BYTES // len(WORDS) + 2)
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [NewMessage("tool", {"output": text, "n": 1}, id="m")])
        assert (
            {"output": text, "n": 1}
            == ledger.get_messages("c")[0].data
            == ledger.get_messages("c", lazy_data=True)[0].data
        )
        found = [
            file for file in (tmp_path / "data").rglob("*.blk") if WORDS[-40:].encode() in in_clear(file.read_bytes())
        ]
        assert found
        ledger.delete_chat("c")
        found = [
            file
            for file in (tmp_path / "data").rglob("*")
            if file.is_file() and WORDS[-40:].encode() in in_clear(file.read_bytes())
        ]
        assert [] == found


def test_a_damaged_frame_is_told() -> None:
    """By chat and message, when its data are asked for."""
    body = bytearray(row(of_size(6000)))
    at = body.index(zstd.MAGIC)
    body[at] ^= 1
    with pytest.raises(msgspec.DecodeError):
        DECODER.decode(body)
    lazily = msgspec.msgpack.decode(bytes(body), type=LazyMessage)
    with pytest.raises(CorruptStateError, match="message 'm'"):
        _ = lazily.data
