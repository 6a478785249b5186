"""Requests to the native API as commands for a shell, made from its routes."""

import re
import shlex
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import msgspec

from chatledger.domain.wire import encode_json

from ..http.native import PREFIX, ROUTES
from ..http.routing import HttpCall

_ROUTES: Final = {route.handler: route for route in ROUTES}
_VARIABLE: Final = re.compile("\0(\\w+)\0")


class Curl:
    """
    Requests of a program to the server that a page came from.

    Attributes:
        is_refused: Whether the server answers no programs, but only browsers that came by its links.
    """

    def __init__(self, call: HttpCall) -> None:
        self._server = f"{call.request.scope.get('scheme', 'http')}://{call.header('host') or 'localhost'}"
        self.is_refused = call.service.has_access and bool(call.request.state.is_by_link)
        self._has_key = call.service.has_access and not self.is_refused

    def __call__(self, handler: Callable[..., Any], /, **arguments: Any) -> str:
        """Return the request that a function of the native API answers; what it takes neither of path nor query is the body."""
        route = _ROUTES[handler]
        path, query, body = PREFIX + route.path, "", dict[str, Any]()
        for name, value in arguments.items():
            if name in route.in_path:
                path = path.replace(f"{{{name}}}", quote(value, safe=""))
            elif name in route.in_query:
                query += f"{'&' if query else '?'}{name}={quote(value, safe='')}"
            else:
                body[name] = value
        parts = ["curl", "-fsS", "-X", route.method, shlex.quote(self._server + path + query)]
        if self._has_key:
            parts += ["-H", '"X-Api-Key: $CHATLEDGER_KEY"']
        if route.body is not None:
            data = shlex.quote(encode_json(body).decode("utf-8", "replace"))
            # The shell replaces nothing in single quotes: they end before a variable, and begin again after it.
            parts += ["-H", "'Content-Type: application/json'", "-d", _VARIABLE.sub("'\"$\\1\"'", data)]
        return " ".join(parts)


def variable(name: str, *, is_text: bool) -> msgspec.Raw:
    """Return what stands in a body for a variable of the shell: for a text, or for JSON as it is."""
    # JSON escapes every NUL, so this is never a part of what somebody wrote.
    return msgspec.Raw(f'"\0{name}\0"' if is_text else f"\0{name}\0")
