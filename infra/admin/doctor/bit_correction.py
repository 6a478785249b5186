"""
Exact correction of records in which one bit is flipped.

A record carries a checksum of 64 bits, and a record of 8 KB has 65,000 bits that may be flipped: every one of them is tried, and
the one is taken with which the checksum is right. That another one fits by chance has a probability of 1 in 2^48. The length
fields are not covered by the checksum; a wrong one moves what is covered, so that each bit of them can be tried, too.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final

import msgspec

from ...log.nats_server.blocks import (
    BlockRecord,
    BlockScan,
    Entry,
    Span,
    block_files,
    block_key,
    entries_of,
    has_right_subject,
    hashed_part,
    read_block_record,
    read_frames,
    scan_block,
    subject_prefix,
)
from ...log.nats_server.record_hash import record_hashes

LARGEST_BYTES: Final = 8 * 1024
"""Larger records are not tried: the time grows with the square of the size, here it is some 10 s."""
_BUDGET_BYTES: Final = 4 * 1024**3
"""The bytes hashed for all records of a stream together, about a minute: on a disk with thousands of them, the rest stays."""
_AT_ONCE: Final = 2048
_HEAD: Final = Struct("<IQQH")
_SIZE: Final = Struct("<I")
_CHECKSUM: Final = Struct("<Q")
_HAS_HEADERS: Final = 1 << 31


class CorrectedRecord(msgspec.Struct, frozen=True):
    """A record in which one flipped bit was corrected, at an offset in bytes; the bit counts from its beginning. The file is as it was."""

    file: Path
    offset: int
    length: int
    position: int
    bit: int


class CorrectedBlock(msgspec.Struct, frozen=True):
    """A block file as it should be: its bytes, its records, and what was corrected."""

    file: Path
    raw: bytes
    scan: BlockScan
    corrected: tuple[CorrectedRecord, ...] = ()

    def messages(self) -> Iterator[BlockRecord]:
        records = (read_block_record(self.raw, span) for span in self.scan.spans)
        return (record for record in records if isinstance(record, BlockRecord))


class BitCorrection:
    """Reads the blocks of a stream, and corrects records with one flipped bit. No file is changed."""

    def __init__(self, folder: Path, stream: str) -> None:
        self._folder, self._stream = folder, stream
        self._budget = _BUDGET_BYTES
        self.corrected: list[CorrectedRecord] = []

    def entries(self) -> Iterator[Entry]:
        """Return the entries of the blocks, in order; see `entries_of`."""
        last = 0
        for file in block_files(self._folder):
            block = self.block(file)
            self.corrected += block.corrected
            for entry in entries_of(block.file, block.raw, block.scan, after=last):
                last = entry.position if isinstance(entry, BlockRecord) else last
                yield entry

    def block(self, file: Path) -> CorrectedBlock:
        raw, key, prefix = file.read_bytes(), block_key(self._stream, int(file.stem)), subject_prefix(self._stream)
        corrected: dict[int, CorrectedRecord] = {}
        tried: set[int] = set()
        # A corrected length shows records behind it that were taken for damage, so the block is scanned again.
        while True:
            scan = scan_block(raw, key, prefix)
            untried = [damage for damage in scan.damages if damage.offset not in tried]
            if not untried:
                return CorrectedBlock(file, raw, scan, tuple(corrected.values()))
            for damage in untried:
                tried.add(damage.offset)
                end = min((span.offset for span in scan.spans if span.offset > damage.offset), default=len(raw))
                bit = find_flipped_bit(raw[damage.offset : end], key, self._can_afford)
                if bit is None:
                    continue
                raw = _flipped(raw, damage.offset * 8 + bit)
                span = _record(raw[damage.offset : end])
                assert span is not None, "it is right now"
                corrected[damage.offset] = CorrectedRecord(file, damage.offset, span.length, span.position, bit)

    def _can_afford(self, size: int) -> bool:
        self._budget -= size
        return self._budget >= 0


def find_flipped_bit(damaged: bytes, key: bytes, can_afford: Callable[[int], bool] = lambda _size: True) -> int | None:
    """Return the one bit whose flip makes a record right with which these bytes begin, at least to its end; None when there is none."""
    # First the lengths: a wrong one decides where the checksum stands, and what it covers.
    in_frame = _wrong_frame_bit(damaged, key)
    if in_frame is not None:
        return in_frame
    span = _record(damaged)
    if span is None:
        return None
    part = hashed_part(damaged, span)
    stored: int
    (stored,) = _CHECKSUM.unpack_from(damaged, span.length - _CHECKSUM.size)
    wrong: int = int(record_hashes(key, [part])[0]) ^ stored
    if wrong.bit_count() == 1:  # the flipped bit is one of the checksum itself
        return (span.length - _CHECKSUM.size) * 8 + wrong.bit_length() - 1
    # Each of its bits is tried by hashing all of it, so the time grows with the square of the size.
    if span.length > LARGEST_BYTES or not can_afford(len(part) * len(part) * 8):
        return None
    count = len(part) * 8
    for start in range(0, count, _AT_ONCE):
        tried = [_flipped(part, bit) for bit in range(start, min(start + _AT_ONCE, count))]
        hits = (record_hashes(key, tried) == stored).nonzero()[0]
        if len(hits):
            return _bit_of_record(damaged, span, start + int(hits[0]))
    return None


def _frame_bits(damaged: bytes) -> Iterator[int]:
    """The bits that decide where the parts of a record end: three lengths, and what ends the headers."""
    if len(damaged) < _HEAD.size:
        return
    yield from range(32)
    yield from range((_HEAD.size - 2) * 8, _HEAD.size * 8)
    packed, _, _, subject_bytes = _HEAD.unpack_from(damaged)
    if packed & _HAS_HEADERS:
        start = _HEAD.size + subject_bytes
        if start + _SIZE.size <= len(damaged):
            end = start + _SIZE.size + _SIZE.unpack_from(damaged, start)[0]
            yield from range(start * 8, (start + _SIZE.size) * 8)
            if end <= len(damaged):
                yield from range((end - _SIZE.size) * 8, end * 8)


def _wrong_frame_bit(damaged: bytes, key: bytes) -> int | None:
    """The one of these bits whose flip makes the checksum right."""
    bits: list[int] = []
    parts: list[bytes] = []
    stored: list[int] = []
    for bit in _frame_bits(damaged):
        tried = _flipped(damaged, bit)
        span = _record(tried)
        # The checksum does not cover the length of the headers; where they end shows whether it is right.
        if span is not None and has_right_subject(tried, span):
            bits.append(bit)
            parts.append(hashed_part(tried, span))
            stored.append(_CHECKSUM.unpack_from(tried, span.length - _CHECKSUM.size)[0])
    candidates = zip(bits, record_hashes(key, parts).tolist(), stored, strict=True)
    return next((bit for bit, checksum, wanted in candidates if checksum == wanted), None)


def _record(damaged: bytes) -> Span | None:
    """The record with which these bytes begin, if its lengths fit."""
    frames, _ = read_frames(damaged, 1)
    return frames[0] if frames else None


def _bit_of_record(damaged: bytes, span: Span, bit: int) -> int:
    """Where a bit of what the checksum covers stands in the record: the length fields are not in that."""
    packed, _, _, subject_bytes = _HEAD.unpack_from(damaged)
    place = bit + _SIZE.size * 8
    if place >= (_HEAD.size - 2) * 8:
        place += 2 * 8
    # Behind the subject stands the length of the headers, which is not covered either.
    if packed & _HAS_HEADERS and place >= (_HEAD.size + subject_bytes) * 8:
        place += _SIZE.size * 8
    assert place < span.length * 8, "what is covered ends before the checksum"
    return place


def _flipped(raw: bytes, bit: int) -> bytes:
    changed = bytearray(raw)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
