"""LangGraph's API. Routes with words in their paths come before those with ids in the same place."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from starlette.routing import Route as PathRoute

from ..contract import Contract
from ..routing import Route
from ..service import Service
from . import (
    assistant_routes,
    protocol_routes,
    repeating,
    run_routes,
    server_routes,
    state_routes,
    store_routes,
    thread_routes,
)
from .contract import AgentCall, answer_detail, encode_value
from .graphs import Graphs
from .runs import Runs

ROUTES: Final[list[Route]] = [
    *server_routes.ROUTES,
    *store_routes.ROUTES,
    *assistant_routes.ROUTES,
    *thread_routes.ROUTES,
    *state_routes.ROUTES,
    *run_routes.ROUTES,
    *repeating.ROUTES,
    *protocol_routes.ROUTES,
]


def langgraph_paths(service: Service, graphs: Mapping[str, Any] | None = None) -> list[PathRoute]:
    """
    Return the paths of LangGraph's API.

    Args:
        service: What all routes share.
        graphs: The graphs by name; see `Graphs`.

    Raises:
        ConfigurationError: One of them is no graph.
    """
    runs = Runs(service, Graphs(service.ledger, graphs))
    runs.after.append(partial(repeating.carry_on, runs))
    return Contract("", ROUTES, encode_value, answer_detail, partial(AgentCall, runs)).paths(service)
