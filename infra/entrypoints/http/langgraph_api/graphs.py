"""Graphs that the server runs: registered by name, opened for an assistant with the checkpoints that are its own."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.graph import StateGraph
from langgraph.pregel import Pregel

from chatledger.domain.errors import ConfigurationError, NotFoundError
from chatledger.domain.versioned.keys import assistant_namespace

from ....clock import clock_ms
from ....ledger.aio.async_ledger import AsyncLedger
from ...langgraph.saver import LedgerSaver
from ...langgraph.store import LedgerBaseStore
from ..access import Principal
from .assistants import Assistant, Assistants

Graph = Pregel[Any, Any, Any, Any]
Runner = Callable[..., AsyncIterator[Any]]
"""An async generator function, which is called with the input and the config of a run, and yields its events."""

_SAVERS: Final = 256
"""The savers and stores of so many users are kept."""


class OpenGraph(NamedTuple):
    """
    An assistant's graph, ready to run.

    Args:
        graph: Its graph, whose checkpointer is `saver`, and which has a store; None where an async generator function is registered instead.
        runner: That function; None where it is a graph.
        saver: Bound to the namespace of the run, and limited to what the caller may read.
    """

    assistant: Assistant
    graph: Graph | None
    runner: Runner | None
    saver: LedgerSaver

    @property
    def namespace(self) -> str:
        """The namespace of the checkpoints, such as `assistant:<id>`. LangGraph itself sees `""` in its place."""
        namespace = self.saver.namespace
        assert namespace is not None, "it is bound to one"
        return namespace

    def config(self, thread_id: str, overrides: Mapping[str, Any] | None = None) -> RunnableConfig:
        """
        Return the config of a run or a reading: the assistant's, with overrides key by key.

        `configurable` and `metadata` are merged, and name the thread, the assistant and the graph.
        """
        return configured(self.assistant, thread_id, overrides)


class Graphs:
    """
    The graphs of a server.

    Args:
        graphs: By name: a graph, compiled or not; a function that makes one, which may take a config, be asynchronous and
            give a context manager; or an async generator function, which is called with the input and the config.

    Raises:
        ConfigurationError: A name is empty or has a `|`, or what it stands for is nothing of that kind.
    """

    def __init__(self, ledger: AsyncLedger, graphs: Mapping[str, Any] | None = None) -> None:
        self._ledger, self._since = ledger, clock_ms()
        self._graphs: dict[str, Any] = {}
        for name, source in (graphs or {}).items():
            assistant_namespace(name)
            self._graphs[name] = _compiled(name, source) if isinstance(source, StateGraph) else source
            if not (isinstance(source, Pregel | StateGraph) or callable(source)):
                msg = f"graph {name!r} is {type(source).__name__}; register a graph, or a function that makes one"
                raise ConfigurationError(msg)
        self._saver_of = lru_cache(_SAVERS)(self._make_saver)
        self._store_of = lru_cache(_SAVERS)(self._make_store)

    @property
    def names(self) -> list[str]:
        """The names, in the order in which they were registered."""
        return list(self._graphs)

    def saver(self, principal: Principal) -> LedgerSaver:
        """Return the saver of a caller: it is bound to no assistant, and caches what it read."""
        # One for all keys of a user: what these may do is checked before, and does not change what there is to read.
        return self._saver_of(msgspec.structs.replace(principal, scopes=frozenset(), name=""))

    def store(self, principal: Principal) -> LedgerBaseStore:
        """Return the items of a caller, which the graphs get that were compiled without a store."""
        return self._store_of(principal.user_id)

    async def assistant(self, principal: Principal, assistant_id: str) -> Assistant:
        """Read an assistant, by its id or the name of a graph."""
        return await self._ledger.run(lambda _: self.assistants(principal).get(assistant_id))

    def assistants(self, principal: Principal) -> Assistants:
        """Return the assistants that a caller may use, for code that runs in a worker thread."""
        return Assistants(self._graphs, self._ledger.blocking(), principal, self._since)

    @asynccontextmanager
    async def open(
        self,
        principal: Principal,
        assistant: str | Assistant,
        config: RunnableConfig | None = None,
        *,
        namespace: str | None = None,
    ) -> AsyncGenerator[OpenGraph]:
        """Open the graph of an assistant for a caller; use it with `async with`."""
        resolved = await self.assistant(principal, assistant) if isinstance(assistant, str) else assistant
        saver = self.saver(principal).for_namespace(namespace or resolved.namespace)
        async with self.graph(resolved.graph_id, config or configured(resolved, "")) as graph:
            if isinstance(graph, Pregel):
                store = self.store(principal) if graph.store is None else graph.store
                # LangGraph calls a graph without a name "LangGraph"; its server shows the name that it is registered under.
                name = resolved.graph_id if graph.name == "LangGraph" else graph.name
                yield OpenGraph(
                    resolved, graph.copy({"checkpointer": saver, "store": store, "name": name}), None, saver
                )
            else:
                yield OpenGraph(resolved, None, graph, saver)

    @asynccontextmanager
    async def graph(self, graph_id: str, config: RunnableConfig | None = None) -> AsyncGenerator[Graph | Runner]:
        """Open a registered graph as it is, without checkpoints."""
        if graph_id not in self._graphs:
            msg = f"Graph '{graph_id}' not found. Available graphs: {', '.join(map(repr, self._graphs)) or 'none'}"
            raise NotFoundError(msg)
        source = self._graphs[graph_id]
        if inspect.isasyncgenfunction(source):
            yield cast("Runner", source)
            return
        if not isinstance(source, Pregel):
            source = source(config or {}) if _takes_config(source) else source()
            source = await source if inspect.isawaitable(source) else source
        made: Any
        if isinstance(source, AbstractAsyncContextManager):
            async with cast("AbstractAsyncContextManager[Any]", source) as made:
                yield _compiled(graph_id, made)
        elif isinstance(source, AbstractContextManager) and not isinstance(source, Pregel):
            with cast("AbstractContextManager[Any]", source) as made:
                yield _compiled(graph_id, made)
        else:
            yield _compiled(graph_id, source)

    def _make_saver(self, principal: Principal) -> LedgerSaver:
        return LedgerSaver(principal.limited(self._ledger))

    def _make_store(self, user_id: str | None) -> LedgerBaseStore:
        return LedgerBaseStore(self._ledger, user_id=user_id)


def configured(assistant: Assistant, thread_id: str, overrides: Mapping[str, Any] | None = None) -> RunnableConfig:
    """Return the config of a run of an assistant: its own, with overrides; see `OpenGraph.config`."""
    # The last word is ours: a client that names another thread or assistant in its config would read that one's state.
    identity = {"assistant_id": assistant.assistant_id, "graph_id": assistant.graph_id}
    own, more = assistant.config, overrides or {}
    configurable = {
        **own.get("configurable", {}),
        **more.get("configurable", {}),
        **identity,
        "thread_id": thread_id,
    }
    metadata = {**assistant.metadata, **own.get("metadata", {}), **more.get("metadata", {}), **identity}
    tags = [*own.get("tags", []), *more.get("tags", [])]
    merged = {**own, **more, "configurable": configurable, "metadata": metadata}
    return cast("RunnableConfig", merged | ({"tags": tags} if tags else {}))


def load_graphs(named: Sequence[str]) -> dict[str, Any]:
    """
    Import graphs that are named as `name=module:attribute`, or `name=./file.py:attribute`.

    Modules are looked for in the working directory too.
    """
    graphs: dict[str, Any] = {}
    for entry in named:
        name, equals, place = entry.partition("=")
        module, colon, attribute = place.rpartition(":")
        if not (name and equals and module and colon and attribute):
            msg = f"{entry!r} names no graph: write name=module:attribute, or name=./file.py:attribute"
            raise ConfigurationError(msg)
        if name in graphs:
            msg = f"there are two graphs with the name {name!r}"
            raise ConfigurationError(msg)
        try:
            graphs[name] = attrgetter(attribute)(_module(module))
        except Exception as error:
            msg = f"cannot import the graph {entry!r}: {type(error).__name__}: {error}"
            raise ConfigurationError(msg) from error
    return graphs


def _module(name: str) -> Any:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if not name.endswith(".py"):
        return importlib.import_module(name)
    path = Path(name).resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None, "a file of Python code"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # which is where pickles and type hints look for it
    spec.loader.exec_module(module)
    return module


def _takes_config(source: Callable[..., Any]) -> bool:
    """Whether it can be called with one argument by position."""
    try:
        inspect.signature(source).bind({})
    except TypeError:
        return False
    return True


def _compiled(graph_id: str, made: Any) -> Graph:
    untyped: Any = made
    graph: Any = untyped.compile() if isinstance(made, StateGraph) else untyped
    if not isinstance(graph, Pregel):
        msg = f"what makes graph {graph_id!r} gave {type(untyped).__name__}, which is no graph of LangGraph"
        raise ConfigurationError(msg)
    return cast("Graph", graph)
