"""The turns of a conversation: what a user said, and what was answered until a user spoke again."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ..errors import NotFoundError
from ..forms.items import Call, Result
from ..forms.reading import items_of
from ..values import Message
from ..wire import Value


class Exchange(Value, frozen=True, kw_only=True):
    """
    A turn of a conversation.

    Args:
        number: Which one, from 1.
        messages: All that a model gets to answer it: the conversation so far, to the last message of the user.
        said: The messages at the end of those that began the turn; several, where the user spoke several times.
        answered: What was answered then: calls of tools, their results, and what the assistant said.
    """

    number: int
    messages: list[Message]
    said: list[Message]
    answered: list[Message]

    def tool_result(self, name: str, arguments: Any) -> Any:
        """
        Return the result that a tool gave in this turn for the same arguments, so that a replay calls no tool again: text, or a JSON value.

        Raises:
            NotFoundError: It was not called like this.
        """
        items = [item for message in self.answered for item in items_of(message.form, message.data, message.name)]
        results = {what.call_id: what for item in items if isinstance(what := item.what, Result)}
        for item in items:
            call = item.what
            if isinstance(call, Call) and call.name == name and _arguments(call) == arguments and call.id in results:
                content = results[call.id].content
                return content if isinstance(content, str) else msgspec.to_builtins(content)
        msg = f"no call of the tool {name!r} with these arguments was recorded in turn {self.number}: {arguments!r}"
        raise NotFoundError(msg)


def exchanges_of(messages: Iterable[Message]) -> list[Exchange]:
    """Return the turns of a chain, which is given root first. What stands before the first message of a user belongs to it."""
    chain: list[Message] = []
    turns: list[Exchange] = []
    questions: list[Message] = []
    answered: list[Message] = []
    start = 0

    def end() -> None:
        if questions:
            turns.append(Exchange(number=len(turns) + 1, messages=chain[:start], said=questions, answered=answered))

    for message in messages:
        if is_from_user(message):
            if answered:
                end()
                questions, answered = [], []
            questions.append(message)
            start = len(chain) + 1
        elif questions:
            answered.append(message)
        chain.append(message)
    end()
    return turns


def is_from_user(message: Message) -> bool:
    """Whether a user said it: APIs send results of tools under that role too."""
    if message.role != "user":
        return False
    items = items_of(message.form, message.data, message.name)
    return not items or any(not isinstance(item.what, Result) for item in items)


def calls_in(messages: Sequence[Message]) -> list[str]:
    """Return the names of the tools that messages call, in order."""
    return [
        item.what.name
        for message in messages
        for item in items_of(message.form, message.data, message.name)
        if isinstance(item.what, Call)
    ]


def _arguments(call: Call) -> Any:
    if call.input is not msgspec.UNSET:
        return call.input
    try:
        return msgspec.json.decode(call.raw or "null")
    except (msgspec.DecodeError, RecursionError):
        return call.raw
