"""Making segments of gathered messages: bytes in, bytes out, so that any process can do it."""

from array import array
from struct import Struct
from typing import Final

import msgspec
import numpy as np

from .building import STEP_BYTES, STEP_MESSAGES, Listed, SegmentDraft, Vocabulary
from .indexer import landmarks_key
from .log_order import texts_in
from .segments import PackedSegment

HEAD: Final = Struct("<QIII")
"""Of a message: chat, number in the order of the log of the chat, segment and offset in its chains."""
_HEAD: Final = np.dtype([("chat", "<u8"), ("number", "<u4"), ("segment", "<u4"), ("offset", "<u4")])


class Gathered(msgspec.Struct, array_like=True):
    """Messages of whatever chats, in the order of the log. `heads`: the `HEAD` of each."""

    heads: bytes
    bodies: list[bytes]


class Inverted(msgspec.Struct, array_like=True):
    """
    A segment of gathered messages.

    `lengths`: how many terms its messages have, by field. `landmarks`: rows of long texts: keys and values.
    """

    segment: PackedSegment
    lengths: list[int]
    landmarks: list[tuple[bytes, bytes]]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Gathered).decode
decode_inverted: Final = msgspec.msgpack.Decoder(list[Inverted]).decode


class Inversion:
    """Makes segments of gathered messages, one batch after the other; it keeps the terms that it has met."""

    def __init__(self) -> None:
        self._vocabulary = Vocabulary()

    def invert(self, gathered: bytes) -> bytes:
        """Return the segments, `list[Inverted]`, of a batch, `Gathered`: one, or several where very many terms are new."""
        messages = _decode(gathered)
        heads = np.frombuffer(messages.heads, _HEAD)
        order = np.lexsort((heads["number"], heads["chat"]))
        ordered = heads[order]
        listed = Listed(
            *(ordered["chat"].astype(np.uint64), ordered["number"].astype(np.uint32)),
            *(ordered["segment"].astype(np.uint32), ordered["offset"].astype(np.uint32)),
        )
        places: list[int] = order.tolist()
        bodies = [messages.bodies[at] for at in places]
        segments: list[Inverted] = []
        at = 0
        while at < len(bodies):
            if self._vocabulary.is_full:
                self._vocabulary = Vocabulary()
            batch = SegmentDraft(self._vocabulary)
            at = _fill(batch, self._vocabulary, listed, bodies, at)
            segment = batch.segment()  # the landmarks have their messages after it
            landmarks = [
                (landmarks_key(chat_no, number, field), array("I", starts).tobytes())
                for chat_no, number, field, starts in batch.landmarks
            ]
            segments.append(Inverted(segment, batch.lengths, landmarks))
        return _encode(segments)


def _fill(batch: SegmentDraft, vocabulary: Vocabulary, listed: Listed, bodies: list[bytes], at: int) -> int:
    """Take in messages from one on, until the vocabulary is full; returns up to where."""
    while at < len(bodies) and not (batch.size and vocabulary.is_full):
        stop, size = at, 0
        while stop < len(bodies) and stop - at < STEP_MESSAGES and size < STEP_BYTES:
            size += len(bodies[stop])
            stop += 1
        batch.add_listed(listed.sliced(at, stop), texts_in(bodies[at:stop]))
        at = stop
    return at
