"""A log without an index: for restoring into it, and for looking at it when the ledger does not open."""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from .locations import Options, open_unshared
from .log import EventLog
from .log.witness import Witness
from .store import Store


class LogOnly(Options):
    """Options with which a location gives its log, and where its index would lie."""

    log: EventLog
    index_folder: Path
    _on_close: tuple[Callable[[], object], ...] = ()

    def witness(self, folder: Path, log: EventLog, *, is_synced: bool = True, is_shared: bool = False) -> None:
        """Nothing is written, so nothing is noted."""

    def store(
        self, log: EventLog, index: Path, *on_close: Callable[[], object], witness: Witness | None = None
    ) -> Store:
        """Keep the log; no index is opened."""
        del witness
        self.log, self.index_folder, self._on_close = log, self.index or index, on_close
        return cast("Store", None)

    def close(self) -> None:
        """Close the log, and stop its server if it is ours."""
        self.log.close()
        for action in self._on_close:
            action()


@contextmanager
def log_at(location: str | os.PathLike[str], options: LogOnly) -> Generator[EventLog]:
    """The log at a location. Raises `ChatledgerError` as `chatledger.open` does, where that is not about the index."""
    open_unshared(location, options)
    try:
        yield options.log
    finally:
        options.close()
