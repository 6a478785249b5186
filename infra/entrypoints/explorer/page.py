"""Pages: a function that reads values, the template that shows them, and the same values as JSON."""

import re
from collections.abc import Callable
from copy import copy
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from ..http.problems import RequestError
from ..http.routing import ROOT, HttpCall, Route, entity_tag

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


class ExplorerPage(Route):
    """
    A page: `ExplorerPage("/c/{chat_id}", show_chat, "chat.html")`.

    Its function returns a `Value`, which is `page` in the template, and the answer at the path with `.json`.
    Every page takes `at` from the query, a position or a time: then the call's `reader` is the ledger as of it.

    Args:
        template: The file of the template; without one it answers with a `Response` that the function makes, or with the JSON.
        title: The entry in the navigation; None for none.
        twin: The path of the JSON, where it is not that of the page with `.json`.
    """

    moment_name = "at"

    def __init__(
        self,
        path: str,
        handler: Callable[..., Any],
        template: str | None = None,
        *,
        title: str | None = None,
        twin: str | None = None,
    ) -> None:
        super().__init__("GET", path, handler, has_moment=True, is_strict=False)
        self.template, self.title = template, title
        self.twin = path + TWIN if twin is None else twin

    def routes(self) -> list["ExplorerPage"]:
        """Return the page, and before it its JSON: a part of a path matches its `.json` too."""
        if self.template is None:
            return [self]
        twin = copy(self)  # with the parameters of this path: that of the twin has `{chat_id}.json`
        twin.path, twin.template = self.twin, None
        return [twin, self]


def refuse_moment(call: HttpCall) -> None:
    """Refuse to show the past on a page that has none."""
    if call.moment is not None:
        raise RequestError(422, "agents are shown as they are now; leave `at` out", name="InvalidValueError")


def moment_ms(call: HttpCall) -> int | None:
    """Return when the moment of a call was; None for now, and where its event is erased or not for the caller to see."""
    if isinstance(call.moment, datetime):
        return int(call.moment.timestamp() * 1000)
    event = next(iter(call.ledger.history(after=call.moment - 1, up_to=call.moment)), None) if call.moment else None
    return None if event is None else event.occurred_at


def answer_text(request: Request, body: bytes, media_type: str, headers: dict[str, str], status: int = 200) -> Response:
    """Answer with a page or its JSON; with a 304 where the browser has it."""
    tag = entity_tag(body)
    headers = SAFE_HEADERS | KEPT | headers | {"ETag": tag}
    if status == 200 and tag in request.headers.get("if-none-match", ""):
        return Response(None, 304, headers)
    return Response(body, status, headers, media_type)


_TAG: Final = re.compile(r"<[a-zA-Z][^<>]*>")
_OWN_PATH: Final = re.compile(r'(?<=[ \n])((?:href|src|action|data-live|data-verify|data-answer)=")(?=/(?!/))')


def rooted(request: Request, path: str) -> str:
    """Return a path of this server as browsers ask for it."""
    root: str = request.scope.get(ROOT, "")
    return root + path


def with_rooted_paths(request: Request, page: str) -> str:
    """Return a page whose links and forms name paths of this server as browsers ask for them."""
    root: str = request.scope.get(ROOT, "")
    # Done here once, and not by every template: one link that was forgotten would lead out of the proxy's path.
    return _TAG.sub(lambda tag: _OWN_PATH.sub(rf"\g<1>{root}", tag[0]), page) if root else page


def path_to(path: str, **parts: str) -> str:
    """Return a path with its parts filled in, encoded so that each stays one part and none ends like a JSON twin."""
    for name, value in parts.items():
        encoded = quote(value, safe="~!$&'()*+,;=:@")
        # A chat may be called `a.json`: its page must not be the JSON of chat `a`.
        if encoded.endswith(TWIN):
            encoded = encoded.removesuffix(TWIN) + "%2Ejson"
        path = path.replace(f"{{{name}}}", encoded)
    return path


def ago(at_ms: int) -> Markup:
    """Return a time, to be told by how long ago it was; in UTC, `2026-03-01 09:30 UTC`, until a script knows the reader's clock."""
    return _time(at_ms, "data-relative", "%Y-%m-%d %H:%M UTC")


def clock(at_ms: int) -> Markup:
    """Return a time, to be told to the second by the reader's clock; in UTC until a script knows it."""
    return _time(at_ms, "data-clock", "%Y-%m-%d %H:%M:%S UTC")


def _time(at_ms: int, told: str, form: str) -> Markup:
    time = datetime.fromtimestamp(at_ms / 1000, UTC)
    exact = time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Markup('<time {} datetime="{}">{}</time>').format(told, exact, time.strftime(form))
