"""Parts of `chatledger` that need the packages of an extra."""

from collections.abc import Generator
from contextlib import contextmanager

from .errors import ConfigurationError


@contextmanager
def needing(extra: str, what: str) -> Generator[None]:
    """Import what needs an extra. A package that is not there is a `ConfigurationError`; faults of our own modules stay what they are."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").startswith("chatledger"):
            raise
        # Only imports that find nothing name it: psycopg without libpq, say, raises a text.
        msg = f"{what} needs {error.name or f'what does not import here ({error})'}: pip install 'chatledger[{extra}]'"
        raise ConfigurationError(msg) from error
