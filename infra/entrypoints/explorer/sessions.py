"""Sessions of browsers: a cookie that proves, sealed, which link or key was shown."""

import contextlib
import hmac
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
from cryptography.fernet import Fernet, InvalidToken
from starlette.requests import Request
from starlette.responses import Response

from chatledger.domain.errors import ConfigurationError

from ..http.access import EVERYBODY, LOCAL_USER, Principal
from ..http.problems import RequestError
from ..http.service import Service
from .links import EntryLinks
from .page import rooted

CSRF_HEADER: Final = "X-Chatledger-CSRF"
CSRF_FIELD: Final = "csrf"
FORMS: Final = "/do/"
"""The beginning of paths for forms, which prove by a field that a page of this server sent them."""

SESSION_S: Final = 12 * 3600
"""The time after which a browser that asked for nothing is signed out, in seconds."""

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def _now() -> int:
    return int(time.time())


class Session(msgspec.Struct, frozen=True):
    """
    The content of a session's cookie, readable for the server only.

    `key` is what was shown, looked at anew with each request, None for a link; `csrf` what requests that change something carry.
    """

    key: str | None
    csrf: str


class Sessions:
    """
    Signs browsers in and knows them again.

    Args:
        key: Seals the cookies, as `Fernet.generate_key` makes it. With the same one, sessions hold across restarts and in all
            processes.
        links: The links that let browsers in; None where keys do, or nobody is asked.
    """

    def __init__(
        self, service: Service, key: bytes, links: EntryLinks | None, *, now: Callable[[], int] = _now
    ) -> None:
        self._service, self._sealing, self.links, self._now = service, Fernet(key), links, now

    @property
    def is_open(self) -> bool:
        """Whether the server lets everybody in."""
        return self.links is None and not self._service.has_access

    def session_of(self, request: Request) -> Session | None:
        sealed = request.cookies.get(_cookie_name(request))
        if sealed is None:
            return None
        try:
            session = msgspec.msgpack.decode(
                self._sealing.decrypt_at_time(sealed, SESSION_S, self._now()), type=Session
            )
        except (InvalidToken, msgspec.DecodeError, ValueError):  # the last for what is no ASCII
            return None
        # A session by a link ends where keys let in, and the other way round: the way in was changed since.
        return session if (session.key is None) == (self.links is not None) else None

    async def principal(self, request: Request) -> Principal | None:
        """Return the caller by the session of a request; None where it has none that holds. Refuses changes that no page of ours sent."""
        session = self.session_of(request)
        if session is None:
            return None
        principal = self._visitor() if session.key is None else await self._service.identify_by(_headers(session.key))
        if principal is not None and request.method not in _SAFE and not request.scope["path"].startswith(FORMS):
            self.check_proof(session, request.headers.get(CSRF_HEADER, ""))
        return principal

    def check_proof(self, session: Session | None, proof: str) -> None:
        """Refuse a request that changes something, has a session, and not what only the pages of that know."""
        if session is not None and not hmac.compare_digest(proof.encode(), session.csrf.encode()):
            msg = f"a request with a session that changes something needs the header {CSRF_HEADER}; load the page again"
            raise RequestError(403, msg, name="CsrfError")

    def _visitor(self) -> Principal:
        user_id = None if self.links is None else self.links.user_id
        # Who came by a link sits at this machine; on a server that lets everybody in, nobody knows who acts.
        name = LOCAL_USER if user_id is None else user_id
        return EVERYBODY if self.links is None else Principal(user_id, name=name)

    def begin_by_link(self, request: Request, response: Response, token: str) -> bool:
        """Sign a browser in by the token of a link; False where it is not that of the current one."""
        if self.links is None or not self.links.use(token):
            return False
        self._keep(request, response, Session(None, secrets.token_hex(16)))
        return True

    async def begin_by_key(self, request: Request, response: Response, key: str) -> bool:
        """Sign a browser in by a key or token; False where nobody is known by it."""
        if self.links is not None or await self._service.identify_by(_headers(key)) is None:
            return False
        self._keep(request, response, Session(key, secrets.token_hex(16)))
        return True

    def prolong(self, request: Request, response: Response) -> None:
        """Let the session of a request hold on, where half of its time is over."""
        session = self.session_of(request)
        if session is None:
            return
        began = self._sealing.extract_timestamp(request.cookies[_cookie_name(request)])
        if self._now() - began > SESSION_S / 2:
            self._keep(request, response, session)

    def end(self, request: Request, response: Response) -> None:
        """Sign a browser out."""
        response.delete_cookie(_cookie_name(request), rooted(request, "/"), httponly=True, samesite="strict")

    def _keep(self, request: Request, response: Response, session: Session) -> None:
        sealed = self._sealing.encrypt_at_time(msgspec.msgpack.encode(session), self._now()).decode()
        # Without an age: the browser forgets it when it is closed, and never writes it to a disk.
        response.set_cookie(
            _cookie_name(request),
            sealed,
            path=rooted(request, "/"),  # other applications of the site get none
            httponly=True,
            samesite="strict",
            secure=request.scope.get("scheme") == "https",
        )


def new_session_key() -> bytes:
    return Fernet.generate_key()


def kept_session_key(beside: Path | None) -> bytes:
    """
    Return the key for sessions that lies beside a ledger, and is made there if there is none.

    A new one where no file can be written: then sessions end with this process.
    """
    if beside is None:
        return new_session_key()
    path = beside.with_suffix(".session-key")
    try:
        if not path.exists():
            # Make a file with a new key, which is there whole or not at all, and readable for its owner only.
            # A link, not a rename: of two processes that start together the second must take the key of the first.
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.") as file:
                file.write(new_session_key() + b"\n")
                file.flush()
                with contextlib.suppress(FileExistsError):
                    os.link(file.name, path)
        key = path.read_bytes().strip()
    except OSError:
        return new_session_key()
    try:
        Fernet(key)
    except ValueError as error:
        msg = f"{path} holds no key for sessions: {error}; remove it, and a new one is made"
        raise ConfigurationError(msg) from error
    return key


def _headers(key: str) -> Mapping[str, str]:
    # Whether it is a key or a token only the application's function knows, and it may look at either header.
    return {"x-api-key": key, "authorization": f"Bearer {key}"}


def _cookie_name(request: Request) -> str:
    """The name of the cookie: that of another port is another, as browsers send cookies to all ports of a host (RFC 6265, 8.5)."""
    # The port that the browser knows. Behind a proxy, servers at several ports are one to it.
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"chatledger-{port if port.isdecimal() else 'session'}"
