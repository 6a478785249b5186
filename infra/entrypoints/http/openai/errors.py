"""Errors in OpenAI's form: `{"error": {"message", "type", "param", "code"}}`."""

from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ..problems import RequestError, answer_problem, problem_of

_INVALID: Final = "invalid_request_error"
_LIMIT: Final = "rate_limit_error"
_SERVER: Final = "server_error"


class DuplicateItemError(RequestError):
    """Raised when a conversation has another item of that id."""

    def __init__(self, item_id: str) -> None:
        msg = f"the conversation has another item of the id {item_id!r}; items never change, leave the id out to add a new one"
        super().__init__(400, msg, name="DuplicateItemError")


def answer_openai_error(request: Request, error: Exception) -> Response:
    """
    Answer a request with an error, as OpenAI's clients read it.

    `code` names the error of the ledger. Requests that cannot be read answer 400, as OpenAI has it, for our 422.
    """
    problem = problem_of(error)
    plain = answer_problem(request, error)
    status = 400 if plain.status_code == 422 else plain.status_code
    kind = _SERVER if status >= 500 else _LIMIT if status == 429 else _INVALID
    code = None if isinstance(error, HTTPException) else problem["type"].rpartition(":")[2]
    body = {"error": {"message": problem["detail"], "type": kind, "param": None, "code": code}}
    headers = {name: value for name, value in plain.headers.items() if name not in {"content-length", "content-type"}}
    return Response(msgspec.json.encode(body), status, headers, "application/json")
