"""Block files as a real server writes them: every checksum is recomputed, and any damage is found where it is."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.backup_world import block

import chatledger
from chatledger import user
from chatledger.infra.log.nats_server.blocks import BlockScan, Span, block_key, read_frames, scan_block
from chatledger.infra.log.nats_server.record_hash import record_hashes

PREFIX = b"chatledger."
KEY = block_key("chatledger", 1)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A block with texts of 0 to 99 characters, and a chat that was erased."""
    data = tmp_path_factory.mktemp("blocks") / "data"
    with chatledger.open(data, durability="fast", compression="none") as ledger:
        ledger.create_chat("c", "u")
        ledger.create_chat("gone", "u")
        for length in range(100):
            ledger.append("c", [user("x" * length)])
            if length % 20 == 0:
                ledger.append("gone", [user("secret")])
        ledger.delete_chat("gone")
    return block(data).read_bytes()


def scan(raw: bytes, start: int = 0) -> BlockScan:
    return scan_block(raw, KEY, PREFIX, start)


def test_what_a_server_wrote_is_intact(raw: bytes) -> None:
    """Records with any rest of their length by 32, erased ones, and notes of deletions."""
    spans, end = read_frames(raw)
    assert end == len(raw)
    assert scan(raw) == BlockScan(spans, [])
    assert {span.length % 32 for span in spans} == set(range(32))
    assert {span.is_message for span in spans} == {True, False}
    assert scan(raw, spans[7].offset).spans == spans[7:]


def test_the_key_counts(raw: bytes) -> None:
    """A block under the number of another one, or in another stream, is not what it seems."""
    for key in (block_key("chatledger", 2), block_key("chatledger-blobs", 1)):
        assert not scan_block(raw, key, PREFIX).spans


@given(parts=st.lists(st.binary(max_size=200), max_size=30), key=st.binary(min_size=32, max_size=32))
def test_hashes_do_not_depend_on_their_neighbours(parts: list[bytes], key: bytes) -> None:
    """Many at once, or one by one."""
    assert record_hashes(key, parts).tolist() == [record_hashes(key, [part]).tolist()[0] for part in parts]


@given(data=st.data())
@settings(deadline=None)
def test_a_flipped_bit_hides_one_record(raw: bytes, data: st.DataObject) -> None:
    """Whichever bit of whichever record flips: all others are found, and where the damage begins."""
    spans, _ = read_frames(raw)
    hit = data.draw(st.sampled_from(spans))
    at = hit.offset + data.draw(st.integers(0, hit.length - 1))
    changed = bytearray(raw)
    changed[at] ^= 1 << data.draw(st.integers(0, 7))
    found = scan(bytes(changed))

    lost = set(spans) - set(found.spans)
    assert {span for span in lost if span.is_message} <= {hit}
    if not is_in_a_count(raw, hit, at):
        assert found.damages[0].offset == hit.offset
        assert [span for span in spans if span.offset < hit.offset] == [s for s in found.spans if s.offset < hit.offset]


def is_in_a_count(raw: bytes, span: Span, at: int) -> bool:
    """The length of the headers, and whether there are some, are under no checksum; they show where they do not fit."""
    subject = int.from_bytes(raw[span.offset + 20 : span.offset + 22], "little")
    start = span.offset + 22 + subject
    return start <= at < start + 4


@given(data=st.data())
@settings(deadline=None)
def test_lost_bytes_hide_what_stood_there(raw: bytes, data: st.DataObject) -> None:
    """A sector of zeros, or bytes that are missing: what does not touch them is found."""
    first = data.draw(st.integers(0, len(raw) - 1))
    length = data.draw(st.integers(1, 2000))
    is_cut_out = data.draw(st.booleans())
    there = raw[first : first + length]
    zeroed = raw[:first] + (b"" if is_cut_out else bytes(len(there))) + raw[first + length :]
    found = scan(zeroed)

    spans, _ = read_frames(raw)
    before = [span for span in spans if span.offset + span.length <= first]
    after = {span.sequence for span in spans if span.offset >= first + length and span.is_message}
    assert found.spans[: len(before)] == before
    assert after <= {span.sequence for span in found.spans}


@given(end=st.integers(0, 10_000))
@settings(deadline=None)
def test_a_file_that_ends_early(raw: bytes, end: int) -> None:
    """Between two records nothing is damaged; inside one, the file ends there."""
    end = min(end, len(raw))
    found = scan(raw[:end])
    whole = [span for span in read_frames(raw)[0] if span.offset + span.length <= end]
    assert found.spans == whole
    rest = end - sum(span.length for span in whole)
    assert [(damage.length, damage.is_cut) for damage in found.damages] == ([(rest, True)] if rest else [])


@given(raw=st.binary(max_size=3000))
def test_anything_is_read(raw: bytes) -> None:
    """Garbage is damage from its beginning to its end."""
    found = scan(raw + PREFIX + raw)
    covered = sum(span.length for span in found.spans) + sum(damage.length for damage in found.damages)
    assert covered == 2 * len(raw) + len(PREFIX)


def test_a_place_is_a_path(tmp_path: Path) -> None:
    """An empty file has nothing."""
    (tmp_path / "1.blk").touch()
    assert scan((tmp_path / "1.blk").read_bytes()) == BlockScan([], [])
