"""
From loose records to a tree: parents first, no cycles, a branch for every leaf.

All walks are loops, never recursion, and visit each message a bounded number of times: conversations may be deep.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import msgspec

from ..errors import ChainIntegrityError, InvalidValueError
from ..limits import MAX_UNPACKED_BYTES
from ..packing import pack_message
from ..values import MAIN
from .import_fit import describe_id_fault, fit_message
from .interchange import ImportedBranch, ImportedCheckpoint, ImportedMessage, Problem

T = TypeVar("T")


class Reporter:
    """The problems of one source. Messages name chats, messages and lines, never content or user ids."""

    def __init__(
        self,
        source: str,
        *,
        strict: bool,
        on_problem: Callable[[Problem], None],
        max_unpacked_bytes: int = MAX_UNPACKED_BYTES,
        line: int | None = None,
    ) -> None:
        self.source, self.max_unpacked_bytes, self.line = source, max_unpacked_bytes, line
        self._strict = strict
        self._on_problem = on_problem

    def within(self, member: str) -> "Reporter":
        """Return a reporter for a file inside this one."""
        return Reporter(
            f"{self.source}, {member}",
            strict=self._strict,
            on_problem=self._on_problem,
            max_unpacked_bytes=self.max_unpacked_bytes,
        )

    def at(self, line: int | None) -> "Reporter":
        """Return a reporter for the record in a line, which problems without a line of their own are located at."""
        return Reporter(
            self.source,
            strict=self._strict,
            on_problem=self._on_problem,
            max_unpacked_bytes=self.max_unpacked_bytes,
            line=line,
        )

    def broken(self, message: str, *, line: int | None = None) -> None:
        """A record that cannot be used as it stands. Raises InvalidValueError when reading strictly."""
        self._report(message, line, InvalidValueError)

    def incomplete(self, message: str, *, line: int | None = None) -> None:
        """Something that the source had is missing: it was cut off. Raises InvalidValueError when reading strictly."""
        self._report(message, line, InvalidValueError, is_incomplete=True)

    def unlinked(self, message: str, *, line: int | None = None) -> None:
        """A reference that leads nowhere, or in a circle. Raises ChainIntegrityError when reading strictly."""
        self._report(message, line, ChainIntegrityError)

    def _report(
        self,
        message: str,
        line: int | None,
        error: type[InvalidValueError | ChainIntegrityError],
        *,
        is_incomplete: bool = False,
    ) -> None:
        line = self.line if line is None else line
        problem = Problem(source=self.source, line=line, message=message, is_incomplete=is_incomplete)
        if self._strict:
            raise error(str(problem).removesuffix("; skipped"))
        self._on_problem(problem)


class LostMessage(NamedTuple):
    """A message that was skipped, with its parent: those that name it go to that instead."""

    id: str
    parent_id: str | None


class LinkedMessages(NamedTuple):
    """The messages of a chat, parents first, and for each that was skipped the nearest one above it that was kept."""

    messages: tuple[ImportedMessage, ...]
    instead: Mapping[str, str | None] = {}


Located = tuple[ImportedMessage | LostMessage, int | None]
_SHOWN_IDS = 5


def sort_parents_first(
    parents: Mapping[str, str | None], *, on_fault: Callable[[str, str], None]
) -> dict[str, str | None]:
    """
    Order messages so that every parent comes before its children, otherwise as given.

    A parent that is not among the keys is cut off. Of a cycle, the member given first is cut off from its parent. Each cut
    is told to `on_fault(message_id, description)` before it is made, so raising there refuses instead.

    Returns:
        The parent of each message after the cuts, in the new order.

    """
    rank = {message_id: number for number, message_id in enumerate(parents)}
    links = dict(parents)
    placed: dict[str, str | None] = {}
    for start in parents:
        path: dict[str, None] = {}
        at: str | None = start
        while at is not None and at not in placed:
            if at in path:
                walked = list(path)
                cycle = walked[walked.index(at) :]
                first = min(cycle, key=rank.__getitem__)
                shown = ", ".join(repr(member) for member in cycle[:_SHOWN_IDS])
                more = ", ..." if len(cycle) > _SHOWN_IDS else ""
                on_fault(first, f"{len(cycle)} message(s) are their own ancestors: {shown}{more}")
                links[first] = None
                # Every walk ends in one cycle at most, so it starts again at most once.
                path, at = {}, start
                continue
            path[at] = None
            parent = links[at]
            if parent is not None and parent not in links:
                on_fault(at, f"message {at!r} names the parent {parent!r}, which is not there")
                links[at] = parent = None
            at = parent
        for message_id in reversed(path):
            placed[message_id] = links[message_id]
    return placed


def link_messages(chat_id: str, records: Iterable[Located], *, report: Reporter) -> LinkedMessages:
    """
    The messages of one chat, parents first, each of them as a ledger takes it.

    Repeated records are dropped. A record whose id is taken by other content, or that holds a value which a ledger refuses, is reported and dropped; what names it as its parent goes to the nearest message above that was kept. A
    message whose parent is missing, and the first member of a cycle, are reported and become roots.
    """
    messages: dict[str, ImportedMessage] = {}
    lost: dict[str, str | None] = {}
    lines: dict[str, int | None] = {}
    for record, line in records:
        tell_broken = partial(report.broken, line=line)
        message = None if isinstance(record, LostMessage) else fit_message(chat_id, record, tell_broken)
        if message is None:
            lost.setdefault(record.id, record.parent_id)
            continue
        if message.id not in messages:
            messages[message.id], lines[message.id] = message, line
        elif not _is_same(messages[message.id], message):
            report.broken(f"message {message.id!r} appears again with other content; the first one counts", line=line)

    def tell(message_id: str, fault: str) -> None:
        report.unlinked(f"{fault}; {message_id!r} becomes a root of chat {chat_id!r}", line=lines[message_id])

    instead = {key: _nearest_linked(key, messages, lost) for key in lost if key not in messages}
    parents = {
        key: None if message.parent_id is None else instead.get(message.parent_id, message.parent_id)
        for key, message in messages.items()
    }
    linked: list[ImportedMessage] = []
    for key, parent_id in sort_parents_first(parents, on_fault=tell).items():
        message = messages[key]
        linked.append(
            message if message.parent_id == parent_id else msgspec.structs.replace(message, parent_id=parent_id)
        )
    return LinkedMessages(tuple(linked), instead)


def _nearest_linked(lost_id: str, linked: Container[str], lost: dict[str, str | None]) -> str | None:
    path: dict[str, None] = {}
    at: str | None = lost_id
    while at is not None and at not in linked and at in lost and at not in path:
        path[at] = None
        at = lost[at]
    nearest = None if at in path else at
    # The path is shortened, so that a long chain of lost messages is walked once and not once for each of them.
    for step in path:
        lost[step] = nearest
    return nearest


def _is_same(message: ImportedMessage, other: ImportedMessage) -> bool:
    # Encoded, because True equals 1 in Python and differs in JSON.
    try:
        return pack_message(message) == pack_message(other)
    except RecursionError:
        return False


def branch_leaves(messages: Sequence[ImportedMessage], *, main_head: str | None) -> tuple[ImportedBranch, ...]:
    """An active `main` at the given head, and `main-v2`, `main-v3`, ... for the other leaves in the order of the messages."""
    parents = {message.parent_id for message in messages}
    others = [message.id for message in messages if message.id not in parents and message.id != main_head]
    return (
        ImportedBranch(name=MAIN, head_message_id=main_head, is_active=True),
        *(ImportedBranch(name=f"{MAIN}-v{number}", head_message_id=leaf) for number, leaf in enumerate(others, 2)),
    )


def repair_branches(
    chat_id: str,
    branches: Iterable[tuple[ImportedBranch, int | None]],
    linked: LinkedMessages,
    *,
    report: Reporter,
) -> tuple[ImportedBranch, ...]:
    """Named branches as stored, without those that point nowhere, and with exactly one active."""
    messages, instead = linked
    message_ids = {message.id for message in messages}
    usable: dict[str, ImportedBranch] = {}
    has_active = False
    for branch, line in branches:
        what = f"branch {branch.name!r} of chat {chat_id!r}"
        head = branch.head_message_id
        if head is not None and head in instead:
            branch = msgspec.structs.replace(branch, head_message_id=instead[head])  # noqa: PLW2901  # the same branch
            report.unlinked(f"the head {head!r} of {what} was skipped; it ends at {instead[head]!r}", line=line)
        if describe_id_fault(branch.name) is not None or branch.name in usable:
            report.broken(f"{what} has an empty, impossible or repeated name; skipped", line=line)
        elif branch.head_message_id is not None and branch.head_message_id not in message_ids:
            report.unlinked(f"the head {branch.head_message_id!r} of {what} is not there; branch skipped", line=line)
        elif branch.is_active and has_active:
            report.broken(f"{what} is active besides another one; imported as inactive", line=line)
            usable[branch.name] = msgspec.structs.replace(branch, is_active=False)
        else:
            usable[branch.name] = branch
            has_active = has_active or branch.is_active
    if not usable:
        report.broken(f"chat {chat_id!r} has no usable branch; one is made for each leaf")
        # Parents come first, so nothing follows from the last message.
        return branch_leaves(messages, main_head=messages[-1].id if messages else None)
    if not has_active:
        chosen = MAIN if MAIN in usable else next(iter(usable))
        report.broken(f"chat {chat_id!r} has no active branch; {chosen!r} becomes active")
        usable[chosen] = msgspec.structs.replace(usable[chosen], is_active=True)
    return tuple(usable.values())


def repair_checkpoints(
    chat_id: str,
    checkpoints: Iterable[tuple[ImportedCheckpoint, int | None]],
    messages: Sequence[ImportedMessage],
    *,
    report: Reporter,
) -> tuple[ImportedCheckpoint, ...]:
    """Checkpoints as stored, without those that point nowhere."""
    linked = Linked[ImportedCheckpoint]("checkpoint", chat_id, messages, report, key="name")
    for checkpoint, line in checkpoints:
        linked.take(checkpoint.name, checkpoint, [checkpoint.message_id], line)
    return tuple(linked.items.values())


class Linked(Generic[T]):
    """Items that have names or ids of their own and name messages that are there; the rest is reported."""

    def __init__(
        self, what: str, chat_id: str, messages: Sequence[ImportedMessage], report: Reporter, *, key: str = "id"
    ) -> None:
        self._what, self._chat_id, self._report, self._key = what, chat_id, report, key
        self._message_ids = {message.id for message in messages}
        self.items: dict[str, T] = {}

    def take(self, item_id: str, item: T, named: Iterable[str | None], line: int | None) -> None:
        what = f"{self._what} {item_id!r} of chat {self._chat_id!r}"
        lost = lost_message(self._message_ids, named)
        if describe_id_fault(item_id) is not None or item_id in self.items:
            self._report.broken(f"{what} has an empty, impossible or repeated {self._key}; skipped", line=line)
        elif lost is not None:
            self._report.unlinked(f"the message {lost!r} of {what} is not there; skipped", line=line)
        else:
            self.items[item_id] = item


def lost_message(message_ids: Container[str], named: Iterable[str | None]) -> str | None:
    """The first named message that is not there."""
    return next((message_id for message_id in named if message_id is not None and message_id not in message_ids), None)
