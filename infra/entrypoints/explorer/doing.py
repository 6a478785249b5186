"""Forms that change something: read, proved to be of our own pages, and carried out."""

from functools import partial
from typing import Final
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route as PathRoute

from ...ledger.ledger import Ledger
from ..http.access import Principal
from ..http.problems import RequestError
from ..http.routing import MAX_MESSAGES_BYTES, read_body
from ..http.service import Service
from .actions import ACTIONS, Action
from .page import SAFE_HEADERS, rooted
from .sessions import CSRF_FIELD, FORMS, Sessions
from .signing_in import check_origin

_FORM: Final = "application/x-www-form-urlencoded"
_MOST_FIELDS: Final = 50


class Doing:
    """
    What answers the forms of the pages.

    Args:
        service: What all routes share.
        sessions: Of the browsers.
    """

    def __init__(self, service: Service, sessions: Sessions) -> None:
        self._service, self._sessions = service, sessions

    def paths(self) -> list[PathRoute]:
        """Return the routes."""
        return [
            PathRoute(FORMS + name, partial(self._answer, action), methods=["POST"]) for name, action in ACTIONS.items()
        ]

    async def _answer(self, kind: type[Action], request: Request) -> Response:
        check_origin(request)
        principal = await self._service.principal(request)
        session = self._sessions.session_of(request)
        if self._sessions.links is not None and session is None:
            raise RequestError(401, "open the link that the server printed", name="Unauthenticated")
        if not principal.may("write"):
            msg = "this needs the scope 'write'"
            raise RequestError(403, msg, name="AccessDeniedError")
        form = await _form_of(request)
        self._sessions.check_proof(session, form.pop(CSRF_FIELD, ""))
        try:
            action = msgspec.convert(form, kind, strict=False)
        except msgspec.ValidationError as error:
            raise RequestError(422, f"in the form: {error}", name="InvalidValueError") from error
        onward = await self._service.ledger.run(partial(_do, action, principal))
        return RedirectResponse(rooted(request, onward), 303, SAFE_HEADERS | {"Cache-Control": "no-store"})


def _do(action: Action, principal: Principal, ledger: Ledger) -> str:
    own = principal.limited(ledger)
    with own.context(actor=principal.actor):
        return action.do(own)


async def _form_of(request: Request) -> dict[str, str]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _FORM:
        raise RequestError(415, f"forms are sent as {_FORM}", name="UnsupportedMediaType")
    body = await read_body(request, MAX_MESSAGES_BYTES)
    try:
        fields = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise RequestError(400, f"the form cannot be read: {error}", name="InvalidValueError") from error
    return dict(fields)
