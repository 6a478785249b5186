"""Routes: a function and where it is reached; what it takes and gives is read from its annotations, for OpenAPI too."""

import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeVar, get_type_hints
from urllib.parse import unquote

import anyio
import msgspec
import xxhash
from starlette.requests import Request

from chatledger.domain.errors import (
    ChatledgerError,
    InvalidValueError,
    LogUnavailableError,
    NotFoundError,
    PayloadTooLargeError,
)
from chatledger.domain.packing import parse_json

from ...ledger.aio.async_ledger import AsyncLedger
from ...ledger.expiry import time_of_text
from ...ledger.ledger import Ledger
from ...ledger.view import LedgerView
from .access import Principal, Scope
from .problems import BodyError, RequestError
from .server_sent_events import EventStream, ServerSentEvent
from .service import Service

T = TypeVar("T")
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
POSITION: Final = "Chatledger-Position"
ERASURE: Final = "Chatledger-Erasure"
ROOT: Final = "chatledger.root_path"
"""The key of a request's scope for the beginning of our paths as browsers know them; empty where no proxy shows us below a path."""
WAIT_FOR: Final = "Chatledger-Wait-For"
CACHING: Final = "private, no-cache"
"""Caches of many users, which do not know `X-Api-Key`, keep nothing; a browser asks each time whether it is still so."""
LAST_ID: Final = "Last-Event-ID"
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
KEY: Final = re.compile(r"[!-~]{1,256}")
TAG: Final = re.compile(r'"[!#-~]+"')
WAIT_S: Final = 10.0
_PAUSE_S: Final = 0.002
_LONGEST_PAUSE_S: Final = 0.1
MAX_BODY_BYTES: Final = 1 << 20
MAX_MESSAGES_BYTES: Final = 64 << 20
BODY_S: Final = 60.0
_BODY_BYTES_A_SECOND: Final = 1024

Moment = Annotated[
    str,
    msgspec.Meta(
        description="A position on the log, or a time: ISO 8601, UTC unless it has an offset; `yesterday`, `tuesday` or `7d` (ago).",
        examples=["120"],
    ),
]
Limit = Annotated[int, msgspec.Meta(ge=1, le=1000, description="At most so many.")]


class HttpCall:
    """
    One request, for the function that answers it.

    Attributes:
        reader: The ledger of the caller, or as it was at the moment; for functions that run in a worker thread.
        moment: The moment that the query names; None for now.
        position: The position on the log that the answer knows; None where nothing tells it.
    """

    reader: Ledger | LedgerView

    def __init__(self, service: Service, principal: Principal, request: Request) -> None:
        self.service, self.principal, self.request = service, principal, request
        self.moment: int | datetime | None = None
        self.position: int | None = None
        self.headers: dict[str, str] = {}
        self.status: int | None = None

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger, limited to the caller's user, for functions that run in a worker thread."""
        return self.principal.limited(self.service.ledger.blocking())

    @cached_property
    def async_ledger(self) -> AsyncLedger:
        """The ledger, limited to the caller's user, for coroutines."""
        return self.principal.limited(self.service.ledger)

    @property
    def last_id(self) -> int | None:
        """The id of the last event that the client saw, by `Last-Event-ID`; None where it begins."""
        last_id = self.header(LAST_ID)
        return None if last_id is None else position_of(last_id, LAST_ID)

    def header(self, name: str) -> str | None:
        value: str | None = self.request.headers.get(name)
        return value

    def sent(self, name: str) -> str:
        """Return a parameter of the query as it was sent, for the fields of a form; empty where it was not."""
        value: str = self.request.query_params.get(name, "")
        return value

    def again(self, **changes: str | int | None) -> str:
        """Return the query of this request with other values; None takes one away."""
        url = self.request.url.remove_query_params([name for name, value in changes.items() if value is None])
        present = {name: value for name, value in changes.items() if value is not None}
        return f"?{url.include_query_params(**present).query}"

    def named_by_key(self, *about: str) -> str | None:
        """
        Return a name for what the request makes, the same for each request of this owner with its `Idempotency-Key`.

        None where it has no key. `about` distinguishes the things that one request makes.
        """
        key = self.header(IDEMPOTENCY_KEY)
        if key is None:
            return None
        # With the owner: two clients may send the same key, and must not get each other's chats.
        return sha256("\0".join([key, self.principal.owner, *about]).encode()).hexdigest()[:32]

    def command(self, name: str) -> AbstractContextManager[None]:
        """Give one of several writes of a request a command id of its own, if the request has an `Idempotency-Key`."""
        key = self.header(IDEMPOTENCY_KEY)
        return self.ledger.context(command_id=None if key is None else f"{key}:{name}")

    async def stream(self, events: AsyncIterator[ServerSentEvent]) -> EventStream:
        """Return the answer that sends events, with the position up to which it knows the log."""
        headers = {POSITION: str(await self.async_ledger.get_position())}
        return EventStream(events, stopping=self.service.stopping, headers=headers)


def _in_words(error: msgspec.ValidationError, kind: Any) -> str:
    """The words of an error; where a field is not known, with those that are known there."""
    words, _, place = str(error).partition(" - at `$")
    if "unknown field" not in words:
        return str(error)
    shape: Any = msgspec.inspect.type_info(kind)
    for step in [*re.findall(r"\.\w+|\[", place), ""]:
        while isinstance(shape, msgspec.inspect.Metadata):
            shape = shape.type
        shapes = shape.types if isinstance(shape, msgspec.inspect.UnionType) else (shape,)
        wanted = msgspec.inspect.ListType if step == "[" else msgspec.inspect.StructType
        shape = next((choice for choice in shapes if isinstance(choice, wanted)), None)
        if shape is None:
            return str(error)
        if step == "[":
            shape = shape.item_type
        elif step:
            shape = next(field.type for field in shape.fields if field.encode_name == step[1:])
    return f"{error}; it takes {', '.join(field.encode_name for field in shape.fields)}"


class Route:
    """
    A function that answers a request.

    Its first parameter is the `HttpCall`. Those that the path names in braces come from there, `body` from the request's body, and
    all others from the query. Its docstring is what the reference says, and its return annotation the form of the answer.

    A function runs in a worker thread, with the caller's ledger as of the moment that the query names, and a coroutine function
    in the event loop; one that returns an `EventStream` answers with events.

    `raises` names the errors that it answers besides those that every route has, `statuses` further statuses.
    `stream` is a coroutine function of the same parameters, which answers with events those who accept `text/event-stream`. A
    `body` of the type `bytes` is given as it was sent. A write that takes `If-Match`, see `head_of`, `has_head`; others refuse
    that header, as they would not heed it. Unless it `is_strict`, parameters of the query that it does not know are ignored.
    """

    moment_name: ClassVar[str] = "as_of"
    """The name in the query of the moment to read."""

    def __init__(
        self,
        method: Method,
        path: str,
        handler: Callable[..., Any],
        *,
        scope: Scope | None = None,
        status: int = 200,
        raises: Iterable[type[ChatledgerError]] = (),
        statuses: Iterable[int] = (),
        has_moment: bool | None = None,
        has_head: bool = False,
        stream: Callable[..., Any] | None = None,
        media_type: str = JSON,
        body_type: str = JSON,
        is_strict: bool = True,
        max_body_bytes: int | None = None,
    ) -> None:
        self.method, self.path, self.handler, self.status = method, path, handler, status
        self.scope: Scope = scope or ("read" if method == "GET" else "write")
        self.raises, self.statuses = tuple(raises), tuple(statuses)
        takes_messages = PayloadTooLargeError in self.raises
        self.max_body_bytes = max_body_bytes or (MAX_MESSAGES_BYTES if takes_messages else MAX_BODY_BYTES)
        is_read_in_thread = method == "GET" and not inspect.iscoroutinefunction(handler)
        self.has_moment = is_read_in_thread if has_moment is None else has_moment
        self.has_head = has_head
        self.stream, self.media_type, self.body_type = stream, media_type, body_type
        declared = _declared(handler, path)
        self.in_path, self.in_query, self.body, self.answers = declared
        fields: list[Any] = [
            (name, parameter.kind, parameter.default) if parameter.has_default else (name, parameter.kind)
            for name, parameter in self.in_query.items()
        ]
        if self.has_moment:
            fields.append((self.moment_name, Moment | None, None))
        self.query: type[msgspec.Struct] = msgspec.defstruct(
            "Query", fields, kw_only=True, forbid_unknown_fields=is_strict
        )
        self._lists = {name for name, parameter in self.in_query.items() if "list[" in str(parameter.kind)}
        is_raw = self.body is not None and self.body.kind is bytes
        self._decode = None if self.body is None or is_raw else msgspec.json.Decoder(self.body.kind).decode

    @property
    def name(self) -> str:
        """The name of the function, which is the operation's id too."""
        return self.handler.__name__

    async def arguments(self, request: Request) -> dict[str, Any]:
        """Read what the function takes from a request; the moment with it, where the route has one."""
        headers, is_write = request.headers, self.method != "GET"
        key = headers.get(IDEMPOTENCY_KEY)
        if key is not None and is_write and not KEY.fullmatch(key):
            msg = f"{IDEMPOTENCY_KEY} is of 1 to 256 visible ASCII characters"
            raise RequestError(422, msg, name="InvalidValueError")
        # A client would take a precondition that was ignored for one that held (RFC 9110, 13.1.1).
        if is_write and not self.has_head and ("If-Match" in headers or "If-None-Match" in headers):
            msg = "this route compares no head: send it without If-Match and If-None-Match; nothing was written"
            raise RequestError(422, msg, name="InvalidValueError")
        last_id = headers.get(LAST_ID)
        if last_id is not None and (self.is_stream or self.stream is not None):
            position_of(last_id, LAST_ID)
        arguments: dict[str, Any] = {}
        for name, parameter in self.in_path.items():
            try:
                part = unquote(request.path_params[name], errors="strict")
                arguments[name] = msgspec.convert(part, parameter.kind, strict=False)
            except (msgspec.ValidationError, UnicodeDecodeError) as error:
                raise RequestError(422, f"{name} in the path: {error}", name="InvalidValueError") from error
        arguments |= self._from_query(request)
        if self.body is not None:
            body = await read_body(request, self.max_body_bytes)
            arguments["body"] = self.body.default if not body and self.body.has_default else self._from_body(body)
        return arguments

    def _from_query(self, request: Request) -> dict[str, Any]:
        values: dict[str, Any] = {}
        deep: dict[str, dict[str, str]] = {}
        for name, value in request.query_params.multi_items():
            outer, bracket, inner = name.partition("[")
            if name in self._lists:
                values.setdefault(name, []).append(value)
                continue
            # `metadata[topic]=travel`: the style `deepObject` of OpenAPI.
            is_deep = bool(bracket) and inner.endswith("]")
            into, key = (deep.setdefault(outer, {}), inner[:-1]) if is_deep else (values, name)
            if key in into or "][" in key:
                wrong = "given twice" if key in into else "nested too deep"
                raise RequestError(422, f"in the query: {name} is {wrong}", name="InvalidValueError")
            into[key] = value
        try:
            query = msgspec.convert(values | deep, self.query, strict=False)
        except msgspec.ValidationError as error:
            raise RequestError(
                422, f"in the query: {_in_words(error, self.query)}", name="InvalidValueError"
            ) from error
        return msgspec.structs.asdict(query)

    def _from_body(self, body: bytes) -> Any:
        if self._decode is None or self.body is None:
            return body
        try:
            return self._decode(body)
        except msgspec.ValidationError as error:
            raise RequestError(
                422, f"in the body: {_in_words(error, self.body.kind)}", name="InvalidValueError"
            ) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            # JavaScript writes half an emoji, of a text that was cut within one, as it stands: msgspec reads none.
            try:
                return msgspec.convert(parse_json(body), self.body.kind, str_keys=True)
            except msgspec.ValidationError as wrong:
                raise RequestError(
                    422, f"in the body: {_in_words(wrong, self.body.kind)}", name="InvalidValueError"
                ) from wrong
            except (ValueError, RecursionError):
                raise BodyError(str(error)) from error

    @property
    def is_stream(self) -> bool:
        """Whether it answers with events, whatever the client accepts."""
        return self.answers is EventStream

    def has_events(self, request: Request) -> bool:
        return self.is_stream or (self.stream is not None and EVENTS in request.headers.get("Accept", ""))

    def function_for(self, request: Request) -> Callable[..., Any]:
        return self.stream if self.stream is not None and self.has_events(request) else self.handler


class Parameter(NamedTuple):
    """A parameter of a route: its type, and its default where it has one."""

    kind: Any
    default: Any
    has_default: bool


def _declared(
    handler: Callable[..., Any], path: str
) -> tuple[dict[str, Parameter], dict[str, Parameter], Parameter | None, Any]:
    hints = get_type_hints(handler, include_extras=True)
    named = {part[1:-1] for part in path.split("/") if part.startswith("{")}
    in_path: dict[str, Parameter] = {}
    in_query: dict[str, Parameter] = {}
    body: Parameter | None = None
    for name, parameter in list(inspect.signature(handler).parameters.items())[1:]:
        has_default = parameter.default is not inspect.Parameter.empty
        declared = Parameter(hints[name], parameter.default if has_default else None, has_default)
        if name == "body":
            body = declared
        else:
            (in_path if name in named else in_query)[name] = declared
    answers = hints.get("return")
    return in_path, in_query, body, None if answers is type(None) else answers


def existing(value: T | None, absent: Callable[..., NotFoundError], *ids: str) -> T:
    """Return a value that has to be there; raise what `absent` makes from the ids where it is None."""
    if value is None:
        raise absent(*ids)
    return value


async def read_body(request: Request, limit: int = MAX_MESSAGES_BYTES, *, timeout_s: float = BODY_S) -> bytes:
    """Read the body of a request, within so many seconds, and one more for each KiB of it."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise RequestError(415, f"the body is encoded as {encoding!r}; send it as it is", name="UnsupportedEncoding")
    parts: list[bytes] = []
    size = 0
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and len(declared) < 19 and int(declared) > limit:
        raise _too_large(limit)
    incoming, begun = aiter(request.stream()), anyio.current_time()
    while True:
        try:
            # A client that sends a byte now and then would hold a connection for as long as it likes.
            with anyio.fail_after(begun + timeout_s + size / _BODY_BYTES_A_SECOND - anyio.current_time()):
                part = await anext(incoming, None)
        except TimeoutError as error:
            msg = f"the body comes too slowly: {size:,} bytes in {anyio.current_time() - begun:.0f} s; nothing was written"
            raise RequestError(408, msg, name="RequestTimeout", headers={"Connection": "close"}) from error
        if part is None:
            return b"".join(parts)
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)


async def wait_for_position(request: Request, service: Service) -> None:
    """Wait until reads know the log up to the position that `Chatledger-Wait-For` names. No thread is held meanwhile."""
    wanted = request.headers.get(WAIT_FOR)
    if wanted is None:
        return
    position, until, pause_s = position_of(wanted, WAIT_FOR), anyio.current_time() + WAIT_S, _PAUSE_S
    while True:
        try:
            await service.ledger.sync(position, timeout_s=0)
        except LogUnavailableError as error:
            if anyio.current_time() >= until:
                msg = f"position {position} did not come within {WAIT_S:g} s; is it of this log?"
                raise LogUnavailableError(msg) from error
        else:
            return
        with anyio.move_on_after(pause_s):
            await service.stopping.wait()
            raise RequestError(503, "the server stops; ask the next one", name="NotReady")
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _too_large(limit: int) -> RequestError:
    msg = f"the body is larger than {limit:,} bytes; nothing was written"
    return RequestError(413, msg, name="PayloadTooLargeError", headers={"Connection": "close"})


def entity_tag(body: bytes) -> str:
    """Return the entity tag of an answer: a hash of what it is."""
    return f'"{xxhash.xxh3_64_hexdigest(body)}"'


def position_of(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise RequestError(422, f"{name} is a position on the log, a whole number", name="InvalidValueError")
    return int(text)


def moment_of(text: str, name: str) -> int | datetime:
    """Read a moment: a position on the log, or a time, see `read_time`."""
    if text.isascii() and text.isdigit():
        return position_of(text, name)
    try:
        return time_of_text(text.replace(" ", "+"))  # a `+` that is not encoded is a blank in a query
    except InvalidValueError as error:
        raise RequestError(422, f"{name}: {error}", name="InvalidValueError") from None


def head_of(call: HttpCall) -> str | msgspec.UnsetType | None:
    """
    Return the head that a write expects, by `If-Match: "<message id>"`; `If-None-Match: *` expects an empty branch.

    UNSET where the request names neither.
    """
    other, tag = call.header("If-None-Match"), call.header("If-Match")
    if other is not None and tag is not None:
        msg = "send If-Match or If-None-Match, not both: no branch is empty and has a head; nothing was written"
        raise InvalidValueError(msg)
    if other is not None and other != "*":
        msg = "If-None-Match of a write is *, which expects an empty branch"
        raise InvalidValueError(msg)
    if other is not None:
        return None
    if tag is None or tag.strip() == "*":
        return msgspec.UNSET
    tag = tag.strip()
    if not TAG.fullmatch(tag):
        msg = 'If-Match is the id of the message at the head, in double quotes: If-Match: "<id>"'
        raise InvalidValueError(msg)
    return unquote(tag[1:-1])
