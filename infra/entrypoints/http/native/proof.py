"""Proof that nothing was changed: verifying the whole ledger, and anchors that others can check it with."""

import threading
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
import msgspec
from starlette.responses import Response

from chatledger.domain.errors import (
    AccessDeniedError,
    ChainIntegrityError,
    ConfigurationError,
    CorruptStateError,
    InvalidValueError,
)
from chatledger.domain.proof.anchors import Anchor
from chatledger.domain.proof.verification import Verification

from ....ledger.ledger import Ledger
from ..problems import problem_of
from ..routing import HttpCall, Route
from ..server_sent_events import ServerSentEvent
from .streams import event_of, stream_of

_LOOK_S: Final = 0.25


class Signed(msgspec.Struct, forbid_unknown_fields=True):
    """An anchor as `POST /anchors` answered it, and the PEM of the public key of whom you trust to have signed it."""

    anchor: dict[str, Any]
    public_key: str | None = None


def verify(call: HttpCall) -> Verification:
    """
    Read the whole log, check every event, and compare the index with what the log says. Changes nothing.

    With `Accept: text/event-stream` the events `progress` say how far it is, and the last one, `result` or `error`, what came
    of it.
    """
    return call.ledger.verify()


async def stream_verify(call: HttpCall) -> Response:
    """Verify, and report the progress."""
    if call.principal.user_id is not None:
        await call.async_ledger.verify()  # which refuses it, with a status: a stream has answered 200 by then
    return await stream_of(call, _Verifying(call.ledger))


def verify_anchor(call: HttpCall, body: Signed) -> Verification:
    """Verify, and check that the log still has everything that it had when an anchor was signed."""
    anchor = Anchor.from_json(msgspec.json.encode(body.anchor))
    key = None if body.public_key is None else body.public_key.encode()  # not the path of a file
    try:
        return call.ledger.verify(anchor=anchor, public_key=key)
    except ConfigurationError as error:
        raise InvalidValueError(str(error)) from error


def make_anchor(call: HttpCall) -> dict[str, Any]:
    """
    Sign where every chat ends now, so that a third party can tell later that nothing before it was changed.

    The server signs with its own key, `--anchor-key`; no private key is ever sent. Keep the answer where whoever can change the
    log cannot change it.
    """
    key = call.service.anchor_key
    if key is None:
        msg = "this server signs no anchors: it has no key; start it with --anchor-key"
        raise AccessDeniedError(msg)
    anchor: dict[str, Any] = msgspec.json.decode(call.ledger.anchor(key).to_json())
    return anchor


class _AbandonedError(Exception):
    """Nobody waits for the verification any more."""


class _Verifying:
    """A verification in a thread, as events. It ends with the connection."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._progress: tuple[int, int] | None = None
        self._last: ServerSentEvent | None = None
        self._is_left = self._is_over = False
        # Of its own: a verification takes as long as the log is, and would hold one of the few threads that answer requests.
        self._thread: threading.Thread | None = None

    def __aiter__(self) -> AsyncIterator[ServerSentEvent]:
        return self

    async def __anext__(self) -> ServerSentEvent:
        """Return the next event: how far it is, or what came of it."""
        if self._is_over:
            raise StopAsyncIteration
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="chatledger-verify", daemon=True)
            self._thread.start()
        while True:
            with self._lock:
                progress, self._progress, last = self._progress, None, self._last
            if last is not None:
                self._is_over = True
                return last
            if progress is not None:
                return event_of({"done": progress[0], "of": progress[1]}, name="progress")
            await anyio.sleep(_LOOK_S)

    def _run(self) -> None:
        try:
            last = event_of(self._ledger.verify(progress=self._note), name="result")
        except _AbandonedError:
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for the end
            last = event_of(problem_of(error), name="error")
        with self._lock:
            self._last = last

    def _note(self, done: int, of: int) -> None:
        with self._lock:
            if self._is_left:
                raise _AbandonedError  # a thread cannot be cancelled: its next step is where it can be left
            self._progress = (done, of)

    async def aclose(self) -> None:
        """End the thread at its next step."""
        with self._lock:
            self._is_left = True


_UNSOUND: Final = (ChainIntegrityError, CorruptStateError)

ROUTES: Final = [
    Route("GET", "/verify", verify, stream=stream_verify, scope="admin", has_moment=False, raises=_UNSOUND),
    Route("POST", "/verify", verify_anchor, scope="admin", raises=_UNSOUND),
    Route("POST", "/anchors", make_anchor, scope="admin", status=201, raises=_UNSOUND),
]
