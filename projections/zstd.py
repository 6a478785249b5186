"""
Frames of zstd, by `zstandard` or, from Python 3.14 on, by the standard library: nobody else needs to know which.

The library is imported at the first use, which takes 11 ms. Frames of one are read by the other; their bytes differ between versions of
zstd, so nothing may compare or digest them.
"""

import sys
import threading
from typing import Any, Final

MAGIC: Final = b"\x28\xb5\x2f\xfd"
"""The bytes that a frame begins with."""
_LEVEL: Final = 3  # level 10 takes twice the time of it for 0.4 % less
_UNKNOWN: Final = -1


class FrameError(Exception):
    """A frame is damaged, or claims to be larger than allowed."""


def compress(data: bytes) -> bytes:
    """The frame of these bytes; it says how many there are."""
    compressed: bytes = _library().compress(data)
    return compressed


def decompress(frame: bytes | memoryview, max_bytes: int) -> bytes:
    """
    The bytes in a frame.

    The size is asked for first: a few bytes can claim to be terabytes.

    Raises:
        FrameError: It is not one whole frame, does not say its size, or claims to be larger than `max_bytes`.
    """
    if not 0 <= content_size(frame) <= max_bytes:
        msg = f"it claims to be larger than {max_bytes:,} bytes, or does not say how large it is"
        raise FrameError(msg)
    plain: bytes = _library().decompress(frame)
    return plain


def content_size(frame: bytes | memoryview) -> int:
    """The size that a frame claims; negative where it claims none, or is none. Its header is enough."""
    size: int = _library().content_size(frame)
    return size


if sys.version_info >= (3, 14):

    class _StandardZstd:
        """The standard library's, which also free-threaded builds have."""

        def __init__(self) -> None:
            from compression import zstd

            self._zstd = zstd

        def compress(self, data: bytes) -> bytes:
            return self._zstd.compress(data, level=_LEVEL)

        def decompress(self, frame: bytes | memoryview) -> bytes:
            decompressor = self._zstd.ZstdDecompressor()
            try:
                plain = decompressor.decompress(frame, max_length=max(self.content_size(frame), 1))
            except self._zstd.ZstdError as error:
                raise FrameError(str(error)) from error
            if not decompressor.eof or decompressor.unused_data:
                msg = "it is not one whole frame"
                raise FrameError(msg)
            return plain

        def content_size(self, frame: bytes | memoryview) -> int:
            try:
                size = self._zstd.get_frame_info(frame).decompressed_size
            except self._zstd.ZstdError:
                return _UNKNOWN
            return _UNKNOWN if size is None else size

    _Library = _StandardZstd

else:

    class _ZstandardPackage:
        """The package `zstandard`."""

        def __init__(self) -> None:
            import zstandard

            self._zstandard: Any = zstandard
            self._local = threading.local()  # its objects do one thing at a time, and take long to make

        def compress(self, data: bytes) -> bytes:
            if not hasattr(self._local, "compressor"):
                self._local.compressor = self._zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True)
            compressed: bytes = self._local.compressor.compress(data)
            return compressed

        def decompress(self, frame: bytes | memoryview) -> bytes:
            if not hasattr(self._local, "decompressor"):
                self._local.decompressor = self._zstandard.ZstdDecompressor()
            try:
                plain: bytes = self._local.decompressor.decompress(frame, allow_extra_data=False)
            except self._zstandard.ZstdError as error:
                raise FrameError(str(error)) from error
            return plain

        def content_size(self, frame: bytes | memoryview) -> int:
            try:
                size: int = self._zstandard.frame_content_size(frame)
            except self._zstandard.ZstdError:
                return _UNKNOWN
            return size

    _Library = _ZstandardPackage


_loaded: list[_Library] = []


def _library() -> _Library:
    if not _loaded:
        _loaded.append(_Library())  # twice does no harm
    return _loaded[0]
