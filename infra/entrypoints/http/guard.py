"""The guard before all routes: authentication, web pages, and the limits of each user: requests per second, open streams, size of headers."""

import time
from collections import Counter
from collections.abc import Collection, Generator, Hashable
from contextlib import ExitStack, contextmanager
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chatledger.domain.errors import ConfigurationError

from ...ledger.links import SHARED
from .access import PRINCIPAL, Principal, credential_of
from .problems import RequestError
from .service import Service

OPEN_PATHS: Final = frozenset({"/livez", "/readyz", "/healthz", "/ok", "/openapi.json"})
"""Paths for strangers: load balancers, and clients that look whether the server is there."""

_STRANGER: Final = Principal(user_id="", scopes=frozenset({"read"}))
"""The principal of open paths; none of these reads a chat."""
_OWN_SITES: Final = frozenset({"same-origin", "none"})
"""Values of `Sec-Fetch-Site` for requests of the server's own pages, and for those that no page made."""
_API_PATHS: Final = ("/api/", "/v1/", "/mcp")
_MAX_BUCKETS: Final = 10_000


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """
    Limits of one user in one process of a server.

    Args:
        requests_per_second: How many requests on average; twice as many, and at least ten, at once. Any number when None.
        streams_per_user: How many streams and other answers without a length may be open, such as those that wait for a run, and
            how many live streams may be written.
        header_bytes: The size of all headers of a request.
        lag_events: How many events the index may be behind the log while the server calls itself ready.
    """

    requests_per_second: Annotated[float, msgspec.Meta(gt=0)] | None = None
    streams_per_user: Annotated[int, msgspec.Meta(ge=1)] = 256
    header_bytes: Annotated[int, msgspec.Meta(ge=1024)] = 32 << 10
    lag_events: Annotated[int, msgspec.Meta(ge=0)] = 1000


def limits_of(**options: float | None) -> Limits:
    """Return limits from options; those that are None are as they are by default, and others in their range."""
    try:
        return msgspec.convert({name: value for name, value in options.items() if value is not None}, Limits)
    except msgspec.ValidationError as error:
        msg = f"limits cannot be like this: {error}"
        raise ConfigurationError(msg) from error


class Allowances:
    """Use of the limits by each user, in this process."""

    def __init__(self, limits: Limits) -> None:
        self.limits: Final = limits
        self._buckets: dict[Hashable, tuple[float, float]] = {}
        self._streams: Counter[Hashable] = Counter()

    def __len__(self) -> int:
        """Number of users whose requests are counted."""
        return len(self._buckets)

    def take_request(self, caller: Hashable) -> None:
        """Count a request; refuse one that is too many now."""
        rate = self.limits.requests_per_second
        if rate is None:
            return
        size, now = max(10.0, 2 * rate), time.monotonic()
        if len(self._buckets) >= _MAX_BUCKETS:
            # A full bucket is as good as none: memory is only held for users that asked just now.
            self._buckets = {
                other: (tokens, at)
                for other, (tokens, at) in self._buckets.items()
                if tokens + (now - at) * rate < size
            }
        tokens, at = self._buckets.get(caller, (size, now))
        tokens = min(size, tokens + (now - at) * rate)
        if tokens < 1:
            self._buckets[caller] = tokens, now
            msg = f"more than {rate:g} requests a second; wait, then go on"
            wait_s = max(1, round((1 - tokens) / rate))  # whole seconds, as RFC 9110 (10.2.3) has them
            raise RequestError(429, msg, name="TooManyRequests", headers={"Retry-After": str(wait_s)})
        self._buckets[caller] = tokens - 1, now

    @contextmanager
    def stream(self, caller: Hashable) -> Generator[None]:
        """Count a stream as long as it is open; refuse one too many."""
        most = self.limits.streams_per_user
        if self._streams[caller] >= most:
            msg = f"{most} streams are open; close one first"
            raise RequestError(429, msg, name="TooManyStreams", headers={"Retry-After": "5"})
        self._streams[caller] += 1
        try:
            yield
        finally:
            self._streams[caller] -= 1
            if not self._streams[caller]:
                del self._streams[caller]


class Guard:
    """
    Admission of requests: their headers are small enough, the caller is known, and does not ask too often.

    Web pages are kept out, as a browser sends what any page tells it, to a server on its own machine, or with its cookies. So
    a request has a key or a token, comes from no page, from one of the server's own or of `origins`, or follows a link to a
    page. Where nobody has to authenticate, the server is called by one of `hosts`.

    Args:
        origins: The pages of other servers that may use this one; `*` for all.
        hosts: Names by which the server may be called, where nobody has to authenticate; any when None.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        service: Service,
        limits: Limits,
        origins: Collection[str] = (),
        hosts: Collection[str] | None = None,
    ) -> None:
        self._app, self._service = app, service
        self._allowances = Allowances(limits)
        self._origins, self._hosts = frozenset(origins), None if hosts is None else frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            caller = await self._admit(request)
        except RequestError as error:
            await self._service.answer_error(request, error)(scope, receive, send)
            return
        with ExitStack() as stack:

            async def counted(message: Message) -> None:
                if _is_open_ended(message):
                    # Only now it is known that the answer is a stream, and nothing of it was sent yet.
                    try:
                        stack.enter_context(self._allowances.stream(caller))
                    except RequestError as error:
                        raise _StreamRefused(error) from error
                await send(message)

            try:
                await self._app(scope, receive, counted)
            except _StreamRefused as refused:
                await self._service.answer_error(request, refused.error)(scope, receive, send)

    async def _admit(self, request: Request) -> tuple[str | None, str]:
        size = sum(len(name) + len(value) for name, value in request.scope["headers"])
        most = self._allowances.limits.header_bytes
        if size > most:
            msg = f"the headers have {size:,} bytes; {most:,} are allowed"
            raise RequestError(431, msg, name="HeadersTooLarge", headers={"Connection": "close"})
        if not self._service.has_access:
            # A page can point its own name at 127.0.0.1 (DNS rebinding). For the browser it is of our origin then, but it calls us so.
            called = request.headers.get("host", "")
            if self._hosts is not None and _host_of(called) not in self._hosts:
                msg = (
                    f"this server is not called {called!r}; start it with --insecure, or with keys, to use other names"
                )
                raise RequestError(421, msg, name="UnknownHost")
        if credential_of(request.headers) is None:
            # A page of another site cannot know a key: browsers add cookies by themselves, and these headers never.
            self._check_page(request)
        principal = _STRANGER
        path: str = request.scope["path"]
        if path not in OPEN_PATHS and not path.startswith(self._service.open_prefixes):
            principal = await self._service.identify(request)
            self._allowances.take_request((principal.user_id, principal.name))
        elif path.startswith(SHARED):
            # A link that spreads must not take the server from those who signed in, nor from readers of another link.
            self._allowances.take_request(tuple(path.split("/")[:4]))
        request.scope[PRINCIPAL] = principal
        return principal.user_id, principal.name

    def _check_page(self, request: Request) -> None:
        """Refuse a page of another site. Images and frames come without an origin, and reads have effects too, as of a named feed."""
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
        if "*" in self._origins or origin in self._origins or site in _OWN_SITES:
            return
        is_other = origin is not None and origin.partition("://")[2] != request.headers.get("host", "")
        if is_other or (site is not None and not _is_link(request)):
            page = "pages of other sites" if origin is None else f"pages of {origin}"
            msg = f"{page} may not use this server; --cors {origin or 'ORIGIN'} lets them"
            raise RequestError(403, msg, name="UnknownOrigin")


class _StreamRefused(Exception):  # noqa: N818 - no error: it takes a refusal out of an answer that was about to begin
    def __init__(self, error: RequestError) -> None:
        super().__init__(error)
        self.error = error


def _is_open_ended(message: Message) -> bool:
    """Whether a message begins an answer of unknown length: a stream, or one that a client waits for."""
    if message["type"] != "http.response.start" or message["status"] != 200:
        return False
    return all(name.lower() != b"content-length" for name, _ in message.get("headers", ()))


def _is_link(request: Request) -> bool:
    """Whether a browser follows a link to a page, as of the explorer; answers of the API are none."""
    sent = request.headers
    is_shown = sent.get("sec-fetch-mode") == "navigate" and sent.get("sec-fetch-dest") == "document"
    return is_shown and request.method == "GET" and not request.scope["path"].startswith(_API_PATHS)


def _host_of(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
