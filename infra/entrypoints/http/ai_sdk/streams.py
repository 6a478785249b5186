"""
Live streams as the AI SDK's UI message stream, version 1.

A writer puts pieces of text on a live stream, chunks of a UI message stream, or both. Chunks, objects with a `type`, are passed on
as they are. Pieces of text become a text part: `text-start`, `text-delta`, `text-end`. Whatever else there is becomes a `data-chunk`.
What the writer leaves out is added: `start` with the id that the message will have, and `finish`, `abort` or `error` at the end.
"""

from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from chatledger.domain.chat.live import LiveStatus
from chatledger.domain.context.messages import object_at
from chatledger.domain.errors import LiveStreamNotFoundError
from chatledger.domain.wire import encode_plain

from ....ledger.aio.live import AsyncLiveReader
from ..server_sent_events import ServerSentEvent

HEADERS: Final = {"Cache-Control": "no-cache", "x-vercel-ai-ui-message-stream": "v1"}
DONE: Final = ServerSentEvent(b"[DONE]")

_LAST: Final = frozenset({"finish", "abort", "error"})
_ENDS: Final[dict[LiveStatus, dict[str, str]]] = {
    "committing": {"type": "finish"},
    "committed": {"type": "finish"},
    "dropped": {"type": "abort"},
}
_LOST: Final = {"type": "error", "errorText": "the answer was interrupted: its writer is gone"}


class UIChunks:
    """
    Turns what is on a live stream into chunks of a UI message stream.

    Args:
        message_id: The id that the message will have; None where it is not known.
    """

    def __init__(self, message_id: str | None = None) -> None:
        self.message_id = message_id
        self._texts = 0
        self._is_started = self._is_text_open = self._is_over = False

    def take(self, data: Any) -> Iterator[dict[str, Any]]:
        """Return the chunks for one more piece of the stream."""
        chunk = dict(object_at(data))
        if not isinstance(chunk.get("type"), str):
            chunk = {}
        if not self._is_started:
            self._is_started = True
            start = {"type": "start"} | ({} if self.message_id is None else {"messageId": self.message_id})
            if chunk.get("type") == "start":
                chunk = start | chunk
            else:
                yield start
        if isinstance(data, str):
            yield from self._text(data)
            return
        yield from self._end_text()
        self._is_over = self._is_over or chunk.get("type") in _LAST
        yield chunk or {"type": "data-chunk", "data": b64encode(data).decode() if isinstance(data, bytes) else data}

    def end(self, status: LiveStatus | None) -> Iterator[dict[str, Any]]:
        """Return the chunks for the end of the stream."""
        yield from self._end_text()
        if not self._is_over:
            yield _LOST if status is None else _ENDS.get(status, _LOST)

    def _text(self, text: str) -> Iterator[dict[str, Any]]:
        if not self._is_text_open:
            self._texts += 1
            self._is_text_open = True
            yield {"type": "text-start", "id": self._text_id}
        yield {"type": "text-delta", "id": self._text_id, "delta": text}

    def _end_text(self) -> Iterator[dict[str, Any]]:
        if self._is_text_open:
            self._is_text_open = False
            yield {"type": "text-end", "id": self._text_id}

    @property
    def _text_id(self) -> str:
        return f"text-{self._texts}"


async def replay(reader: AsyncLiveReader) -> AsyncIterator[ServerSentEvent]:
    """Yield a live stream from its beginning to its end as the events of a UI message stream."""
    chunks = UIChunks()
    try:
        async with reader:
            chunks.message_id = reader.message_id
            async for piece in reader:
                for chunk in chunks.take(piece.data):
                    yield _event(chunk)
        status = reader.status
    except LiveStreamNotFoundError:  # it ended, and was dropped, since it was found
        status = None
    for chunk in chunks.end(status):
        yield _event(chunk)
    yield DONE


def _event(chunk: dict[str, Any]) -> ServerSentEvent:
    return ServerSentEvent(encode_plain(chunk))
