"""Starting a graph: the state before its first node, at the time of the call."""

import time
from collections.abc import Mapping
from typing import Any

from chatledger.domain.graph_state import initial
from chatledger.domain.graph_state.schema import AgentState


def initial_state(
    user_id: str, query: str, *, trace_id: str | None = None, options: Mapping[str, Any] | None = None
) -> AgentState:
    """
    The state before the first node: one message of the user, the options, and the time of the call.

    Args:
        user_id: The owner.
        query: What the user asks.
        trace_id: The caller's own id of the run.
        options: Values that replace those of `DEFAULT_OPTIONS`, one by one; further ones are kept.

    Raises:
        InvalidValueError: An id, the query or an option breaks a rule.
    """
    now = time.time_ns() // 1_000_000
    return initial.initial_state(user_id, query, now=now, trace_id=trace_id, options=options)
