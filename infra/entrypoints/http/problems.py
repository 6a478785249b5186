"""Problem details (RFC 9457): what an error of the ledger, or a request that cannot be read, answers."""

from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from chatledger.domain.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    ChainIntegrityError,
    ChatledgerError,
    ConfigurationError,
    ConflictError,
    CorruptStateError,
    EmbeddingError,
    EmptyChatError,
    HeldError,
    IndexFullError,
    InvalidValueError,
    LastBranchError,
    LedgerClosedError,
    LogFullError,
    LogUnavailableError,
    NotFoundError,
    PayloadTooLargeError,
    ProjectionError,
    ResolverError,
    RuntimeMismatchError,
    WrongChatError,
)

URN: Final = "urn:chatledger:error:"
MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_S: Final = 1
"""Seconds, for 429 and 503."""

STATUSES: Final[dict[type[ChatledgerError], int]] = {
    NotFoundError: 404,
    AlreadyExistsError: 409,
    ConflictError: 409,
    WrongChatError: 409,
    HeldError: 423,
    LastBranchError: 409,
    EmptyChatError: 409,
    RuntimeMismatchError: 409,
    PayloadTooLargeError: 413,
    InvalidValueError: 422,
    AccessDeniedError: 403,
    LogFullError: 507,
    IndexFullError: 507,
    LogUnavailableError: 503,
    LedgerClosedError: 503,
    ResolverError: 502,
    ChainIntegrityError: 500,
    CorruptStateError: 500,
    ProjectionError: 500,
    ConfigurationError: 500,
    EmbeddingError: 502,
    ChatledgerError: 500,
}
"""The status of each class of errors; a class that is not named has that of its nearest base."""

_TITLES: Final = {
    400: "Bad request",
    401: "Who is asking?",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    413: "Too large",
    415: "Unknown media type",
    429: "Too many requests",
    500: "Internal error",
    503: "Unavailable",
}


class ProblemDetails(msgspec.Struct, kw_only=True, omit_defaults=True):
    """
    A problem: `type` names the error, `title` says what it is, `detail` what happened, to which id, and what to do.

    Facts of the error follow as members of their own, such as `actual` of a `HeadConflictError`.
    """

    type: str
    title: str
    status: int
    detail: str | None = None


class RequestError(Exception):
    """A request that cannot be read, or is not allowed, before the ledger was asked. `name` is the last part of the problem's `type`."""

    def __init__(
        self, status: int, detail: str, *, name: str = "RequestError", headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.name, self.headers = status, detail, name, headers


class BodyError(RequestError):
    """A request whose body is no JSON; some clients read it with another status than 400."""

    def __init__(self, detail: str) -> None:
        super().__init__(400, f"the body is no JSON: {detail}", name="InvalidValueError")


def status_of(error: ChatledgerError | type[ChatledgerError]) -> int:
    kind = error if isinstance(error, type) else type(error)
    return next(STATUSES[base] for base in kind.__mro__ if base in STATUSES)


def problem_of(error: Exception) -> dict[str, Any]:
    if isinstance(error, ChatledgerError):
        kind = type(error)
        title = (kind.__doc__ or kind.__name__).strip().splitlines()[0]
        # Extension members (RFC 9457, 3.2): a client finds the actual head of a conflict without parsing the sentence.
        facts = {
            name: value
            for name, value in vars(error).items()
            if not name.startswith("_") and (value is None or isinstance(value, str | int | float | bool))
        }
        return {
            **facts,
            "type": URN + kind.__name__,
            "title": title,
            "status": status_of(error),
            "detail": str(error),
        }
    if isinstance(error, RequestError):
        title = _TITLES.get(error.status, "Bad request")
        return {"type": URN + error.name, "title": title, "status": error.status, "detail": error.detail}
    if isinstance(error, HTTPException):
        # `about:blank` says that the status is all there is to know (RFC 9457, 4.2.1).
        title = _TITLES.get(error.status_code, error.detail)
        return {"type": "about:blank", "title": title, "status": error.status_code, "detail": error.detail}
    return {
        "type": "about:blank",
        "title": _TITLES[500],
        "status": 500,
        "detail": "the server's log says what happened; nothing is known of the outcome, retrying with the same Idempotency-Key is safe",
    }


def answer_problem(request: Request, error: Exception) -> Response:
    problem: dict[str, Any] = {**problem_of(error), "instance": request.url.path}
    headers: dict[str, str] = {}
    if isinstance(error, RequestError | HTTPException) and error.headers:
        headers.update(error.headers)
    if problem["status"] in {429, 503}:
        headers.setdefault("Retry-After", str(RETRY_AFTER_S))
    return Response(msgspec.json.encode(problem), problem["status"], headers, MEDIA_TYPE)
