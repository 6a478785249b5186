"""Pages: a function that reads values, the template that shows them, and the same values as JSON."""

import re
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from chatledger.domain.wire import encode_json

from ...ledger.ledger import Ledger
from ...ledger.view import LedgerView
from ..http.access import Principal
from ..http.problems import RequestError
from ..http.routing import JSON, POSITION, ROOT, Call, Route, entity_tag, moment_of, service_of

HTML: Final = "text/html; charset=utf-8"
TWIN: Final = ".json"
"""The end of a page's path for its values as JSON."""

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SAFE_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every answer of the explorer."""

KEPT: Final = {"Cache-Control": "private, no-cache", "Vary": "Cookie"}
"""A browser keeps a page, and asks whether it is still so before it shows it again."""


class PageCall(Call):
    """
    One request for a page, for the function that reads what it shows.

    Attributes:
        at: The moment that the page shows, as the query names it: a position or a time. None for now.
        position: On the log, that the page knew when it was read: whoever follows the feed after it misses nothing.
    """

    def __init__(
        self,
        request: Request,
        principal: Principal,
        ledger: Ledger,
        reader: Ledger | LedgerView,
        *,
        at: str | None = None,
    ) -> None:
        super().__init__(request, principal, ledger, reader)
        self.at = at
        self.position = ledger.get_position()

    def given(self, name: str) -> str:
        """Return a parameter of the query as it was sent, for the fields of a form; empty where it was not."""
        value: str = self.request.query_params.get(name, "")
        return value

    def again(self, **changes: str | int | None) -> str:
        """Return the query of this page with other values; None takes one away."""
        url = self.request.url.remove_query_params([name for name, value in changes.items() if value is None])
        kept = {name: value for name, value in changes.items() if value is not None}
        return f"?{url.include_query_params(**kept).query}"

    @property
    def is_browser_only(self) -> bool:
        """Whether the server answers nobody but browsers that came by its links."""
        return self.service.has_access and bool(getattr(self.request.state, "is_by_link", False))

    @property
    def may_write(self) -> bool:
        """Whether the page may offer changes: who asks may write, and the page shows the present."""
        return self.at is None and self.principal.may("write")


class Page:
    """
    A page: `Page("/c/{chat_id}", show_chat, "chat.html")`.

    Its function is one of a `Route`: its first parameter is the `PageCall`, those that the path names come from there and all
    others from the query. What it returns, a `Value`, is `page` in the template, and the answer at the path with `.json`.
    Every page takes `at` from the query, a position or a time: then the call's `reader` is the ledger as of it.

    Args:
        path: Below the root, with the names of its parts in braces.
        handler: Reads what the page shows. It runs in a worker thread.
        template: The file of the template; without one it answers with a `Response` that the function makes, or with the JSON.
        title: The entry in the navigation; None for none.
        twin: The path of the JSON, where it is not that of the page with `.json`.
    """

    def __init__(
        self,
        path: str,
        handler: Callable[..., Any],
        template: str | None = None,
        *,
        title: str | None = None,
        twin: str | None = None,
    ) -> None:
        self.path, self.template, self.title = path, template, title
        self.twin = path + TWIN if twin is None else twin
        self._route = Route("GET", path, handler, has_moment=True, is_strict=False, moment_name="at")

    @property
    def name(self) -> str:
        """The name of the function, by which templates link to the page."""
        return self._route.name

    async def arguments(self, request: Request) -> dict[str, Any]:
        """
        Read what the function takes from a request, and `at`.

        Raises:
            RequestError: A parameter is not of the declared form.
        """
        return await self._route.arguments(request)

    def read(
        self, request: Request, principal: Principal, ledger: Ledger, arguments: dict[str, Any]
    ) -> tuple[PageCall, Any]:
        """Call the function in this thread; return the call and what it gave."""
        at: str | None = arguments.pop("at")
        own = principal.limited(ledger)
        with ExitStack() as stack:
            reader: Ledger | LedgerView = own
            if at is not None:
                views = service_of(request).views
                reader = stack.enter_context(views.reading(own, principal.view, moment_of(at, "at")))
            call = PageCall(request, principal, own, reader, at=at)
            answer = self._route.handler(call, **arguments)
            call.headers[POSITION] = str(call.position)
        return call, answer


def refuse_moment(call: PageCall) -> None:
    """
    Refuse to show the past on a page that has none.

    Raises:
        RequestError: A moment is asked for.
    """
    if call.at is not None:
        raise RequestError(422, "agents are shown as they are now; leave `at` out", name="InvalidValueError")


def answer_text(request: Request, body: bytes, media_type: str, headers: dict[str, str], status: int = 200) -> Response:
    """Answer with a page or its JSON; with a 304 where the browser has it."""
    tag = entity_tag(body)
    headers = SAFE_HEADERS | KEPT | headers | {"ETag": tag}
    if status == 200 and tag in request.headers.get("if-none-match", ""):
        return Response(None, 304, headers)
    return Response(body, status, headers, media_type)


def answer_json(request: Request, call: PageCall, answer: Any) -> Response:
    """Answer with the values of a page."""
    return answer_text(request, encode_json(answer), JSON, call.headers)


_TAG: Final = re.compile(r"<[a-zA-Z][^<>]*>")
_OWN_PATH: Final = re.compile(r'(?<=[ \n])((?:href|src|action|data-live|data-verify)=")(?=/(?!/))')


def rooted(request: Request, path: str) -> str:
    """Return a path of this server as browsers ask for it."""
    root: str = request.scope.get(ROOT, "")
    return root + path


def with_rooted_paths(request: Request, page: str) -> str:
    """Return a page whose links and forms name paths of this server as browsers ask for them."""
    root: str = request.scope.get(ROOT, "")
    return _TAG.sub(lambda tag: _OWN_PATH.sub(rf"\g<1>{root}", tag[0]), page) if root else page


def path_to(path: str, **parts: str) -> str:
    """Return a path with its parts filled in, encoded so that each stays one part and none ends like a JSON twin."""
    for name, value in parts.items():
        encoded = quote(value, safe="~!$&'()*+,;=:@")
        if encoded.endswith(TWIN):
            encoded = encoded.removesuffix(TWIN) + "%2Ejson"
        path = path.replace(f"{{{name}}}", encoded)
    return path


def shown_time(at_ms: int, *, seconds: bool = False) -> str:
    """Return a time for readers, in UTC: `2026-03-01 09:30`."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M" + (":%S" if seconds else ""))


def iso_time(at_ms: int) -> str:
    """Return a time for programs: `2026-03-01T09:30:00.000Z`."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
