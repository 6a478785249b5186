"""Contents of files, with what is compressed in them decompressed: a text in a row or a record is found as one in clear is."""

from collections.abc import Iterator
from pathlib import Path

import zstandard

from chatledger.infra.log.mapper import MARK
from chatledger.projections.zstd import MAGIC

_CRC_BYTES = 4
_PIECE_BYTES = 24


def in_clear(raw: bytes) -> bytes:
    """The bytes, and behind them what each frame in them holds: of rows of an index, and of records of a log, which have no magic number."""
    return b"\0".join([raw, *map(_plain, frames_in(raw))])


def files_with(folder: Path, text: bytes) -> list[str]:
    """The names of the files below a folder that hold a text, compressed or not."""
    return [path.name for path in sorted(folder.rglob("*")) if path.is_file() and text in in_clear(path.read_bytes())]


def frames_in(raw: bytes) -> Iterator[bytes]:
    """Yield what may be a frame of zstd, each up to the end of the bytes."""
    for mark, skipped, before in ((MAGIC, len(MAGIC), MAGIC), (MARK, len(MARK) + _CRC_BYTES, MAGIC)):
        at = raw.find(mark)
        while at >= 0:
            yield before + raw[at + skipped :]
            at = raw.find(mark, at + 1)


def pieces_of_frames(raw: bytes, text: bytes) -> set[bytes]:
    """Pieces of the frames in which a text stands: parts of them may be left that decompress to nothing."""
    found: set[bytes] = set()
    for frame in frames_in(raw):
        if text in _plain(frame):
            size = len(frame) - len(_behind(frame))
            found |= {frame[at : at + _PIECE_BYTES] for at in range(20, size - _PIECE_BYTES, _PIECE_BYTES)}
    return found


def _plain(frame: bytes) -> bytes:
    try:
        return zstandard.ZstdDecompressor().decompressobj().decompress(frame)
    except zstandard.ZstdError:
        return b""


def _behind(frame: bytes) -> bytes:
    reading = zstandard.ZstdDecompressor().decompressobj()
    reading.decompress(frame)
    return reading.unused_data
