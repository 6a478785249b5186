"""LangGraph's own client of a server, in both of its kinds, and the graph that it talks to."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, Final, Literal, TypedDict

from anyio.from_thread import BlockingPortal, start_blocking_portal
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt
from langgraph_sdk import get_client, get_sync_client

Kind = Literal["sync", "async"]
KINDS: Final[tuple[Kind, ...]] = ("sync", "async")


class Echo(TypedDict, total=False):
    messages: Annotated[list[Any], add_messages]
    n: int


def echo() -> Any:
    """A graph of one node that echoes, fails on `boom` and interrupts on `ask`; not compiled."""

    def work(state: Echo) -> dict[str, Any]:
        said = state.get("messages", [])[-1].content
        if said == "boom":
            msg = "boom happened"
            raise ValueError(msg)
        if said == "ask":
            interrupt({"question": "go on?"})
        return {"messages": [{"role": "assistant", "content": f"echo: {said}"}], "n": state.get("n", 0) + 1}

    graph: Any = StateGraph(Echo)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    graph.add_edge("work", END)
    return graph


class Part:
    """One part of a client, such as `threads`: its methods block, whatever the kind, and are noted."""

    def __init__(self, name: str, part: Any, call: Callable[..., Any], called: set[str]) -> None:
        self._name, self._part, self._call, self._called = name, part, call, called

    def __getattr__(self, method: str) -> Callable[..., Any]:
        self._called.add(f"{self._name}.{method}")
        return partial(self._call, getattr(self._part, method))


class Client:
    """
    A client of LangGraph's API.

    Attributes:
        called: The methods that were called, such as `threads.get`.
        inner: The client itself.
    """

    def __init__(self, inner: Any, call: Callable[..., Any]) -> None:
        self.inner, self.called = inner, set[str]()
        self.assistants, self.threads, self.store, self.crons = (
            Part(name, getattr(inner, name), call, self.called) for name in ("assistants", "threads", "store", "crons")
        )


@contextmanager
def sdk(url: str, kind: Kind = "sync", *, key: str | None = None) -> Generator[Client]:
    """Open a client, which identifies itself by a key if one is given."""
    if kind == "sync":
        inner = get_sync_client(url=url, api_key=key)
        with inner:
            yield Client(inner, _at_once)
        return
    with start_blocking_portal() as portal:
        asynchronous = portal.call(partial(get_client, url=url, api_key=key))
        try:
            yield Client(asynchronous, partial(_in_portal, portal))
        finally:
            portal.call(asynchronous.aclose)


def _at_once(method: Callable[..., Any], *args: Any, **named: Any) -> Any:
    return method(*args, **named)


def _in_portal(portal: BlockingPortal, method: Callable[..., Any], *args: Any, **named: Any) -> Any:
    return portal.call(partial(method, *args, **named))
