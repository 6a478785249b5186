"""A log without an index: for restoring into it, and for looking at it when the ledger does not open."""

from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from ..log import EventLog
from ..store.opening.locations import Options, open_unshared


class LogOnly(Options):
    """Options with which a location gives its log."""

    def witness(self, folder: Path, log: EventLog, *, is_synced: bool = True, is_shared: bool = False) -> None:
        """Nothing is written, so nothing is noted."""


@contextmanager
def log_at(options: LogOnly) -> Generator[EventLog]:
    """Open the log that the options name. Raises `ChatledgerError` as `chatledger.open` does, where that is not about the index."""
    with closing(open_unshared(options)) as opened:
        yield opened.log
