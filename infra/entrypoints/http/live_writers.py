"""`LiveWriters`: the writers of live streams that are written over HTTP, between the requests that write."""

import threading
import time
from contextlib import suppress
from typing import Final, NamedTuple

from chatledger.domain.chat.live import LiveStream
from chatledger.domain.errors import ChatledgerError, ChatNotFoundError, LiveConflictError, LiveStreamNotFoundError

from ...ledger.ledger import Ledger
from ...ledger.live import LiveAnswer
from .problems import RequestError

IDLE_S: Final = 60.0
"""A stream that nobody writes for so long is left, and thereby interrupted: somebody may take it over."""
MOST: Final = 1000
"""So many streams may be written through one process at the same time."""


class _Key(NamedTuple):
    chat_id: str
    stream_id: str


class _Held:
    """A writer, when it was asked for last, and whether its stream has ended; it is kept for those who ask how."""

    def __init__(self, writer: LiveAnswer) -> None:
        self.writer = writer
        self.used_s = time.monotonic()
        self.is_ended = False


class LiveWriters:
    """
    The writers that this process has. Each says that it is alive until it is left; nobody else can write its stream meanwhile.

    Args:
        idle_s: Seconds without a request after which a writer leaves its stream.
        most: How many there may be.
    """

    def __init__(self, *, idle_s: float = IDLE_S, most: int = MOST) -> None:
        self._idle_s, self._most = idle_s, most
        self._held: dict[_Key, _Held] = {}
        self._changed = threading.Condition()
        self._leaving: threading.Thread | None = None
        self._is_closed = False

    def check_room(self) -> None:
        """
        Check that there is room for one more.

        Raises:
            RequestError: There is none.
        """
        with self._changed:
            if self._is_closed:
                raise RequestError(503, "the server is stopping; try again", name="LedgerClosedError")
            if len(self._held) >= self._most:
                self._held = {key: held for key, held in self._held.items() if not held.is_ended}
            if len(self._held) >= self._most:
                msg = f"{self._most:,} live streams are written here already; end some of them, or try later"
                raise RequestError(429, msg, name="TooManyStreams")

    def keep(self, writer: LiveAnswer) -> None:
        """Keep a writer for the requests that follow."""
        with self._changed:
            if not self._is_closed:
                self._held[_Key(writer.chat_id, writer.id)] = _Held(writer)
                if self._leaving is None:
                    self._leaving = threading.Thread(target=self._leave_idle, name="chatledger-live-idle", daemon=True)
                    self._leaving.start()
                self._changed.notify_all()
                return
        writer.close_quietly()

    def writer(self, ledger: Ledger, chat_id: str, stream_id: str, epoch: int) -> LiveAnswer:
        """
        Return the writer of a stream, for who holds its epoch.

        Raises:
            ChatNotFoundError, LiveStreamNotFoundError: There is no such chat, or no such stream.
            LiveConflictError: Somebody else took the stream over, or it is not written through this process.
        """
        if ledger.get_chat(chat_id) is None:
            raise ChatNotFoundError(chat_id)
        with self._changed:
            held = self._held.get(_Key(chat_id, stream_id))
            if held is not None:
                held.used_s = time.monotonic()
        if held is not None and held.writer.epoch == epoch:
            return held.writer
        found = ledger.get_live(chat_id, stream_id)
        if found is None:
            raise LiveStreamNotFoundError(chat_id, stream_id)
        raise LiveConflictError(chat_id, stream_id, status=_status(found, epoch))

    def end(self, writer: LiveAnswer) -> None:
        """Note that a stream was committed or discarded."""
        with self._changed:
            held = self._held.get(_Key(writer.chat_id, writer.id))
            if held is not None:
                held.is_ended = True

    def take_over(self, ledger: Ledger, chat_id: str, stream_id: str, epoch: int) -> LiveAnswer:
        """
        Go on with an interrupted stream, and keep its writer.

        Raises:
            LiveStreamNotFoundError: There is no such stream.
            LiveConflictError: It is being written, has ended, or somebody else was faster.
            RequestError: Too many streams are written.
        """
        self.check_room()
        found = ledger.get_live(chat_id, stream_id)
        if found is None:
            raise LiveStreamNotFoundError(chat_id, stream_id)
        if found.epoch != epoch:
            raise LiveConflictError(chat_id, stream_id, status="taken over")
        writer = ledger.take_over_live(found)
        self.keep(writer)
        return writer

    def close(self) -> None:
        """Leave all streams: they are interrupted, and can be taken over elsewhere."""
        with self._changed:
            self._is_closed = True
            left = [held.writer for held in self._held.values()]
            self._held.clear()
            self._changed.notify_all()
        for writer in left:
            writer.close_quietly()

    def _leave_idle(self) -> None:
        while True:
            with self._changed:
                if not self._held:
                    self._leaving = None
                    return
                until_s = min(held.used_s for held in self._held.values()) + self._idle_s
                self._changed.wait(max(0.0, until_s - time.monotonic()))
                idle_since_s = time.monotonic() - self._idle_s
                idle = {key: held for key, held in self._held.items() if held.used_s <= idle_since_s}
                for key in idle:
                    del self._held[key]
            for held in idle.values():
                with suppress(ChatledgerError):
                    held.writer.close()


def _status(found: LiveStream, epoch: int) -> str:
    if found.epoch != epoch:
        return "taken over"
    return "being written through another process" if found.status == "writing" else found.status
