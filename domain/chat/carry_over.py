"""
Carrying a conversation over to the branch of an edit: the messages after the edited one that the edit does not make stale.

The branch is laid out when a regeneration begins, in stretches: messages that are carried over, then the runs whose answers
follow them. A stretch is copied when all runs of the stretches before it are completed, so that the branch grows in order.
The id of a copy follows from that of its original, so that nothing is carried over twice.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from ..errors import InvalidValueError, MessageConflictError
from ..values import MAIN_NUMBER, Annotation, Branch, Message
from .decide_branches import decide_fork
from .decide_messages import find_branch
from .events import Body, BranchCreated, MessagesAppended, RunRecorded
from .history import annotation_events
from .redaction import notes_of_copy, redaction_in
from .runs import CarryOver, MessageRun, PlannedRun, RegenerationPlan, RegenerationRecord, Stretch, copy_id
from .state import ChatState

_ON_THE_WAY: Final = frozenset({"assistant", "tool"})
"""The names of messages that an agent writes before its answer: calls of tools, and their results."""
_MAX_EVENTS: Final = 400
"""Of runs and annotations in one commit, so that it stays below what a log takes at once."""


def lay_out(
    edited_message_id: str, chain: Sequence[Message], runs: Sequence[PlannedRun], produced: Container[str]
) -> tuple[Stretch, ...]:
    """
    Return the stretches of the branch that replaces a chain.

    A run stands where its answer stood, but never before the runs that it needs; one without an answer after its trigger. A
    stale answer is left out with what the same agent said right before it: calls of tools and their results, which no run
    produced by themselves. Where an agent answered the edited message only on other branches, its last run stands here, unless
    the agent says something here that is carried over: it said that without knowing of such an answer.

    Args:
        edited_message_id: The message that was edited.
        chain: The messages that followed it, oldest first.
        runs: The runs to repeat, in the order in which they were recorded.
        produced: The messages that any run of the chat produced.
    """
    left_out = _left_out(chain, runs, produced)
    by_level = _levels(edited_message_id, chain, runs, left_out)
    stretches: list[Stretch] = []
    now = Stretch()
    for level in range(len(chain) + 1):
        if level and (message := chain[level - 1]).id not in left_out:
            # A stretch names its ends only, so it has no holes; and what follows an answer waits for it.
            if now.run_ids or now.last not in {None, message.parent_id}:
                stretches.append(now)
                now = Stretch()
            now = Stretch(first=now.first or message.id, last=message.id)
        if level in by_level:
            now = msgspec.structs.replace(now, run_ids=(*now.run_ids, *by_level[level]))
    return (*stretches, now) if now != Stretch() else tuple(stretches)


def _levels(
    edited_message_id: str, chain: Sequence[Message], runs: Sequence[PlannedRun], left_out: Container[str]
) -> Mapping[int, list[str]]:
    """Return the run ids that stand after the n-th message of a chain, by n; 0 is before the first."""
    positions: dict[str | None, int] = {message.id: number for number, message in enumerate(chain, 1)}
    positions[edited_message_id] = 0
    level_by_answer: dict[str | None, int] = {}
    level_by_run: dict[str | None, int] = {}
    run_ids_by_level: defaultdict[int, list[str]] = defaultdict(list)
    agents_answering_here: set[str] = set()
    last_run_elsewhere: dict[str, tuple[int, str]] = {}
    for run in runs:
        # Never before the new answers that the run is to read, nor before the run whose memory it goes on from.
        level = max(level_by_answer.get(message_id, 0) for message_id in (run.trigger_message_id, *run.references))
        level = max(level, level_by_run.get(run.remembers, 0))
        # Where runs refer to each other in circles, a run may have produced the edited message: that is no answer to wait for.
        answer = None if run.message_id == edited_message_id else run.message_id
        # Where its answer stood; a run that had none stands after its trigger, or what it refers to where it has none.
        anchors: Sequence[str | None] = [answer]
        if run.message_id is None:
            anchors = run.references if run.trigger_message_id is None else [run.trigger_message_id]
        anchor_positions = [positions[message_id] for message_id in anchors if message_id in positions]
        if anchor_positions:
            level = max(level, *anchor_positions)
            run_ids_by_level[level].append(run.run_id)
        if run.trigger_message_id == edited_message_id:
            if anchor_positions:
                agents_answering_here.add(run.assistant_id)
            else:
                # Of several attempts on other branches only the last is repeated: the branch needs one answer of an agent.
                last_run_elsewhere[run.assistant_id] = level, run.run_id
        level_by_run[run.run_id] = level
        if answer is not None:
            # Several runs may have produced one message; what reads it waits for all of them.
            level_by_answer[answer] = max(level_by_answer.get(answer, 0), level)
    # An agent's memory at a carried message does not have the new answer; before it, the branch would say what the agent does not know.
    agents_carried_over = {message.agent_id for message in chain if message.id not in left_out}
    for assistant_id, (level, run_id) in last_run_elsewhere.items():
        if assistant_id not in agents_answering_here and assistant_id not in agents_carried_over:
            run_ids_by_level[level].append(run_id)
    return run_ids_by_level


def _left_out(chain: Sequence[Message], runs: Sequence[PlannedRun], produced: Container[str]) -> set[str]:
    # None: the messages on the way to an answer may name no agent.
    agents_by_answer: defaultdict[str, set[str | None]] = defaultdict(lambda: {None})
    for run in runs:
        if run.message_id is not None:
            agents_by_answer[run.message_id].add(run.assistant_id)
    left_out: set[str] = set()
    agents_of_turn: Collection[str | None] = ()
    # Backwards, as calls and results come before the answer that makes them stale.
    for message in reversed(chain):
        if message.id in agents_by_answer:
            agents_of_turn = {*agents_by_answer[message.id], message.agent_id}
        elif message.name not in _ON_THE_WAY or message.id in produced or message.agent_id not in agents_of_turn:
            agents_of_turn = ()
            continue
        left_out.add(message.id)
    return left_out


class Target(NamedTuple):
    """The branch that a regeneration builds, with the event that creates it if it is new. `carries` is None if nothing is carried over."""

    carries: CarryOver | None = None
    number: int = MAIN_NUMBER
    head_message_id: str | None = None
    bodies: tuple[BranchCreated, ...] = ()


def decide_target(
    state: ChatState, plan: RegenerationPlan, *, new_message_id: str, branch: str | None, branch_id: str, now: int
) -> Target:
    """
    Find or create the branch that a regeneration builds, and lay out the messages that it carries over.

    The branch is the one named, else the one that ends with the new message, else a new one there. The messages are those
    after the edited one on the branch seen last that has it. None are carried over where the new message comes after the edited
    one on the same chain, since the conversation is there already.

    Raises:
        BranchNotFoundError: There is no branch of the name given.
        InvalidValueError: It does not contain the new message.
    """
    edited = plan.edited_message_id
    named = None if branch is None else find_branch(state, branch)
    if named is not None and not _contains(state, named, new_message_id):
        msg = f"branch {branch!r} of chat {state.chat_id!r} does not contain the new message {new_message_id!r}"
        raise InvalidValueError(msg)
    if edited != new_message_id and state.is_ancestor(edited, new_message_id):
        return Target()
    seen = state.branches_seen()
    target = named or next((stored for stored in seen if stored.head_message_id == new_message_id), None)
    source = next((stored for stored in seen if stored != target and _contains(state, stored, edited)), None)
    chain: list[Message] = []
    if source is not None and source.head_message_id is not None:
        chain = state.chain(source.head_message_id, source.message_count - 1 - state.depth(edited))
    produced = {run.message_id for run in state.runs() if run.message_id is not None}
    stretches = lay_out(edited, chain, plan.runs, produced)
    if target is not None:
        return Target(CarryOver(branch_id=target.id, stretches=stretches), target.number, target.head_message_id)
    base = None if source is None else source.name
    bodies = decide_fork(state, new_message_id, activate=False, branch_id=branch_id, created_at=now, base=base)
    (created,) = (body for body in bodies if isinstance(body, BranchCreated))
    return Target(CarryOver(branch_id=branch_id, stretches=stretches), created.number, new_message_id, (created,))


def _contains(state: ChatState, branch: Branch, message_id: str) -> bool:
    return branch.head_message_id is not None and state.is_ancestor(message_id, branch.head_message_id)


def branch_of(
    state: ChatState, record: RegenerationRecord, *, branches: Sequence[Branch] | None = None
) -> Branch | None:
    """
    Return the branch that a regeneration builds, under its present name; None when it builds none, or the branch was deleted.

    `branches` are those of the chat, if they are known. Costs O(branches).
    """
    if record.carries is None:
        return None
    branches = state.branches_seen() if branches is None else branches
    return next((branch for branch in branches if branch.id == record.carries.branch_id), None)


def replacements(record: RegenerationRecord, attempts: Sequence[MessageRun]) -> dict[str, str]:
    """Return the replacements of the edited message, and of the answers of repeated runs, by the id of the old message."""
    last = {attempt.repeats: attempt for attempt in attempts}
    replaced = {record.edited_message_id: record.new_message_id}
    for planned in record.runs:
        attempt = last.get(planned.run_id)
        if planned.message_id is not None and attempt is not None and attempt.message_id is not None:
            # The edited message stays what it was edited to, also where a circle leads back to it.
            replaced.setdefault(planned.message_id, attempt.message_id)
    return replaced


def last_open(record: RegenerationRecord, has_message: Callable[[str], bool]) -> int:
    """Return the number of the last stretch whose runs may be repeated: its messages are there, so the earlier ones are done."""
    stretches = () if record.carries is None else record.carries.stretches
    for number, stretch in enumerate(stretches):
        if stretch.last is not None and not has_message(copy_id(record.id, stretch.last)):
            return number - 1
    return len(stretches)


def decide_carry_over(
    state: ChatState,
    record: RegenerationRecord,
    *,
    head: str | None,
    branch: int,
    attempts: Sequence[MessageRun] = (),
) -> list[Body]:
    """
    Return the events that copy the next messages to the branch of a regeneration, with their annotations and runs.

    None when all that may follow so far is there. Of a great many messages only some are copied; decide again for the rest.

    `head`: the id of the message that the copies follow. `attempts`: the runs of the regeneration, as they will be after
    this commit.

    Raises:
        MessageConflictError: Another chat has a message of the id that a copy gets.
    """
    copying = _Copying(state, record.id, replacements(record, attempts))
    done = {attempt.repeats for attempt in attempts if attempt.status == "completed"}
    for message in _next_messages(state, record, done):
        head = copying.take(message, head)
        if copying.is_full:
            break
    return copying.bodies(branch)


def _next_messages(state: ChatState, record: RegenerationRecord, done: Container[str | None]) -> Iterator[Message]:
    for stretch in () if record.carries is None else record.carries.stretches:
        yield from _uncopied(state, record.id, stretch)
        if not all(run_id in done for run_id in stretch.run_ids):
            return


def _uncopied(state: ChatState, regeneration_id: str, stretch: Stretch) -> list[Message]:
    """The messages of a stretch that have no copies yet."""
    first, at = stretch.first, stretch.last
    if first is None or at is None or not (state.has_message(first) and state.has_message(at)):
        return []
    if state.has_message(copy_id(regeneration_id, at)) or not state.is_ancestor(first, at):
        return []
    uncopied: list[Message] = []
    while at is not None and not state.has_message(copy_id(regeneration_id, at)):
        message = state.message(at)
        assert message is not None, "a chain is without holes"
        uncopied.append(message)
        at = None if at == first else message.parent_id
    return uncopied[::-1]


class _Copying:
    """Copies that are being made for one commit."""

    def __init__(self, state: ChatState, regeneration_id: str, replaced: Mapping[str, str]) -> None:
        self._state, self._regeneration_id, self._replaced = state, regeneration_id, replaced
        self._messages: list[Message] = []
        self._ids: set[str] = set()
        self._runs: list[Body] = []
        self._annotations: list[tuple[str, Annotation]] = []

    @property
    def is_full(self) -> bool:
        """Whether the rest is for another commit."""
        return len(self._runs) + len(self._annotations) >= _MAX_EVENTS

    def take(self, message: Message, parent_id: str | None) -> str:
        """Copy a message with what belongs to it; returns the id of the copy."""
        state, new_id = self._state, copy_id(self._regeneration_id, message.id)
        if state.is_elsewhere(new_id):
            raise MessageConflictError(new_id, chat_id=state.chat_id, other_chat=True)
        self._ids.add(new_id)
        self._messages.append(
            msgspec.structs.replace(
                message,
                id=new_id,
                chat_id="",
                parent_id=parent_id,
                reply_to=self._new(message.reply_to),
                copied_from=message.id,
                merged_from=tuple(self._successor(parent) for parent in message.merged_from),
                annotation=None,
                notes=notes_of_copy(message),
                redacted=redaction_in(notes_of_copy(message)),
            )
        )
        annotation = state.annotation(message.id)
        if annotation is not None:
            replaced_by = self._new(annotation.replaced_by)
            self._annotations.append((new_id, msgspec.structs.replace(annotation, replaced_by=replaced_by)))
        for run in state.runs(message_id=message.id):
            self._copy_run(run, new_id)
        return new_id

    def _copy_run(self, run: MessageRun, message_id: str) -> None:
        run_id = copy_id(self._regeneration_id, run.run_id)
        if self._state.run(run_id) is not None:
            return
        self._runs.append(
            RunRecorded(
                msgspec.structs.replace(
                    run.recorded,
                    id=copy_id(self._regeneration_id, run.id),
                    run_id=run_id,
                    chat_id="",
                    trigger_message_id=self._new(run.trigger_message_id),
                    references=[self._successor(reference) for reference in run.references],
                    message_id=message_id,
                    repeats=run.run_id,
                    regeneration_id=None,
                ),
                run.metadata or None,
            )
        )

    def _new(self, message_id: str | None) -> str | None:
        return None if message_id is None else self._successor(message_id)

    def _successor(self, message_id: str) -> str:
        new_id = copy_id(self._regeneration_id, message_id)
        if new_id in self._ids:  # of this commit, so the state does not have it yet
            return new_id
        return successor(self._state.has_message, self._regeneration_id, self._replaced, message_id)

    def bodies(self, branch: int) -> list[Body]:
        """Return the events that write the copies to a branch; none when there are no copies."""
        if not self._messages:
            return []
        first, last = self._messages[0], self._messages[-1]
        appended = MessagesAppended(tuple(self._messages), branch, first.parent_id, last.id)
        return [appended, *annotation_events(self._annotations), *self._runs]


def successor(
    has_message: Callable[[str], bool], regeneration_id: str, replaced: Mapping[str, str], message_id: str
) -> str:
    """Return the id of the message that stands for another one on the branch of a regeneration: its replacement, else its copy, else itself."""
    if message_id in replaced:
        return replaced[message_id]
    new_id = copy_id(regeneration_id, message_id)
    return new_id if has_message(new_id) else message_id
