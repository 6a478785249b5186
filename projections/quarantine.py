"""Chats and threads that are not shown as if they were whole, and not added to: they lost events, or have foreign messages."""

import logging
from collections.abc import Callable
from typing import Final

from chatledger.domain.agents.streams import thread_of
from chatledger.domain.events import Recorded

Refuse = Callable[[str], None]
"""Raises `QuarantinedError` when the stream is one of these."""

_logger: Final = logging.getLogger(__name__)


def refuse_nothing(stream: str) -> None:
    """All of them are whole."""
    del stream


def describe_foreign(stream: str, position: int, why: str) -> str:
    """What to say of a stream that has a foreign message on its subject."""
    thread = thread_of(stream)
    what = f"chat {stream!r}" if thread is None else f"thread {thread!r}"
    return (
        f"{what} is in quarantine: at position {position} of the log, on its subject, stands a message that is not of it: {why}. "
        "Nothing of it is shown or added until 'chatledger doctor --repair' has removed the message"
    )


def pass_over(recorded: Recorded, why: str) -> None:
    """Report a foreign message, which is passed over."""
    whose = (
        f"on the subject of {recorded.chat_id!r}, which is refused from now on" if recorded.chat_id else "of no chat"
    )
    _logger.warning(
        "position %d of the log holds a message that is no event of chatledger, %s: %s. 'chatledger doctor --repair' removes it",
        recorded.position,
        whose,
        why,
    )
