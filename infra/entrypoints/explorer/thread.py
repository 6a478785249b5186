"""The page of a thread of agents: its steps as a trace, the state of one, what waits for an answer, runs, and what is repeated."""

import json
import shlex
from collections.abc import Iterator
from typing import Annotated, Any, Final, cast
from urllib.parse import quote

import msgspec

from chatledger.domain.chat.runs import MessageRun, Regeneration, RegenerationPlan
from chatledger.domain.draw.state_tree import StateNode, value_row
from chatledger.domain.errors import NotFoundError
from chatledger.domain.versioned.keys import ASSISTANT
from chatledger.domain.versioned.record import VersionRecord
from chatledger.domain.wire import Value

from ...clock import clock_ms
from ...ledger.thread_lists import ThreadInfo, thread_info
from ...ledger.thread_trace import (
    Trace,
    TraceLine,
    TraceStep,
    TraceTask,
    agents_of,
    pending_step,
    read_trace,
)
from ...ledger.threads import IndexedVersioned, Threads
from ..agent_steps import assistants_of
from ..http.routing import ROOT, HttpCall
from .actions import DeleteThread
from .offers import Offer, approvals, deletion
from .page import ExplorerPage, refuse_moment
from .thread_state import StepState, View, find_checkpoint, state_after
from .trace import AxisLabel, TraceAxis, TraceRow, rows_of

_OPTIONS: Final = ("options", "choices", "allowed_decisions")
_REQUESTS: Final = "action_requests"
"""The key of calls of tools that LangChain's middleware asks a person about."""


class AnswerWays(Value, frozen=True, kw_only=True):
    """
    Ways to answer a question of an agent.

    Args:
        python: Where its graph runs; empty where an assistant of LangGraph's API asks.
        sdk, curl: By that API; empty where it cannot reach the graph, `curl` also where another server runs it.
        address: The path that begins a run that answers; empty where this server does not run it, or the caller may not write.
        assistant_id: The assistant that asks; empty where none does.
        choices: What the question offers as answers.
    """

    python: str
    sdk: str
    curl: str
    address: str
    assistant_id: str
    choices: list[Any]


def ways_to_answer(call: HttpCall, thread_id: str, namespace: str, payload: Any) -> AnswerWays:
    """Return how the question with this payload is answered, with one of its options if it names some."""
    choices = _choices(payload)
    answer = choices[0] if choices else "yes"
    spelled = json.dumps(answer, ensure_ascii=False) if isinstance(answer, str) else repr(answer)
    if not namespace.startswith(ASSISTANT):
        # A graph that a program runs itself: LangGraph's API goes on with threads of its assistants only.
        config = f'{{"configurable": {{"thread_id": {json.dumps(thread_id)}}}}}'
        python = f"graph.invoke(\n    Command(resume={spelled}),\n    {config},\n)"
        return AnswerWays(python=python, sdk="", curl="", address="", assistant_id="", choices=[])
    assistant_id = namespace.removeprefix(ASSISTANT)
    is_run_here = call.service.executes(call.principal, assistant_id)
    server = f"{call.request.scope.get('scheme', 'http')}://{call.header('host') or 'localhost'}"
    body = json.dumps({"assistant_id": assistant_id, "command": {"resume": answer}}, ensure_ascii=False)
    path = f"/threads/{quote(thread_id, safe='')}/runs"
    address = shlex.quote(f"{server}{call.request.scope.get(ROOT, '')}{path}/wait")
    key = ' -H "X-Api-Key: $CHATLEDGER_KEY"' if call.service.has_access else ""
    request = f"curl -fsS -X POST {address}{key} -H 'Content-Type: application/json' -d {shlex.quote(body)}"
    return AnswerWays(
        python="",
        sdk=f"await client.runs.wait(\n    {json.dumps(thread_id)}, {json.dumps(assistant_id)},\n"
        f'    command={{"resume": {spelled}}},\n)',
        curl=request if is_run_here else "",
        address=path if is_run_here and call.principal.may("write") else "",
        assistant_id=assistant_id,
        choices=choices,
    )


def _choices(payload: Any) -> list[Any]:
    if not isinstance(payload, dict):
        return []
    fields = cast("dict[str, Any]", payload)
    if _REQUESTS in fields:
        return [{"decisions": [{"type": "approve"}]}]
    offered = (fields.get(name) for name in _OPTIONS)
    return next((cast("list[Any]", options) for options in offered if isinstance(options, list)), list[Any]())


_NAMESPACES: Final = 20
_CHATS: Final = 100
"""So many chats of the thread's owner, those that changed last, have their runs looked through."""

_RUNS: Final = 200

Depth = Annotated[int, msgspec.Meta(ge=0, le=2**32)]


class Question(Value, frozen=True, kw_only=True):
    """
    A question that waits for an answer.

    Args:
        namespace, checkpoint_id, node: Where it is asked.
        since: When, in ms since the epoch; None where nobody knows.
        words: What it asks.
        payload: What came with it.
        ways: How it is answered.
    """

    namespace: str
    checkpoint_id: str
    node: str
    since: int | None
    words: str
    payload: list[StateNode]
    ways: AnswerWays


class OtherLine(Value, frozen=True, kw_only=True):
    """A line that forks off: its last checkpoint, where it forks and by what, and its rows."""

    end: str
    words: str
    rows: list[TraceRow]
    is_cut: bool


class ThreadRun(Value, frozen=True, kw_only=True):
    """A run of a chat on the thread, and whether what it produced is stale."""

    run: MessageRun
    is_stale: bool


class Thread(Value, frozen=True, kw_only=True):
    """
    A thread of agents.

    Args:
        assistants: Whose it is, by its namespaces.
        namespace: The agent that is shown.
        trace: The steps of a line, at most 100.
        view: What is shown of the state: `state`, `messages`, `writes` or `raw`.
        state: That of the step that the query names, or of the newest one.
        questions: What waits for an answer: of the first 20 agents.
        runs: The runs of chats on this thread, the newest first.
        regenerations: Those with runs of this thread.
    """

    thread: ThreadInfo
    assistants: list[str]
    namespace: str
    namespaces: list[str]
    trace: Trace
    rows: list[TraceRow]
    others: list[OtherLine]
    labels: list[AxisLabel]
    view: View
    state: StepState | None
    questions: list[Question]
    runs: list[ThreadRun]
    regenerations: list[Regeneration]
    actions: list[Offer]


def thread(
    call: HttpCall,
    thread_id: str,
    *,
    ns: str | None = None,
    end: str = "",
    step: str = "",
    pending: bool = False,
    sub: str | None = None,
    to: str = "",
    view: View = "state",
    first: Depth | None = None,
) -> Thread:
    """
    Read a thread of agents: the line that ends with the checkpoint `end`, and the state of the checkpoint `step` beside that of `to`.

    With `pending` the step is meant that goes on from it, of the subgraph `sub`. `first` is the first message that is shown.
    """
    refuse_moment(call)
    with Threads(call.ledger).reading(thread_id) as indexed:
        if indexed.record is None:
            msg = f"there is no thread {thread_id!r}"
            raise NotFoundError(msg)
        info = thread_info(indexed, indexed.record)
        names = agents_of(info.namespaces)
        namespace = _agent_of(indexed, names) if ns is None else ns
        trace, chosen = _trace_and_choice(indexed, namespace, namespace if sub is None else sub, step=step, end=end)
        state = None
        if chosen is not None:
            following = pending_step(indexed, chosen) if pending else None
            state = state_after(indexed, chosen, pending=following, to=to, view=view, first=first)
        waiting = list(_waiting(indexed, names[:_NAMESPACES]))
    axis = TraceAxis([*trace.steps, *(shown for line in trace.others for shown in line.steps)], clock_ms())
    runs, regenerations = _runs(call, info)
    return Thread(
        thread=info,
        assistants=assistants_of(info.namespaces),
        namespace=namespace,
        namespaces=names,
        trace=trace,
        rows=list(rows_of(trace.steps, axis)),
        others=[_other(call, line, axis) for line in trace.others],
        labels=axis.labels(),
        view=view,
        state=state,
        questions=[_question(call, thread_id, at, task) for at, task in waiting],
        runs=runs,
        regenerations=regenerations,
        actions=[*_approvals(call, thread_id, regenerations), *deletion(call, DeleteThread(thread_id=thread_id))],
    )


def _agent_of(thread: IndexedVersioned, names: list[str]) -> str:
    newest = filter(None, map(thread.newest, names))
    last = max(newest, key=lambda record: (record.stored_at, record.id), default=None)
    return (names[0] if names else "") if last is None else last.line


def _trace_and_choice(
    thread: IndexedVersioned, namespace: str, sub: str, *, step: str, end: str
) -> tuple[Trace, VersionRecord | None]:
    """Read the line with the step that is chosen, and its checkpoint; without a choice it is the newest that has a state."""
    trace = read_trace(thread, namespace, end=end or None)
    if not step:
        # Of a pruned checkpoint nothing but its place among the others is left: it has no state to show.
        stored = [shown for shown in trace.steps if not shown.is_pending and not shown.is_pruned]
        return trace, thread.version(namespace, stored[-1].checkpoint_id) if stored else None
    chosen = find_checkpoint(thread, sub, step)
    shown_ids = {
        step.checkpoint_id for steps in (trace.steps, *(line.steps for line in trace.others)) for step in steps
    }
    if not end and chosen.line == namespace and chosen.id not in shown_ids:
        trace = read_trace(thread, namespace, end=chosen.id)
    return trace, chosen


def _waiting(thread: IndexedVersioned, names: list[str]) -> Iterator[tuple[TraceStep, TraceTask]]:
    """Yield the tasks that wait for somebody now, each with its step."""
    for name in names:
        newest = thread.newest(name)
        step = None if newest is None else pending_step(thread, newest)
        for task in [] if step is None else step.tasks:
            if step is not None and task.state == "waits":
                yield step, task


def _question(call: HttpCall, thread_id: str, at: TraceStep, task: TraceTask) -> Question:
    payload: Any = task.asked[0].get("value") if task.asked else None
    fields = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
    return Question(
        namespace=at.namespace,
        checkpoint_id=at.checkpoint_id,
        node=task.node,
        since=next((span.began_at for span in task.spans if span.kind == "waits"), None),
        words=task.words,
        payload=[value_row(name, value) for name, value in fields.items() if value != task.words],
        ways=ways_to_answer(call, thread_id, at.namespace, payload),
    )


def _other(call: HttpCall, line: TraceLine, axis: TraceAxis) -> OtherLine:
    stored = [step for step in line.steps if not step.is_pending]
    words = [] if line.fork_number is None else [f"forked at step {line.fork_number}"]
    by = {"update": "an update", "fork": "a fork", "input": "an input"}.get((stored[0].source if stored else "") or "")
    if by is not None:
        position = stored[0].position
        event = next(iter(call.ledger.history(after=position - 1, up_to=position)), None) if position else None
        words.append(f"by {by} of {event.actor}" if event is not None and event.actor else f"by {by}")
    return OtherLine(
        end=stored[-1].checkpoint_id if stored else "",
        words=" ".join(words),
        rows=list(rows_of(line.steps, axis)),
        is_cut=line.is_cut,
    )


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
