"""Upkeep: proof that nothing was changed, the position on the log, the chats whose time is over, and what is being erased."""

import threading
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Final

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
from chatledger.domain.values import ErasureReceipt, Swept
from chatledger.domain.wire import Value

from ....ledger.ledger import Ledger
from ..problems import problem_of
from ..routing import HttpCall, Route
from ..server_sent_events import ServerSentEvent, event_of

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
    return await call.stream(_verifying(call.ledger))


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


async def _verifying(ledger: Ledger) -> AsyncGenerator[ServerSentEvent]:
    """Yield how far a verification is, and at its end what came of it. It ends with the connection."""
    progress: tuple[int, int] | None = None
    ends: list[ServerSentEvent] = []
    is_left = False

    def note(done: int, of: int) -> None:
        nonlocal progress
        if is_left:
            raise _AbandonedError  # a thread cannot be cancelled: its next step is where it can be left
        progress = done, of

    def verify() -> None:
        try:
            ends.append(event_of(ledger.verify(progress=note), name="result"))
        except _AbandonedError:
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for the end
            ends.append(event_of(problem_of(error), name="error"))

    # Of its own: a verification takes as long as the log is, and would hold one of the few threads that answer requests.
    threading.Thread(target=verify, name="chatledger-verify", daemon=True).start()
    try:
        while not ends:
            if progress is None:
                await anyio.sleep(_LOOK_S)
            else:
                (done, of), progress = progress, None
                yield event_of({"done": done, "of": of}, name="progress")
        yield ends[0]
    finally:
        is_left = True


Most = Annotated[int, msgspec.Meta(ge=1, le=10_000, description="At most so many.")]


class Position(Value, frozen=True):
    """The position up to which reads know everything, and that of the last event on the log."""

    position: int
    last_position: int


class ChatIds(Value, frozen=True):
    """The ids of chats."""

    chat_ids: list[str]


class Sweep(msgspec.Struct, forbid_unknown_fields=True):
    """The most chats and states to delete, the longest due first."""

    limit: Most | None = None


def get_position(call: HttpCall) -> Position:
    """Read the position on the log; it counts the events of all users."""
    return Position(call.ledger.get_position(), call.ledger.last_position())


def list_due(call: HttpCall, limit: Most = 1000) -> ChatIds:
    """List the chats whose time is over, the longest due first."""
    return ChatIds(call.ledger.due_chats(limit=limit))


class Receipts(Value, frozen=True):
    """Receipts of deletions, the oldest first."""

    erasures: list[ErasureReceipt]


def list_erasures(call: HttpCall, *, pending: bool | None = None) -> Receipts:
    """
    List the receipts of deletions, of the last 30 days: `erased_at` is null until the bytes are gone.

    With `pending` only those whose bytes are to be erased, or are gone. Who sees one user's chats sees those of this user's chats and threads.
    """
    return Receipts(call.ledger.erasures(is_pending=pending))


def sweep(call: HttpCall, body: Sweep | None = None) -> Swept:
    """Delete the chats whose time is over, and answer which; threads, states and items that expired go too. A server that is open does so by itself, now and then."""
    return call.ledger.sweep(limit=(body or Sweep()).limit)


_UNSOUND: Final = (ChainIntegrityError, CorruptStateError)

ROUTES: Final = {
    "proof": [
        Route("GET", "/verify", verify, stream=stream_verify, scope="admin", has_moment=False, raises=_UNSOUND),
        Route("POST", "/verify", verify_anchor, scope="admin", raises=_UNSOUND),
        Route("POST", "/anchors", make_anchor, scope="admin", status=201, raises=_UNSOUND),
    ],
    "upkeep": [
        Route("GET", "/position", get_position, has_moment=False),
        Route("GET", "/due", list_due, scope="admin", has_moment=False),
        Route("POST", "/sweep", sweep, scope="admin"),
        Route("GET", "/erasures", list_erasures, has_moment=False),
    ],
}
