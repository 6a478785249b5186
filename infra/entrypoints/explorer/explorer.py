"""The contract `explorer`: its pages, static files and errors as routes of the application."""

import re
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.routing import Route as PathRoute

from chatledger.domain.draw.event_words import TYPES
from chatledger.domain.errors import ChatNotFoundError
from chatledger.domain.wire import encode_json

from ...ledger.links import SHARED
from ..agent_steps import duration
from ..http.access import Principal
from ..http.contract import Contract
from ..http.problems import RequestError, answer_problem, problem_of
from ..http.routing import JSON, POSITION, HttpCall, Route
from ..http.service import Service
from . import (
    agents,
    chat,
    chats,
    coding_agents,
    diff,
    log,
    palette,
    person,
    proof,
    search,
    sharing,
    state,
    steps,
    thread,
)
from .actions import ACTIONS
from .chats import LATELY
from .links import EntryLinks
from .markup import changed_words, copied, edited_words, icon, json_code, marked
from .offers import commands_route, form_route
from .page import HTML, TWIN, ExplorerPage, ago, answer_text, clock, moment_ms, path_to, with_rooted_paths
from .rendering import blocks_of, figures_of, of_state, paired, role_of
from .sessions import Sessions, new_session_key
from .shared import SharedChats
from .signing_in import SIGN_IN, SIGN_OUT, SigningIn, check_origin
from .static_files import ICON, PREFIX, StaticFiles
from .thread import planned_statuses, statuses_of

_MODULES: Final = (
    chats,
    chat,
    sharing,
    steps,
    diff,
    agents,
    coding_agents,
    thread,
    state,
    search,
    log,
    proof,
    person,
    palette,
)
PAGES: Final[tuple[ExplorerPage, ...]] = tuple(page for module in _MODULES for page in module.PAGES)
"""All pages, in the order of the navigation."""

_THEMES: Final = frozenset({"light", "dark"})
_THEME: Final = "chatledger-theme"
_RAW: Final = "chatledger-raw"
_FAULT: Final = 500
_COMPACT: Final = "chatledger-compact"
_SENTENCE: Final = re.compile(r"((?:\S+ ){3,}?[^;:]+?)(?:; |: )(.+)", re.DOTALL)
"""Sentence that helps, of four words or more, and after it what holds and what to do."""


class Explorer:
    """The pages of a server."""

    def __init__(self, service: Service, sessions: Sessions) -> None:
        self._service, self._sessions, self._static = service, sessions, StaticFiles()
        self._signing_in = SigningIn(sessions, self._render)
        self._templates = Environment(
            loader=PackageLoader("chatledger.infra.entrypoints.explorer"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        filters: dict[str, Any] = {
            "ago": ago,
            "clock": clock,
            "blocks": blocks_of,
            "figures": figures_of,
            "role": role_of,
            "marked": marked,
            "json": json_code,
            "statuses": statuses_of,
            "planned": planned_statuses,
            "of_state": of_state,
        }
        functions: dict[str, Any] = {
            "static": self._static.path,
            "script": self._static.script,
            "url": _url,
            "has_page": _BY_NAME.__contains__,
            "changed_words": changed_words,
            "copied": copied,
            "duration": duration,
            "edited_words": edited_words,
            "icon": icon,
            "LATELY": LATELY,
            "TYPES": TYPES,
            "paired": paired,
        }
        self._templates.filters.update(filters)
        self._templates.globals.update(functions)

    def paths(self) -> list[BaseRoute]:
        """Return the routes, and let errors on their paths be pages."""
        service = self._service
        service.open_prefixes += (PREFIX + "/", ICON, SIGN_IN, SIGN_OUT, SHARED)
        service.by_session = self._sessions.principal
        for path in (SIGN_IN, SIGN_OUT):
            service.error_forms[path.strip("/")] = self.answer_error
        # Also on paths that no contract has: a mistyped address in a browser answers with a page.
        service.error_form_of_strays = self.answer_error
        forms = [form_route(name, kind, self._sessions) for name, kind in ACTIONS.items()]
        commands = [commands_route(name, kind) for name, kind in ACTIONS.items()]
        routes = [*forms, *commands, *(route for page in PAGES for route in page.routes())]
        return [
            PathRoute(PREFIX + "/{version}/{name}", self._static.answer),
            PathRoute(ICON, self._static.answer_icon),
            *self._signing_in.paths(),
            *SharedChats(service, self._render).paths(),
            *Contract("", routes, self._encode, self.answer_error, self._begin).paths(service),
        ]

    def _begin(self, service: Service, principal: Principal, request: Request) -> HttpCall:
        if request.method == "POST":
            # Where nobody signs in there is no session to prove a form by: only its origin shows that another site sent it.
            check_origin(request)
        request.state.is_by_link = self._sessions.links is not None
        if request.state.is_by_link and self._sessions.session_of(request) is None:
            raise RequestError(401, "open the link that the server printed", name="Unauthenticated")
        return HttpCall(service, principal, request)

    def _encode(self, call: HttpCall, route: Route, answer: Any) -> Response:
        if not isinstance(route, ExplorerPage):
            return cast("Response", answer)
        headers = {**call.headers, POSITION: str(call.position)}
        if isinstance(answer, Response):
            response = answer
        elif route.template is None:
            response = answer_text(call.request, encode_json(answer), JSON, headers)
        else:
            body = self._render(call.request, route.template, page=answer, call=call, current=route)
            response = answer_text(call.request, body, HTML, headers)
        self._sessions.prolong(call.request, response)
        return response

    def answer_error(self, request: Request, error: Exception) -> Response:
        """Answer with an error as a page; as a problem where JSON was asked for."""
        if request.scope["path"].endswith(TWIN) or "text/html" not in request.headers.get("accept", ""):
            return answer_problem(request, error)
        problem = problem_of(error)
        if problem["status"] == 401 and not self._sessions.is_open:
            return self._signing_in.ask(request)
        # The sentence that helps is the heading; what the class of the error says is for programs.
        explanation = problem.get("detail") or problem["title"]
        is_read = request.method in {"GET", "HEAD"}
        if is_read and problem["status"] == _FAULT:  # what is said of it to programs is about what they wrote
            explanation = "This page could not be made: the server's log says what happened"
        if isinstance(error, ChatNotFoundError) and "at" in request.query_params:
            explanation = (
                f"there was no chat {error.chat_id!r} in the ledger at that moment; its messages may be older, as those of an "
                "import are. What was deleted since is not shown either"
            )
        sentence = _SENTENCE.match(explanation)
        heading, rest = sentence.groups() if sentence else (explanation, "")
        body = self._render(
            request,
            "error.html",
            problem=problem,
            heading=heading[:1].upper() + heading[1:],
            rest=rest[:1].upper() + rest[1:],
            is_read=is_read,
            chat_id=unquote(request.path_params.get("chat_id", "")) if problem["status"] == 404 else "",
            path=str(request.url.replace(scheme="", netloc="")),
            now=str(request.url.remove_query_params("at").replace(scheme="", netloc=""))
            if "at" in request.query_params
            else "",
        )
        headers: dict[str, str] = getattr(error, "headers", None) or {}
        return answer_text(request, body, HTML, headers | {"Cache-Control": "no-store"}, problem["status"])

    def _render(
        self,
        request: Request,
        template: str,
        *,
        call: HttpCall | None = None,
        current: ExplorerPage | None = None,
        **values: Any,
    ) -> bytes:
        theme, session = request.cookies.get(_THEME, ""), self._sessions.session_of(request)
        text = self._templates.get_template(template).render(
            **values,
            call=call,
            current=current,
            navigation=[page for page in PAGES if page.title is not None],
            theme=theme if theme in _THEMES else "",
            is_raw=request.query_params.get("raw", request.cookies.get(_RAW, "")) == "1",
            is_compact=request.cookies.get(_COMPACT, "") == "1",
            at=None if call is None or call.moment is None else call.sent("at"),
            at_ms=None if call is None else moment_ms(call),
            waiting=0 if call is None else call.ledger.count_threads()["waits"],
            position=None if call is None or call.moment is not None else call.position,
            twin=_twin_of(request),
            csrf=None if session is None else session.csrf,
            can_sign_out=session is not None and session.key is not None,
        )
        return with_rooted_paths(request, text).encode("utf-8", "replace")


def explorer_paths(service: Service, session_key: bytes | None, links: EntryLinks | None) -> list[BaseRoute]:
    """Return the routes of the explorer; sessions end with this process where no key is given, and links let in where there are some."""
    return Explorer(service, Sessions(service, session_key or new_session_key(), links)).paths()


def _url(name: str, /, **values: str | int | None) -> str:
    """Return the address of a page by the name of its function: parts of its path, and the rest as the query."""
    page = _BY_NAME[name]
    parts = {key: str(value) for key, value in values.items() if f"{{{key}}}" in page.path}
    query = "&".join(
        f"{key}={quote(str(value), safe='')}"
        for key, value in values.items()
        if key not in parts and value not in {None, ""}
    )
    return path_to(page.path, **parts) + ("?" + query if query else "")


def _twin_of(request: Request) -> str | None:
    """The address of the JSON of the page that answers; None where no page does."""
    page = _BY_PATH.get(getattr(request.scope.get("route"), "path", ""))
    if page is None:
        return None
    path = request.scope["path"]
    query = request.scope["query_string"].decode("latin-1")
    return (page.twin if page.path == path else path + TWIN) + ("?" + query if query else "")


_BY_NAME: Final = {page.name: page for page in PAGES}
_BY_PATH: Final = {page.path: page for page in PAGES}
