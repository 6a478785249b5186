"""
Errors of the JetStream module beyond those of `eventsourcing.persistence`, named by what the caller may conclude.

    InterfaceError
    ├─ LoginRefusedError      the credentials are wrong or cannot be read; nothing is retried
    └─ NotPermittedError      the login is right, and may not do that; nothing was written
    OperationalError
    ├─ OutcomeUnknownError    the append may or may not be stored; repeating it with the same ids is safe
    ├─ StorageFullError       nothing was written; space has to be made
    └─ StreamAbsentError      there is no such stream, or its encryption key is wrong; nothing is created unasked
    InternalError
    └─ DamagedLogError        the log lacks what it must have
"""

from functools import partial
from typing import Final

import msgspec
from eventsourcing.persistence import (
    DataError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    PersistenceError,
    ProgrammingError,
)

from chatledger.domain.errors import (
    AccessDeniedError,
    ChatledgerError,
    ConfigurationError,
    LogFullError,
    LogRefusedError,
    LogUnavailableError,
)

from ..errors import translated as translated_by_library

CLOSED: Final = "the connection was closed"
FORKED: Final = "this process was forked from the one that opened the connection; open another one here"


class OutcomeUnknownError(OperationalError):
    """No answer came in time. The append may be stored; it is stored at most once, whatever happens."""


class LoginRefusedError(InterfaceError):
    """The server refused the login, or it cannot be attempted: a wrong secret, an unreadable file, an unknown certificate."""


class NotPermittedError(InterfaceError):
    """The server does not let this login do that. Nothing was written."""


class StorageFullError(OperationalError):
    """The stream, the account or the server has no space left. Nothing was written."""


class StreamAbsentError(OperationalError):
    """The server has no such stream, or cannot decrypt it. It is never created unless that was asked for."""


class DamagedLogError(InternalError):
    """The log lacks a position that is known to have been stored. Stop, and restore it from a backup."""


class ConnectionLostError(Exception):
    """The connection ended while an answer was awaited, or could not be opened."""


class NoAnswerError(Exception):
    """Nobody serves this subject right now: the server is starting, there is no leader, or no such stream."""


class ApiFault(msgspec.Struct, frozen=True):
    """The `error` object of a JetStream reply."""

    code: int = 0
    err_code: int = 0
    description: str = ""

    def __str__(self) -> str:
        return f"{self.description} ({self.code}, {self.err_code})"


class ApiError(Exception):
    """JetStream refused a request."""

    def __init__(self, fault: ApiFault) -> None:
        super().__init__(str(fault))
        self.fault = fault

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed a moment later."""
        return self.fault.err_code in TRANSIENT_CODES


NOT_FOUND = 10059  # the stream
NO_MESSAGE = 10037
NAME_IN_USE = 10058
# "sequence not found" of a delete request
ALREADY_DELETED = 10043
# What a delete request gets that lost the race against another one, among other troubles of the store.
STORE_FAILED = 10057
WRONG_LAST_SEQUENCE = 10071
DUPLICATE_IN_BATCH = 10201
# The answer is the same whether the slot was taken by somebody else or by an earlier attempt of our own.
CONTESTED_CODES = frozenset({WRONG_LAST_SEQUENCE, 10164, DUPLICATE_IN_BATCH})
# 0: no code at all; 10008, 10009: the cluster has no leader yet; 10005: not enough servers of it are known yet; the rest as in the table of error codes of ADR-50.
TRANSIENT_CODES = frozenset({0, 10005, 10008, 10009, 10158, 10163, 10164, 10176, 10210})
FULL_CODES = frozenset({10077, 10023, 10047})
TOO_LARGE_CODES = frozenset({10054, 10097})
MISUSE_CODES = frozenset({10174, 10175, 10177, 10179, 10193, 10199, 10200, DUPLICATE_IN_BATCH})
UNSUPPORTED_CODES = frozenset({10198})
# Replicas without a cluster (10074), or a configuration that the server refuses (10052).
WRONG_CONFIG_CODES = frozenset({10052, 10074})


def translate(fault: ApiFault, *, doing: str) -> PersistenceError:
    """The library's error for a refusal that a retry would not change."""
    text = f"{doing}: {fault}"
    by_code = (
        (FULL_CODES, StorageFullError),
        (TOO_LARGE_CODES, DataError),
        (MISUSE_CODES, ProgrammingError),
        (UNSUPPORTED_CODES, NotSupportedError),
        (WRONG_CONFIG_CODES, InterfaceError),
        ({NOT_FOUND}, StreamAbsentError),
    )
    for codes, kind in by_code:
        if fault.err_code in codes:
            return kind(text)
    return OperationalError(text)


def special_error(error: Exception, what: str) -> ChatledgerError | None:
    """Return the ledger's error for one of this module; None for those of the library. See `..errors.Special`."""
    if isinstance(error, StorageFullError):
        return LogFullError(f"{what}: the log's storage is full: {error}. Nothing was written; free space and retry")
    if isinstance(error, StreamAbsentError):
        return ConfigurationError(
            f"the server has no {what}. If this ledger is new, ask for it: create=True, or 'chatledger import --create'. If "
            "it is not, do not: what is stored may be there under another encryption key, and creating it would delete it"
        )
    if isinstance(error, LoginRefusedError):
        return LogRefusedError(f"the log's server refused the login: {error}")
    if isinstance(error, NotPermittedError):
        return AccessDeniedError(
            f"{what}: {error}. Nothing was written; use a login that may, or see how-to/secure-nats for what each role needs"
        )
    if isinstance(error, OutcomeUnknownError):
        return LogUnavailableError(f"{what}: the log did not answer: {error}. The outcome is unknown; retrying is safe")
    return None


translated = partial(translated_by_library, special=special_error)
"""Raises errors of this module and of the library as ours, where no `EventLog` does."""
