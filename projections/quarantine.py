"""Chats and threads that lost events for good: not shown as if they were whole, and not added to."""

from collections.abc import Callable

Refuse = Callable[[str], None]
"""Raises `QuarantinedError` when the stream is one of these."""


def refuse_nothing(stream: str) -> None:
    """All of them are whole."""
    del stream
