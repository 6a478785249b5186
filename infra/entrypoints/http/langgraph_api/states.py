"""States of threads: read through the graph of their assistant where it is registered, and from the checkpoint where not."""

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointMetadata
from langgraph.errors import InvalidUpdateError
from langgraph.pregel import Pregel
from langgraph.types import PregelTask, StateSnapshot, StateUpdate

from chatledger.domain.errors import ChatledgerError, InvalidValueError, NotFoundError
from chatledger.domain.versioned.keys import ASSISTANT, assistant_of, root_of

from ....ledger.threads import Threads
from ...langgraph.threads import ThreadState
from ..access import Principal
from .answers import give_up, list_asking
from .assistants import Assistant, Assistants
from .contract import AgentCall
from .encoding import interrupt_of, time_of
from .graphs import Graph, configured
from .known_threads import ASSISTANT_ID, GRAPH_ID, KnownThread, find_thread

Checkpoint = Mapping[str, Any]
"""The place of a checkpoint, as clients send it: any of `checkpoint_ns`, `checkpoint_id` and `checkpoint_map`."""

_PAGE: Final = 50
_KEYS: Final = ("checkpoint_id", "thread_id", "checkpoint_ns")


class StatePlace(NamedTuple):
    """
    The place of a state on a thread: the agent that has it, by its namespace.

    Args:
        root: The namespace that LangGraph knows as `""`: that of an assistant, another one that runs asked for, or `""`.
    """

    thread: KnownThread
    root: str
    assistant: Assistant | None
    graph_id: str | None

    def inner(self, namespace: str | None) -> str:
        """Return a namespace as LangGraph knows it; it may be given as it is stored."""
        if not namespace or namespace == self.root:
            return ""
        return namespace.removeprefix(f"{self.root}|") if self.root else namespace

    def stored(self, inner: str) -> str:
        """Return a namespace as it is stored."""
        return "|".join(part for part in (self.root, inner) if part)

    def configurable(self, checkpoint: Checkpoint | None) -> dict[str, Any]:
        """Return the part of the config that names the checkpoint."""
        named = {name: value for name, value in (checkpoint or {}).items() if value is not None}
        configurable = {"checkpoint_ns": self.inner(named.get("checkpoint_ns"))}
        return configurable | {name: named[name] for name in ("checkpoint_id", "checkpoint_map") if name in named}

    def config(self, checkpoint: Checkpoint | None) -> RunnableConfig:
        configurable = self.configurable(checkpoint)
        if self.assistant is not None:
            return configured(self.assistant, self.thread.thread_id, {"configurable": configurable})
        return {"configurable": {**configurable, "thread_id": self.thread.thread_id}}


async def find_place(
    call: AgentCall, thread_id: str, checkpoint: Checkpoint | None = None, assistant_id: str | None = None
) -> StatePlace:
    """
    Return the place of the state that a request means.

    That of the assistant which is named, by its id or its namespace; or that of a namespace which runs asked for; or of the
    assistant that the metadata of the thread name; or the only one. An empty thread may be of the graph that its metadata name.
    """
    return await call.run(lambda: place_of(call, find_thread(call, thread_id), checkpoint, assistant_id))


def place_of(
    call: AgentCall, thread: KnownThread, checkpoint: Checkpoint | None = None, assistant_id: str | None = None
) -> StatePlace:
    """Return the place of the state that a request means, of a thread that was read, in a worker thread; see `find_place`."""
    assistants = _assistants(call, thread)
    namespace = (checkpoint or {}).get("checkpoint_ns") or ""
    stored = [] if thread.info is None else thread.info.namespaces
    # Beside "", a namespace that is no assistant's is that of a subgraph.
    is_asked_for = namespace in stored and "" not in stored and not namespace.startswith(ASSISTANT)
    if is_asked_for and assistant_id is None:
        newest = call.saver.get_thread_state(thread.thread_id, namespace)
        assistant_id = None if newest is None else newest.metadata.get(ASSISTANT_ID)
    if assistant_id is not None:
        assistant = assistants.get(assistant_id)
        return StatePlace(thread, namespace if is_asked_for else assistant.namespace, assistant, assistant.graph_id)
    if is_asked_for:
        return StatePlace(thread, namespace, None, None)
    root = root_of(namespace) if namespace.startswith(ASSISTANT) else _usual_root(assistants, thread)
    return _place(assistants, thread, root)


def places_of(call: AgentCall, thread: KnownThread) -> list[StatePlace]:
    """Return where all states of a thread are, in a worker thread: those of each assistant, and of none."""
    assistants = _assistants(call, thread)
    return [_place(assistants, thread, root) for root in thread.roots]


def _place(assistants: Assistants, thread: KnownThread, root: str) -> StatePlace:
    named = assistant_of(root)
    assistant = None if named is None else _assistant(assistants, named)
    if assistant is not None:
        return StatePlace(thread, root, assistant, assistant.graph_id)
    return StatePlace(thread, root, None, thread.metadata.get(GRAPH_ID) if not root else None)


def _assistants(call: AgentCall, thread: KnownThread) -> Assistants:
    """The assistants of the caller; for a caller that acts for everybody those of the thread's owner."""
    if call.principal.user_id is not None or thread.owner is None:
        return call.assistants
    return call.graphs.assistants(Principal(user_id=thread.owner))


def _usual_root(assistants: Assistants, thread: KnownThread) -> str:
    roots, metadata = thread.roots, thread.metadata
    last = f"{ASSISTANT}{metadata.get(ASSISTANT_ID)}"
    if last in roots:  # also an assistant of another member, which this caller cannot read
        return last
    usual = [_assistant(assistants, str(metadata[key])) for key in (ASSISTANT_ID, GRAPH_ID) if key in metadata]
    wanted = [assistant.namespace for assistant in usual if assistant is not None]
    for root in wanted:
        if not roots or root in roots:
            return root
    if len(roots) > 1:
        msg = (
            f"thread {thread.thread_id!r} has states of several assistants: {', '.join(map(repr, roots))}; "
            "name one as checkpoint_ns, or as assistant_id in the query"
        )
        raise InvalidValueError(msg)
    return roots[0] if roots else ""


def _assistant(assistants: Assistants, assistant_id: str) -> Assistant | None:
    try:
        return assistants.get(assistant_id)
    except (NotFoundError, InvalidValueError):
        return None


@asynccontextmanager
async def opened(call: AgentCall, place: StatePlace) -> AsyncGenerator[Graph | None]:
    """Open the graph of a state, with the checkpoints that belong to it; None where it is not registered."""
    if place.graph_id is None or place.graph_id not in call.graphs.names:
        yield None
        return
    async with call.graphs.graph(place.graph_id, place.config(None)) as graph:
        # The saver sees only this state, and those of the subgraphs.
        yield graph.copy({"checkpointer": call.saver.for_namespace(place.root)}) if isinstance(graph, Pregel) else None


async def read_snapshot(
    call: AgentCall, place: StatePlace, checkpoint: Checkpoint | None = None, *, subgraphs: bool = False
) -> StateSnapshot | None:
    """Read a state, as the graph gives it or as it is stored; None where there is none."""
    async with opened(call, place) as graph:
        if graph is not None:
            with refused():
                snapshot = await graph.aget_state(place.config(checkpoint), subgraphs=subgraphs)
            # Where there is no checkpoint, LangGraph gives an empty snapshot.
            return None if snapshot.metadata is None and snapshot.created_at is None else snapshot
    wanted = place.configurable(checkpoint)
    saver, namespace = call.saver.for_namespace(place.root), place.stored(wanted["checkpoint_ns"])
    stored = await saver.aget_thread_state(place.thread.thread_id, namespace, wanted.get("checkpoint_id"))
    return None if stored is None else _as_snapshot(place, stored)


async def read_state(
    call: AgentCall, place: StatePlace, checkpoint: Checkpoint | None = None, *, subgraphs: bool = False
) -> dict[str, Any]:
    """Read a state, in the form that clients read; of an empty thread it is empty."""
    return shown_state(place, await read_snapshot(call, place, checkpoint, subgraphs=subgraphs))


async def read_history(
    call: AgentCall,
    place: StatePlace,
    *,
    limit: int,
    before: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    checkpoint: Checkpoint | None = None,
    all_namespaces: bool = False,
) -> list[dict[str, Any]]:
    """
    Read the states of all branches, the newest first; those before a checkpoint, and with these metadata, if given.

    With `all_namespaces`, which is for a place that is no assistant's, those of all agents, as they are stored.
    """
    wanted = place.configurable(checkpoint)
    if before is not None:
        named = place.thread.thread_id, None if all_namespaces else place.stored(wanted["checkpoint_ns"]), before
        await call.run(Threads(call.ledger).check_checkpoint, *named)
    async with opened(call, place) as graph:
        if graph is not None:
            earlier: RunnableConfig | None = None
            if before is not None:
                earlier = place.config({**wanted, "checkpoint_id": before})
            with refused():
                config = place.config(checkpoint)
                listed = graph.aget_state_history(config, filter=dict(metadata or {}), before=earlier, limit=limit)
                return [shown_state(place, snapshot) async for snapshot in listed]
    namespace = None if all_namespaces else place.stored(wanted["checkpoint_ns"])
    states: list[dict[str, Any]] = []
    async for state in _stored_history(call, place, namespace, before=before, only=wanted.get("checkpoint_id")):
        if all(state.metadata.get(key) == value for key, value in (metadata or {}).items()):
            states.append(shown_state(place, _as_snapshot(place, state)))
            if len(states) == limit:
                break
    return states


async def _stored_history(
    call: AgentCall, place: StatePlace, namespace: str | None, *, before: str | None, only: str | None
) -> AsyncIterator[ThreadState]:
    """Yield the states of a namespace as they are stored, the newest first, some at a time; or only that at a checkpoint."""
    saver, thread_id = call.saver.for_namespace(place.root), place.thread.thread_id
    if only is not None:
        state = await saver.aget_thread_state(thread_id, namespace, only)
        if state is not None and (before is None or only < before):
            yield state
        return
    while page := await saver.aget_thread_history(thread_id, namespace, _PAGE, before):
        for state in page:
            yield state
        before = page[-1].checkpoint["checkpoint_id"]


async def update_state(
    call: AgentCall, place: StatePlace, values: Any, *, as_node: str | None = None, checkpoint: Checkpoint | None = None
) -> dict[str, Any]:
    """Write a state as if a node had, after the newest one or after a checkpoint, which begins a branch; not while a run is at work."""
    thread_id, wanted = place.thread.thread_id, place.configurable(checkpoint)
    if "checkpoint_id" in wanted:
        named = place.stored(wanted["checkpoint_ns"]), wanted["checkpoint_id"]
        await call.run(Threads(call.ledger).check_checkpoint, thread_id, *named)
    async with call.runs.starting(thread_id):
        # A run that is at work cannot write after this: it would fail, and its answer would be lost.
        await call.runs.check_idle(call.async_ledger, thread_id, place.root)
        async with opened(call, place) as graph:
            with refused():
                written = await _needed(graph, place).aupdate_state(place.config(checkpoint), values, as_node)
            # Agent Inbox ignores a question by updating the state to its end: nobody can answer it then.
            asking = await list_asking(call.async_ledger, thread_id, place.root)
            if asking and not (await _needed(graph, place).aget_state(place.config(None))).next:
                await give_up(call.async_ledger, asking, "the state was updated to one that asks nothing")
    shown = _shown_checkpoint(written)
    return {"checkpoint": shown, "configurable": shown, "checkpoint_id": shown["checkpoint_id"]}


async def write_supersteps(call: AgentCall, place: StatePlace, supersteps: Sequence[Sequence[StateUpdate]]) -> None:
    """Write the steps that a new thread begins with."""
    async with opened(call, place) as graph:
        with refused():
            await _needed(graph, place).abulk_update_state(place.config(None), supersteps)


def _needed(graph: Graph | None, place: StatePlace) -> Graph:
    if graph is not None:
        return graph
    what = "has no graph" if place.graph_id is None else f"is of the graph {place.graph_id!r}, which is not registered"
    msg = f"thread {place.thread.thread_id!r} {what}: a state is written by the graph; name it in the metadata as graph_id"
    raise InvalidValueError(msg)


@contextmanager
def refused() -> Generator[None]:
    """Turn errors of a graph about its arguments into errors of the ledger."""
    try:
        yield
    except ChatledgerError:
        raise
    except (InvalidUpdateError, ValueError) as error:
        raise InvalidValueError(str(error)) from error


def _as_snapshot(place: StatePlace, stored: ThreadState) -> StateSnapshot:
    """Return a state as it is stored in the form in which a graph would give it."""

    def config(checkpoint: Mapping[str, str]) -> RunnableConfig:
        return {"configurable": {**checkpoint, "checkpoint_ns": place.inner(checkpoint["checkpoint_ns"])}}

    return StateSnapshot(
        values=stored.values,
        next=tuple(stored.next),
        config=config(stored.checkpoint),
        metadata=cast("CheckpointMetadata", stored.metadata),
        created_at=time_of(stored.created_at),
        parent_config=None if stored.parent_checkpoint is None else config(stored.parent_checkpoint),
        # A task that has not written yet has no id here, as only the graph could make it.
        tasks=tuple(
            PregelTask(cast("str", task.id), task.name, (), error=task.error, interrupts=tuple(task.interrupts))
            for task in stored.tasks
        ),
        interrupts=tuple(stored.interrupts),
    )


def shown_state(place: StatePlace, state: StateSnapshot | None) -> dict[str, Any]:
    """Return a state in the form that clients read; `checkpoint_ns` beside it is the namespace as it is stored."""
    checkpoint = None if state is None else _shown_checkpoint(state.config)
    parent = None if state is None or state.parent_config is None else _shown_checkpoint(state.parent_config)
    return {
        "values": {} if state is None else state.values,
        "next": [] if state is None else list(state.next),
        "tasks": [] if state is None else [_shown_task(place, task) for task in state.tasks],
        "metadata": None if state is None else state.metadata,
        "created_at": None if state is None else state.created_at,
        "checkpoint": checkpoint,
        "parent_checkpoint": parent,
        "interrupts": [] if state is None else list(map(interrupt_of, state.interrupts)),
        "checkpoint_id": None if checkpoint is None else checkpoint["checkpoint_id"],
        "parent_checkpoint_id": None if parent is None else parent["checkpoint_id"],
        "checkpoint_ns": place.stored("" if checkpoint is None else checkpoint["checkpoint_ns"]),
    }


def _shown_checkpoint(config: RunnableConfig) -> dict[str, Any]:
    configurable = config.get("configurable", {})
    shown: dict[str, Any] = {name: configurable[name] for name in _KEYS if name in configurable}
    if configurable.get("checkpoint_map"):
        shown["checkpoint_map"] = configurable["checkpoint_map"]
    return {"checkpoint_id": None, "checkpoint_ns": "", **shown}


def _shown_task(place: StatePlace, task: PregelTask) -> dict[str, Any]:
    state = cast("Any", task.state)
    is_snapshot = isinstance(state, StateSnapshot)
    whole: Any = task
    return {
        "id": task.id,
        "name": task.name,
        "path": list(whole.path),
        "error": None if task.error is None else shown_error(task.error),
        "interrupts": [interrupt_of(interrupt) for interrupt in task.interrupts],
        "checkpoint": None if is_snapshot or not state else _shown_checkpoint(state),
        "state": shown_state(place, state) if is_snapshot else None,
        "result": task.result,
    }


def shown_error(error: Any) -> str:
    """Return an error of a task as text; it may be stored as text already."""
    return error if isinstance(error, str) else repr(error)
