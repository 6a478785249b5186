"""State that the routes of all contracts share: the ledger, authentication, and whether the server stops."""

import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from inspect import isawaitable
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import anyio
import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from chatledger.domain.chat.members import ROLES
from chatledger.domain.errors import ChatledgerError, ConfigurationError, LiveConflictError, LiveStreamNotFoundError
from chatledger.domain.values import MemberRole

from ...ledger.aio.async_ledger import AsyncLedger
from ...ledger.ledger import Ledger
from ...ledger.live import LiveAnswer
from .access import EVERYBODY, PRINCIPAL, Authenticate, Authorize, Principal, Scope
from .kept_views import KeptViews
from .problems import RequestError, answer_problem

IDLE_S: Final = 60.0
"""Seconds without a write after which a stream is left, and thereby interrupted: another writer may take it over."""
MOST: Final = 1000
"""Streams that may be written through one process at the same time."""


class _StreamKey(NamedTuple):
    chat_id: str
    stream_id: str


class _Held:
    """
    A writer, its user, when it was last used, and whether its stream has ended.

    Of the last request that wrote, it has the idempotency key, and the number of its chunks that were taken. An ended one is kept
    until it is idle, as a client whose answer was lost asks how it ended.
    """

    def __init__(self, writer: LiveAnswer, user_id: str | None, key: str | None) -> None:
        self.writer, self.user_id, self.begun_by = writer, user_id, key
        self.used_s = time.monotonic()
        self.is_ended = False
        self.writing = threading.Lock()
        self.last_key: str | None = None
        self.taken = 0


class LiveWriters:
    """
    The writers that this process has, a thread each. They keep their streams alive, and others from writing them, until they are left.

    Args:
        idle_s: Seconds without a request after which a writer leaves its stream.
    """

    def __init__(self, *, idle_s: float = IDLE_S, most: int = MOST, most_of_user: int = MOST) -> None:
        self._idle_s, self._most, self._most_of_user = idle_s, most, most_of_user
        self._held: dict[_StreamKey, _Held] = {}
        self._changed = threading.Condition()
        self._leaving: threading.Thread | None = None
        self._is_closed = False

    def check_room(self, user_id: str | None) -> None:
        """Refuse one more than there is room for, of this user; None for a caller that acts for everybody."""
        with self._changed:
            if self._is_closed:
                raise RequestError(503, "the server is stopping; try again", name="LedgerClosedError")
            if len(self._held) >= self._most:
                # Ended ones are only kept to be asked about.
                self._held = {key: held for key, held in self._held.items() if not held.is_ended}
            if len(self._held) >= self._most:
                msg = f"{self._most:,} live streams are written here already; end some of them, or try later"
                raise RequestError(429, msg, name="TooManyStreams")
            own = sum(held.user_id == user_id and not held.is_ended for held in self._held.values())
            if user_id is not None and own >= self._most_of_user:
                msg = f"you write {own:,} live streams already; end some of them first"
                raise RequestError(429, msg, name="TooManyStreams")

    def keep(self, writer: LiveAnswer, user_id: str | None, key: str | None = None) -> None:
        """Keep a writer for the requests of a user that follow; `key` is the idempotency key of the one that began it."""
        with self._changed:
            if not self._is_closed:
                self._held[_StreamKey(writer.chat_id, writer.id)] = _Held(writer, user_id, key)
                if self._leaving is None:
                    self._leaving = threading.Thread(target=self._leave_idle, name="chatledger-live-idle", daemon=True)
                    self._leaving.start()
                self._changed.notify_all()
                return
        # The server stopped since `check_room`: nobody would close this one any more.
        writer.close_quietly()

    def writer(self, ledger: Ledger, chat_id: str, stream_id: str, epoch: int) -> LiveAnswer:
        """
        Return the writer of a stream to the holder of its epoch.

        Raises:
            ChatNotFoundError, LiveStreamNotFoundError: There is no such chat, or no such stream.
            AccessDeniedError: The user only reads the chat.
            LiveConflictError: Another writer took the stream over, or it is not written through this process.
        """
        ledger.check_may_write(chat_id)
        with self._changed:
            held = self._held.get(_StreamKey(chat_id, stream_id))
            if held is not None:
                held.used_s = time.monotonic()
        if held is not None and held.writer.epoch == epoch:
            return held.writer
        stream = ledger.get_live(chat_id, stream_id)
        if stream is None:
            raise LiveStreamNotFoundError(chat_id, stream_id)
        status = "being written through another process" if stream.status == "writing" else stream.status
        raise LiveConflictError(chat_id, stream_id, status=status if stream.epoch == epoch else "taken over")

    def begun(self, chat_id: str, stream_id: str, key: str) -> LiveAnswer | None:
        """Return the writer of a stream that was begun with this idempotency key; None where there is none here."""
        with self._changed:
            held = self._held.get(_StreamKey(chat_id, stream_id))
        return None if held is None or held.begun_by != key else held.writer

    def write(self, writer: LiveAnswer, chunks: Sequence[Any], key: str | None) -> None:
        """Write chunks, and wait until they are stored. Those that the last request with this key wrote are not written again."""
        with self._changed:
            held = self._held.get(_StreamKey(writer.chat_id, writer.id)) or _Held(writer, None, None)
        with held.writing:
            if key is None or key != held.last_key:
                held.last_key, held.taken = key, 0
            for chunk in chunks[held.taken :]:
                writer.write(chunk)
                held.taken += 1  # one by one: a request that failed in the middle is repeated from there
            writer.flush()

    def end(self, writer: LiveAnswer) -> None:
        """Note that a stream was committed or discarded."""
        with self._changed:
            held = self._held.get(_StreamKey(writer.chat_id, writer.id))
            if held is not None:
                held.is_ended = True

    def take_over(self, ledger: Ledger, chat_id: str, stream_id: str, epoch: int, user_id: str | None) -> LiveAnswer:
        """Go on with an interrupted stream, and keep its writer."""
        self.check_room(user_id)
        stream = ledger.get_live(chat_id, stream_id)
        if stream is None:
            raise LiveStreamNotFoundError(chat_id, stream_id)
        if stream.epoch != epoch:
            raise LiveConflictError(chat_id, stream_id, status="taken over")
        writer = ledger.take_over_live(stream)
        self.keep(writer, user_id)
        return writer

    def close(self) -> None:
        """Leave all streams: they are interrupted, and can be taken over elsewhere."""
        with self._changed:
            self._is_closed = True
            left = [held.writer for held in self._held.values()]
            self._held.clear()
            self._changed.notify_all()
        for writer in left:
            writer.close_quietly()

    def _leave_idle(self) -> None:
        while True:
            with self._changed:
                if not self._held:
                    self._leaving = None
                    return
                until_s = min(held.used_s for held in self._held.values()) + self._idle_s
                self._changed.wait(max(0.0, until_s - time.monotonic()))
                idle_since_s = time.monotonic() - self._idle_s
                idle = {key: held for key, held in self._held.items() if held.used_s <= idle_since_s}
                for key in idle:
                    del self._held[key]
            for held in idle.values():
                with suppress(ChatledgerError):
                    held.writer.close()


Refuse = Callable[[Request, Exception], Response]
"""Answers a request with an error."""
CHAT_NAMES: Final = ("chat_id", "thread_id", "conversation_id")
"""The names of ids of chats in paths and queries; the id of a thread is that of its chat."""
RUN_STREAM: Final = "run"
"""The role of the live streams that have the events of runs; all others are messages that are being written."""


class Service:
    """
    State that the routes share.

    Attributes:
        stopping: Set when the server stops: streams end then, so that their readers come back to another server.
        running: Contexts that are open while the application runs; contracts add theirs.
        error_forms: How errors are answered on paths whose first part is this; as problems on others.
        error_form_of_strays: How errors are answered on paths that no route has; None as problems.
        open_prefixes: How paths begin that strangers may ask for.
        by_session: Returns the caller by the session of a browser, where the explorer is served.
        executes: Whether this server runs the graph of an assistant, given the caller and its id; called in a worker thread.
    """

    def __init__(
        self,
        ledger: AsyncLedger,
        authenticate: Authenticate | None,
        *,
        authorize: Authorize | None = None,
        anchor_key: bytes | None = None,
        streams_per_user: int = MOST,
    ) -> None:
        self.ledger, self._authenticate, self._authorize = ledger, authenticate, authorize
        self.stopping = anyio.Event()
        self.writers = LiveWriters(most_of_user=streams_per_user)
        self.views = KeptViews()
        self.anchor_key = anchor_key
        self.running: list[Callable[[], AbstractAsyncContextManager[None]]] = []
        self.error_forms: dict[str, Refuse] = {}
        self.error_form_of_strays: Refuse | None = None
        self.open_prefixes: tuple[str, ...] = ()
        self.by_session: Callable[[Request], Awaitable[Principal | None]] | None = None
        self.executes: Callable[[Principal, str], bool] = lambda _caller, _assistant_id: False

    @property
    def has_access(self) -> bool:
        return self._authenticate is not None

    def answer_error(self, request: Request, error: Exception) -> Response:
        """Answer a request with an error, in the form that clients of the path read."""
        first = request.url.path.lstrip("/").partition("/")[0]
        form = self.error_forms.get(first)  # by the path, as a request may fail before its route is found
        if form is None and isinstance(error, HTTPException) and "endpoint" not in request.scope:
            form = self.error_form_of_strays
        return (form or answer_problem)(request, error)

    async def permitted(self, request: Request, scope: Scope) -> Principal:
        """Return the caller, with the roles that the application grants in the chats that the request names."""
        admitted: Principal | None = request.scope.get(PRINCIPAL)
        principal = await self.identify(request) if admitted is None else admitted
        if not principal.may(scope):
            raise RequestError(403, f"this needs the scope {scope!r}", name="AccessDeniedError")
        if self._authorize is None or principal.user_id is None:
            return principal  # without a user there are no roles: all chats are open
        grants: list[tuple[str, MemberRole]] = []
        in_path = [unquote(request.path_params[name]) for name in CHAT_NAMES if name in request.path_params]
        in_query = [chat_id for name in CHAT_NAMES for chat_id in request.query_params.getlist(name)]
        for chat_id in dict.fromkeys(in_path + in_query):
            answer = self._authorize(principal, chat_id)
            role = await answer if isawaitable(answer) else answer
            if role is None:
                continue
            if role not in ROLES:
                msg = f"authorize returns 'reader', 'writer' or None for chat {chat_id!r}, not {role!r}"
                raise ConfigurationError(msg)
            grants.append((chat_id, role))
        return msgspec.structs.replace(principal, grants=(*principal.grants, *grants))

    async def identify(self, request: Request) -> Principal:
        """Return the caller, or refuse a stranger."""
        principal = None if self.by_session is None else await self.by_session(request)
        if principal is not None:
            return principal
        principal = await self.identify_by({name.lower(): value for name, value in request.headers.items()})
        if principal is None:
            msg = "send a key as X-Api-Key, or as Authorization: Bearer"
            raise RequestError(401, msg, name="Unauthenticated", headers={"WWW-Authenticate": "Bearer"})
        return principal

    async def identify_by(self, headers: Mapping[str, str]) -> Principal | None:
        """Return the caller from headers, whose names are in lower case; None for a stranger."""
        if self._authenticate is None:
            return EVERYBODY
        answer = self._authenticate(headers)
        return await answer if isawaitable(answer) else answer
