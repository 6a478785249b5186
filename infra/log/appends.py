"""Several commits, each of another chat, that are written at the same time."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from chatledger.domain.codec import Sealed
from chatledger.domain.errors import LogUnavailableError

if TYPE_CHECKING:
    from .port import EventLog

Outcome = list[int] | Exception
"""The positions of the events of a commit, or what `EventLog.append` raises."""


class Appends:
    """Commits that any log can write: one after the other, when all are there."""

    def __init__(self, log: "EventLog") -> None:
        self._log = log
        self._commits: list[tuple[str, Sequence[Sealed], int]] = []
        self._is_silent = False

    def add(self, chat_id: str, events: Sequence[Sealed], expected_position: int) -> None:
        """Take a commit in; see `EventLog.append`. Never waits."""
        self._commits.append((chat_id, events, expected_position))

    def finish(self) -> list[Outcome]:
        """Wait for all of them: what became of each. To be called in any case, and by the same thread."""
        return [self._write(*commit) for commit in self._commits]

    def _write(self, chat_id: str, events: Sequence[Sealed], expected_position: int) -> Outcome:
        return self._tried(chat_id, lambda: self._log.append(chat_id, events, expected_position=expected_position))

    def _tried(self, chat_id: str, write: Callable[[], list[int]]) -> Outcome:
        """What became of a commit. When the log did not answer for one, nobody waits as long for each of the others."""
        if self._is_silent:
            msg = f"chat {chat_id!r}: the log did not answer. The outcome is unknown; retrying is safe"
            return LogUnavailableError(msg)
        try:
            return write()
        except Exception as error:  # noqa: BLE001 - it is raised where that commit comes from
            self._is_silent = isinstance(error, LogUnavailableError)
            return error
