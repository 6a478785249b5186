"""Signing in and out: by a link, which the server printed, or a key."""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route as PathRoute

from ..http.problems import RequestError
from ..http.routing import read_body
from .links import PARAMETER
from .page import HTML, SAFE_HEADERS, rooted
from .sessions import Sessions

SIGN_IN: Final = "/sign-in"
SIGN_OUT: Final = "/sign-out"
_MOST_BYTES: Final = 1 << 15
_FRESH: Final = SAFE_HEADERS | {"Cache-Control": "no-store"}


class SigningIn:
    """The pages that let browsers in."""

    def __init__(self, sessions: Sessions, render: Callable[..., bytes]) -> None:
        self._sessions, self._render = sessions, render

    def paths(self) -> list[PathRoute]:
        return [
            PathRoute(SIGN_IN, self.show, methods=["GET"]),
            PathRoute(SIGN_IN, self.sign_in, methods=["POST"]),
            PathRoute(SIGN_OUT, self.sign_out, methods=["POST"]),
        ]

    async def show(self, request: Request) -> Response:
        """Take the token of a link, or show what lets a browser in."""
        token = request.query_params.get(PARAMETER)
        # A browser that only looks ahead does not use the link up.
        is_meant = request.method == "GET" and "prefetch" not in request.headers.get("sec-purpose", "")
        onward = RedirectResponse(rooted(request, _local(request.query_params.get("next"))), 303, _FRESH)
        if token is not None and is_meant and self._sessions.begin_by_link(request, onward, token):
            return onward
        if self._sessions.is_open or await self._sessions.principal(request) is not None:
            return onward
        return self.ask(request, is_wrong=token is not None, status=200 if token is None else 403)

    async def sign_in(self, request: Request) -> Response:
        """Take a key from the form."""
        check_origin(request)
        form = parse_qs((await read_body(request, _MOST_BYTES)).decode("utf-8", "replace"))
        key, onward = form.get("key", [""])[0].strip(), form.get("next", ["/"])[0]
        response = RedirectResponse(rooted(request, _local(onward)), 303, _FRESH)
        if key and await self._sessions.begin_by_key(request, response, key):
            return response
        return self.ask(request, is_wrong=True, status=403, onward=onward)

    async def sign_out(self, request: Request) -> Response:
        """End the session of a browser."""
        check_origin(request)
        response = RedirectResponse(rooted(request, SIGN_IN), 303, _FRESH)
        self._sessions.end(request, response)
        return response

    def ask(
        self, request: Request, *, is_wrong: bool = False, status: int = 401, onward: str | None = None
    ) -> Response:
        """Show what lets a browser in."""
        # A strict cookie does not come along when a page of another site led here: then this page asks again by itself.
        is_led = request.method == "GET" and request.headers.get("sec-fetch-site") == "cross-site"
        values: dict[str, Any] = {
            "is_wrong": is_wrong,
            "by_link": self._sessions.links is not None,
            "onward": _local(onward or _asked_for(request)),
            "again": rooted(request, _asked_for(request)) if is_led and status == 401 else None,
        }
        body = self._render(request, "sign_in.html", **values)
        return Response(body, status, _FRESH, HTML)


def _asked_for(request: Request) -> str:
    path: str = request.scope["path"]
    if path == SIGN_IN:
        return request.query_params.get("next", "/")
    query = request.scope["query_string"].decode("latin-1")
    return path + ("?" + query if query else "")


def _local(target: str | None) -> str:
    """Return the page to go on with, if it is one of this server; else the first page."""
    # Browsers take `//host` and `/\\host` for another server: a link to the sign-in page would lead there with our name on it.
    is_local = target is not None and target.startswith("/") and target[1:2] not in {"/", "\\"} and target.isprintable()
    return target if is_local and target is not None else "/"


def check_origin(request: Request) -> None:
    """Refuse a form of another server's page."""
    # `Sec-Fetch-Site` first: behind a proxy that changes `Host`, `Origin` has a name of this server that it does not know.
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    is_ours = origin is None or origin.partition("://")[2] == request.headers.get("host")
    if site not in {"same-origin", "none"} if site is not None else not is_ours:
        raise RequestError(403, f"the form was sent by a page of {origin}", name="UnknownOrigin")
