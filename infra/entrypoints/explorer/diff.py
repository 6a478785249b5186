"""The page that compares two branches, checkpoints, messages or moments of a chat."""

from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Final, Literal

from chatledger.domain.context.estimate import rough_tokens
from chatledger.domain.errors import ChatNotFoundError
from chatledger.domain.values import Branch, Chat, Checkpoint, Message
from chatledger.domain.wire import Value

from ...ledger.ledger import Ledger
from ...ledger.view import LedgerView
from ..http.routing import HttpCall, moment_of
from ..places import find_place
from .page import ExplorerPage
from .rendering import tokens_of, usage_of

_ROWS: Final = 100
_CHOICES: Final = 100
"""So many branches, and so many checkpoints, are offered; any other one can be named."""

_WORDS: Final = 500
"""The most words of a message that are compared: a comparison takes quadratic time."""

_SIMILAR: Final = 0.3
"""The least similarity, from 0 to 1, of two messages that are shown as versions of one."""

_NOW: Final = "@now"


class Side(Value, frozen=True, kw_only=True):
    """
    One side: what was named, the message that it points to, and what its messages after the common part come to.

    `tokens` are estimated from the text; `used_tokens` and `cost` are what the messages themselves say, None where none does.
    """

    kind: str
    name: str
    head_message_id: str | None
    messages: int
    tokens: int
    used_tokens: int | None
    cost: float | None


class DiffRow(Value, frozen=True, kw_only=True):
    """The messages of both sides at one depth below the common part; `is_edit` where one is a version of the other."""

    left: Message | None
    right: Message | None
    is_edit: bool


class Pointer(Value, frozen=True, kw_only=True):
    """A branch or checkpoint that points elsewhere on the other side; None where it is not there."""

    kind: Literal["branch", "checkpoint"]
    name: str
    left: str | None
    right: str | None


class Diff(Value, frozen=True, kw_only=True):
    """
    Two places of a chat and how they differ: in common, and row by row from where they part, the first 100 of them.

    `pointers` are the branches and checkpoints that moved between two moments. `choices` names what can be
    compared, the first 100 branches and checkpoints.
    """

    chat: Chat
    left: Side | None
    right: Side | None
    common: Message | None
    common_messages: int
    rows: list[DiffRow]
    left_out: int
    pointers: list[Pointer]
    choices: list[str]


def diff(call: HttpCall, chat_id: str, *, left: str = "", right: str = "") -> Diff:
    """
    Compare two places of a chat.

    Args:
        call: The request.
        chat_id: The chat.
        left: A branch, a checkpoint, the id of a message; or a moment, `@120` or `@2026-03-01T09:30:00Z`: then the head of the
            branch that was active.
        right: Likewise; `@now` is the present.
    """
    chat = call.reader.get_chat(chat_id)
    if chat is None:
        raise ChatNotFoundError(chat_id)
    names = [branch.name for branch in call.reader.list_branches(chat_id)[:_CHOICES]]
    names += [checkpoint.name for checkpoint in call.reader.list_checkpoints(chat_id)[:_CHOICES]]
    choices = list(dict.fromkeys(names))
    if not left or not right:
        return Diff(
            chat=chat,
            left=None,
            right=None,
            common=None,
            common_messages=0,
            rows=[],
            left_out=0,
            pointers=[],
            choices=choices,
        )
    ends = [_End(call, chat_id, name) for name in (left, right)]
    common, common_count, only = _parted(call.reader, ends)
    pairs = list(zip_longest(*only))
    return Diff(
        chat=chat,
        left=_side(ends[0], only[0]),
        right=_side(ends[1], only[1]),
        common=common,
        common_messages=common_count,
        rows=[_diff_row(*pair) for pair in pairs[:_ROWS]],
        left_out=max(len(pairs) - _ROWS, 0),
        # Between two branches of one moment nothing has moved.
        pointers=_moved(*ends) if all(end.is_moment for end in ends) else [],
        choices=choices,
    )


class _End:
    """One side of a comparison, and the message that it points to; of a moment also its branches and checkpoints."""

    def __init__(self, call: HttpCall, chat_id: str, name: str) -> None:
        self.name, self.is_moment = name, name.startswith("@")
        self.branches: list[Branch] = []
        self.checkpoints: list[Checkpoint] = []
        if not self.is_moment:
            self.kind, _, self.head = find_place(call.reader, chat_id, name)
            return
        self.kind = "moment"
        if name == _NOW:
            self._look(call.reader, chat_id)
            return
        moment = moment_of(name.removeprefix("@"), "the moment")
        with call.service.views.reading(call.ledger, call.principal.view, moment) as then:
            self._look(then, chat_id)

    def _look(self, reader: Ledger | LedgerView, chat_id: str) -> None:
        self.branches = [] if reader.get_chat(chat_id) is None else reader.list_branches(chat_id)
        self.checkpoints = reader.list_checkpoints(chat_id) if self.branches else []
        self.head = next((branch.head_message_id for branch in self.branches if branch.is_active), None)

    def pointers(self) -> dict[tuple[Literal["branch", "checkpoint"], str], str | None]:
        """Return the message that each branch and checkpoint points to."""
        heads: dict[tuple[Literal["branch", "checkpoint"], str], str | None] = {
            ("branch", branch.name): branch.head_message_id for branch in self.branches
        }
        for checkpoint in self.checkpoints:
            heads["checkpoint", checkpoint.name] = checkpoint.message_id
        return heads


def _moved(left: _End, right: _End) -> list[Pointer]:
    before, after = left.pointers(), right.pointers()
    return [
        Pointer(kind=kind, name=name, left=before.get((kind, name)), right=after.get((kind, name)))
        for kind, name in dict.fromkeys([*before, *after])
        if (kind, name) not in before or (kind, name) not in after or before[kind, name] != after[kind, name]
    ]


def _parted(reader: Ledger | LedgerView, ends: list[_End]) -> tuple[Message | None, int, list[list[Message]]]:
    """The last common message, how many are common, and what each side has after it."""
    heads = [end.head for end in ends]
    # An empty branch has nothing in common with any other.
    if heads[0] is None or heads[1] is None:
        return None, 0, [[] if head is None else reader.get_chain(head) for head in heads]
    divergence = reader.diff(heads[0], heads[1])
    return divergence.common, divergence.common_count, [divergence.only_a, divergence.only_b]


def _diff_row(left: Message | None, right: Message | None) -> DiffRow:
    is_edit = False
    if left is not None and right is not None and left.name == right.name:
        is_annotated = right.id == _replacement(left) or left.id == _replacement(right)
        words = SequenceMatcher(None, left.text.split()[:_WORDS], right.text.split()[:_WORDS])
        is_edit = is_annotated or words.quick_ratio() >= _SIMILAR
    return DiffRow(left=left, right=right, is_edit=is_edit)


def _replacement(message: Message) -> str | None:
    return None if message.annotation is None else message.annotation.replaced_by


def _side(end: _End, messages: list[Message]) -> Side:
    usages = [usage for message in messages if (usage := usage_of(message)) is not None]
    tokens = [count for usage in usages if (count := tokens_of(usage)) is not None]
    costs = [float(cost) for usage in usages if isinstance(cost := usage.get("cost"), int | float)]
    return Side(
        kind=end.kind,
        name=end.name,
        head_message_id=end.head,
        messages=len(messages),
        tokens=sum(rough_tokens(message.text) for message in messages),
        used_tokens=sum(tokens) if tokens else None,
        cost=sum(costs) if costs else None,
    )


PAGES: Final = (ExplorerPage("/c/{chat_id}/diff", diff, "diff.html"),)
