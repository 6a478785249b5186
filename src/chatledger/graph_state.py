"""The state of an agent's graph: a ready-made schema, reducers, transitions, observers, and a store of its versions."""

from chatledger.domain.graph.reducers import (
    AGENT_REDUCERS,
    Reducer,
    Reducers,
    append_messages,
    last_write,
    merge_docs,
    merge_metadata,
    merge_tasks,
    reduce_state,
)
from chatledger.domain.graph.schema import (
    DEFAULT_OPTIONS,
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
from chatledger.domain.graph.transition import CountChange, StateDiff, Transition, get_state_diff, transition
from chatledger.domain.versioned.keys import StateKey, parse_state_id, state_id
from chatledger.infra.ledger.graph.async_state_store import AsyncStateStore, AsyncStateView
from chatledger.infra.ledger.graph.observers import StateObserver, StateObservers
from chatledger.infra.ledger.graph.settings import Checkpointing, Nodes
from chatledger.infra.ledger.graph.state_store import StateStore, StateView, initial_state
from chatledger.infra.ledger.graph.values import (
    ResumePoint,
    StateInfo,
    StatePart,
    StateStats,
    StateUpdate,
    StateVersion,
)

__all__ = [
    "AGENT_REDUCERS",
    "DEFAULT_OPTIONS",
    "AgentState",
    "AsyncStateStore",
    "AsyncStateView",
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
    "StatePart",
    "StateStats",
    "StateStore",
    "StateUpdate",
    "StateVersion",
    "StateView",
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
