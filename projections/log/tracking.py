"""The index as a tracking recorder of the eventsourcing library: positions of projections that are kept elsewhere."""

import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Protocol, TypeVar

from eventsourcing.persistence import IntegrityError, Tracking, TrackingRecorder, WaitInterruptedError

from ..generations import Generation
from ..lmdb.environment import Transaction

T = TypeVar("T")

_POLL_S: Final = 0.05
"""The longest time between two looks: another process that shares the index may advance a position, and notifies nobody here."""


class _Tracked(Protocol):
    def tracking(self, application_name: str) -> int | None:
        """Return the tracked position of an application's projection."""
        ...


class PositionRecorder(TrackingRecorder):
    """The interface, on what an index has."""

    _advanced: threading.Condition

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[_Tracked]:
        """The index as it is now."""

    @abstractmethod
    def update(self, change: Callable[[Generation, Transaction], T]) -> T:
        """Run `change` in a write transaction."""

    def insert_tracking(self, tracking: Tracking) -> None:
        """Note a projection's position. Raises `IntegrityError` unless it is ahead of the recorded one."""

        def change(generation: Generation, txn: Transaction) -> None:
            recorded = generation.tracking(txn, tracking.application_name)
            if recorded is not None and recorded >= tracking.notification_id:
                msg = f"{tracking} is not ahead of the recorded position {recorded}"
                raise IntegrityError(msg)
            generation.put_tracking(txn, tracking.application_name, tracking.notification_id)

        self.update(change)
        with self._advanced:
            self._advanced.notify_all()

    def max_tracking_id(self, application_name: str) -> int | None:
        """The recorded position of an application's projection."""
        with self.snapshot() as snapshot:
            return snapshot.tracking(application_name)

    def wait(
        self,
        application_name: str,
        notification_id: int | None,
        timeout: float = 1.0,
        interrupt: threading.Event | None = None,
    ) -> None:
        """Wait until the recorded position has reached `notification_id`. Raises `TimeoutError` or `WaitInterruptedError`."""
        deadline = time.monotonic() + timeout
        while not self.has_tracking_id(application_name, notification_id):
            if interrupt is not None and interrupt.is_set():
                raise WaitInterruptedError
            rest = deadline - time.monotonic()
            if rest <= 0:
                msg = f"{application_name} did not reach {notification_id} within {timeout} s"
                raise TimeoutError(msg)
            with self._advanced:
                self._advanced.wait(min(rest, _POLL_S))
