"""Openings that must be refused."""

import threading
from pathlib import Path
from typing import Any

import pytest

import chatledger
from chatledger import (
    ConfigurationError,
    LogUnavailableError,
)


def refused(
    location: str | Path,
    error: type[ConfigurationError | LogUnavailableError],
    match: str | None = None,
    **options: Any,
) -> None:
    """Opening raises that error, and leaves neither threads nor processes."""
    before = set(threading.enumerate())
    with pytest.raises(error, match=match) as caught:
        chatledger.open(location, **options)
    assert isinstance(caught.value, error)
    left = {thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("chatledger")}
    assert not left
