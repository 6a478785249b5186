"""
The history of a chat as LlamaIndex counts it, each message active or archived, and what its stores do to it.

A message is archived by its annotation: `{"llamaindex": {"status": "archived"}}`, with `"before": true` where all that come before
it on the chain are archived too. So archiving the oldest messages is one annotation, and reading the active ones ends there.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, NamedTuple

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store.base_db import MessageStatus

from chatledger.domain.context.messages import object_at
from chatledger.domain.limits import same_json
from chatledger.domain.values import Annotation, Message

from ....ledger.history import Commit, History, Standing
from .messages import FORM, draft_of, messages_of, value_of

_FIRST_PAGE: Final = 32
ARCHIVED: Final = Annotation(metadata={FORM: {"status": MessageStatus.ARCHIVED.value}})
"""The annotation of a message that is archived."""


class Entry(NamedTuple):
    """A message of the history: the stored one that it comes from, and whether it is the first and the last that does."""

    standing: Standing
    is_first: bool
    is_last: bool
    message: ChatMessage
    status: MessageStatus


def entries(history: History | None, status: MessageStatus | None = None) -> list[Entry]:
    """Return the messages of a status, oldest first, all when None. Active ones cost the same however many are archived."""
    if history is None:
        return []
    first = _FIRST_PAGE if status is MessageStatus.ACTIVE else history.branch.message_count
    chain: list[Message] = []
    for chain in history.growing(first):
        if any(map(_ends_archive, chain)):
            break
    return [entry for entry in _entries(history, chain) if status in {None, entry.status}]


def put(commit: Commit, messages: Sequence[ChatMessage], status: MessageStatus) -> None:
    """Make messages the history, all of one status: what is new at the end is added, where something differs begins a new branch."""
    commit.begin()
    _replace(commit, entries(commit.history()), messages, status)


def delete(commit: Commit, index: int | None) -> ChatMessage | None:
    """
    Take the message at an index out of the history and return it, the newest one for None; None where there is none.

    Of several messages that a stored one stands for, it is left out of a new branch.
    """
    history = commit.history()
    known = _newest(history) if index is None else entries(history)
    index = -1 if index is None else index
    if not -len(known) <= index < len(known):
        return None
    gone = known[index]
    if gone.is_first and gone.is_last:
        commit.remove(gone.standing)
    else:
        whole = entries(history)
        index = index if index < 0 else index - len(whole)
        rest = [entry.message for entry in (*whole[:index], *whole[len(whole) + index + 1 :])]
        _replace(commit, whole, rest, gone.status)
    return gone.message


def clear(commit: Commit, status: MessageStatus) -> None:
    """Hide the messages of a status."""
    commit.hide(entry.standing for entry in entries(commit.history(), status))


def take_oldest(commit: Commit, count: int, *, is_archived: bool) -> list[ChatMessage]:
    """
    Archive the oldest active messages, or hide them, at most `count`; returns those that were.

    Of several messages that a stored one stands for all are taken, or none.
    """
    active = entries(commit.history(), MessageStatus.ACTIVE)
    count = max(0, min(count, len(active)))
    while count and not active[count - 1].is_last:
        count -= 1
    taken = active[:count]
    if taken and is_archived:
        mark = {"status": MessageStatus.ARCHIVED.value, "before": True}
        commit.annotate([taken[-1].standing.base.id], metadata={FORM: mark})
    elif taken:
        commit.hide(entry.standing for entry in taken)
    return [entry.message for entry in taken]


def _replace(commit: Commit, known: Sequence[Entry], messages: Sequence[ChatMessage], status: MessageStatus) -> None:
    pairs = zip(known, messages, strict=False)
    same = takewhile(
        lambda pair: pair[0].status is status and same_json(value_of(pair[0].message), value_of(pair[1])), pairs
    )
    kept = sum(1 for _ in same)
    while kept and not known[kept - 1].is_last:  # never a part of those that one stored message stands for
        kept -= 1
    new = commit.with_free_ids(
        draft_of(message, commit.state.chat_id, f"{commit.unique_id}-{number}")
        for number, message in enumerate(messages[kept:], kept)
    )
    if kept == len(known):
        commit.append(new)
    else:
        commit.replace(known[kept - 1].standing.base.id if kept else None, new)
    if new and status is MessageStatus.ARCHIVED:
        commit.annotate([str(draft.id) for draft in new], metadata=ARCHIVED.metadata)


def _newest(history: History | None) -> list[Entry]:
    """Return what the newest message that counts stands for; none in an empty history. Mostly costs O(1)."""
    if history is None:
        return []
    for chain in history.growing(1):
        found = _entries(history, chain)
        if found:
            return [entry for entry in found if entry.standing.base.id == found[-1].standing.base.id]
    return []


def _entries(history: History, chain: Sequence[Message]) -> list[Entry]:
    ends = [number for number, message in enumerate(chain) if _ends_archive(message)]
    archived = {message.id for message in chain[: ends[-1] + 1]} if ends else set[str]()
    found: list[Entry] = []
    for standing in history.standing(chain):
        is_archived = standing.base.id in archived or bool(_marks(standing.base))
        status = MessageStatus.ARCHIVED if is_archived else MessageStatus.ACTIVE
        made = messages_of(standing.message)
        found += [
            Entry(standing, place == 0, place == len(made) - 1, message, status) for place, message in enumerate(made)
        ]
    return found


def _marks(message: Message) -> Mapping[str, Any]:
    return {} if message.annotation is None else object_at(message.annotation.metadata, FORM)


def _ends_archive(message: Message) -> bool:
    return _marks(message).get("before") is True
