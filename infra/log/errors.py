"""Errors of the recorders of the eventsourcing library, translated into ours."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from eventsourcing.domain import EventSourcingError
from eventsourcing.persistence import DataError, InterfaceError, InternalError

from chatledger.domain.errors import (
    ChainIntegrityError,
    ChatledgerError,
    ConfigurationError,
    CorruptStateError,
    InvalidValueError,
    LogUnavailableError,
)

Special = Callable[[Exception, str], ChatledgerError | None]
"""Return our error for one that only this kind of log has, given what it was about; None for those of the library."""


@contextmanager
def translated(what: str, *, is_write: bool = False, special: Special | None = None) -> Generator[None]:
    """
    Raise errors of the eventsourcing library as ours, by what the caller may conclude; see `ledger_error`.

    Args:
        what: The part of the log that an error message names.
        is_write: Whether an event is written. Only then is data that the log refuses an `InvalidValueError`.
        special: Asked first.
    """
    try:
        yield
    except ChatledgerError:
        raise
    except (EventSourcingError, OSError) as error:
        raise ledger_error(error, what, is_write=is_write, special=special) from error


def ledger_error(
    error: Exception, what: str, *, is_write: bool = False, special: Special | None = None
) -> ChatledgerError:
    """Return our error for one of a recorder; see `translated`."""
    own_error = None if special is None else special(error, what)
    if own_error is not None:
        return own_error
    if isinstance(error, InternalError):
        return ChainIntegrityError(
            f"{what}: stored events are missing or damaged: {error}. Restore the log from a backup"
        )
    # The same error means two things: what we wrote is refused, or what we read is not ours.
    if isinstance(error, DataError) and is_write:
        return InvalidValueError(f"{what}: the log does not take it: {error}. Nothing was written")
    if isinstance(error, DataError):
        return CorruptStateError(
            f"{what}: the log holds what is no event of ours: {error}. 'chatledger doctor' says more"
        )
    if isinstance(error, InterfaceError):
        return ConfigurationError(f"the log cannot be used: {error}")
    return LogUnavailableError(f"{what}: the log did not answer: {error}.")
