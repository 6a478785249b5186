"""The contract with LangGraph's clients: `{"detail": ...}` for errors, and answers without an envelope."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Annotated, Any, Final, ParamSpec, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ...langgraph.saver import LedgerSaver
from ...langgraph.store import LedgerBaseStore
from ..access import Principal
from ..problems import BodyError, problem_of
from ..routing import JSON, MAX_MESSAGES_BYTES, HttpCall, Method, Route
from ..service import Service
from .assistants import Assistants
from .encoding import encode
from .runs import Runs

PAGE_TOTAL: Final = "X-Pagination-Total"
PAGE_NEXT: Final = "X-Pagination-Next"
P = ParamSpec("P")
T = TypeVar("T")
Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]
"""The most that a page has."""
Offset = Annotated[int, msgspec.Meta(ge=0)]
"""The number of entries before a page."""


class AgentCall(HttpCall):
    """One request of a client of LangGraph, with what the server runs."""

    def __init__(self, runs: Runs, service: Service, principal: Principal, request: Request) -> None:
        super().__init__(service, principal, request)
        self.graphs, self.runs = runs.graphs, runs

    @cached_property
    def saver(self) -> LedgerSaver:
        return self.graphs.saver(self.principal)

    @cached_property
    def store(self) -> LedgerBaseStore:
        return self.graphs.store(self.principal)

    @cached_property
    def assistants(self) -> Assistants:
        """The assistants of the caller, for what runs in a worker thread."""
        return self.graphs.assistants(self.principal)

    async def run(self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """Return the answer of a function that blocks, as all do that read `ledger`; it runs in a worker thread."""
        return await self.async_ledger.run(lambda _: function(*arguments, **named))

    def page(self, entries: Sequence[T], offset: int, limit: int) -> list[T]:
        """Cut a page out of entries, which may end with the first one after it, and describe it in the headers."""
        more = len(entries) > offset + limit
        self.headers[PAGE_TOTAL] = str(offset + limit + 1 if more else len(entries))
        if more:
            self.headers[PAGE_NEXT] = str(offset + limit)
        return list(entries[offset : offset + limit])


def route(method: Method, path: str, handler: Callable[..., Any], *, is_reading: bool = False) -> Route:
    """
    Return a route that is answered by a function of an `AgentCall` and what its annotations name.

    What it returns is encoded; None is no body, and a `Response` is sent as it is. Keys that are not known are ignored.
    """
    return Route(
        method,
        path,
        handler,
        scope="read" if is_reading else None,
        has_moment=False,
        is_strict=False,
        max_body_bytes=MAX_MESSAGES_BYTES,
    )


def encode_value(call: HttpCall, route: Route, answer: Any) -> Response:
    """Answer with a value as LangGraph's clients read it."""
    del route
    if isinstance(answer, Response):
        answer.headers.update(call.headers)
        return answer
    if answer is None:
        return Response(None, call.status or 204, call.headers)
    return Response(encode(answer), call.status or 200, call.headers, JSON)


def answer_detail(_: Request, error: Exception) -> Response:
    """Answer with an error in LangGraph's form."""
    problem, headers = problem_of(error), getattr(error, "headers", None)
    if isinstance(error, BodyError):  # in LangGraph's words
        problem |= {"status": 422, "detail": "Invalid JSON in request body"}
    return Response(encode({"detail": problem["detail"]}), problem["status"], headers, JSON)
