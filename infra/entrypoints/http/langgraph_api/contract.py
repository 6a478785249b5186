"""How requests of LangGraph's clients are answered: `{"detail": ...}` for errors, and the bodies as they are."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Annotated, Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as PathRoute

from chatledger.domain.errors import ChatledgerError

from ....ledger.aio.async_ledger import AsyncLedger
from ....ledger.ledger import Ledger
from ...langgraph.saver import LedgerSaver
from ...langgraph.store import LedgerBaseStore
from ..access import Principal
from ..problems import RequestError, answer_problem, problem_of, status_of
from ..routing import JSON, MAX_MESSAGES_BYTES, Method, Route
from ..service import Service
from .assistants import Assistants
from .encoding import encode
from .runs import Runs

PAGE_TOTAL: Final = "X-Pagination-Total"
PAGE_NEXT: Final = "X-Pagination-Next"
T = TypeVar("T")
Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]
"""The most that a page has."""
Offset = Annotated[int, msgspec.Meta(ge=0)]
"""The number of entries before a page."""


class Call:
    """
    One request, for the coroutine that answers it.

    Attributes:
        service: The whole ledger, and when the server stops.
        graphs: The graphs that the server runs.
        runs: What it executes.
        principal: Who asks.
        headers: Of the answer; to be added to.
        status: Of the answer; None for 200, or 204 without a body.
    """

    def __init__(self, service: Service, runs: Runs, principal: Principal, request: Request) -> None:
        self.service, self.graphs, self.runs = service, runs.graphs, runs
        self.principal, self.request = principal, request
        self.headers: dict[str, str] = {}
        self.status: int | None = None

    @cached_property
    def ledger(self) -> AsyncLedger:
        """The ledger, limited to the user who asks."""
        return self.principal.limited(self.service.ledger)

    @cached_property
    def saver(self) -> LedgerSaver:
        """The saver of who asks, bound to no assistant."""
        return self.graphs.saver(self.principal)

    @cached_property
    def store(self) -> LedgerBaseStore:
        """The items of who asks."""
        return self.graphs.store(self.principal)

    @cached_property
    def assistants(self) -> Assistants:
        """The assistants of who asks, for what runs in a worker thread."""
        return self.graphs.assistants(self.principal)

    async def run(self, call: Callable[[Ledger], T]) -> T:
        """Return the answer of a function of the blocking ledger of who asks, which runs in a worker thread."""
        return await self.ledger.run(call)

    def page(self, found: Sequence[T], offset: int, limit: int) -> list[T]:
        """Cut a page out of what was found, and tell of it in the headers; `found` may end one after the page."""
        more = len(found) > offset + limit
        self.headers[PAGE_TOTAL] = str(offset + limit + 1 if more else len(found))
        if more:
            self.headers[PAGE_NEXT] = str(offset + limit)
        return list(found[offset : offset + limit])


def route(method: Method, path: str, handler: Callable[..., Any], *, is_reading: bool = False) -> Route:
    """
    Return a route that is answered by a coroutine function of a `Call` and what its annotations name.

    What it returns is encoded; None is no body, and a `Response` is sent as it is. Keys that are not known are ignored.
    """
    return Route(
        method,
        path,
        handler,
        scope="read" if is_reading else None,
        is_streamed=True,
        is_strict=False,
        max_body_bytes=MAX_MESSAGES_BYTES,
    )


def paths_of(routes: Sequence[Route], service: Service, runs: Runs) -> list[PathRoute]:
    """Return the paths of the routes, for an application."""
    by_path: dict[str, dict[str, Route]] = {}
    for one in routes:
        by_path.setdefault(one.path, {})[one.method] = one
    return [
        PathRoute(path, partial(_answer, service, runs, methods), methods=list(methods))
        for path, methods in by_path.items()
    ]


def refusal(error: ChatledgerError | RequestError) -> Response:
    """Answer with an error in LangGraph's form."""
    status = status_of(error) if isinstance(error, ChatledgerError) else error.status
    headers = error.headers if isinstance(error, RequestError) else None
    return Response(encode({"detail": str(error)}), status, headers, JSON)


def answer_detail(request: Request, error: Exception) -> Response:
    """Answer a request with an error that came before its route, in LangGraph's form."""
    plain = answer_problem(request, error)
    headers = {name: value for name, value in plain.headers.items() if name not in {"content-length", "content-type"}}
    return Response(encode({"detail": problem_of(error)["detail"]}), plain.status_code, headers, JSON)


async def _answer(service: Service, runs: Runs, methods: Mapping[str, Route], request: Request) -> Response:
    found = methods["GET" if request.method == "HEAD" else request.method]
    try:
        principal = await _permitted(service, found, request)
        arguments = await _arguments(found, request)
        call = Call(service, runs, principal, request)
        with service.ledger.context(actor=principal.actor):
            answer = await found.handler(call, **arguments)
    except (ChatledgerError, RequestError) as error:
        return refusal(error)
    if isinstance(answer, Response):
        answer.headers.update(call.headers)
        return answer
    if answer is None:
        return Response(None, call.status or 204, call.headers)
    return Response(encode(answer), call.status or 200, call.headers, JSON)


async def _permitted(service: Service, found: Route, request: Request) -> Principal:
    principal = await service.principal(request)
    if not principal.may(found.scope):
        msg = f"this needs the scope {found.scope!r}"
        raise RequestError(403, msg)
    return principal


async def _arguments(found: Route, request: Request) -> dict[str, Any]:
    try:
        return await found.arguments(request)
    except RequestError as error:
        if error.status != 400:
            raise
        raise RequestError(422, "Invalid JSON in request body") from error
