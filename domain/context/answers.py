"""Answers: which messages of a chain are the answer that ends it, and which message that answers."""

from collections.abc import Iterable

from ..forms.items import Result
from ..forms.reading import items_of
from ..values import Message
from .messages import ASSISTANT
from .summary import is_real_user_message


def answered_message(newest_first: Iterable[Message]) -> Message | None:
    """
    Return the message that the last answer of a chain follows; None for an answer at the root, and for an empty chain.

    An answer is all that one assistant said since the last message that a user wrote: its calls of tools, their results, and
    what a program put in between are parts of it. After an answer of another agent it begins anew. Without an answer
    at the end of the chain it is the last message: that is still to be answered.

    Args:
        newest_first: The chain from its end, of which no more is taken than the answer and what it follows.
    """
    answer: Message | None = None
    followed: Message | None = None
    is_next = True
    for message in newest_first:
        if is_next:
            followed, is_next = message, False
        if message.name == ASSISTANT:
            if answer is not None and message.agent_id != answer.agent_id:
                break
            answer, followed, is_next = message, None, True
        elif is_real_user_message(message):
            # Some APIs pass the results of tools as messages of the user: those are parts of the answer.
            items = items_of(message.form, message.data, message.name)
            if not items or not all(isinstance(item.what, Result) for item in items):
                break
    return followed
