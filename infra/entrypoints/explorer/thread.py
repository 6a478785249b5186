"""The page of a thread of agents: its steps in lanes, the state of one, the difference of two, runs, and what is repeated."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from chatledger.domain.chat.runs import MessageRun, Regeneration, RegenerationPlan
from chatledger.domain.errors import ConfigurationError, NotFoundError
from chatledger.domain.versioned.record import METADATA, VersionRecord
from chatledger.domain.wire import Value
from chatledger.projections.versioned.reader import IndexedVersioned

from ...ledger.threads import StoredCheckpoint, ThreadInfo, Threads, newest_first, thread_info
from ..agent_steps import assistants_of, decode_metadata, step_of
from ..http.routing import HttpCall
from .actions import DeleteThread, Offer, approvals, deletion
from .changes import Change, changes_between
from .page import ExplorerPage, refuse_moment
from .thread_lanes import CheckpointPlace, Drawing, draw_lanes

_ROWS: Final = 50
_NAMESPACES: Final = 20
_CHATS: Final = 100
"""So many chats of the thread's owner, those that changed last, have their runs looked through."""

_RUNS: Final = 200


class ThreadStep(Value, frozen=True, kw_only=True):
    """A checkpoint of the list. `step` and `source` are None where only its framework can read them."""

    namespace: str
    checkpoint_id: str
    parent_id: str | None
    step: int | None
    source: str | None
    created_at: int
    run_id: str | None
    is_pruned: bool


class StepTask(Value, frozen=True, kw_only=True):
    """A task of the next step: the node, what it waits for, what it failed with, and whether it is done."""

    name: str
    id: str | None
    interrupts: list[Any]
    error: Any
    is_done: bool


class StepWrite(Value, frozen=True, kw_only=True):
    """A pending write of a checkpoint: by which task, where in the graph, to which channel, and when, in ms; 0 where nobody knows."""

    task_id: str
    path: str
    channel: str
    index: int
    written_at: int


class StepState(Value, frozen=True, kw_only=True):
    """
    The state at a checkpoint.

    Args:
        at: The checkpoint.
        metadata: Of it; None where only its framework can read them.
        channels: The names of what the state holds.
        values: What they hold. None, as `next` and `tasks`, where what can read them is not here.
        next: The nodes that are to run.
        tasks: Their tasks.
        writes: What they wrote already.
    """

    at: ThreadStep
    metadata: dict[str, Any] | None
    channels: list[str]
    values: dict[str, Any] | None
    next: list[str] | None
    tasks: list[StepTask] | None
    writes: list[StepWrite]


class ThreadRun(Value, frozen=True, kw_only=True):
    """A run of a chat on the thread, and whether what it produced is stale."""

    run: MessageRun
    is_stale: bool


class WaitingTasks(Value, frozen=True, kw_only=True):
    """A namespace, and the tasks that wait or failed there now."""

    namespace: str
    tasks: list[StepTask]


class Thread(Value, frozen=True, kw_only=True):
    """
    A thread of agents.

    Args:
        thread: What there is about it.
        assistants: Whose it is, by its namespaces.
        namespace: The one that is shown; None for all.
        steps: Its checkpoints, the newest first, from where the page begins.
        drawing: Their lanes.
        before: Begins the part of older ones; None at the first.
        waiting: Where tasks wait for somebody, or failed: of the first 20 namespaces.
        state: That of the step that the query names, or of the newest one.
        other: The one that it is compared with.
        changes: What differs, from the one with the smaller id.
        runs: The runs of chats on this thread, the newest first.
        regenerations: Those with runs of this thread.
        actions: What can be done.
    """

    thread: ThreadInfo
    assistants: list[str]
    namespace: str | None
    steps: list[ThreadStep]
    drawing: Drawing
    before: str | None
    waiting: list[WaitingTasks]
    state: StepState | None
    other: StepState | None
    changes: list[Change]
    runs: list[ThreadRun]
    regenerations: list[Regeneration]
    actions: list[Offer]


def thread(
    call: HttpCall, thread_id: str, *, ns: str | None = None, before: str = "", step: str = "", to: str = ""
) -> Thread:
    """
    Read a thread of agents.

    Args:
        call: The request.
        thread_id: The thread.
        ns: Only this namespace.
        before: Only checkpoints with smaller ids.
        step: The checkpoint whose state is shown.
        to: One to compare it with.
    """
    refuse_moment(call)
    threads = Threads(call.ledger)
    with threads.reading(thread_id) as indexed:
        if indexed.record is None:
            msg = f"there is no thread {thread_id!r}"
            raise NotFoundError(msg)
        info = thread_info(indexed, indexed.record)
        names = info.namespaces if ns is None else [name for name in info.namespaces if name == ns]
        window = list(islice(newest_first(indexed, names, before=before or None), _ROWS + 1))
        chosen = (
            _place(indexed, names, step)
            if step
            # Of a pruned checkpoint nothing but its place among the others is left: it has no state to show.
            else next(
                (CheckpointPlace(record.line, record.id) for record in window if record.skeleton is None),
                None,
            )
        )
        compared = _place(indexed, info.namespaces, to) if to else None
    steps = [_step(record) for record in window[:_ROWS]]
    states = _States(call, thread_id, threads)
    state = None if chosen is None else states.read(chosen)
    other = None if compared is None else states.read(compared)
    runs, regenerations = _runs(call, info)
    return Thread(
        thread=info,
        assistants=assistants_of(info.namespaces),
        namespace=ns,
        steps=steps,
        drawing=draw_lanes([_edge(step) for step in steps]),
        before=steps[-1].checkpoint_id if len(window) > _ROWS else None,
        waiting=list(states.waiting(info.namespaces[:_NAMESPACES])),
        state=state,
        other=other,
        changes=_changes(state, other),
        runs=runs,
        regenerations=regenerations,
        actions=[*_approvals(call, thread_id, regenerations), *deletion(call, DeleteThread(thread_id=thread_id))],
    )


def _place(indexed: IndexedVersioned, names: list[str], checkpoint_id: str) -> CheckpointPlace:
    for name in names:
        record = indexed.version(name, checkpoint_id)
        if record is not None and record.skeleton is None:
            return CheckpointPlace(name, checkpoint_id)
    msg = f"thread {indexed.key!r} has no checkpoint {checkpoint_id!r}"
    raise NotFoundError(msg)


def _step(record: VersionRecord) -> ThreadStep:
    number, source = step_of(record.frames[METADATA])
    return ThreadStep(
        namespace=record.line,
        checkpoint_id=record.id,
        parent_id=record.parent,
        step=number,
        source=source,
        created_at=record.stored_at,
        run_id=record.run_id,
        is_pruned=record.skeleton is not None,
    )


def _edge(step: ThreadStep) -> tuple[CheckpointPlace, CheckpointPlace | None]:
    parent = None if step.parent_id is None else CheckpointPlace(step.namespace, step.parent_id)
    return CheckpointPlace(step.namespace, step.checkpoint_id), parent


class _States:
    """The states of a thread: with LangGraph's library their values and tasks; without it, only what is stored about them."""

    def __init__(self, call: HttpCall, thread_id: str, threads: Threads) -> None:
        self._thread_id, self._threads = thread_id, threads
        self._plain: Callable[[Any], Any] = str
        try:  # the explorer works without LangGraph, and shows what is stored then
            from ..http.langgraph_api.encoding import to_plain
            from ..langgraph.saver import LedgerSaver
        except ImportError:
            self._saver = None
        else:
            self._saver, self._plain = LedgerSaver(call.ledger), to_plain

    def read(self, place: CheckpointPlace) -> StepState:
        """
        Read the state at a checkpoint.

        Raises:
            NotFoundError: It was deleted meanwhile.
        """
        # The saver reads the content, as only its serializer can decode it; here it need not be read.
        stored = self._threads.get(self._thread_id, *place, is_known=lambda _digest: True)
        if stored is None:
            msg = f"thread {self._thread_id!r} has no checkpoint {place.checkpoint_id!r} any more"
            raise NotFoundError(msg)
        values, next_nodes, tasks = self._decoded(place, is_newest=False)
        return StepState(
            at=_step(stored.record),
            metadata=decode_metadata(stored.record.frames[METADATA]),
            channels=sorted(stored.record.fields),
            values=values,
            next=next_nodes,
            tasks=tasks,
            writes=_writes(stored),
        )

    def waiting(self, names: list[str]) -> Iterator[WaitingTasks]:
        """Yield what waits for somebody, or failed."""
        for name in names:
            _, _, tasks = self._decoded(CheckpointPlace(name, ""), is_newest=True)
            stuck = [task for task in tasks or [] if task.interrupts or task.error is not None]
            if stuck:
                yield WaitingTasks(namespace=name, tasks=stuck)

    def _decoded(
        self, place: CheckpointPlace, *, is_newest: bool
    ) -> tuple[dict[str, Any] | None, list[str] | None, list[StepTask] | None]:
        if self._saver is None:
            return None, None, None
        checkpoint_id = None if is_newest else place.checkpoint_id
        try:
            state = self._saver.get_thread_state(self._thread_id, place.namespace, checkpoint_id)
        except ConfigurationError:  # stored by another serializer than the default one
            state = None
        if state is None:
            return None, None, None
        tasks = [
            StepTask(
                name=task.name,
                id=task.id,
                interrupts=[self._plain(getattr(interrupt, "value", interrupt)) for interrupt in task.interrupts],
                error=None if task.error is None else self._plain(task.error),
                is_done=task.is_done,
            )
            for task in state.tasks
        ]
        values: dict[str, Any] = {} if is_newest else self._plain(state.values)
        return values, state.next, tasks


def _writes(stored: StoredCheckpoint) -> list[StepWrite]:
    return [
        StepWrite(
            task_id=write.task_id,
            path=write.task_path,
            channel=write.channel,
            index=write.index,
            written_at=write.written_at,
        )
        for write in stored.writes
    ]


def _changes(state: StepState | None, other: StepState | None) -> list[Change]:
    if state is None or other is None or state.values is None or other.values is None:
        return []
    earlier, later = sorted((state, other), key=lambda either: either.at.checkpoint_id)
    before: Mapping[str, Any] = earlier.values or {}
    return changes_between(before, later.values or {})


def _runs(call: HttpCall, info: ThreadInfo) -> tuple[list[ThreadRun], list[Regeneration]]:
    """The runs on a thread, and the regenerations with some of them."""
    ledger = call.ledger
    # Nothing leads from a thread to its chats. Over LangGraph's API both have one id; others are the owner's, and changed lately.
    chats = [chat.id for chat in ledger.list_chats(user_id=info.owner, limit=_CHATS)]
    runs: list[MessageRun] = []
    regenerations: list[Regeneration] = []
    for chat_id in dict.fromkeys([info.thread_id, *chats]):
        of_chat = ledger.runs(chat_id, thread_id=info.thread_id)
        runs += of_chat
        if of_chat:
            regenerations += [
                regeneration
                for regeneration in ledger.regenerations(chat_id)
                if any(step.repeats.thread_id == info.thread_id for step in regeneration.steps)
            ]
    runs.sort(key=lambda run: run.created_at, reverse=True)
    return [ThreadRun(run=run, is_stale=_is_stale(call, run)) for run in runs[:_RUNS]], regenerations


def _is_stale(call: HttpCall, run: MessageRun) -> bool:
    message = None if run.message_id is None else call.ledger.get_message(run.message_id)
    return message is not None and message.is_stale


def statuses_of(regeneration: Regeneration) -> dict[str, str]:
    """Return how far each run that is repeated is, by the id of the old one."""
    return {step.repeats.run_id: step.status for step in regeneration.steps}


def planned_statuses(plan: RegenerationPlan) -> dict[str, str]:
    """Return what would come of each run of a plan."""
    approved = frozenset(plan.automatic)
    return {run.run_id: "automatic" if run.run_id in approved else "awaiting_approval" for run in plan.runs}


def _approvals(call: HttpCall, thread_id: str, regenerations: list[Regeneration]) -> list[Offer]:
    chats = dict.fromkeys(regeneration.chat_id for regeneration in regenerations)
    return [offer for chat_id in chats for offer in approvals(call, chat_id, thread_id=thread_id)]


PAGES: Final = (ExplorerPage("/agents/{thread_id}", thread, "thread.html"),)
