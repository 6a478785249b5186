"""
The block files of a JetStream store, read without a server.

A server that meets a damaged record drops the rest of its block, cuts the file, and says nothing. So the files are read here
as they lie on the disk, and what follows the damage is found again. A record is, little-endian:

    4 length, bit 31: has headers | 8 sequence, bit 63: erased, bit 62: says that a sequence was deleted | 8 time |
    2 length of the subject | subject | [4 length of the headers | headers] | payload | 8 checksum

The checksum covers all but the lengths. It is a HighwayHash-64 with the key of the block, see `record_hash`.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

import msgspec

HEAD: Final = Struct("<IQQH")
_SIZE: Final = Struct("<I")
_CHECKSUM: Final = Struct("<Q")
_LEAST: Final = HEAD.size + _CHECKSUM.size
_HAS_HEADERS: Final = 1 << 31
ERASED, DELETED = 1 << 63, 1 << 62
_LARGEST: Final = 64 * 1024 * 1024
_CHUNK: Final = 2048
_END_OF_HEADERS: Final = b"\r\n\r\n"


def block_key(stream: str, number: int) -> bytes:
    """Return the key of the checksums in a block file: the SHA-256 of `<stream>-<number of the block>`."""
    return hashlib.sha256(f"{stream}-{number}".encode()).digest()


class Span(NamedTuple):
    """The place of a record in its block: offset and length in bytes, and its sequence, with the two bits above it."""

    offset: int
    length: int
    sequence: int

    @property
    def position(self) -> int:
        return self.sequence & (DELETED - 1)

    @property
    def is_message(self) -> bool:
        """Whether it is a message, and not the place of one that was erased, or the note that one was deleted."""
        return not self.sequence & (ERASED | DELETED)


class Damage(NamedTuple):
    """
    Bytes of a block that are no intact record.

    Args:
        offset, length: Where, in bytes.
        sequence: What the header says, where one damaged record has a whole frame; None where frames are lost.
        is_cut: Whether the file ends inside this record, as when its writer was killed.
    """

    offset: int
    length: int
    sequence: int | None
    is_cut: bool = False


class BlockScan(NamedTuple):
    """The content of a block file: intact records and damage, each in the order of the file."""

    spans: list[Span]
    damages: list[Damage]


class BlockRecord(msgspec.Struct, frozen=True):
    """A message in a block file. One that is not intact has another checksum than was written with it."""

    position: int
    subject: str
    headers: dict[str, str]
    payload: bytes
    is_intact: bool = True


class DeletedRecord(msgspec.Struct, frozen=True):
    """A sequence that was deleted, or erased."""

    position: int


class DamagedBytes(msgspec.Struct, frozen=True):
    """Bytes of a file that are no intact record; the position, where the header still says one."""

    file: Path
    offset: int
    length: int
    position: int | None = None


Entry = BlockRecord | DeletedRecord | DamagedBytes


def block_files(folder: Path) -> list[Path]:
    """Return the block files of a stream by number. `folder` is that of the stream."""
    files = [file for file in (folder / "msgs").glob("*.blk") if file.stem.isdecimal()]
    return sorted(files, key=lambda file: int(file.stem))


def subject_prefix(stream: str) -> bytes:
    return f"{stream}.".encode()


def entries_of(file: Path, raw: bytes, scan: BlockScan, *, after: int) -> Iterator[Entry]:
    """
    Return the entries of one block file, in order: a damaged record with a whole frame as damage and as record.

    `after` is the position of the last message before it.
    """
    last = after
    parts: list[Span | Damage] = sorted([*scan.spans, *scan.damages], key=lambda part: part.offset)
    for index, part in enumerate(parts):
        if isinstance(part, Span):
            last = part.position if part.is_message else last
            yield read_block_record(raw, part)
            continue
        following = (span.position for span in parts[index:] if isinstance(span, Span) and span.is_message)
        span = _framed(part, after=last, before=next(following, None))
        yield DamagedBytes(file, part.offset, part.length, None if span is None else span.position)
        if span is not None:
            last = span.position
            yield read_block_record(raw, span, is_intact=False)


def _framed(damage: Damage, *, after: int, before: int | None) -> Span | None:
    """The damaged record, if it has a frame, and a position between those of its neighbours."""
    if damage.sequence is None:
        return None
    span = Span(damage.offset, damage.length, damage.sequence)
    highest = after + 1 if before is None else before - 1
    # A sequence with a flipped bit would stand for another event.
    return span if span.is_message and after < span.position <= highest else None


def scan_block(raw: bytes, key: bytes, prefix: bytes, start: int = 0) -> BlockScan:
    """
    Check the records of a block file.

    Args:
        raw: The file.
        key: Of its checksums, see `block_key`.
        prefix: What the subjects of the stream begin with; by it records are found again after damage.
        start: Where the first record to be checked begins.
    """
    spans: list[Span] = []
    damages: list[Damage] = []
    at = start
    while at < len(raw):
        frames, end = read_frames(raw, _CHUNK, at=at)
        # Many at once, side by side: see `record_hash`.
        wrong = [index for index, is_right in enumerate(are_intact(raw, frames, key)) if not is_right]
        if frames and not wrong:
            spans += frames
            at = end
            continue
        if wrong:
            spans += frames[: wrong[0]]
            at = frames[wrong[0]].offset
        broken = _after_damage(raw, at, key, prefix, frames[wrong[0] :] if wrong else [])
        damages += broken
        at += sum(damage.length for damage in broken)
    return BlockScan(spans, damages)


def read_frames(raw: bytes, most: int | None = None, *, at: int = 0) -> tuple[list[Span], int]:
    """
    Return the records of a block file that follow each other from an offset on, all for None, and where the last one ends.

    Their checksums are not looked at.
    """
    frames: list[Span] = []
    unpack, size = HEAD.unpack_from, len(raw)
    limit = size if most is None else most
    while at + _LEAST <= size and len(frames) < limit:
        packed, sequence, _, subject_bytes = unpack(raw, at)
        length = packed & (_HAS_HEADERS - 1)
        # No checksum covers the lengths: one that was damaged would skip over sound records, or ask for the memory of the machine.
        if not _LEAST + subject_bytes <= length <= min(size - at, _LARGEST):
            break
        if packed & _HAS_HEADERS and not _has_room_for_headers(raw, at, length, subject_bytes):
            break
        frames.append(Span(at, length, sequence))
        at += length
    return frames, at


def read_block_record(raw: bytes, span: Span, *, is_intact: bool = True) -> BlockRecord | DeletedRecord:
    if not span.is_message:
        return DeletedRecord(span.position)
    packed, _, _, subject_bytes = HEAD.unpack_from(raw, span.offset)
    start = span.offset + HEAD.size + subject_bytes
    subject = raw[span.offset + HEAD.size : start].decode(errors="replace")
    headers: dict[str, str] = {}
    if packed & _HAS_HEADERS:
        (size,) = _SIZE.unpack_from(raw, start)
        start += _SIZE.size
        headers = _headers(raw[start : start + size])
        start += size
    return BlockRecord(
        span.position, subject, headers, raw[start : span.offset + span.length - _CHECKSUM.size], is_intact
    )


def _has_room_for_headers(raw: bytes, at: int, length: int, subject_bytes: int) -> bool:
    """Whether headers fit in and end as headers do: their length is not covered by the checksum."""
    room = length - _LEAST - subject_bytes - _SIZE.size
    start = at + HEAD.size + subject_bytes
    if room < 0:
        return False
    size: int = _SIZE.unpack_from(raw, start)[0]
    if size > room:
        return False
    ends_at: int = start + _SIZE.size + size
    return raw[ends_at - len(_END_OF_HEADERS) : ends_at] == _END_OF_HEADERS and size >= len(_END_OF_HEADERS)


def are_intact(raw: bytes, frames: Sequence[Span], key: bytes) -> list[bool]:
    """Return whether the checksum of each record is right."""
    if not frames:
        return []
    from .record_hash import record_hashes  # NumPy takes a while to import, and sealed blocks do without

    parts = [hashed_part(raw, frame) for frame in frames]
    stored = [_CHECKSUM.unpack_from(raw, frame.offset + frame.length - _CHECKSUM.size)[0] for frame in frames]
    hashes = record_hashes(key, parts).tolist()
    return [
        computed == checksum and has_right_subject(raw, frame)
        for frame, computed, checksum in zip(frames, hashes, stored, strict=True)
    ]


def has_right_subject(raw: bytes, span: Span) -> bool:
    """Return whether a record has a subject only where it is a message: no checksum covers the length of the subject."""
    return span.is_message or not HEAD.unpack_from(raw, span.offset)[3]


def hashed_part(raw: bytes, span: Span) -> bytes:
    """Return what the checksum of a record covers."""
    at, end = span.offset, span.offset + span.length - _CHECKSUM.size
    packed, _, _, subject_bytes = HEAD.unpack_from(raw, at)
    start = at + HEAD.size
    if not packed & _HAS_HEADERS:
        return raw[at + 4 : at + 20] + raw[start:end]
    after = start + subject_bytes
    return raw[at + 4 : at + 20] + raw[start:after] + raw[after + _SIZE.size : end]


def _after_damage(raw: bytes, at: int, key: bytes, prefix: bytes, frames: Sequence[Span]) -> list[Damage]:
    """The damage that begins at an offset, up to the next intact record or the end of the file."""
    by_frame = next(
        (frame.offset for frame, ok in zip(frames, are_intact(raw, frames, key), strict=True) if ok), len(raw)
    )
    # Two ways to go on: the length of the damaged record may be right, and what follows may have the prefix of the subjects.
    resumed = min(by_frame, _next_intact(raw, at + 1, key, prefix))
    tiles, end = read_frames(raw[:resumed], _CHUNK, at=at)
    # The lengths lead right to it: each damaged record has its place, and maybe its position.
    if end == resumed:
        return [Damage(*tile) for tile in tiles]
    is_cut = False
    if resumed == len(raw):  # whether the file ends before this record does
        length = _SIZE.unpack_from(raw, at)[0] & (_HAS_HEADERS - 1) if at + _SIZE.size <= len(raw) else _LARGEST
        is_cut = len(raw) - at < length <= _LARGEST
    return [Damage(at, resumed - at, None, is_cut=is_cut)]


def _next_intact(raw: bytes, at: int, key: bytes, prefix: bytes) -> int:
    """Where the next intact message begins, found by its subject; the end of the file when there is none."""
    subject_at = raw.find(prefix, at + HEAD.size)
    while subject_at >= 0:
        frames, _ = read_frames(raw, 1, at=subject_at - HEAD.size)
        # The text of a message may have the prefix, too: only a checksum that fits says that a record begins there.
        if frames and all(are_intact(raw, frames, key)):
            return subject_at - HEAD.size
        subject_at = raw.find(prefix, subject_at + 1)
    return len(raw)


def _headers(raw: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in raw.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            headers[name.decode(errors="replace")] = value.strip().decode(errors="replace")
    return headers
