"""What differs between two states of one chat, such as those of two moments."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from .imported import ImportedBranch, ImportedChat, ImportedCheckpoint, ImportedMessage

T = TypeVar("T", ImportedBranch, ImportedCheckpoint)


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """
    One thing that differs. `a` and `b` are its values; None also where it is not there.

    `name` is a field of the chat (`title`, `metadata`, `active_branch`), or the name of a branch or checkpoint, whose
    values are ids of messages.
    """

    name: str
    a: Any
    b: Any
    in_a: bool = True
    in_b: bool = True


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two states of one chat, `a` and `b`: what differs, and which messages only one of them has, in log order."""

    chat: list[Difference]
    branches: list[Difference]
    checkpoints: list[Difference]
    only_a: list[ImportedMessage]
    only_b: list[ImportedMessage]

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return not any((self.chat, self.branches, self.checkpoints, self.only_a, self.only_b))


def compare_chats(a: ImportedChat | None, b: ImportedChat | None) -> Comparison:
    """Compare two states of one chat; None is one in which it is not there."""
    ids_a, ids_b = _message_ids(a), _message_ids(b)
    return Comparison(
        chat=_compare(_fields(a), _fields(b)),
        branches=_compare(
            _targets(() if a is None else a.branches, lambda branch: branch.head_message_id),
            _targets(() if b is None else b.branches, lambda branch: branch.head_message_id),
        ),
        checkpoints=_compare(
            _targets(() if a is None else a.checkpoints, lambda checkpoint: checkpoint.message_id),
            _targets(() if b is None else b.checkpoints, lambda checkpoint: checkpoint.message_id),
        ),
        only_a=[] if a is None else [message for message in a.messages if message.id not in ids_b],
        only_b=[] if b is None else [message for message in b.messages if message.id not in ids_a],
    )


def _message_ids(chat: ImportedChat | None) -> set[str]:
    return set() if chat is None else {message.id for message in chat.messages}


def _fields(chat: ImportedChat | None) -> dict[str, Any]:
    if chat is None:
        return {}
    active = next((branch.name for branch in chat.branches if branch.is_active), None)
    return {"user_id": chat.user_id, "title": chat.title, "metadata": chat.metadata, "active_branch": active}


def _targets(pointers: Iterable[T], target: Callable[[T], str | None]) -> dict[str, Any]:
    return {pointer.name: target(pointer) for pointer in pointers}


def _compare(a: dict[str, Any], b: dict[str, Any]) -> list[Difference]:
    """By name, those of `a` first, in their order."""
    return [
        Difference(name=name, a=a.get(name), b=b.get(name), in_a=name in a, in_b=name in b)
        for name in {**a, **b}
        if name not in a or name not in b or a[name] != b[name]
    ]
