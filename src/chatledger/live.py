"""
Live streams: what is being written now, such as the tokens of an answer, readable by all while it grows.

`Ledger.live` starts one, and `Ledger.read_live` reads it.
"""

from chatledger.domain.chat.live import LiveChunk, LiveStatus, LiveStream
from chatledger.infra.ledger.aio.live import AsyncLiveAnswer, AsyncLiveReader
from chatledger.infra.ledger.live import LiveAnswer, LiveReader

__all__ = [
    "AsyncLiveAnswer",
    "AsyncLiveReader",
    "LiveAnswer",
    "LiveChunk",
    "LiveReader",
    "LiveStatus",
    "LiveStream",
]
