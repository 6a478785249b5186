"""Which streams of the log belong to threads of agents."""

from typing import Final

from ..errors import InvalidValueError
from ..graph_state.ids import STATE_PREFIX, is_state_stream
from ..rules import check_id

THREAD_PREFIX: Final = "chatledger:thread:"
"""A thread has a stream beside that of the chat of the same id. No chat id begins with this."""


def thread_stream(thread_id: str) -> str:
    """The stream of a thread."""
    return THREAD_PREFIX + check_id(thread_id, "thread_id")


def thread_of(stream: str) -> str | None:
    """The thread that a stream belongs to; None for that of a chat."""
    return stream.removeprefix(THREAD_PREFIX) if stream.startswith(THREAD_PREFIX) else None


def check_chat_id(chat_id: str) -> str:
    """An id that a new chat may have."""
    check_id(chat_id, "chat_id")
    if chat_id.startswith(THREAD_PREFIX) or is_state_stream(chat_id):
        msg = f"chat_id must not begin with {THREAD_PREFIX!r} or {STATE_PREFIX!r}, which are kept for agents"
        raise InvalidValueError(msg)
    return chat_id
