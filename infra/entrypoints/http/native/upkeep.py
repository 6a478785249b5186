"""Upkeep: proof that nothing was changed, the position on the log, the chats whose time is over, what is being erased, and what is held."""

import threading
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from io import BytesIO
from typing import Annotated, Any, Final, Literal, cast

import anyio
import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response, StreamingResponse

from chatledger.domain.errors import (
    AccessDeniedError,
    ChainIntegrityError,
    ConfigurationError,
    CorruptStateError,
    InvalidValueError,
    MessageNotFoundError,
    NotFoundError,
    WrongChatError,
)
from chatledger.domain.legal_hold import HoldKind, LegalHold
from chatledger.domain.proof.anchors import Anchor
from chatledger.domain.proof.erasure_report import ErasureReport
from chatledger.domain.proof.excerpt import ExcerptStanding
from chatledger.domain.proof.verification import Verification
from chatledger.domain.retention import Erases, RetentionKind, RetentionRule
from chatledger.domain.values import ErasureReceipt, Swept
from chatledger.domain.wire import Value

from ....exchange.jsonl import write_steps
from ....ledger.ledger import Ledger
from ..problems import problem_of
from ..routing import HttpCall, Route
from ..server_sent_events import ServerSentEvent, event_of
from .chats import LINES, Lines

_LOOK_S: Final = 0.25
_NO_KEY: Final = "this server signs nothing: it has no key; start it with --anchor-key"


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
        raise AccessDeniedError(_NO_KEY)
    anchor: dict[str, Any] = msgspec.json.decode(call.ledger.anchor(key).to_json())
    return anchor


class ChosenMessages(msgspec.Struct, forbid_unknown_fields=True):
    """
    Messages of one chat to prove, and whom the proof is for.

    It ends at `expires_at`, in ms, or after `ttl_seconds`; after five minutes without these, and never with null.
    """

    message_ids: list[str]
    audience: str | None = None
    expires_at: int | UnsetType | None = UNSET
    ttl_seconds: float | None = None


class ExcerptText(Value, frozen=True):
    """An excerpt: chosen messages as a text by which anybody checks that they were there."""

    excerpt: str


def make_excerpt(call: HttpCall, body: ChosenMessages) -> ExcerptText:
    """
    Prove that messages are there, to somebody who does not get the ledger: they as a text that the server signs with `--anchor-key`.

    `chatledger.admin.check_excerpt` or `chatledger check-proof` checks it, without the ledger.
    """
    key = call.service.anchor_key
    if key is None:
        raise AccessDeniedError(_NO_KEY)
    return ExcerptText(call.ledger.prove(**msgspec.structs.asdict(body), key=key))


def check_standing(call: HttpCall, body: ExcerptText) -> ExcerptStanding:
    """
    Say whether what an excerpt shows is still so here: which of its messages were redacted, revoked or superseded, or are gone.

    Neither its signature nor its end is checked, which needs no ledger.
    """
    return call.ledger.still_valid(body.excerpt)


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
    """The most chats and states to delete, the longest due first; with `dry_run` nothing is deleted, and the answer is what would be."""

    limit: Most | None = None
    dry_run: bool = False


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


def erase_user(call: HttpCall, user_id: str, *, dry_run: bool = False, pseudonym: str | None = None) -> ErasureReport:
    """
    Erase all that a user owns, chats, threads, states and items, and say what is left; with `dry_run` only say what would be erased.

    With `pseudonym` it takes the place of the user's name in chats of others, whose memberships end.
    It answers when the bytes are gone. Asked again it goes on, and of a user who owns nothing its report is empty.
    """
    return call.ledger.erase_user(user_id, dry_run=dry_run, pseudonym=pseudonym)


def export_user(call: HttpCall, user_id: str) -> Lines:
    """
    Export all that a user owns, chats, threads, states and items, as JSON lines, which `POST /import` and `chatledger import` read.

    They come one after the other, as they are read: an answer that ends before its totals is not whole.
    """
    exported = call.ledger.export_user(user_id)

    # Read as the client takes it: all that somebody owns may be more than the memory of the server.
    def chunks() -> Iterator[bytes]:
        lines = BytesIO()
        for _ in write_steps(lines, exported, Counter()):
            yield lines.getvalue()
            lines.seek(0)
            lines.truncate()

    streamed = StreamingResponse(
        () if call.request.method == "HEAD" else chunks(), 200, {"Cache-Control": "no-store"}, LINES
    )
    return cast("str", streamed)  # for the reference, which says what is in it


class NewHold(msgspec.Struct, forbid_unknown_fields=True):
    """A legal hold to be put on a chat, a thread, a state, an item or a user."""

    kind: HoldKind
    id: str
    reason: str | None = None


class Holds(Value, frozen=True):
    """Legal holds, the last put first."""

    holds: list[LegalHold]


class Released(Value, frozen=True):
    """Whether there was a hold."""

    released: bool


def list_holds(call: HttpCall, kind: HoldKind | None = None) -> Holds:
    """List the legal holds that are in force: on what, since when, by whom and why."""
    return Holds(call.ledger.holds(kind))


def put_hold(call: HttpCall, body: NewHold) -> LegalHold:
    """
    Put a legal hold on a chat, a thread, a state, an item or all of a user: nothing of it is deleted, erased, or expires, until it is released.

    A chat is held with its thread and the states of its conversation. Whatever would destroy it answers 423. Repeating changes nothing but the reason.
    """
    return call.ledger.hold(body.kind, body.id, reason=body.reason)


def release_hold(call: HttpCall, kind: HoldKind, id: str) -> Released:  # noqa: A002 - as in the body of `POST`
    """Release a legal hold. What another one covers stays held."""
    return Released(call.ledger.release(kind, id))


def sweep(call: HttpCall, body: Sweep | None = None) -> Swept:
    """Delete the chats whose time is over, and answer which; threads, states and items that expired go too, and what no rule keeps longer. A server that is open does so by itself, now and then."""
    asked_for = body or Sweep()
    return call.ledger.sweep(limit=asked_for.limit, dry_run=asked_for.dry_run)


class NewRule(msgspec.Struct, forbid_unknown_fields=True):
    """
    A retention rule: `kind` is what it is about, `keep_days` how long that is kept, null for ever.

    `since` says from when the days count, `user_id` and `metadata` what it is limited to. With `erases` as `content` messages are redacted, those
    with one of `roles`, or all, each so many days after it came, and their chats stay. With `versions`, earlier versions of threads, states and
    items lose their content so many days after newer ones came; the newest `keep_last` stay.
    """

    keep_days: float | None
    kind: RetentionKind = "chat"
    since: Literal["updated", "created"] = "updated"
    user_id: str | None = None
    metadata: dict[str, str | bool | int | float] | None = None
    erases: Erases = "all"
    roles: list[str] = []
    keep_last: int = 1


class RetentionRules(Value, frozen=True):
    """Retention rules, by name."""

    rules: list[RetentionRule]


class Removed(Value, frozen=True):
    """Whether there was a rule."""

    removed: bool


def list_retention(call: HttpCall) -> RetentionRules:
    """List the retention rules: how long what is kept."""
    return RetentionRules(call.ledger.retention())


def set_retention(call: HttpCall, name: str, body: NewRule) -> RetentionRule:
    """Set a retention rule, or set it anew. Of the rules that fit a thing the most specific decides; a sweep deletes what is over."""
    return call.ledger.set_retention(name, **msgspec.structs.asdict(body))


def remove_retention(call: HttpCall, name: str) -> Removed:
    """Remove a retention rule; what it said when stays in the history."""
    return Removed(call.ledger.remove_retention(name))


_UNSOUND: Final = (ChainIntegrityError, CorruptStateError)

ROUTES: Final = {
    "proof": [
        Route("GET", "/verify", verify, stream=stream_verify, scope="admin", has_moment=False, raises=_UNSOUND),
        Route("POST", "/verify", verify_anchor, scope="admin", raises=_UNSOUND),
        Route("POST", "/anchors", make_anchor, scope="admin", status=201, raises=_UNSOUND),
        Route("POST", "/excerpts", make_excerpt, status=201, raises=(MessageNotFoundError, WrongChatError)),
        Route("POST", "/excerpts/standing", check_standing, scope="read"),
    ],
    "upkeep": [
        Route("GET", "/position", get_position, has_moment=False),
        Route("GET", "/due", list_due, scope="admin", has_moment=False),
        Route("POST", "/sweep", sweep, scope="admin"),
        Route("GET", "/erasures", list_erasures, has_moment=False),
        Route("DELETE", "/users/{user_id}", erase_user, scope="admin"),
        Route("GET", "/users/{user_id}/export", export_user, scope="admin", media_type=LINES, has_moment=False),
        Route("GET", "/holds", list_holds, scope="admin", has_moment=False),
        Route("POST", "/holds", put_hold, scope="admin", raises=(NotFoundError,)),
        Route("DELETE", "/holds", release_hold, scope="admin"),
        Route("GET", "/retention", list_retention, scope="admin", has_moment=False),
        Route("PUT", "/retention/{name}", set_retention, scope="admin"),
        Route("DELETE", "/retention/{name}", remove_retention, scope="admin"),
    ],
}
