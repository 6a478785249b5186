"""Pages of long messages: compressed together, decompressed by whoever reads them, and compared by what they say."""

import os
from pathlib import Path
from typing import Any

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
    LONG_BYTES,
    LONG_PAGE_BYTES,
    MAX_BYTES,
    PAGE_BYTES,
    PAGE_MESSAGES,
    bodies_in,
    first_bodies,
    is_full,
    ordinals_in,
    pack_page,
    part_of_page,
    plain_page,
    plain_size,
    split_page,
    unpack_page,
)
from chatledger.projections.generations import Generation
from chatledger.projections.lmdb.checksums import with_checksum
from chatledger.projections.lmdb.environment import INITIAL_MAP_BYTES
from chatledger.projections.search.log_order import decode_written, texts_in, texts_of

WORDS = " ".join(f"{number * 2_654_435_761 % 2**32:x}" for number in range(400))
KEY = b"key" + bytes(4)


def row(data: Any) -> bytes:
    return pack_message(Message(id="m", name="tool", data=data, created_at=7))


def of_size(size: int) -> str:
    """A text that takes so many bytes, packed."""
    return (WORDS * (size // len(WORDS) + 1))[: size - 3]


def is_compressed(page: bytes) -> bool:
    return zstd.MAGIC in page


@given(st.lists(st.integers(0, 9000), min_size=1, max_size=20), st.data())
def test_any_page_is_read_as_it_was(sizes: list[int], data: st.DataObject) -> None:
    """Whichever of its messages are asked for."""
    bodies = [row({"said": of_size(size + 3), "half": "\ud83d", "n": 2**70}) for size in sizes]
    numbers = tuple(range(7, 7 + len(bodies)))
    page = pack_page(numbers, bodies)
    plain = plain_page(page)
    array = list_header(len(bodies)) + b"".join(bodies)

    assert (numbers, bodies) == (ordinals_in(page), split_page(page))
    assert (0, numbers, array) == unpack_page(KEY, page)
    assert len(plain) == plain_size(page) == plain_size(plain)
    assert bodies == [bodies_in(plain, at)[1] for at in range(len(bodies))]
    wanted = data.draw(st.integers(1, len(bodies) + 1))
    assert b"".join(bodies[:wanted]) == first_bodies(with_checksum(page), wanted)
    first = min(wanted, len(bodies)) - 1  # nobody asks a page for what is behind it
    assert part_of_page(memoryview(page), 0, first, wanted) == part_of_page(plain, 0, first, wanted)


def test_what_is_compressed() -> None:
    """Pages of 4 KiB and more, of long messages, if that saves a tenth; longer ones than anybody would decompress are left as they are."""
    long, short = row(of_size(4096)), row(of_size(LONG_BYTES // 2))

    assert is_compressed(pack_page([0], [long]))
    assert is_compressed(pack_page([0, 1, 2], [long, short, short]))
    assert not is_compressed(pack_page(range(9), [short] * 9))
    assert not is_compressed(pack_page([0], [row(of_size(4000))]))
    assert len(pack_page(range(9), [row(of_size(100_000))] * 9)) < 10_000
    assert is_compressed(pack_page([0], [row(os.urandom(6000).hex())]))
    assert not is_compressed(pack_page([0], [row([int.from_bytes(os.urandom(8)) | 1 << 63 for _ in range(1000)])]))
    assert not is_compressed(pack_page([0], [row("x" * MAX_BYTES)]))


def test_when_a_page_is_full() -> None:
    """By its count, or its bytes: of long messages there are more of them. A few at the end of what is there make none of their own."""
    assert is_full(PAGE_MESSAGES, 10)
    assert not is_full(PAGE_MESSAGES - 1, PAGE_BYTES - 1)
    assert is_full(PAGE_BYTES // LONG_BYTES + 1, PAGE_BYTES)
    assert not is_full(PAGE_BYTES // LONG_BYTES, PAGE_BYTES)
    assert is_full(20, LONG_PAGE_BYTES)
    assert is_full(20, LONG_PAGE_BYTES, LONG_PAGE_BYTES // 2)
    assert not is_full(20, LONG_PAGE_BYTES, LONG_PAGE_BYTES // 2 - 1)


@pytest.mark.parametrize("wrong", ["no frame", "too large", "says no size", "twice"])
def test_a_frame_that_is_none(wrong: str) -> None:
    page = pack_page([5], [row(of_size(9000))])
    at = page.index(zstd.MAGIC)
    frame = {
        "no frame": zstd.MAGIC + b"abc",
        "too large": zstandard.compress(bytes(MAX_BYTES + 1)),
        "says no size": zstandard.ZstdCompressor(write_content_size=False).compress(pack("x" * 9000)),
        "twice": page[at:] * 2,
    }[wrong]
    with pytest.raises(CorruptStateError, match="rebuild the index"):
        unpack_page(KEY, page[:at] + frame)


def test_what_is_searched_in_compressed_rows() -> None:
    call = {"type": "tool-x", "toolCallId": "1", "output": [WORDS, 5]}
    said: list[Any] = [
        WORDS * 2,
        {"parts": [{"type": "text", "text": WORDS * 2}, call]},
        {"a": [WORDS, WORDS]},
        "short",
    ]
    bodies = [*map(row, said)]
    page = pack_page(range(len(said)), bodies)

    assert is_compressed(page)
    assert texts_in(bodies) == texts_of(decode_written(unpack_page(KEY, page).array))


def test_rows_are_compared_by_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of another version of zstd are other bytes, and the same messages."""
    data = [of_size(size) for size in (6_000, 10, 9_000)]
    bodies, wrong = [*map(row, data)], [*map(row, (data[0], data[1], data[2] + "!"))]
    ours, together = pages(0, bodies, {1}), pages(0, bodies, set())
    monkeypatch.setattr(zstd, "_LEVEL", 19)
    monkeypatch.setattr(zstd, "_loaded", [])
    theirs = pages(0, bodies, set())
    here, there = (Generation(number, tmp_path / str(number), map_bytes=INITIAL_MAP_BYTES) for number in (0, 1))

    assert together != theirs
    assert compared(here, ours, there, theirs)[0] is None
    assert compared(here, together, there, theirs)[0] is None
    assert compared(here, ours, there, pages(0, wrong, set()))[0] is not None
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
