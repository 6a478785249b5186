"""LangGraph's API, and its routes about the server itself: whether it is there, what it can do, and what it cannot."""

from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from typing import Any, Final, NoReturn

from starlette.routing import Route as PathRoute

from chatledger.domain.errors import NotFoundError

from ..access import Principal
from ..contract import Contract
from ..problems import RequestError
from ..routing import Route
from ..service import Service
from . import (
    assistant_routes,
    protocol_routes,
    repeating,
    run_routes,
    store_routes,
    thread_routes,
)
from .contract import AgentCall, answer_detail, encode_value, route
from .graphs import Graphs
from .runs import Runs


async def ok(call: AgentCall) -> dict[str, Any]:
    del call
    return {"ok": True, "services": {}}


async def info(call: AgentCall) -> dict[str, Any]:
    """Say what the server is, and what it can do."""
    return {
        "version": version("chatledger"),
        "langgraph_py_version": version("langgraph"),
        "flags": {"assistants": True, "crons": False, "langsmith": False, "store": True},
        "host": {
            "kind": "chatledger",
            "project_id": None,
            "host_revision_id": None,
            "revision_id": None,
            "tenant_id": None,
        },
        "graphs": call.graphs.names,
    }


async def refuse_crons(call: AgentCall) -> NoReturn:
    del call
    msg = "this server starts no runs by the clock; let cron, or whatever starts your jobs, create the run"
    raise RequestError(501, msg)


ROUTES: Final[list[Route]] = [
    # Routes with words in their paths come before those with ids in the same place.
    route("GET", "/ok", ok),
    route("GET", "/info", info),
    route("POST", "/runs/crons", refuse_crons),
    route("POST", "/runs/crons/search", refuse_crons, is_reading=True),
    route("POST", "/runs/crons/count", refuse_crons, is_reading=True),
    route("GET", "/runs/crons/{cron_id}", refuse_crons),
    route("PATCH", "/runs/crons/{cron_id}", refuse_crons),
    route("DELETE", "/runs/crons/{cron_id}", refuse_crons),
    route("POST", "/threads/{thread_id}/runs/crons", refuse_crons),
    *store_routes.ROUTES,
    *assistant_routes.ROUTES,
    *thread_routes.ROUTES,
    *run_routes.ROUTES,
    *repeating.ROUTES,
    *protocol_routes.ROUTES,
]


def langgraph_paths(service: Service, graphs: Mapping[str, Any] | None = None) -> list[PathRoute]:
    served = Graphs(service.ledger, graphs)

    def executes(principal: Principal, assistant_id: str) -> bool:
        try:
            return served.assistants(principal).get(assistant_id).graph_id in served.names
        except NotFoundError:
            return False

    service.executes = executes
    runs = Runs(service, served)
    runs.after.append(partial(repeating.carry_on, runs))
    return Contract("", ROUTES, encode_value, answer_detail, partial(AgentCall, runs)).paths(service)
