"""Forms that change something: read, proved to be of our own pages, and carried out."""

from typing import Final
from urllib.parse import parse_qsl

import msgspec
from starlette.responses import RedirectResponse, Response

from ..http.problems import RequestError
from ..http.routing import MAX_MESSAGES_BYTES, HttpCall, Route
from .actions import Action
from .page import SAFE_HEADERS, rooted
from .sessions import CSRF_FIELD, FORMS, Sessions

_FORM: Final = "application/x-www-form-urlencoded"
_MOST_FIELDS: Final = 50
"""More than any form has; a body of 64 MiB could have 30 million."""


def form_route(name: str, kind: type[Action], sessions: Sessions) -> Route:
    """Return the route that an action's form is sent to, where only pages of this server may send it from."""

    def do(call: HttpCall, body: bytes) -> Response:
        form = _form_of(call, body)
        sessions.check_proof(sessions.session_of(call.request), form.pop(CSRF_FIELD, ""))
        try:
            action = msgspec.convert(form, kind, strict=False)
        except msgspec.ValidationError as error:
            raise RequestError(422, f"in the form: {error}", name="InvalidValueError") from error
        onward = rooted(call.request, action.do(call.ledger))
        return RedirectResponse(onward, 303, SAFE_HEADERS | {"Cache-Control": "no-store"})

    return Route("POST", FORMS + name, do, is_strict=False, max_body_bytes=MAX_MESSAGES_BYTES)


def _form_of(call: HttpCall, body: bytes) -> dict[str, str]:
    kind = (call.header("Content-Type") or "").partition(";")[0].strip().lower()
    if kind != _FORM:
        raise RequestError(415, f"forms are sent as {_FORM}", name="UnsupportedMediaType")
    try:
        fields = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise RequestError(400, f"the form cannot be read: {error}", name="InvalidValueError") from error
    return dict(fields)
