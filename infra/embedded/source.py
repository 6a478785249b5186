"""Where the embedded server is, asked again before each connection."""

import contextlib
import threading
from collections.abc import Generator

from ..jetstream.endpoint import Endpoint
from .directory import DataDirectory, Durability
from .erasures import erasing
from .server import EmbeddedServer


class EmbeddedSource:
    """
    The embedded server of a directory: the first call starts it, or finds the one of another process.

    Called before each connection, it takes over when the process that ran the server has ended.
    """

    def __init__(
        self, directory: DataDirectory, *, durability: Durability, stream: str, timeout_s: float = 30.0
    ) -> None:
        self._directory, self._stream, self._timeout_s = directory, stream, timeout_s
        self._durability: Durability = durability
        self._server: EmbeddedServer | None = None
        self._thread = threading.local()

    def __call__(self) -> Endpoint:
        """
        The endpoint of a live server.

        Raises:
            ConfigurationError, LedgerLockedError, LogUnavailableError: See `EmbeddedServer.acquire`.
        """
        if self._server is not None and self._server.is_alive():
            return self._server.endpoint
        self.close()
        self._server = EmbeddedServer.acquire(
            self._directory, durability=self._durability, stream=self._stream, timeout_s=self._timeout_s
        )
        return self._server.endpoint

    @property
    def is_synced(self) -> bool:
        """Whether the server syncs what it acknowledges before it does."""
        return self._server is not None and self._server.durability == "always"

    @contextlib.contextmanager
    def erasing(self) -> Generator[None]:
        """
        Entered while messages are erased; see `erasures.erasing`. A thread that has entered it may do so again.

        Raises:
            LogUnavailableError: It could not be noted; nothing was erased.
        """
        if getattr(self._thread, "is_erasing", False):
            yield
            return
        with erasing(self._directory):
            self._thread.is_erasing = True
            try:
                yield
            finally:
                self._thread.is_erasing = False

    def close(self) -> bool:
        """Stop the server if this process runs it; whether it did, and all that the server stored is on the disk."""
        server, self._server = self._server, None
        if server is None:
            return False
        server.close()
        return server.is_settled
