"""The state of an agent's graph: a ready-made schema, reducers, transitions, and those who watch them."""

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
from chatledger.infra.graph_state.observers import StateObserver, StateObservers
from chatledger.infra.graph_state.starting import initial_state

__all__ = [
    "AGENT_REDUCERS",
    "DEFAULT_OPTIONS",
    "AgentState",
    "ChatTurn",
    "CountChange",
    "Document",
    "DocumentMeta",
    "ErrorRecord",
    "Options",
    "QueryAnalysis",
    "Reducer",
    "Reducers",
    "StateDiff",
    "StateMeta",
    "StateObserver",
    "StateObservers",
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
    "reduce_state",
    "transition",
]
