"""The page that compares two branches, checkpoints, messages or moments of chats, or the states of two threads."""

from collections.abc import Callable, Mapping
from difflib import SequenceMatcher
from itertools import takewhile, zip_longest
from statistics import fmean
from typing import Any, Final, Literal, NamedTuple

import msgspec

from chatledger.domain.chat.runs import MessageRun
from chatledger.domain.chat.turns import calls_in, is_from_user
from chatledger.domain.context.estimate import rough_tokens
from chatledger.domain.draw.state_tree import StateNode, changed_names, messages_in, state_tree
from chatledger.domain.errors import ChatNotFoundError, NotFoundError
from chatledger.domain.forms.plain import object_at
from chatledger.domain.values import Branch, Chat, Checkpoint, Message
from chatledger.domain.versioned.record import VersionRecord
from chatledger.domain.wire import Value

from ...ledger.ledger import Ledger
from ...ledger.thread_trace import agents_of, shown_values
from ...ledger.threads import IndexedVersioned, Threads
from ...ledger.view import LedgerView
from ..http.problems import RequestError
from ..http.routing import HttpCall, moment_of
from ..places import find_place
from .page import ExplorerPage, refuse_moment
from .rendering import tokens_of, usage_of

_ROWS: Final = 100
_CHOICES: Final = 100
"""So many branches, and so many checkpoints, are offered; any other one can be named."""

_OTHERS: Final = 20
"""So many other chats, and so many threads, are offered: those that changed last."""

_MOST: Final = 1000
"""Messages of each side that are read where two chats are compared: of one chat only what is not in common is."""

_FOLDED: Final = 20
_SPLITS: Final = 20
_WORDS: Final = 500
"""The most words of a message that are compared: a comparison takes quadratic time."""

_SIMILAR: Final = 0.3
"""The least similarity, from 0 to 1, of two messages that are shown as versions of one."""

_CHAT, _THREAD, _NOW = "chat:", "thread:", "@now"


class Side(Value, frozen=True, kw_only=True):
    """
    One side: what was named, what it points to, and what its messages after the common part come to.

    `head_message_id` is None for an empty branch; `chat` for a thread, whose newest checkpoint is `checkpoint_id` unless one was
    named. `tokens` are estimated from the text; `used_tokens` and `cost` are what messages say, or the runs that wrote them, None where
    none does. `took_ms` is what the runs took; of a turn without one, the time from what was asked to the last answer. `calls` of tools
    are counted. `scores` are the means of the numbers in annotations.
    """

    kind: str
    name: str
    chat: Chat | None = None
    thread_id: str | None = None
    head_message_id: str | None = None
    checkpoint_id: str | None = None
    messages: int
    turns: int = 0
    tokens: int = 0
    used_tokens: int | None = None
    cost: float | None = None
    took_ms: int | None = None
    calls: int = 0
    scores: dict[str, float] = {}  # noqa: RUF012 - each struct gets its own


class DiffRow(Value, frozen=True, kw_only=True):
    """
    A message of one side, the other one missing; or both, which stand at the same place of their turn.

    `turn` is 0 for what goes on with the last turn in common, then 1, 2 and so on. `is_edit` where one is a version of the other, and
    `is_same` where both say the same.
    """

    turn: int
    left: Message | None
    right: Message | None
    is_edit: bool = False
    is_same: bool = False


class Choice(Value, frozen=True, kw_only=True):
    """Something to compare: its name as it is sent, and the title of a chat."""

    kind: Literal["branch", "checkpoint", "moment", "chat", "thread"]
    name: str
    title: str = ""


class Pointer(Value, frozen=True, kw_only=True):
    """
    A branch or checkpoint that points elsewhere on the other side; None where it is not there.

    `left_line` and `right_line` are how the messages begin that it points to.
    """

    kind: Literal["branch", "checkpoint"]
    name: str
    left: str | None
    right: str | None
    left_line: str = ""
    right_line: str = ""


class Diff(Value, frozen=True, kw_only=True):
    """
    Two places and how they differ: in common, and row by row from where they part, the first 100 of them.

    `chat` is that of the page; None where it is of none. `common` are the last messages that both have, at most 20 of
    `common_messages`. `pointers` are the branches and checkpoints that moved between two moments, the first 100. Of two threads there is
    `states`: the right state as a tree, with what differs from the left one, and the names of the values that do. `choices` names
    what can be compared.
    """

    chat: Chat | None
    left: Side | None = None
    right: Side | None = None
    common: tuple[Message, ...] = ()
    common_messages: int = 0
    rows: tuple[DiffRow, ...] = ()
    left_out: int = 0
    pointers: tuple[Pointer, ...] = ()
    states: tuple[StateNode, ...] = ()
    changed: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = ()


def diff(call: HttpCall, chat_id: str, *, left: str = "", right: str = "", view: Literal["", "inline"] = "") -> Diff:
    """
    Compare two places of a chat, or one of it with another chat.

    Args:
        call: The request.
        chat_id: The chat.
        left: A branch, a checkpoint, the id of a message; or a moment, `@120` or `@2026-03-01T09:30:00Z`: then the head of the
            branch that was active. `chat:ID` or `chat:ID@PLACE` is another chat; `thread:ID` or `thread:ID@CHECKPOINT` a thread.
        right: Likewise; `@now` is the present.
        view: How the page shows it.
    """
    del view
    chat = call.reader.get_chat(chat_id)
    if chat is None:
        raise ChatNotFoundError(chat_id)
    return _compared(call, chat, left, right)


def compare(call: HttpCall, *, left: str = "", right: str = "", view: Literal["", "inline"] = "") -> Diff:
    """Compare two chats or two threads: `chat:ID`, `chat:ID@PLACE`, `thread:ID` or `thread:ID@CHECKPOINT`."""
    del view
    return _compared(call, None, left, right)


def _compared(call: HttpCall, chat: Chat | None, left: str, right: str) -> Diff:
    named = Diff(chat=chat, choices=_choices(call, chat))
    if not left or not right:
        return named
    if left.startswith(_THREAD) and right.startswith(_THREAD):
        refuse_moment(call)
        (before, old), (after, new) = _state_of(call, left), _state_of(call, right)
        tree = state_tree(new, old)
        return Diff(
            chat=named.chat,
            left=before,
            right=after,
            states=tuple(tree),
            changed=tuple(changed_names(tree)),
            choices=named.choices,
        )
    if left.startswith(_THREAD) or right.startswith(_THREAD):
        raise RequestError(422, "a thread is compared with a thread, a chat with a chat", name="InvalidValueError")
    ends = [_end_of(call, chat, name) for name in (left, right)]
    parting = _parted(call.reader, *ends) if ends[0].chat_id == ends[1].chat_id else _parted_chats(call.reader, *ends)
    meeting = parting.common[-1] if parting.common else None
    turns = [_turns(messages, meeting) for messages in parting.only]
    rows = _rows_of(*turns)
    sides = [_side(call, end, own, meeting) for end, own in zip(ends, turns, strict=True)]
    return Diff(
        chat=chat,
        left=sides[0],
        right=sides[1],
        common=tuple(parting.common),
        common_messages=parting.common_count,
        rows=tuple(rows[:_ROWS]),
        left_out=max(len(rows) - _ROWS, 0),
        # Between two branches of one moment nothing has moved.
        pointers=_moved(call.reader, *ends) if all(end.is_moment for end in ends) else (),
        choices=named.choices,
    )


def _choices(call: HttpCall, chat: Chat | None) -> tuple[Choice, ...]:
    """Return what can be named: places of the chat, and other chats and threads."""
    choices: list[Choice] = []
    if chat is not None:
        branches, checkpoints = call.reader.list_branches(chat.id), call.reader.list_checkpoints(chat.id)
        choices += [Choice(kind="branch", name=branch.name) for branch in branches[:_CHOICES]]
        choices += [Choice(kind="checkpoint", name=checkpoint.name) for checkpoint in checkpoints[:_CHOICES]]
        choices.append(Choice(kind="moment", name=_NOW))
    choices += [
        Choice(kind="chat", name=_CHAT + other.id, title=other.title or "")
        for other in call.reader.list_chats(limit=_OTHERS)
        if chat is None or other.id != chat.id
    ]
    if call.moment is None:
        threads = call.ledger.list_threads(limit=_OTHERS).threads
        choices += [Choice(kind="thread", name=_THREAD + info.thread_id) for info in threads]
    return tuple(choices)


def _end_of(call: HttpCall, chat: Chat | None, name: str) -> "_End":
    """Return the place that a name means: of the chat of the page, or of another one."""
    if not name.startswith(_CHAT):
        if chat is None:
            msg = f"{name!r} is of no chat: name chat:ID, chat:ID@PLACE or thread:ID"
            raise RequestError(422, msg, name="InvalidValueError")
        return _End(call, chat.id, name, name)
    chat_id, place = _split(name.removeprefix(_CHAT), lambda text: call.reader.get_chat(text) is not None)
    if call.reader.get_chat(chat_id) is None:
        raise ChatNotFoundError(chat_id)
    return _End(call, chat_id, place or _active(call.reader, chat_id), name)


def _split(text: str, is_id: Callable[[str], bool]) -> tuple[str, str]:
    """Return the id that a text begins with, and the place after `@`. An id may have that too: the longest that there is counts."""
    ends = [len(text), *(at for at in range(len(text) - 1, 0, -1) if text[at] == "@")]
    end = next((end for end in ends[:_SPLITS] if is_id(text[:end])), len(text))
    return text[:end], text[end + 1 :]


def _active(reader: Ledger | LedgerView, chat_id: str) -> str:
    branch = reader.get_active_branch(chat_id)
    assert branch is not None, "a chat has its active branch"
    return branch.name


class _End:
    """One side of a comparison, and the message that it points to; of a moment also its branches and checkpoints."""

    def __init__(self, call: HttpCall, chat_id: str, name: str, shown: str) -> None:
        self.chat_id, self.name, self.is_moment = chat_id, shown, name.startswith("@")
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
        heads: dict[tuple[Literal["branch", "checkpoint"], str], str | None] = {
            ("branch", branch.name): branch.head_message_id for branch in self.branches
        }
        for checkpoint in self.checkpoints:
            heads["checkpoint", checkpoint.name] = checkpoint.message_id
        return heads


def _moved(reader: Ledger | LedgerView, left: _End, right: _End) -> tuple[Pointer, ...]:
    before, after = left.pointers(), right.pointers()
    moved = [
        Pointer(kind=kind, name=name, left=before.get((kind, name)), right=after.get((kind, name)))
        for kind, name in dict.fromkeys([*before, *after])
        if (kind, name) not in before or (kind, name) not in after or before[kind, name] != after[kind, name]
    ][:_ROWS]
    ids = {head for pointer in moved for head in (pointer.left, pointer.right) if head is not None}
    lines = {head: message.line for head in ids if (message := reader.get_message(head)) is not None}
    return tuple(
        msgspec.structs.replace(
            pointer, left_line=lines.get(pointer.left or "", ""), right_line=lines.get(pointer.right or "", "")
        )
        for pointer in moved
    )


class _Parting(NamedTuple):
    """Parting of two paths: the last messages that both have, how many they are, and what each has after them."""

    common: list[Message]
    common_count: int
    only: tuple[list[Message], list[Message]]


def _parted(reader: Ledger | LedgerView, left: _End, right: _End) -> _Parting:
    """Return where two paths of one chat part; costs what is not in common."""
    # An empty branch has nothing in common with any other.
    if left.head is None or right.head is None:
        only = [[] if end.head is None else reader.get_chain(end.head) for end in (left, right)]
        return _Parting([], 0, (only[0], only[1]))
    divergence = reader.diff(left.head, right.head)
    common = [] if divergence.common is None else reader.get_chain(divergence.common.id, limit=_FOLDED)
    return _Parting(common, divergence.common_count, (divergence.only_a, divergence.only_b))


def _parted_chats(reader: Ledger | LedgerView, left: _End, right: _End) -> _Parting:
    """Return where paths of two chats part, whose messages are the same where they are copies, or say the same."""
    paths = [_path(reader, end) for end in (left, right)]
    count = next(
        (at for at, pair in enumerate(zip(*paths, strict=False)) if not _is_same(*pair)),
        min(len(path) for path in paths),
    )
    return _Parting(paths[0][max(count - _FOLDED, 0) : count], count, (paths[0][count:], paths[1][count:]))


def _path(reader: Ledger | LedgerView, end: _End) -> list[Message]:
    if end.head is None:
        return []
    return [entry.message for entry in reader.get_page(end.chat_id, along=end.head, first=0, limit=_MOST).entries]


def _is_same(left: Message, right: Message) -> bool:
    return (left.copied_from or left.id) == (right.copied_from or right.id) or (left.name, left.text) == (
        right.name,
        right.text,
    )


def _turns(messages: list[Message], before: Message | None) -> list[list[Message]]:
    """Return messages by turns, as `exchanges_of` has them; the first are those of the turn that what is in common ends in, if any."""
    turns: list[list[Message]] = [[]]
    was_user = before is not None and is_from_user(before)
    for message in messages:
        is_user = is_from_user(message)
        if is_user and not was_user:
            turns.append([])
        turns[-1].append(message)
        was_user = is_user
    return turns


def _rows_of(left: list[list[Message]], right: list[list[Message]]) -> list[DiffRow]:
    """Return the rows of turns: of each what was asked from its beginning on, and what was answered so that the last answers are level."""
    rows: list[DiffRow] = []
    for turn, sides in enumerate(zip_longest(left, right, fillvalue=list[Message]())):
        questions = [list(takewhile(is_from_user, messages)) for messages in sides]
        answered = [messages[len(own_questions) :] for messages, own_questions in zip(sides, questions, strict=True)]
        most = max(map(len, answered))
        level = [[*[None] * (most - len(messages)), *messages] for messages in answered]
        for ours, theirs in (*zip_longest(*questions), *zip(*level, strict=True)):
            if ours is not None and theirs is not None and ours.name == theirs.name:
                is_same = bool(ours.text) and ours.text == theirs.text
                is_edit = not is_same and _is_version(ours, theirs)
                rows.append(DiffRow(turn=turn, left=ours, right=theirs, is_edit=is_edit, is_same=is_same))
            else:
                rows += [DiffRow(turn=turn, left=ours, right=None)] if ours is not None else []
                rows += [DiffRow(turn=turn, left=None, right=theirs)] if theirs is not None else []
    return rows


def _is_version(left: Message, right: Message) -> bool:
    words = SequenceMatcher(None, left.text.split()[:_WORDS], right.text.split()[:_WORDS])
    is_annotated = right.id == _replacement(left) or left.id == _replacement(right)
    return is_annotated or (bool(left.text) and words.quick_ratio() >= _SIMILAR)


def _replacement(message: Message) -> str | None:
    return None if message.annotation is None else message.annotation.replaced_by


def _side(call: HttpCall, end: _End, turns: list[list[Message]], before: Message | None) -> Side:
    messages = [message for turn in turns for message in turn]
    # Runs are known as they are now: what a past page shows of them would be of the future.
    is_now = call.moment is None and messages
    runs = {run.message_id: run for run in call.ledger.runs(end.chat_id)} if is_now else {}
    usages = [usage for message in messages if (usage := _usage(message, runs.get(message.id))) is not None]
    tokens = [count for usage in usages if (count := tokens_of(usage)) is not None]
    costs = [float(cost) for usage in usages if isinstance(cost := usage.get("cost"), int | float)]
    times = [time for turn in turns if (time := _took(turn, runs, before)) is not None]
    scores: dict[str, list[float]] = {}
    for annotation in (message.annotation for message in messages if message.annotation is not None):
        for label, value in annotation.metadata.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                scores.setdefault(label, []).append(value)
    return Side(
        kind=end.kind,
        name=end.name,
        chat=call.reader.get_chat(end.chat_id),
        head_message_id=end.head,
        messages=len(messages),
        turns=sum(map(bool, turns)),
        tokens=sum(rough_tokens(message.text) for message in messages),
        used_tokens=sum(tokens) if tokens else None,
        cost=sum(costs) if costs else None,
        took_ms=sum(times) if times else None,
        calls=len(calls_in(messages)),
        scores={label: fmean(values) for label, values in scores.items()},
    )


def _usage(message: Message, run: MessageRun | None) -> Mapping[str, Any] | None:
    """Return the usage of a message; where it says nothing, what the run that wrote it says."""
    usage = usage_of(message)
    if usage is not None or run is None:
        return usage
    return {**object_at(run.metadata, "usage"), **{key: run.metadata[key] for key in ("cost",) if key in run.metadata}}


def _took(turn: list[Message], runs: Mapping[str | None, MessageRun], before: Message | None) -> int | None:
    """Return how long a turn was answered, in ms; None where that is not known."""
    ended = [run for message in turn if (run := runs.get(message.id)) is not None and run.is_ended]
    if ended:
        return sum(run.updated_at - run.created_at for run in ended)
    questions = list(takewhile(is_from_user, turn))
    question = questions[-1] if questions else before
    if question is None or len(turn) == len(questions):
        return None
    return max(turn[-1].created_at - question.created_at, 0) or None


def _state_of(call: HttpCall, name: str) -> tuple[Side, dict[str, Any]]:
    """Return a thread, or one of its checkpoints, as a side, and the values of its state."""

    def is_thread(text: str) -> bool:
        with Threads(call.ledger).reading(text) as thread:
            return thread.record is not None

    key, checkpoint_id = _split(name.removeprefix(_THREAD), is_thread)
    with Threads(call.ledger).reading(key) as thread:
        record = _checkpoint_of(thread, checkpoint_id)
        if record is None:
            msg = f"there is no thread {key!r}, or it has no checkpoint {checkpoint_id or 'yet'!r}"
            raise NotFoundError(msg)
        values = shown_values(thread, record)
    side = Side(
        kind="thread",
        name=name,
        thread_id=key,
        checkpoint_id=record.id,
        messages=len(messages_in(values)),
    )
    return side, values


def _checkpoint_of(thread: IndexedVersioned, checkpoint_id: str) -> VersionRecord | None:
    if thread.record is None:
        return None
    names = agents_of(thread.lines())
    if checkpoint_id:
        records = (thread.version(name, checkpoint_id) for name in names)
        return next((record for record in records if record is not None and record.skeleton is None), None)
    newest = filter(None, map(thread.newest, names))
    return max(newest, key=lambda record: (record.stored_at, record.id), default=None)


PAGES: Final = (
    ExplorerPage("/c/{chat_id}/diff", diff, "diff.html"),
    ExplorerPage("/compare", compare, "diff.html"),
)
