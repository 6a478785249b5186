"""
A server in processes of its own, with a stream of what happens: `python -m tests.support.feed_server LOCATION WORKERS`.

`/feed` streams positions of the log, each as an event with it as id; `/worker` names the process that answers.
"""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from chatledger.infra.entrypoints.http.server_sent_events import EventStream, ServerSentEvent
from chatledger.infra.entrypoints.http.serving import serve
from chatledger.infra.entrypoints.http.settings import Serving


def with_feed(app: Starlette, *, slow_s: float = 30.0) -> Starlette:
    """An application with `/feed` and `/worker`."""

    async def feed(request: Request) -> Response:
        service = app.state.service
        after = int(request.headers.get("last-event-id", "0"))

        async def events() -> AsyncIterator[ServerSentEvent]:
            async with service.ledger.feed(after) as changes:
                async for recorded in changes:
                    data = b"x" * int(request.query_params.get("size", "1"))
                    yield ServerSentEvent(data, id=str(recorded.position))

        return EventStream(events(), stopping=service.stopping, slow_s=slow_s)

    async def worker(_: Request) -> Response:
        return PlainTextResponse(str(os.getpid()))

    app.add_route("/feed", feed)
    app.add_route("/worker", worker)
    return app


class ServingFeed(Serving, frozen=True, kw_only=True):
    """How a ledger is served, with `/feed`."""

    def application(self) -> Starlette:
        """The application, with `/feed`."""
        return with_feed(super().application())


@contextmanager
def feed_server(location: Path, workers: int = 1, *, port: int = 0) -> Generator[tuple[subprocess.Popen[str], str]]:
    """
    A server in a process, and its address; it is told to stop at the end if it is still there.

    What it has to complain of is in `errors.txt` beside the ledger.
    """
    command = [sys.executable, "-m", "tests.support.feed_server", str(location), str(workers), str(port)]
    errors = location.with_name("errors.txt").open("a")
    with errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("serving "), line
            yield process, line.rsplit(" ", 1)[1].strip()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(90)


def main() -> None:
    """Serve until told to stop."""
    location, workers, port = sys.argv[1:]
    settings = ServingFeed(location=location, port=int(port), workers=int(workers))
    serve(settings, tell=lambda line: print(line, flush=True), show=print)


if __name__ == "__main__":
    main()
