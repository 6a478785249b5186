"""Compression of records: what gets smaller by it, and what damaged and hostile records do."""

# White-box: stored records are looked at.
# pyright: reportPrivateUsage=false

import os
import zlib
from pathlib import Path
from typing import Any

import pytest
import zstandard
from eventsourcing.persistence import StoredEvent
from hypothesis import given
from hypothesis import strategies as st
from tests.support.ledger_world import check_chat, store_behind, texts

import chatledger
from chatledger import ConfigurationError, CorruptStateError, user
from chatledger.infra.log import mapper
from chatledger.infra.log.cipher import UnreadableRecordError
from chatledger.infra.log.mapper import MARK, MAX_BYTES, MIN_BYTES, ZstdCompressor, is_compressed
from chatledger.infra.store.opening.options import Compression

ZSTD = ZstdCompressor()
LONG = "It was the best of times, it was the worst of times. " * 40


def framed(frame: bytes) -> bytes:
    """A record with a proper checksum around what need not be a proper frame."""
    body = frame.removeprefix(b"\x28\xb5\x2f\xfd")
    return MARK + zlib.crc32(body).to_bytes(4, "little") + body


repetitive = st.tuples(st.binary(max_size=20), st.integers(0, 99)).map(lambda drawn: drawn[0] * drawn[1])


@given(st.binary(max_size=600) | repetitive)
def test_any_bytes_come_back(data: bytes) -> None:
    """Also those that begin like a compressed record; nothing that begins like an event gets larger."""
    record = ZSTD.compress(data)

    assert ZSTD.decompress(record) == data
    if not data.startswith(MARK[:1]):
        assert len(record) <= len(data)
        assert is_compressed(record) == (len(record) < len(data))


def test_what_is_left_as_it_is() -> None:
    """Small records, and those that zstd makes no smaller."""
    assert ZSTD.compress(b"a" * (MIN_BYTES - 1)) == b"a" * (MIN_BYTES - 1)
    noise = b"\x93" + os.urandom(5000)  # as an event begins; what begins as no event does is packed in any case
    assert ZSTD.compress(noise) is noise
    assert len(ZSTD.compress(b"a" * MIN_BYTES)) < 40


@given(place=st.integers(0), other=st.integers(1, 255))
def test_any_altered_byte_is_found(place: int, other: int) -> None:
    """Also in those parts of a frame that zstd does not look at, such as reserved bits."""
    record = bytearray(ZSTD.compress(LONG.encode()))
    record[len(MARK) + place % (len(record) - len(MARK))] ^= other
    for altered in (bytes(record), bytes(record[:-1]), bytes(record) + b"\0"):
        with pytest.raises(UnreadableRecordError):
            ZSTD.decompress(altered)


@pytest.mark.parametrize("size", [MAX_BYTES + 1, 2**40, 2**63])
def test_frames_that_claim_too_much(size: int) -> None:
    """A few bytes that become many are refused before the memory for them is taken: the limit is on what comes out."""
    some = b"\x28\xb5\x2f\xfd\xe0" + size.to_bytes(8, "little") + b"\x01\x00\x00"
    whole = zstandard.ZstdCompressor(level=1).compress(bytes(MAX_BYTES + 1))
    for frame in (some, whole):
        with pytest.raises(UnreadableRecordError, match="claims to be larger"):
            ZSTD.decompress(framed(frame))


NO_FRAMES = {
    "does not say its size": zstandard.ZstdCompressor(write_content_size=False).compress(bytes(10**6)),
    "says less than it holds": zstandard.ZstdCompressor()
    .compress(bytes(70_000))
    .replace((70_000).to_bytes(4, "little"), (100).to_bytes(4, "little")),
    "two frames": zstandard.ZstdCompressor().compress(b"a" * 500) * 2,
    "something behind it": zstandard.ZstdCompressor().compress(b"a" * 500) + b"more",
    "is cut off": zstandard.ZstdCompressor().compress(os.urandom(500))[:-20],
    "is empty": b"",
    "is no frame": b"\x28\xb5\x2f\xfd" + b"\xff" * 100,
}


@pytest.mark.parametrize("frame", NO_FRAMES.values(), ids=list(NO_FRAMES))
def test_hostile_frames(frame: bytes) -> None:
    """What is not one whole frame is refused."""
    with pytest.raises(UnreadableRecordError):
        ZSTD.decompress(framed(frame))


def test_the_largest_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be refused on reading is never written compressed."""
    monkeypatch.setattr(mapper, "MAX_BYTES", 5000)
    assert ZSTD.decompress(ZSTD.compress(b"a" * 5000)) == b"a" * 5000
    assert is_compressed(ZSTD.compress(b"a" * 5000))
    assert not is_compressed(ZSTD.compress(b"a" * 5001))


# On ledgers


@pytest.fixture(params=["path", "sqlite"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "data") if request.param == "path" else f"sqlite:///{tmp_path}/ledger.db"


def test_switching_it_on_and_off(location: str) -> None:
    """A log holds records of both kinds, and reading needs no setting; hashes and answers are the same."""
    states: list[bytes] = []
    options: list[Compression] = ["none", "zstd", "none", "zstd"]
    for turn, option in enumerate(options):
        with chatledger.open(location, compression=option) as ledger:
            ledger.upsert_chat("c", "u")
            ledger.append("c", [user(f"{turn} {LONG}")])
            ledger.rebuild()
            check_chat(ledger, "c")
            states = [record.state for record in store_behind(ledger).log._recorder.select_notifications(0, 100)]
    assert [is_compressed(state) for state in states] == [False, False, True, False, True]
    assert len(states[2]) < len(states[1]) / 5
    with chatledger.open(location) as ledger:
        assert texts(ledger, "c") == [f"{turn} {LONG}" for turn in range(4)]
        check_chat(ledger, "c")


def test_a_damaged_compressed_record() -> None:
    """It is told by chat and version."""
    with chatledger.open("memory:", compression="zstd") as ledger:
        ledger.create_chat("c", "u")
        ledger.append("c", [user(LONG)])
        recorder: Any = store_behind(ledger).log._recorder
        record = recorder.select_notifications(2, 1)[0]
        state = bytearray(record.state)
        state[-1] ^= 1
        recorder._stored_events[1] = StoredEvent(
            record.originator_id, record.originator_version, record.topic, bytes(state)
        )
        with pytest.raises(CorruptStateError, match=r"event 2 of chat 'c'.*checksum"):
            list(ledger.history())


def test_an_unknown_compression() -> None:
    with pytest.raises(ConfigurationError, match="must be 'zstd' or 'none'"):
        chatledger.open("memory:", compression="gzip")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - the point of the test
