"""The log, its server, and what is stored."""

from .base import ChatledgerError, ConfigurationError


class LedgerLockedError(ConfigurationError):
    """Another process owns the data directory and cannot be reached."""


class UnsupportedFormatError(ConfigurationError):
    """The data were written by a newer chatledger; upgrade to read them."""


class LogRefusedError(ConfigurationError):
    """The log's server refused the credentials."""


class LogUnavailableError(ChatledgerError):
    """
    The log did not answer in time.

    The outcome of a write may be unknown. Retrying it is safe: it happens at most once.
    """


class LogFullError(LogUnavailableError):
    """The disk, or what the server allows the log, is full. Nothing was written; free space and retry."""


class ResourceError(LogUnavailableError):
    """
    The operating system refuses what a call needs, such as a file descriptor, memory or a temporary folder.

    Stored data are not affected. Retrying is safe when the cause is gone; the message names it.
    """


class ChainIntegrityError(ChatledgerError):
    """A cycle or a dangling parent in foreign data, or a hole or mismatch in stored events."""

    def __init__(
        self, message: str, *, chat_id: str | None = None, position: int | None = None, version: int | None = None
    ) -> None:
        super().__init__(message)
        self.chat_id, self.position, self.version = chat_id, position, version


class LogRegressedError(ChainIntegrityError):
    """The log ends before a position that was already seen, so acknowledged events are gone. Nothing is written to it."""

    def __init__(self, *, last_position: int, seen_position: int) -> None:
        what = (
            f"the log ends at position {last_position}, but position {seen_position} was already seen"
            if last_position < seen_position
            else f"the event at position {seen_position} of the log is not the one that was seen there"
        )
        super().__init__(
            f"{what}: acknowledged events are missing. Restore the log from a backup. To accept the loss of a directory's log, run "
            "'chatledger doctor --repair'; of another one, remove its index and its witness"
        )
        self.last_position, self.seen_position = last_position, seen_position


class QuarantinedError(ChainIntegrityError):
    """
    A chat or thread is set apart: nothing of it is shown, and nothing is added to it. Others are served.

    It lost events that nothing could bring back, or somebody else published messages on its subject.
    """


class CorruptStateError(ChatledgerError):
    """A stored value cannot be decoded or verified. Where it is, as far as that is known, is in the attributes."""

    def __init__(
        self, message: str, *, chat_id: str | None = None, position: int | None = None, version: int | None = None
    ) -> None:
        super().__init__(message)
        self.chat_id, self.position, self.version = chat_id, position, version


class ProjectionError(ChatledgerError):
    """A custom projection can not be read: it failed, or another version of it is in use. Everything else goes on."""

    def __init__(self, name: str, reason: str, *, position: int | None = None) -> None:
        super().__init__(f"projection {name!r} {reason}")
        self.name, self.position = name, position


class LedgerClosedError(ChatledgerError):
    """The ledger was closed, or this process was forked from the one that opened it."""
