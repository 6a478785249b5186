"""The state of an agent's graph: a ready-made schema, reducers, transitions, those who watch them, and a store of its versions."""

from chatledger.domain.graph_state.ids import StateKey, parse_state_id, state_id
from chatledger.domain.graph_state.initial import DEFAULT_OPTIONS
from chatledger.domain.graph_state.reducers import (
    Reducer,
    append_messages,
    last_write,
    merge_docs,
    merge_metadata,
    merge_tasks,
)
from chatledger.domain.graph_state.reduction import AGENT_REDUCERS, Reducers, reduce_state
from chatledger.domain.graph_state.schema import (
    AgentState,
    ChatTurn,
    Document,
    DocumentMeta,
    ErrorRecord,
    Options,
    QueryAnalysis,
    StateMeta,
    Tasks,
    ToolResult,
)
from chatledger.domain.graph_state.transition import CountChange, StateDiff, Transition, get_state_diff, transition
from chatledger.infra.graph_state.async_store import AsyncStateStore
from chatledger.infra.graph_state.observers import StateObserver, StateObservers
from chatledger.infra.graph_state.settings import Checkpointing, Nodes
from chatledger.infra.graph_state.starting import initial_state
from chatledger.infra.graph_state.store import StateStore
from chatledger.infra.graph_state.values import ResumePoint, StateInfo, StateStats, StateUpdate, StateVersion

__all__ = [
    "AGENT_REDUCERS",
    "DEFAULT_OPTIONS",
    "AgentState",
    "AsyncStateStore",
    "ChatTurn",
    "Checkpointing",
    "CountChange",
    "Document",
    "DocumentMeta",
    "ErrorRecord",
    "Nodes",
    "Options",
    "QueryAnalysis",
    "Reducer",
    "Reducers",
    "ResumePoint",
    "StateDiff",
    "StateInfo",
    "StateKey",
    "StateMeta",
    "StateObserver",
    "StateObservers",
    "StateStats",
    "StateStore",
    "StateUpdate",
    "StateVersion",
    "Tasks",
    "ToolResult",
    "Transition",
    "append_messages",
    "get_state_diff",
    "initial_state",
    "last_write",
    "merge_docs",
    "merge_metadata",
    "merge_tasks",
    "parse_state_id",
    "reduce_state",
    "state_id",
    "transition",
]
