"""Several commits on their way to a stream at the same time."""

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import TYPE_CHECKING, Final

from eventsourcing.persistence import IntegrityError

from chatledger.domain.codec import Sealed
from chatledger.domain.errors import LogUnavailableError

from ..jetstream.append import Message
from ..jetstream.line_appends import NOT_SENT
from ..jetstream.line_appends import Outcome as QuickOutcome
from .appends import Appends, Outcome
from .port import LostRaceError

if TYPE_CHECKING:
    from .jetstream import ChatRecorder, JetStreamLog

_QUICK_BYTES: Final = 64 * 1024


class JetStreamAppends(Appends):
    """
    Commits of one small event are sent as they come, and acknowledged while the next ones are decided on: over a line, or side by
    side on the shared connection. Those of several events, or with large data, are written afterwards, one after the other.
    """

    def __init__(self, log: "JetStreamLog", recorder: "ChatRecorder") -> None:
        super().__init__(log)
        self._jetstream_log, self._recorder = log, recorder
        self._line = recorder.begin_quickly()
        self._sent: list[Message | Future[int] | None] = []

    def add(self, chat_id: str, events: Sequence[Sealed], expected_position: int) -> None:
        """As declared in `Appends`."""
        super().add(chat_id, events, expected_position)
        if len(events) != 1 or len(events[0].state) > _QUICK_BYTES:
            self._sent.append(None)
            return
        message = self._jetstream_log.message_of(events[0], expected_position)
        if self._line is not None:
            self._line.send(message)
            self._sent.append(message)
        else:
            self._sent.append(self._recorder.start_insert(message))

    def finish(self) -> list[Outcome]:
        """As declared in `Appends`."""
        answers = iter([] if self._line is None else self._line.finish())
        outcomes = [next(answers) if isinstance(sent, Message) else NOT_SENT for sent in self._sent]
        return [
            self._outcome(commit, sent, outcome)
            for commit, sent, outcome in zip(self._commits, self._sent, outcomes, strict=True)
        ]

    def _outcome(
        self,
        commit: tuple[str, Sequence[Sealed], int],
        sent: Message | Future[int] | None,
        outcome: QuickOutcome,
    ) -> Outcome:
        if isinstance(sent, Future):
            try:
                return self._translated(commit[0], sent.result)
            except CancelledError:
                msg = f"chat {commit[0]!r}: the ledger was closed while this was written. The outcome is unknown; retrying is safe"
                return LogUnavailableError(msg)
            except Exception as error:  # noqa: BLE001 - it is raised where that commit comes from
                return error
        if outcome.position is not None:
            return [outcome.position]
        if sent is None or not outcome.is_uncertain:
            return self._write(*commit)
        settle = partial(self._recorder.settle, sent, outcome)
        return self._tried(commit[0], partial(self._translated, commit[0], settle))

    def _translated(self, chat_id: str, find_position: Callable[[], int]) -> list[int]:
        with self._log.translated(f"chat {chat_id!r}", is_write=True):
            try:
                return [find_position()]
            except IntegrityError as error:
                raise LostRaceError from error
