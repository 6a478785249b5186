"""Routes about the server: whether it is there, what it can do, and what it cannot."""

from importlib.metadata import version
from typing import Any, Final, NoReturn

from ..problems import RequestError
from .contract import AgentCall, route

_CRONS: Final = "this server starts no runs by the clock; let cron, or whatever starts your jobs, create the run"


async def ok(call: AgentCall) -> dict[str, Any]:
    """Say that the server is there."""
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
    """Refuse runs by the clock."""
    del call
    raise RequestError(501, _CRONS)


async def refuse_thread_crons(call: AgentCall, thread_id: str) -> NoReturn:
    """Refuse runs of a thread by the clock."""
    del call, thread_id
    raise RequestError(501, _CRONS)


async def refuse_cron(call: AgentCall, cron_id: str) -> NoReturn:
    """Refuse to show runs by the clock."""
    del call, cron_id
    raise RequestError(501, _CRONS)


ROUTES: Final = [
    route("GET", "/ok", ok),
    route("GET", "/info", info),
    route("POST", "/runs/crons", refuse_crons),
    route("POST", "/runs/crons/search", refuse_crons, is_reading=True),
    route("POST", "/runs/crons/count", refuse_crons, is_reading=True),
    route("GET", "/runs/crons/{cron_id}", refuse_cron),
    route("PATCH", "/runs/crons/{cron_id}", refuse_cron),
    route("DELETE", "/runs/crons/{cron_id}", refuse_cron),
    route("POST", "/threads/{thread_id}/runs/crons", refuse_thread_crons),
]
