"""
Messages in rows: as they are packed on the log, with long data compressed, each message by itself.

    90   data of 4 KiB and more, as `domain.packing` packs them: a zstd frame

So reading some messages decompresses those, and no others.
"""

from typing import Any, Final

import msgspec

from chatledger.domain.errors import DECODE_ERRORS
from chatledger.domain.packing import from_extension, pack, pack_message, unpack
from chatledger.domain.values import Message

from ..zstd import FrameError, compress, decompress

COMPRESSED_FROM: Final = 4096
"""Shorter data stay as they are: from 1 KiB on rows would take 0.02 of the raw bytes less, and chats of such messages be read five times as slowly."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""Longer data stay as they are, and no frame that claims to be longer is decompressed."""
_KEPT: Final = 0.9
_FRAME: Final = 90
_encode: Final = msgspec.msgpack.Encoder().encode


def compressed(message: Message, body: bytes) -> bytes:
    """Return the row of a message whose packed form is `body`: with compressed data where that saves a tenth."""
    if len(body) < COMPRESSED_FROM:
        return body
    data = pack(message.data)
    if not COMPRESSED_FROM <= len(data) <= MAX_BYTES:
        return body
    frame = compress(data)
    if len(frame) > _KEPT * len(data):
        return body
    return _encode(msgspec.structs.replace(message, data=msgspec.msgpack.Ext(_FRAME, frame)))


def from_row_extension(code: int, data: memoryview) -> Any:
    """
    Return the value that an extension in a row stands for: the `ext_hook` of decoders of rows.

    Raises:
        msgspec.DecodeError: There is no such extension, or it is damaged.
    """
    if code != _FRAME:
        return from_extension(code, data)
    try:
        return unpack(decompress(data, MAX_BYTES))
    except FrameError as error:
        msg = f"compressed data are damaged: {error}"
        raise msgspec.DecodeError(msg) from error


unpack_row: Final = msgspec.msgpack.Decoder(ext_hook=from_row_extension).decode
"""Decodes the data of a row. Raises `msgspec.DecodeError` and the like when they are damaged."""

_decode_message: Final = msgspec.msgpack.Decoder(Message, ext_hook=from_row_extension).decode


def plain_body(row: bytes) -> bytes:
    """Return the row of a message with its data not compressed; a damaged row as it is."""
    # For comparing rows of two indexes: versions of zstd make different frames of the same data.
    try:
        return pack_message(_decode_message(row))
    except DECODE_ERRORS:
        return row
