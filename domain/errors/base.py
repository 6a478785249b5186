"""What all errors have in common, and the classes that others are kinds of."""

from collections.abc import Callable
from typing import Any


def _rebuild(cls: type["ChatledgerError"], message: str, facts: dict[str, Any]) -> "ChatledgerError":
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(facts)
    return error


class ChatledgerError(Exception):
    """Base of every error that chatledger raises on purpose."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # The default calls the class with `args`, which most of these classes do not take.
        return _rebuild, (type(self), str(self), dict(self.__dict__))


class InvalidValueError(ChatledgerError, ValueError):
    """An id, name, number or JSON value breaks a rule. Nothing was written."""


class NotFoundError(ChatledgerError, LookupError):
    """There is no such thing, or it is not yours to see."""


class AlreadyExistsError(ChatledgerError):
    """The name or id is taken. Nothing was written."""


class ConflictError(ChatledgerError):
    """Somebody else was faster. Nothing was written; read again and decide anew."""


class AccessDeniedError(ChatledgerError):
    """This identity may not do that."""


class ConfigurationError(ChatledgerError):
    """The ledger cannot be opened like this. Nothing was changed."""
