"""`AsyncLiveAnswer` and `AsyncLiveReader`: live streams for asyncio and trio."""

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread
from msgspec import UNSET, UnsetType

from chatledger.domain.chat.live import LiveChunk, LiveStatus
from chatledger.domain.values import Message

from ..drafts import MessageLike
from ..feed.feed import RunInThread
from ..live import LiveAnswer, LiveReader
from .awaiting import AsyncClosing, in_thread


class AsyncLiveAnswer(AsyncClosing):
    """A `LiveAnswer` whose methods are awaited. Made by `AsyncLedger.live`; use it with `async with`."""

    def __init__(self, answer: LiveAnswer) -> None:
        self._answer = answer

    @property
    def chat_id(self) -> str:
        """The chat."""
        return self._answer.chat_id

    @property
    def id(self) -> str:
        """The id of the stream in its chat: what readers ask for."""
        return self._answer.id

    @property
    def epoch(self) -> int:
        """1 for the first writer of the stream, one more for each that took it over."""
        return self._answer.epoch

    @property
    def chunk_count(self) -> int:
        """The number of chunks that the stream has, with those that are about to be stored."""
        return self._answer.chunk_count

    async def write(self, chunk: Any) -> None:
        """Add a chunk; see `LiveAnswer.write`."""
        if not self._answer.write_nowait(chunk):
            await in_thread(partial(self._answer.write, chunk))

    async def flush(self) -> None:
        """Wait until everything that was written is stored; see `LiveAnswer.flush`."""
        await in_thread(self._answer.flush)

    async def commit(
        self, message: MessageLike | None = None, *, expected_head: str | UnsetType | None = UNSET
    ) -> Message:
        """End the stream as one message; see `LiveAnswer.commit`."""
        return await in_thread(partial(self._answer.commit, message, expected_head=expected_head))

    async def discard(self) -> None:
        """End the stream without a message; see `LiveAnswer.discard`."""
        await in_thread(self._answer.discard)

    async def close(self) -> None:
        """Leave the stream interrupted, unless it has ended; see `LiveAnswer.close`."""
        await in_thread(self._answer.close)

    async def __aenter__(self) -> Self:
        self._answer.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await in_thread(partial(self._answer.__exit__, kind, error, trace))

    def __repr__(self) -> str:
        return f"<Async{repr(self._answer)[1:]}"


class AsyncLiveReader(AsyncClosing):
    """A `LiveReader` whose chunks are awaited: `async for`. Made by `AsyncLedger.read_live`; it begins with the first one."""

    def __init__(self, run: RunInThread, begin: Callable[[Any], LiveReader]) -> None:
        self._run, self._begin = run, begin
        self._beginning = anyio.Lock()
        self._reader: LiveReader | None = None

    @property
    def message_id(self) -> str | None:
        """The id of the message that the text of the stream becomes; None before it has begun."""
        return None if self._reader is None else self._reader.message_id

    @property
    def position(self) -> int | None:
        """The number of the last chunk that was given; None before it has begun."""
        return None if self._reader is None else self._reader.position

    @property
    def status(self) -> LiveStatus | None:
        """How the stream stands, as far as it was read; None before it has begun."""
        return None if self._reader is None else self._reader.status

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LiveChunk:
        """The next chunk; see `LiveReader`."""
        reader = await self._begun()
        reader.resume()
        # Nothing is awaited between `pop` and the return: a cancelled task must not take a chunk with it.
        while (chunk := reader.pop()) is None and not reader.is_done:
            # Not one of the threads of the ledger: however many readers wait, its other calls must not wait for them.
            await anyio.to_thread.run_sync(reader.fill, limiter=anyio.CapacityLimiter(1))
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def _begun(self) -> LiveReader:
        async with self._beginning:
            if self._reader is None:
                await self._run(self._keep)
            assert self._reader is not None
            return self._reader

    def _keep(self, ledger: Any) -> None:
        self._reader = self._begin(ledger)

    async def close(self) -> None:
        """End the reading; calling it again does nothing."""
        if self._reader is not None:
            self._reader.close()

    async def __aenter__(self) -> Self:
        await self._begun()
        return self
