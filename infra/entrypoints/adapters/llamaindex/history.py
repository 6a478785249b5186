"""
The history of a chat as LlamaIndex counts it, each message active or archived, and what its stores do to it.

A message is archived by its annotation: `{"llamaindex": {"status": "archived"}}`, with `"before": true` where all that come before
it on the chain are archived too. So archiving the oldest messages is one annotation, and reading the active ones ends there.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.storage.chat_store.base_db import MessageStatus
from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.forms.llamaindex import NAME
from chatledger.domain.forms.plain import object_at
from chatledger.domain.forms.reading import name_of
from chatledger.domain.limits import same_json
from chatledger.domain.values import Annotation, Message, NewMessage

from ....ledger.history import Commit, History, Standing, Told
from ..access import with_floats

MESSAGE_ID: Final = "message_id"
"""The key of `additional_kwargs` under which a message may have an id, which makes a repeated write one write."""
ARCHIVED: Final = Annotation(metadata={NAME: {"status": MessageStatus.ARCHIVED.value}})
"""The annotation of a message that is archived."""
_FIRST_PAGE: Final = 32
_messages: Final = TypeAdapter(list[ChatMessage])


def value_of(message: ChatMessage) -> dict[str, Any]:
    """Return a message as JSON. Raises `InvalidValueError` for what JSON does not know."""
    try:
        value = message.model_dump(mode="json")
    except PydanticSerializationError as error:
        msg = f"a message must be JSON to be stored: {error}"
        raise InvalidValueError(msg) from error
    if message.additional_kwargs:
        value["additional_kwargs"] = with_floats(value["additional_kwargs"], message.additional_kwargs)
    for block, dumped in zip(message.blocks, value["blocks"], strict=True):
        if isinstance(block, ToolCallBlock):
            dumped["tool_kwargs"] = with_floats(dumped["tool_kwargs"], block.tool_kwargs)
    return value


def draft_of(message: ChatMessage, chat_id: str, unique_id: str) -> NewMessage:
    """Return the message to store in a chat, as `value_of` makes it; its id is made of `unique_id` where it has none of its own."""
    own, value = message.additional_kwargs.get(MESSAGE_ID), value_of(message)
    message_id = f"{chat_id}:{own if isinstance(own, str) and own else unique_id}"
    return NewMessage(name_of(value, NAME), value, form=NAME, id=message_id)


class HistoryEntry(NamedTuple):
    """
    A message of the history.

    Attributes:
        value: The message as JSON.
        origin: The stored ones that it is told of.
        last: The last stored one that it and those before it are told of.
        begins: Whether no message before it is told of the same.
        ends: Whether no message behind it is told of what is stored up to `last`.
    """

    value: Any
    origin: Sequence[Standing]
    last: Standing
    begins: bool
    ends: bool
    status: MessageStatus


def entries(history: History | None, status: MessageStatus | None = None) -> list[HistoryEntry]:
    """Return the messages of a status, oldest first, all when None. Active ones cost the same however many are archived."""
    if history is None:
        return []
    length = history.branch.message_count
    for chain in history.growing(_FIRST_PAGE if status is MessageStatus.ACTIVE else length):
        if len(chain) == length or any(map(_ends_archive, chain)):
            told_of, told = history.tell(chain, NAME)
            if len(chain) == length or any(map(_ends_archive, told_of)):
                return [entry for entry in _entries(told_of, told) if status in {None, entry.status}]
    return []


def values(
    history: History | None, status: MessageStatus | None = None, start: int = 0, end: int | None = None
) -> list[Any]:
    """Return messages of a status as JSON, oldest first, from one place to before another."""
    plain = None if history is None else _plain(history, status)
    if plain is None:
        return [entry.value for entry in entries(history, status)[start:end]]
    return [] if status is MessageStatus.ARCHIVED else [message.data for message in plain[start:end]]


def count(history: History | None, status: MessageStatus | None = None) -> int:
    """Return the number of messages of a status."""
    plain = None if history is None else _plain(history, status)
    if plain is None:
        return len(entries(history, status))
    return 0 if status is MessageStatus.ARCHIVED else len(plain)


def _plain(history: History, status: MessageStatus | None) -> list[Message] | None:
    """Return the branch where each message is one of LlamaIndex, and active: nothing is translated, archived or hidden."""
    chain: list[Message] = []
    # Where many are archived, the newest ones say so.
    for chain in history.growing(_FIRST_PAGE if status is MessageStatus.ACTIVE else history.branch.message_count):
        if any(message.annotation is not None or message.form != NAME for message in chain):
            return None
    return chain


def objects_of(values: list[Any]) -> list[ChatMessage]:
    """Return messages of LlamaIndex for messages as JSON."""
    return _messages.validate_python(values)


def messages_of(entries: Iterable[HistoryEntry]) -> list[ChatMessage]:
    """Return messages of LlamaIndex for entries."""
    return objects_of([entry.value for entry in entries])


def put(commit: Commit, messages: Sequence[ChatMessage], status: MessageStatus) -> None:
    """Make messages the history, all of one status: what is new at the end is added, where something differs begins a new branch."""
    commit.begin()
    _replace(commit, entries(commit.history()), messages, status)


def delete(commit: Commit, index: int | None) -> ChatMessage | None:
    """
    Take the message at an index out of the history and return it, the newest one for None; None where there is none.

    Of several messages that are told of one, it is left out of a new branch.
    """
    history = commit.history()
    newest = _newest(history) if index is None else entries(history)
    index = -1 if index is None else index
    if not -len(newest) <= index < len(newest):
        return None
    gone = newest[index]
    [message] = messages_of([gone])
    if gone.begins and gone.ends:
        for standing in reversed(gone.origin):
            commit.remove(standing)
    else:
        whole = entries(history)
        index = index if index < 0 else index - len(whole)
        rest = messages_of([*whole[:index], *whole[len(whole) + index + 1 :]])
        _replace(commit, whole, rest, gone.status)
    return message


def clear(commit: Commit, status: MessageStatus) -> None:
    """Hide the messages of a status."""
    commit.hide(standing for entry in entries(commit.history(), status) for standing in entry.origin)


def take_oldest(commit: Commit, count: int, *, is_archived: bool) -> list[ChatMessage]:
    """
    Archive the oldest active messages, or hide them, at most `count`; returns those that were.

    Of several messages that are told of one all are taken, or none.
    """
    active = entries(commit.history(), MessageStatus.ACTIVE)
    count = max(0, min(count, len(active)))
    while count and not active[count - 1].ends:
        count -= 1
    taken = active[:count]
    if taken and is_archived:
        mark = {"status": MessageStatus.ARCHIVED.value, "before": True}
        commit.annotate([taken[-1].last.base.id], metadata={NAME: mark})
    elif taken:
        commit.hide(standing for entry in taken for standing in entry.origin)
    return messages_of(taken)


def _replace(
    commit: Commit, stored: Sequence[HistoryEntry], messages: Sequence[ChatMessage], status: MessageStatus
) -> None:
    same = 0
    values = map(value_of, messages)
    for entry, value in zip(stored, values, strict=False):
        # What is told of others' messages has not all the fields that LlamaIndex writes.
        if entry.status is not status or not (
            same_json(entry.value, value) or same_json(value_of(messages_of([entry])[0]), value)
        ):
            break
        same += 1
    while same and not stored[same - 1].ends:  # never a part of those that are told of one stored message
        same -= 1
    new = commit.with_free_ids(
        draft_of(message, commit.state.chat_id, f"{commit.unique_id}-{number}")
        for number, message in enumerate(messages[same:], same)
    )
    if same == len(stored):
        commit.append(new)
    else:
        commit.replace(stored[same - 1].last.base.id if same else None, new)
    if new and status is MessageStatus.ARCHIVED:
        commit.annotate([str(draft.id) for draft in new], metadata=ARCHIVED.metadata)


def _newest(history: History | None) -> list[HistoryEntry]:
    """Return the end of a history, empty only where all of it is. Mostly costs O(1)."""
    for chain in () if history is None else history.growing(1):
        newest = _entries(*history.tell(chain, NAME)) if history is not None else []
        if newest:
            return newest
    return []


def _entries(chain: Sequence[Message], told: Sequence[Told]) -> list[HistoryEntry]:
    places = {message.id: place for place, message in enumerate(chain)}
    archived = max((place for place, message in enumerate(chain) if _ends_archive(message)), default=-1)
    spans = [[places[standing.base.id] for standing in origin] for _, origin in told]
    following = [*accumulate(map(min, reversed(spans)), min, initial=len(chain))][-2::-1]  # the first place behind each
    listed: list[HistoryEntry] = []
    latest, last = -1, None
    for (value, origin), span, behind in zip(told, spans, following, strict=True):
        begins, end = min(span) > latest, max(span)
        if last is None or end > latest:
            latest, last = end, origin[span.index(end)]
        is_archived = end <= archived or bool(_marks(origin[-1].base))
        status = MessageStatus.ARCHIVED if is_archived else MessageStatus.ACTIVE
        listed.append(HistoryEntry(value, origin, last, begins, latest < behind, status))
    return listed


def _marks(message: Message) -> Mapping[str, Any]:
    return {} if message.annotation is None else object_at(message.annotation.metadata, NAME)


def _ends_archive(message: Message) -> bool:
    return _marks(message).get("before") is True
