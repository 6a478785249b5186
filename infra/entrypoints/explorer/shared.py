"""Pages of what is shared by links: one chat, to be read by anybody who has the link, and nothing else."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as PathRoute

from chatledger.domain.errors import NotFoundError
from chatledger.domain.values import Message
from chatledger.domain.wire import Value

from ...ledger.ledger import Ledger
from ...ledger.links import SHARED
from ..http.service import Service
from .page import HTML, SAFE_HEADERS
from .rendering import file_of

_ROWS: Final = 100
_BRANCHES: Final = 100
_CLOSED: Final = SAFE_HEADERS | {
    # The address is the secret: no page that it leads to is told, no cache keeps it, and no search engine lists it.
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Robots-Tag": "noindex, nofollow, noarchive",
}


class SharedPage(Value, frozen=True, kw_only=True):
    """
    A part of a chat as a link shows it.

    Args:
        branch: The one that is shown; None up to a message.
        branches: Those that the reader may choose from: the first 100, where the link shows all.
        first: The depth of the first message, counted from 0.
        following: That of the part after it; None at the end.
    """

    title: str | None
    messages: list[Message]
    branch: str | None
    branches: list[str]
    first: int
    following: int | None


class SharedChats:
    """The pages of links. They ask for nobody's name, and take nothing from the request but the link, a branch and a depth."""

    def __init__(self, service: Service, render: Callable[..., bytes]) -> None:
        self._service, self._render = service, render

    def paths(self) -> list[PathRoute]:
        path = SHARED + "{chat_id}/{secret}"
        return [PathRoute(path, self.show), PathRoute(path + "/files/{message_id}/{index}", self.answer_file)]

    async def show(self, request: Request) -> Response:
        """Show the chat of a link; of one that opens nothing, that it does."""
        chat_id, secret = _link_in(request)
        try:
            first = int(request.query_params.get("first", "0"))
            page = await self._service.ledger.run(
                partial(_read, chat_id, secret, request.query_params.get("branch"), min(max(first, 0), 2**32))
            )
        except (NotFoundError, ValueError):
            page = None
        if page is None:
            return self._nothing(request)
        at = f"{SHARED}{quote(chat_id, safe='')}/{secret}"
        return Response(self._render(request, "shared.html", page=page, path=at), 200, _CLOSED, HTML)

    async def answer_file(self, request: Request) -> Response:
        """Answer with the file that a part of a shared message holds."""
        chat_id, secret = _link_in(request)
        message_id, index = unquote(request.path_params["message_id"]), request.path_params["index"]
        try:
            message = await self._service.ledger.run(partial(_read_message, chat_id, secret, message_id))
            answer = None if message is None else file_of(message, int(index))
        except (NotFoundError, ValueError):
            answer = None
        if answer is None:
            return self._nothing(request)
        answer.headers.update({name: value for name, value in _CLOSED.items() if name != "Content-Security-Policy"})
        return answer

    def _nothing(self, request: Request) -> Response:
        # The same for what is revoked, over, gone, and never was: whoever tries learns nothing of what there is.
        return Response(self._render(request, "shared.html", page=None, path=""), 404, _CLOSED, HTML)


def _link_in(request: Request) -> tuple[str, str]:
    return unquote(request.path_params["chat_id"]), request.path_params["secret"]


def _read(chat_id: str, secret: str, chosen: str | None, first: int, ledger: Ledger) -> SharedPage | None:
    link = ledger.get_link(chat_id, secret)
    if link is None:
        return None
    branches = []
    if link.branch is None and link.until is None:
        branches = [branch.name for branch in ledger.list_branches(chat_id)[:_BRANCHES]]
    branch = chosen if branches and chosen is not None else link.branch
    part = ledger.get_page(chat_id, branch=branch, along=link.until, first=first, limit=_ROWS)
    if link.until is not None and part.branch is not None:
        return None  # a branch has the id of the message as its name, and may have more than its chain
    chat = ledger.get_chat(chat_id)
    end = first + len(part.entries)
    return SharedPage(
        title=None if chat is None else chat.title,
        messages=[_as_shared(entry.message) for entry in part.entries if not entry.message.is_hidden],
        branch=None if link.until is not None else part.branch,
        branches=branches,
        first=first,
        following=end if end < part.count else None,
    )


def _read_message(chat_id: str, secret: str, message_id: str, ledger: Ledger) -> Message | None:
    link = ledger.get_link(chat_id, secret)
    message = None if link is None else ledger.get_message(message_id)
    if link is None or message is None or message.chat_id != chat_id or message.is_hidden:
        return None
    tip = link.until
    if link.branch is not None:
        branch = ledger.get_branch(chat_id, link.branch)
        tip = None if branch is None else branch.head_message_id
    if link.branch is not None or link.until is not None:
        meeting = None if tip is None else ledger.common_ancestor(message_id, tip)
        return message if meeting is not None and meeting.id == message_id else None
    return message


def _as_shared(message: Message) -> Message:
    """A message without the names of users: who reads by a link is nobody's colleague."""
    why = message.redacted
    nameless: dict[str, Any] = {"sender_id": None, "annotation": None}
    if why is not None:
        nameless["redacted"] = msgspec.structs.replace(why, by=None, reason=None)
    return msgspec.structs.replace(message, **nameless)
