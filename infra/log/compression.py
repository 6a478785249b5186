"""
Compression of records with zstd, where it makes them smaller.

    0xC1 'Z'   4 bytes: CRC-32 of what follows, little endian   a zstd frame without its magic number

A log may hold records with and without it: reading needs no setting. Hashes are over the plain event, so neither this nor
encryption changes them.
"""

import zlib
from typing import Final

from eventsourcing.persistence import Compressor

from chatledger.projections import zstd

from .cipher import UnreadableRecordError

MARK: Final = b"\xc1Z"
MIN_BYTES: Final = 512
"""Smaller records stay as they are: a tenth of them would be gone, for 10 us of an append and 5 of a rebuild."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""Larger records are not compressed, and none that claims to be larger is decompressed. No NATS server takes one."""
_CRC_BYTES: Final = 4


def is_compressed(record: bytes) -> bool:
    """Whether a record says that it is compressed."""
    return record.startswith(MARK)


class ZstdCompressor(Compressor):
    """Compresses what gets smaller by it, and leaves the rest as it is."""

    def compress(self, data: bytes) -> bytes:
        """The record of these bytes."""
        is_ours = data.startswith(MARK[:1])  # would be taken for a compressed record; no event begins so
        if not is_ours and not MIN_BYTES <= len(data) <= MAX_BYTES:
            return data
        frame = zstd.compress(data)[len(zstd.MAGIC) :]
        record = MARK + zlib.crc32(frame).to_bytes(_CRC_BYTES, "little") + frame
        return record if is_ours or len(record) < len(data) else data

    def decompress(self, data: bytes) -> bytes:
        """
        The bytes of a record, compressed or not.

        Raises:
            UnreadableRecordError: It is damaged, or claims to be larger than `MAX_BYTES`.
        """
        if not data.startswith(MARK):
            return data
        crc, frame = data[len(MARK) : len(MARK) + _CRC_BYTES], data[len(MARK) + _CRC_BYTES :]
        if zlib.crc32(frame).to_bytes(_CRC_BYTES, "little") != crc:
            msg = "it is compressed, and its checksum does not fit"
            raise UnreadableRecordError(msg)
        try:
            return zstd.decompress(zstd.MAGIC + frame, MAX_BYTES)
        except zstd.FrameError as error:
            msg = f"it is compressed, and cannot be decompressed: {error}"
            raise UnreadableRecordError(msg) from error
