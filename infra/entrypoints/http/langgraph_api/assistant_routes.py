"""Routes of assistants: made, found, changed and deleted, and what their graphs look like."""

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, cast, get_type_hints

import msgspec
from langchain_core.utils.uuid import uuid7
from langgraph.pregel import Pregel
from pydantic import ConfigDict, create_model

from chatledger.domain.errors import InvalidValueError

from .assistants import Assistant, AssistantChange
from .contract import AgentCall, Limit, Offset, route
from .encoding import time_of
from .graphs import Graph, configured
from .known_threads import ASSISTANT_ID, list_threads
from .states import refused
from .threads import contains, delete_thread

Field = Literal[
    "assistant_id",
    "graph_id",
    "name",
    "description",
    "config",
    "context",
    "created_at",
    "updated_at",
    "metadata",
    "version",
]


class NewAssistant(AssistantChange, frozen=True, kw_only=True):
    """An assistant to be made."""

    assistant_id: str | None = None
    if_exists: Literal["raise", "do_nothing"] | None = None


class AssistantFilter(msgspec.Struct, kw_only=True):
    """A filter of assistants: `name` is a part of their names, whatever its case."""

    metadata: dict[str, Any] | None = None
    graph_id: str | None = None
    name: str | None = None

    def fits(self, assistant: Assistant) -> bool:
        """Whether it is wanted."""
        return (
            self.graph_id in {None, assistant.graph_id}
            and (self.name is None or self.name.casefold() in assistant.name.casefold())
            and contains(assistant.metadata, self.metadata or {})
        )


class AssistantSearch(AssistantFilter, kw_only=True):
    """A page of the assistants that fit, with some of their fields."""

    limit: Limit = 10
    offset: Offset = 0
    sort_by: Literal["assistant_id", "graph_id", "name", "created_at", "updated_at"] | None = None
    sort_order: Literal["asc", "desc"] | None = None
    select: list[Field] | None = None


class VersionSearch(msgspec.Struct):
    """A page of the versions of an assistant."""

    limit: Limit = 10
    offset: Offset = 0
    metadata: dict[str, Any] | None = None


class Latest(msgspec.Struct):
    """The version that is to be the present one."""

    version: int


def create(call: AgentCall, body: NewAssistant) -> dict[str, Any]:
    """Make an assistant."""
    assistant_id = str(uuid7()) if body.assistant_id is None else body.assistant_id
    return shown(call.assistants.create(assistant_id, body, may_exist=body.if_exists == "do_nothing"))


def get(call: AgentCall, assistant_id: str) -> dict[str, Any]:
    """Read an assistant."""
    return shown(call.assistants.get(assistant_id))


def update(call: AgentCall, assistant_id: str, body: AssistantChange) -> dict[str, Any]:
    """Make a new version of an assistant."""
    return shown(call.assistants.update(assistant_id, body))


def delete(call: AgentCall, assistant_id: str, *, delete_threads: bool = False) -> None:
    """Delete an assistant; if wanted, with the threads that are its."""
    assistant = call.assistants.get(assistant_id)
    threads = list(list_threads(call.ledger, call.assistants)) if delete_threads else []
    call.assistants.delete(assistant_id)
    for thread in threads:
        if thread.metadata.get(ASSISTANT_ID) == assistant.assistant_id:
            delete_thread(call, thread.thread_id)


def search(call: AgentCall, body: AssistantSearch | None = None) -> list[dict[str, Any]]:
    """Find assistants, those that changed last first."""
    wanted = body or AssistantSearch()
    fitting = list(filter(wanted.fits, call.assistants.list()))
    fitting.sort(
        key=lambda assistant: getattr(assistant, wanted.sort_by or "updated_at"), reverse=wanted.sort_order != "asc"
    )
    page = [shown(assistant) for assistant in call.page(fitting, wanted.offset, wanted.limit)]
    return page if wanted.select is None else [{name: assistant[name] for name in wanted.select} for assistant in page]


def count(call: AgentCall, body: AssistantFilter | None = None) -> int:
    """Count assistants."""
    return sum(map((body or AssistantFilter()).fits, call.assistants.list()))


def get_versions(call: AgentCall, assistant_id: str, body: VersionSearch | None = None) -> list[dict[str, Any]]:
    """List the versions of an assistant, the newest first; each was made when it was changed last."""
    wanted, versions = body or VersionSearch(), call.assistants.versions(assistant_id)
    fitting = [shown(version) for version in versions if contains(version.metadata, wanted.metadata or {})]
    page = fitting[wanted.offset : wanted.offset + wanted.limit]
    return [version | {"created_at": version.pop("updated_at")} for version in page]


def set_latest(call: AgentCall, assistant_id: str, body: Latest) -> dict[str, Any]:
    """Make an earlier version of an assistant the present one."""
    return shown(call.assistants.set_latest(assistant_id, body.version))


async def get_graph(call: AgentCall, assistant_id: str, *, xray: bool | int = False) -> dict[str, Any]:
    """Read the nodes and edges of an assistant's graph; of its subgraphs too, down to a depth."""

    def drawn(graph: Graph) -> dict[str, Any]:
        drawing: dict[str, Any] = graph.get_graph(xray=xray).to_json()
        for node in drawing["nodes"]:
            if isinstance(node.get("data"), dict):
                node["data"].pop("id", None)
        return drawing

    return await _asked(call, assistant_id, drawn)


async def get_schemas(call: AgentCall, assistant_id: str) -> dict[str, Any]:
    """Read the JSON schemas of an assistant's graph; None for each that cannot be described."""
    assistant = await call.run(call.assistants.get, assistant_id)
    return {"graph_id": assistant.graph_id, **await _asked(call, assistant_id, _schemas)}


async def get_subgraphs(call: AgentCall, assistant_id: str, *, recurse: bool = False) -> dict[str, Any]:
    """Read the schemas of the subgraphs of an assistant's graph, by their namespaces."""
    return await _asked(call, assistant_id, lambda graph: _subgraphs(graph, None, recurse=recurse))


async def get_subgraph(call: AgentCall, assistant_id: str, namespace: str, *, recurse: bool = False) -> dict[str, Any]:
    """Read the schemas of a subgraph; of those below it too, if wanted."""
    return await _asked(call, assistant_id, lambda graph: _subgraphs(graph, namespace, recurse=recurse))


async def _asked(call: AgentCall, assistant_id: str, ask: Callable[[Graph], dict[str, Any]]) -> dict[str, Any]:
    assistant = await call.run(call.assistants.get, assistant_id)
    async with call.graphs.graph(assistant.graph_id, configured(assistant, "")) as graph:
        if not isinstance(graph, Pregel):
            msg = f"graph {assistant.graph_id!r} is a function that yields events: it has no nodes, and no schemas"
            raise InvalidValueError(msg)
        with refused():
            return ask(cast("Graph", graph))


def _subgraphs(graph: Graph, namespace: str | None, *, recurse: bool) -> dict[str, Any]:
    whole: Any = graph
    subgraphs: Iterable[tuple[str, Any]] = whole.get_subgraphs(namespace=namespace, recurse=recurse)
    return {name: _schemas(inner) for name, inner in subgraphs if hasattr(inner, "get_input_jsonschema")}


def _schemas(graph: Graph) -> dict[str, Any]:
    builder: Any = getattr(graph, "builder", None)
    return {
        "input_schema": _schema(graph.get_input_jsonschema),
        "output_schema": _schema(graph.get_output_jsonschema),
        "state_schema": None if builder is None else _schema(lambda: _state_schema(builder.state_schema)),
        "config_schema": {},  # what may be configured is the context
        "context_schema": _schema(graph.get_context_jsonschema),
    }


def _state_schema(state: type) -> dict[str, Any]:
    fields: dict[str, Any] = {name: (kind, None) for name, kind in get_type_hints(state).items()}
    config = ConfigDict(arbitrary_types_allowed=True)
    schema: dict[str, Any] = create_model(state.__name__, __config__=config, **fields).model_json_schema()
    return schema


def _schema(make: Callable[[], Any]) -> dict[str, Any] | None:
    try:
        schema: dict[str, Any] | None = make()
    except Exception:  # noqa: BLE001  # of what a state is made of not everything can be described
        return None
    return schema


def shown(assistant: Assistant) -> dict[str, Any]:
    """Return an assistant in the form that clients read."""
    times = {"created_at": time_of(assistant.created_at), "updated_at": time_of(assistant.updated_at)}
    return msgspec.structs.asdict(assistant) | times


ROUTES: Final = [
    route("POST", "/assistants", create),
    route("POST", "/assistants/search", search, is_reading=True),
    route("POST", "/assistants/count", count, is_reading=True),
    route("GET", "/assistants/{assistant_id}", get),
    route("PATCH", "/assistants/{assistant_id}", update),
    route("DELETE", "/assistants/{assistant_id}", delete),
    route("GET", "/assistants/{assistant_id}/graph", get_graph),
    route("GET", "/assistants/{assistant_id}/schemas", get_schemas),
    route("GET", "/assistants/{assistant_id}/subgraphs", get_subgraphs),
    route("GET", "/assistants/{assistant_id}/subgraphs/{namespace}", get_subgraph),
    route("POST", "/assistants/{assistant_id}/versions", get_versions, is_reading=True),
    route("POST", "/assistants/{assistant_id}/latest", set_latest),
]
