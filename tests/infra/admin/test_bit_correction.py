"""One flipped bit in a record is found and corrected, wherever it is; what is damaged more stays damaged."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.backup_world import block, fill
from tests.support.block_world import read_blocks
from tests.support.soak import examples

import chatledger
from chatledger import Encryption, user
from chatledger.infra.admin.doctor.bit_correction import LARGEST_BYTES, BitCorrection, find_flipped_bit
from chatledger.infra.log.nats_server.blocks import (
    BlockRecord,
    DamagedBytes,
    Span,
    block_key,
    scan_block,
    subject_prefix,
)
from chatledger.infra.store.opening import STREAM

KEY = block_key(STREAM, 1)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with small records and longer ones, erased ones and notes of deletions."""
    data = tmp_path_factory.mktemp("data") / "data"
    with chatledger.open(data, durability="fast") as ledger:
        fill(ledger)
        ledger.append("a", [user("long " * 300)])
        ledger.delete_chat("b")
        ledger.append("c", [user("the end")])
    return data / "log" / "jetstream" / "$G" / "streams" / STREAM


def spans_of(raw: bytes) -> list[Span]:
    scan = scan_block(raw, KEY, subject_prefix(STREAM))
    assert scan.damages == []
    return scan.spans


def flipped(raw: bytes, bit: int) -> bytes:
    changed = bytearray(raw)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.soak
@settings(max_examples=examples(100), deadline=None)
@given(chosen=st.integers(0), bit=st.integers(0))
def test_any_flipped_bit_of_any_record_is_corrected(store: Path, chosen: int, bit: int) -> None:
    """Body, headers, subject, sequence, time, lengths and the checksum itself: the block is read as it was."""
    file = next((store / "msgs").glob("*.blk"))
    raw = file.read_bytes()
    spans = spans_of(raw)
    span = spans[chosen % len(spans)]
    place = span.offset * 8 + bit % (span.length * 8)
    file.write_bytes(flipped(raw, place))
    try:
        found = BitCorrection(store, STREAM).block(file)
    finally:
        file.write_bytes(raw)

    assert found.raw == raw
    assert found.scan.spans == spans
    (corrected,) = found.corrected
    assert (corrected.offset * 8 + corrected.bit, corrected.length, corrected.position) == (
        place,
        span.length,
        span.position,
    )


@pytest.mark.soak
def test_bits_of_one_record(store: Path) -> None:
    """Every bit of the header of a record, and every 11th after it."""
    raw = next((store / "msgs").glob("*.blk")).read_bytes()
    span = min((span for span in spans_of(raw) if span.is_message), key=lambda one: one.length)
    record = raw[span.offset : span.offset + span.length]
    after = raw[span.offset + span.length :][:500]
    wrong = {
        bit: found
        for bit in (*range(22 * 8), *range(22 * 8, span.length * 8, 11))
        if (found := find_flipped_bit(flipped(record + after, bit), KEY)) != bit
    }

    assert wrong == {}


def test_two_flipped_bits_are_not_made_up(store: Path) -> None:
    """No record is found that was not there."""
    raw = next((store / "msgs").glob("*.blk")).read_bytes()
    span = next(span for span in spans_of(raw) if span.is_message)
    record = raw[span.offset : span.offset + span.length]
    drawn = random.Random(7)
    for _ in range(5):
        first, second = drawn.sample(range(28 * 8, span.length * 8), 2)
        assert find_flipped_bit(flipped(flipped(record, first), second), KEY) is None


def test_several_records_of_a_block(store: Path) -> None:
    """Each record with one flipped bit is corrected, also neighbours, and what is between."""
    file = next((store / "msgs").glob("*.blk"))
    raw = file.read_bytes()
    spans = spans_of(raw)
    changed = raw
    for number, span in enumerate(spans[1:6]):
        changed = flipped(changed, span.offset * 8 + (number * 7 + 1) % 32)  # lengths
    for span in spans[8:10]:
        changed = flipped(changed, (span.offset + span.length - 3) * 8)
    file.write_bytes(changed)
    try:
        correction = BitCorrection(store, STREAM)
        entries = list(correction.entries())
        damaged = [entry for entry in read_blocks(store, STREAM) if isinstance(entry, DamagedBytes)]
    finally:
        file.write_bytes(raw)

    assert damaged
    assert entries == list(read_blocks(store, STREAM))
    assert len(correction.corrected) == 7


def test_what_is_too_large_is_left(tmp_path: Path) -> None:
    """A record over the limit is not tried, but for its length and its checksum."""
    data = tmp_path / "data"
    key = Encryption(Encryption.new_key())
    with chatledger.open(data, durability="fast", encryption=key, compression="none") as ledger:
        ledger.create_chat("a", "ada")
        ledger.append("a", [user("x" * LARGEST_BYTES)])
    raw = block(data).read_bytes()
    span = max(spans_of(raw), key=lambda one: one.length)
    record = raw[span.offset : span.offset + span.length]

    assert find_flipped_bit(flipped(record, 500 * 8), KEY) is None
    assert find_flipped_bit(flipped(record, 9), KEY) == 9
    assert find_flipped_bit(flipped(record, span.length * 8 - 9), KEY) == span.length * 8 - 9


def test_a_header_length_is_damage(store: Path) -> None:
    """The checksum does not cover the length of the headers; where they end shows it."""
    file = next((store / "msgs").glob("*.blk"))
    raw = file.read_bytes()
    at = raw.index(b"NATS/1.0") - 4
    file.write_bytes(flipped(raw, at * 8 + 1))
    try:
        entries = list(read_blocks(store, STREAM))
    finally:
        file.write_bytes(raw)

    assert any(isinstance(entry, DamagedBytes) for entry in entries)
    assert not any(isinstance(entry, BlockRecord) and not entry.is_intact for entry in entries)
