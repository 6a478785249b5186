"""Where the embedded server is, asked again before each connection."""

from contextlib import AbstractContextManager

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

    def erasing(self) -> AbstractContextManager[None]:
        """Messages are erased meanwhile; see `erasures.erasing`."""
        return erasing(self._directory)

    def close(self) -> None:
        """Stop the server if this process runs it."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
