"""
Compression of records with zstd, where it makes them smaller.

    0xC1 'Z'   4 bytes: CRC-32 of what follows, little endian   a zstd frame without its magic number

A log may hold records with and without it: reading needs no setting. Hashes are over the plain event, so neither this nor
encryption changes them.
"""

import threading
import zlib
from types import ModuleType
from typing import Any, Final

from eventsourcing.persistence import Compressor

from chatledger.domain.errors import ConfigurationError

from .cipher import UnreadableRecordError

MARK: Final = b"\xc1Z"
MIN_BYTES: Final = 256
"""Smaller records stay as they are: they would shrink by 7 %, and each takes 8 us."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""Larger records are not compressed, and none that claims to be larger is decompressed. No NATS server takes one."""
_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_CRC_BYTES: Final = 4
_LEVEL: Final = 3  # level 10 takes twice the time of it for 0.4 % less


def is_compressed(record: bytes) -> bool:
    """Whether a record says that it is compressed."""
    return record.startswith(MARK)


class ZstdCompressor(Compressor):
    """
    Compresses what gets smaller by it, and leaves the rest as it is.

    Raises:
        ConfigurationError: The package `zstandard` is missing.
    """

    def __init__(self) -> None:
        self._zstandard: Any = _library()
        self._local = threading.local()  # zstandard's objects do one thing at a time

    def compress(self, data: bytes) -> bytes:
        """The record of these bytes."""
        is_ours = data.startswith(MARK[:1])  # would be taken for a compressed record; no event begins so
        if not is_ours and not MIN_BYTES <= len(data) <= MAX_BYTES:
            return data
        frame: bytes = self._compressor().compress(data)[len(_MAGIC) :]
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
        frame = _MAGIC + frame
        try:
            # The size is asked for first: a few bytes can claim to be terabytes.
            size = self._zstandard.frame_content_size(frame)
            if not 0 <= size <= MAX_BYTES:
                msg = f"it is compressed, and claims to be larger than {MAX_BYTES:,} bytes, or does not say how large it is"
                raise UnreadableRecordError(msg)
            plain: bytes = self._decompressor().decompress(frame, allow_extra_data=False)
        except self._zstandard.ZstdError as error:
            msg = "it is compressed, and cannot be decompressed"
            raise UnreadableRecordError(msg) from error
        return plain

    def _compressor(self) -> Any:
        if not hasattr(self._local, "compressor"):
            self._local.compressor = self._zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True)
        return self._local.compressor

    def _decompressor(self) -> Any:
        if not hasattr(self._local, "decompressor"):
            self._local.decompressor = self._zstandard.ZstdDecompressor()
        return self._local.decompressor


def _library() -> ModuleType:
    try:
        import zstandard
    except ImportError as error:
        msg = "records compressed with zstd need the package zstandard: pip install 'chatledger[zstd]'"
        raise ConfigurationError(msg) from error
    return zstandard
