"""Time travel: reading as of an earlier moment."""

from datetime import datetime

from ..scratch import Scratch
from ..time_travel import MomentStore, moment_at
from .port import LedgerPart
from .view import LedgerView


class TimeTravelMethods(LedgerPart):
    """The part of a ledger that looks back."""

    @property
    def _scratch(self) -> Scratch:
        raise NotImplementedError

    def as_of(self, moment: int | datetime) -> LedgerView:
        """
        A read-only view of the ledger as it stood at an earlier moment. Use it as a context manager, or close it.

        Args:
            moment: A position on the log, such as `Recorded.position`: after the event there; 0 is the empty ledger. Or a
                time with a time zone: of each chat the events up to it. A time in the future is now.

        Returns:
            A view that answers as this ledger did then, except for chats that were deleted since. It stays as it is while
            others write, and ends with this ledger. Costs one or two requests of the log; reading costs what the chats
            that are read have cost up to then, not what the log holds.

        Raises:
            InvalidValueError: The position is beyond the end of the log, or the time has no time zone.
            LogUnavailableError: The log did not answer.
        """
        return LedgerView(MomentStore(lambda: self._store, moment_at(self._store, moment), self._scratch))
