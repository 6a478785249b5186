"""The page of proofs: verifying the ledger, anchors, and the proof of a message as a file."""

from typing import Any, Final

from starlette.responses import Response

from chatledger.domain.errors import ChainIntegrityError, CorruptStateError, InvalidValueError
from chatledger.domain.proof.verification import Verification
from chatledger.domain.wire import Value

from ..http.problems import RequestError, problem_of
from ..http.routing import JSON, HttpCall
from .page import SAFE_HEADERS, ExplorerPage


class Proof(Value, frozen=True, kw_only=True):
    """
    The end of the log, and what the caller may do: verify it, and get signed files.

    `verified` is the result of a verification, if the caller wanted one, and `problem` what was wrong.
    """

    position: int
    may_verify: bool
    may_sign: bool
    verified: Verification | None
    problem: dict[str, Any] | None


def proof(call: HttpCall, *, verify: bool = False) -> Proof:
    """Read where the log ends; with `verify`, check all of it first."""
    may_verify = may_see_all(call)
    verified: Verification | None = None
    problem: dict[str, Any] | None = None
    if verify:
        require_all(call)
        try:
            verified = call.ledger.verify()
        except (ChainIntegrityError, CorruptStateError) as error:
            problem = problem_of(error)
    return Proof(
        position=call.ledger.position,
        may_verify=may_verify,
        may_sign=may_verify and call.service.anchor_key is not None,
        verified=verified,
        problem=problem,
    )


def anchor(call: HttpCall) -> Response:
    """Sign where every chat ends now; the anchor as a file."""
    signed = call.ledger.anchor(_key(call))
    return _file(f"anchor-{signed.position}.json", signed.to_json(), JSON)


def message_proof(call: HttpCall, *, message: str) -> Response:
    """Prove that a message is there now, for ever; the proof as a file."""
    key = _key(call)
    if call.ledger.get_message(message) is None:
        raise RequestError(404, f"there is no message {message!r}", name="MessageNotFoundError")
    return _file(
        f"proof-{call.ledger.position}.txt",
        call.ledger.prove(message, key=key, expires_at=None) + "\n",
        "text/plain; charset=utf-8",
    )


def may_see_all(call: HttpCall) -> bool:
    """Return whether the caller may what concerns the chats of everybody."""
    return call.principal.user_id is None and call.principal.may("admin")


def require_all(call: HttpCall) -> None:
    """Refuse who may not what concerns the chats of everybody. Raises `RequestError`."""
    if not may_see_all(call):
        msg = "this reads the chats of everybody: it needs the scope 'admin', and a key that is not one user's"
        raise RequestError(403, msg, name="AccessDeniedError")


def _key(call: HttpCall) -> bytes:
    require_all(call)
    key = call.service.anchor_key
    if key is None:
        msg = "this server signs nothing: it has no key; start it with --anchor-key"
        raise InvalidValueError(msg)
    return key


def _file(name: str, text: str, media_type: str) -> Response:
    kept = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(text, 200, SAFE_HEADERS | kept, media_type)


PAGES: Final = (
    ExplorerPage("/proof", proof, "proof.html", title="Proof"),
    ExplorerPage("/proof/anchor", anchor),
    ExplorerPage("/proof/message", message_proof),
)
