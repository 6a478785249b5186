"""Time that HTTP adds to the library: for a page, an append, and a write that a hundred streams show."""

import json
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import chatledger
from chatledger import user

from ..measure import Row, check_equal, take_turns
from ..world import World, make_chain

_PAGE: Final = 50
_CLIENTS: Final = 100
_MESSAGES: Final = 1000
_PEER: Final = "langgraph-api, in memory"
_PEER_PYTHON: Final = "LANGGRAPH_API_PYTHON"
"""Names the Python of an environment with `langgraph-api` and `langgraph-runtime-inmem`; this one when it is absent."""

_JSON: Final = {"Content-Type": "application/json"}
_FEED: Final = """
import sys
from benchmarks.subjects import serving

serving.serve_feed(sys.argv[1])
"""
_LANGGRAPH_API: Final = """
import sys
from langgraph_api.cli import run_server

run_server("127.0.0.1", int(sys.argv[1]), reload=False, open_browser=False, graphs={"agent": sys.argv[2]})
"""
_GRAPH: Final = """
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages


class State(TypedDict):
    messages: Annotated[list, add_messages]


builder = StateGraph(State)
builder.add_node("answer", lambda state: {})
builder.add_edge(START, "answer")
builder.add_edge("answer", END)
graph = builder.compile()
"""


def serving(world: World) -> Iterator[Row]:
    """A server in a process of its own, asked over one connection; next to the library, and to LangGraph's own server."""
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        return
    folder = world.folder()
    with chatledger.open(folder / "ledger") as ledger, serve_folder(folder / "ledger") as url, ExitStack() as stack:
        make_chain(ledger, "chat", min(_MESSAGES, world.sizes.long))
        ledger.create_chat("over-http", "ada")
        ledger.create_chat("library", "ada")
        client = stack.enter_context(closing(_Client(url)))
        page = partial(client.ask, "GET", f"/api/v1/chats/chat/messages?limit={_PAGE}")
        ours = [entry["message"]["id"] for entry in json.loads(page())["entries"]]
        check_equal("page", ours, [entry.message.id for entry in ledger.get_page("chat", limit=_PAGE).entries])
        yield world.compare(
            page,
            lambda: ledger.get_page("chat", limit=_PAGE).entries,
            subject="serving",
            name=f"page of {_PAGE} messages over HTTP",
            peer="the library",
            note="what HTTP adds, with encoding: one connection that stays open, server and client in two processes",
        )
        append = partial(_append, client)
        yield _appends(world, append, lambda: ledger.append("library", [user("hello")]), "the library")
        with _langgraph_api(world.folder()) as theirs:
            if theirs is not None:
                yield _appends(world, append, theirs.add_message, _PEER)
                if find_spec("langgraph") is not None:
                    yield _runs(world, theirs)
    yield _streams(world)


def _runs(world: World, theirs: "_Thread") -> Row:
    """From the start of a run to its first event, next to LangGraph's server."""
    folder = world.folder()
    (folder / "peer_graph.py").write_text(_GRAPH)
    options = ["--graph", "agent=peer_graph:graph"]
    with (
        serve_folder(folder / "ledger", options=options, cwd=folder) as url,
        closing(_Thread(url)) as ours,
    ):
        times: dict[bool, list[float]] = {True: [], False: []}
        for turn in range(world.sizes.repeats + 1):
            world.report("run, first event")
            for is_ours in (True, False) if turn % 2 else (False, True):
                took = (ours if is_ours else theirs).start_run()
                if turn:  # the first run of each imports what runs need
                    times[is_ours].append(took)
    return Row(
        subject="serving",
        name="start of a run until its first event",
        peer=_PEER,
        ours=times[True],
        theirs=times[False],
        note="POST /threads/{id}/runs/stream, a graph of one node that answers nothing; ours is on the disk (durability='always')",
    )


def _append(client: "_Client") -> None:
    client.ask("POST", "/api/v1/chats/over-http/messages", {"messages": [{"name": "user", "data": "hello"}]})


def _appends(world: World, ours: Callable[[], object], theirs: Callable[[], object], peer: str) -> Row:
    world.report(f"append over HTTP, {peer}")
    samples = take_turns({"ours": ours, "theirs": theirs}, repeats=world.sizes.repeats, sample_s=world.sizes.sample_s)
    return Row(
        subject="serving",
        name="append over HTTP",
        peer=peer,
        ours=samples["ours"],
        theirs=samples["theirs"],
        note="one message, on the disk before it is acknowledged (durability='always'); langgraph-api keeps it in memory",
    )


def _streams(world: World) -> Row:
    """From a write to the last of a hundred streams, next to a single one."""
    folder = world.folder()
    times: dict[int, list[float]] = {1: [], _CLIENTS: []}
    with _child([sys.executable, "-c", _FEED, str(folder / "ledger")]) as url, closing(_Client(url)) as writer:
        writer.ask("POST", "/api/v1/chats", {"id": "over-http"})
        for turn in range(world.sizes.repeats):
            for count in sorted(times, reverse=turn % 2 == 1):
                world.report(f"streams, {count}")
                with _Readers(url, count) as readers:
                    _append(writer)
                    readers.wait()
                    start = time.perf_counter()
                    _append(writer)
                    readers.wait()
                    times[count].append(time.perf_counter() - start)
    return Row(
        subject="serving",
        name=f"append until {_CLIENTS} streams show it",
        peer="one stream",
        ours=times[_CLIENTS],
        theirs=times[1],
        note="server-sent events; the append over HTTP is part of both; all clients in one process",
    )


class _Thread:
    """A thread of a server that speaks LangGraph's API, and calls on it."""

    def __init__(self, url: str, child: "subprocess.Popen[bytes] | None" = None) -> None:
        self._client, self._id = _Client(url), _thread_of(url, child)

    def add_message(self) -> None:
        """Write a message to its state."""
        body = {"values": {"messages": [{"role": "user", "content": "hello"}]}, "as_node": "answer"}
        self._client.ask("POST", f"/threads/{self._id}/state", body)

    def start_run(self) -> float:
        """Return the seconds from the start of a run to its first event; the run is waited for."""
        given = {"messages": [{"role": "user", "content": "hello"}]}
        body = {"assistant_id": "agent", "input": given, "stream_mode": "values"}
        return self._client.first_event(f"/threads/{self._id}/runs/stream", body)

    def close(self) -> None:
        self._client.close()


class _Client:
    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._connection = HTTPConnection(address.hostname or "", address.port, timeout=60)

    def ask(self, method: str, path: str, body: Any = None) -> bytes:
        self._connection.request(method, path, None if body is None else json.dumps(body), _JSON)
        answer = self._connection.getresponse()
        found = answer.read()
        if answer.status >= 400:
            msg = f"{method} {path}: {answer.status} {found[:200]!r}"
            raise RuntimeError(msg)
        return found

    def first_event(self, path: str, body: Any) -> float:
        """Return the seconds until the first event of the answer, which is read to its end."""
        begun = time.perf_counter()
        self._connection.request("POST", path, json.dumps(body), _JSON)
        answer = self._connection.getresponse()
        line = answer.readline()
        while line and not line.startswith(b"event:"):
            line = answer.readline()
        took = time.perf_counter() - begun
        rest = answer.read()
        if answer.status >= 400 or not line or b"event: error" in line + rest:
            msg = f"POST {path}: {answer.status} {(line + rest)[:200]!r}"
            raise RuntimeError(msg)
        return took

    def close(self) -> None:
        self._connection.close()


class _Readers:
    """Streams that are read until each has shown one more event."""

    def __init__(self, url: str, count: int) -> None:
        self._url, self._count = url, count

    def __enter__(self) -> Self:
        address = urlsplit(self._url)
        self._exit = ExitStack()
        self._selector = self._exit.enter_context(selectors.DefaultSelector())
        for _ in range(self._count):
            stream = self._exit.enter_context(socket.create_connection((address.hostname, address.port or 0)))
            stream.sendall(b"GET /feed HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self._selector.register(stream, selectors.EVENT_READ)
        self.wait(b"retry: ")
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def wait(self, sign: bytes = b"data: ") -> None:
        waiting = {key.fd for key in self._selector.get_map().values()}
        while waiting:
            for key, _ in self._selector.select(timeout=60):
                stream = key.fileobj
                assert isinstance(stream, socket.socket)
                if sign in stream.recv(1 << 16):
                    waiting.discard(key.fd)


def serve_feed(location: str) -> None:
    """Serve a ledger, with its new events at `/feed`."""
    from collections.abc import AsyncIterator

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from chatledger.infra.entrypoints.http.server_sent_events import EventStream, ServerSentEvent
    from chatledger.infra.entrypoints.http.serving import serve
    from chatledger.infra.entrypoints.http.settings import Serving

    class WithFeed(Serving, frozen=True, kw_only=True):
        def application(self) -> Starlette:
            app = super().application()
            service = app.state.service

            async def feed(_: Request) -> Response:
                changes = service.ledger.feed(await service.ledger.last_position())

                async def events() -> AsyncIterator[ServerSentEvent]:
                    async with changes:
                        async for recorded in changes:
                            yield ServerSentEvent(b"{}", id=str(recorded.position))

                return EventStream(events(), stopping=service.stopping)

            app.add_route("/feed", feed)
            return app

    serve(WithFeed(location=location, port=0), tell=lambda line: print(line, flush=True), show=print)


def serve_folder(folder: Path, sign: str = "serving ", *, options: Sequence[str] = (), cwd: Path | None = None) -> Any:
    """Serve the ledger in a folder from another process; a context manager that gives the address in the line with a sign."""
    command = [sys.executable, "-m", "chatledger", "serve", "--port", "0", "--no-access-log", "-l", str(folder)]
    return _child([*command, *options], sign, cwd)


@contextmanager
def _child(command: list[str], sign: str = "serving ", cwd: Path | None = None) -> Generator[str]:
    """Run a server in another process; gives its address, which it prints."""
    root = Path(__file__).parents[2]
    # `serve` says on stderr where the explorer is, with a token that signs in.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cwd or root
    ) as child:
        try:
            assert child.stdout is not None
            line = next((line for line in child.stdout if line.startswith(sign)), None)
            if line is None:
                msg = f"the server did not start: {' '.join(command)}"
                raise RuntimeError(msg)
            yield line.split()[-1]
        finally:
            child.terminate()
            child.wait()


@contextmanager
def _langgraph_api(folder: Path) -> Generator[_Thread | None]:
    """LangGraph's server with its runtime in memory; gives a thread of it, None where it is not installed."""
    python = os.environ.get(_PEER_PYTHON, sys.executable)
    wanted = "import langgraph_api.cli, langgraph_runtime_inmem"
    if subprocess.run([python, "-c", wanted], capture_output=True, check=False).returncode:
        yield None
        return
    (folder / "peer_graph.py").write_text(_GRAPH)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-c", _LANGGRAPH_API, str(port), "./peer_graph.py:graph"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=folder, stdout=quiet, stderr=quiet) as child:
        try:
            with closing(_Thread(f"http://127.0.0.1:{port}", child)) as thread:
                yield thread
        finally:
            child.terminate()
            child.wait()


def _thread_of(url: str, child: "subprocess.Popen[bytes] | None") -> str:
    until = time.monotonic() + 120
    while True:
        try:
            made = json.loads(_Client(url).ask("POST", "/threads", {"metadata": {"graph_id": "agent"}}))
        except OSError:
            if child is None or child.poll() is not None or time.monotonic() > until:
                raise
            time.sleep(0.2)
        else:
            found: str = made["thread_id"]
            return found
