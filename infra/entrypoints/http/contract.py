"""Contracts: what one kind of clients finds here, and the way of each request from its route to its answer."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as PathRoute

from chatledger.domain.wire import encode_json

from ...ledger.ledger import Ledger
from .access import Principal
from .routing import (
    CACHING,
    ERASURE,
    IDEMPOTENCY_KEY,
    JSON,
    POSITION,
    HttpCall,
    Route,
    entity_tag,
    moment_of,
    wait_for_position,
)
from .server_sent_events import HEADERS
from .service import Refuse, Service


def encode_answer(call: HttpCall, route: Route, answer: Any) -> Response:
    """Answer with JSON, or what else the route gives, and with the position; with a 304 where the client has it."""
    if call.position is not None:
        call.headers[POSITION] = str(call.position)
    if isinstance(answer, Response):
        answer.headers.update(call.headers)
        return answer
    status = call.status or route.status
    if answer is None and route.answers is None:
        return Response(None, 204 if call.status is None else status, call.headers)
    body = encode_json(answer) if route.media_type == JSON else str(answer).encode()
    if route.method == "GET":
        call.headers["Cache-Control"] = CACHING
        tag = entity_tag(body)
        call.headers["ETag"] = tag
        if tag in (call.header("If-None-Match") or ""):
            return Response(None, 304, call.headers)
    return Response(body, status, call.headers, route.media_type)


class Contract(NamedTuple):
    """
    The routes of one kind of clients, and the form in which these read answers and errors.

    Args:
        encode: Makes the answer of what the function of a route returned.
        refuse: Answers with an error; None as a problem.
        begin: Makes the call of a request, or refuses it.
    """

    prefix: str
    routes: Sequence[Route]
    encode: Callable[[HttpCall, Any, Any], Response] = encode_answer
    refuse: Refuse | None = None
    begin: Callable[[Service, Principal, Request], HttpCall] = HttpCall

    def paths(self, service: Service) -> list[PathRoute]:
        """Return the paths for an application, which answers errors on them in the form of this contract from now on."""
        by_path: dict[str, dict[str, Route]] = {}
        for route in self.routes:
            path = self.prefix + route.path
            by_path.setdefault(path, {})[route.method] = route
            if self.refuse is not None:
                service.error_forms[path.split("/")[1]] = self.refuse
        return [
            PathRoute(path, partial(_answer, self, service, methods), methods=list(methods))
            for path, methods in by_path.items()
        ]


async def _answer(contract: Contract, service: Service, methods: dict[str, Route], request: Request) -> Response:
    route = methods["GET" if request.method == "HEAD" else request.method]
    principal = await service.permitted(request, route.scope)
    call = contract.begin(service, principal, request)
    arguments = await route.arguments(request)
    # After the arguments, so that a wrong request does not wait; before any thread is taken, so that waiting holds none.
    await wait_for_position(request, service)
    moment = arguments.pop(route.moment_name) if route.has_moment else None
    call.moment = None if moment is None else moment_of(moment, route.moment_name)
    function = route.function_for(request)
    if not iscoroutinefunction(function):
        return await service.ledger.run(partial(_answer_in_thread, contract, route, call, arguments))
    if request.method == "HEAD" and route.has_events(request):
        return Response(None, 200, HEADERS)
    # No command id: a coroutine begins work that outlives the request, of which each write would be taken for the first.
    with service.ledger.context(actor=principal.actor):
        return contract.encode(call, route, await function(call, **arguments))


def _answer_in_thread(
    contract: Contract, route: Route, call: HttpCall, arguments: dict[str, Any], _: Ledger
) -> Response:
    ledger, principal = call.ledger, call.principal
    with ExitStack() as stack:
        call.reader = ledger
        if call.moment is not None:
            call.reader = stack.enter_context(call.service.views.reading(ledger, principal.view, call.moment))
        stack.enter_context(ledger.context(actor=principal.actor, command_id=call.header(IDEMPOTENCY_KEY)))
        # Of a read the position before it: a client that follows the feed from there misses nothing of what came meanwhile.
        if route.method == "GET":
            call.position = ledger.get_position()
        answer = route.handler(call, **arguments)
        if route.method != "GET":
            call.position = ledger.get_position()
        if route.method == "DELETE" and ledger.erasures(is_pending=True):
            call.headers[ERASURE] = "pending"
    return contract.encode(call, route, answer)
