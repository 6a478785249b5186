"""OpenAPI 3.1: the document that describes the routes, made from them and from the structs that they take and give."""

import inspect
from collections.abc import Iterable, Sequence
from typing import Any, Final, get_args, get_type_hints

import msgspec

from chatledger.domain.errors import ChatledgerError
from chatledger.domain.wire import Value

from .problems import MEDIA_TYPE, Problem, status_of
from .routing import EVENTS, IDEMPOTENCY_KEY, KEY, LAST_ID, POSITION, WAIT_FOR, Route

_REFERENCE: Final = "#/components/schemas/{name}"
_ALWAYS: Final = (401, 403, 422, 503)
_STATUS_WORDS: Final = {
    304: "Not modified: the ETag is the one that was sent",
    400: "The body is no JSON",
    401: "Nobody who is known asks",
    403: "Not allowed",
    404: "Not there, or not yours to see",
    409: "Somebody was faster, or the name is taken; nothing was written",
    413: "Too large",
    415: "The body is encoded",
    429: "Too many streams are open; try later",
    422: "A value breaks a rule; nothing was written",
    500: "The server's log says what happened",
    502: "Code that the server was given failed",
    503: "The log did not answer, or the position did not come; retrying is safe",
    507: "The disk is full; nothing was written",
}


def document(routes: Sequence[Route], *, title: str, version: str, prefix: str = "") -> dict[str, Any]:
    """
    Return the OpenAPI document of routes.

    Args:
        routes: The routes.
        title: Of the document.
        version: Of the document.
        prefix: What stands before each path.
    """
    kinds = _kinds(routes)
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    by_kind = _ByKind(kinds, schemas)
    _add_derived(kinds, components)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(prefix + route.path, {})[route.method.lower()] = _operation(route, by_kind)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
                "token": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{}, {"key": []}, {"token": []}],
    }


class _ByKind:
    """Schemas by type; types need not be hashable."""

    def __init__(self, kinds: Sequence[Any], schemas: Iterable[dict[str, Any]]) -> None:
        self._found = list(zip(kinds, schemas, strict=True))

    def __call__(self, kind: Any) -> dict[str, Any]:
        return next(schema for known, schema in self._found if known is kind)


def _kinds(routes: Sequence[Route]) -> list[Any]:
    kinds: list[Any] = [Problem]
    for route in routes:
        parameters = [*route.in_path.values(), *([] if route.body is None else [route.body])]
        kinds.extend(parameter.kind for parameter in parameters if parameter.kind is not bytes)
        kinds.extend(field.type for field in msgspec.structs.fields(route.query))
        if route.answers is not None and not is_stream_only(route):
            kinds.append(route.answers)
    return [kind for at, kind in enumerate(kinds) if all(kind is not before for before in kinds[:at])]


def _add_derived(kinds: Sequence[Any], components: dict[str, Any]) -> None:
    """What answers show beside the fields of a value; and they show all fields."""
    for kind in _values_in(kinds):
        schema = components.get(kind.__name__)
        if schema is None:
            continue
        derived: dict[str, Any] = {}
        for name in kind.derived:
            returned = get_type_hints(getattr(kind, name).fget)["return"]
            derived[name] = msgspec.json.schema(returned)
        schema["properties"] = {
            name: {key: value for key, value in found.items() if key != "default"}
            for name, found in (schema["properties"] | derived).items()
        }
        schema["required"] = list(schema["properties"])


def _values_in(kinds: Sequence[Any]) -> set[type[Value]]:
    found: set[type[Value]] = set()
    seen: list[Any] = []

    def look(kind: Any) -> None:
        if any(kind is known for known in seen):
            return
        seen.append(kind)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if issubclass(kind, Value):
                found.add(kind)
            for field in msgspec.structs.fields(kind):
                look(field.type)
        for inner in get_args(kind):
            look(inner)

    for kind in kinds:
        look(kind)
    return found


def _operation(route: Route, by_kind: _ByKind) -> dict[str, Any]:
    told = inspect.getdoc(route.handler) or route.name
    summary, _, description = told.partition("\n")
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": summary,
        "tags": [route.handler.__module__.rpartition(".")[2]],
        "parameters": [*_parameters(route, by_kind), *_headers(route)],
        "responses": _responses(route, by_kind),
    }
    if description.strip():
        operation["description"] = description.strip()
    if route.body is not None:
        operation["requestBody"] = {
            "required": not route.body.has_default,
            "content": {route.body_type: {"schema": _schema_of_body(route.body.kind, by_kind)}},
        }
    return operation


def _schema_of_body(kind: Any, by_kind: _ByKind) -> dict[str, Any]:
    return {"type": "string"} if kind is bytes else by_kind(kind)


def _parameters(route: Route, by_kind: _ByKind) -> list[dict[str, Any]]:
    found = [
        {"name": name, "in": "path", "required": True, "schema": by_kind(parameter.kind)}
        for name, parameter in route.in_path.items()
    ]
    for field in msgspec.structs.fields(route.query):
        schema = by_kind(field.type)
        if not field.required and field.default is not None:
            schema = {**schema, "default": field.default}
        parameter: dict[str, Any] = {"name": field.name, "in": "query", "required": field.required, "schema": schema}
        if "dict[" in str(field.type):
            parameter |= {"style": "deepObject", "explode": True}
        found.append(parameter)
    return found


def _headers(route: Route) -> list[dict[str, Any]]:
    position = {"type": "string", "pattern": "^[0-9]{1,18}$"}
    found = [_header(WAIT_FOR, position, "Answer only when reads know the log up to this position.")]
    if route.is_streamed or route.stream is not None:
        found.append(_header(LAST_ID, position, "Of a stream: go on after the event that had this `id`."))
    if route.method != "GET":
        key = {"type": "string", "pattern": f"^{KEY.pattern}$"}
        found.append(_header(IDEMPOTENCY_KEY, key, "A write that is repeated with the same key happens once."))
    return found


def _header(name: str, schema: dict[str, Any], told: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": told}


def _responses(route: Route, by_kind: _ByKind) -> dict[str, Any]:
    headers = {
        POSITION: {"schema": {"type": "string"}, "description": "The position up to which the answer knows the log."}
    }
    if is_stream_only(route):
        good: dict[str, Any] = {"description": "Events, as long as they come", "content": {EVENTS: {}}}
    elif route.answers is None:
        good = {"description": "Done", "headers": headers}
    else:
        good = {
            "description": "The answer",
            "headers": headers,
            "content": {route.media_type: {"schema": by_kind(route.answers)}},
        }
        if route.stream is not None:
            good["content"][EVENTS] = {}
    status = 204 if route.answers is None and not is_stream_only(route) and route.status == 200 else route.status
    statuses = {*_ALWAYS, *route.statuses, *(status_of(error) for error in route.raises)}
    if route.body is not None:
        statuses |= {400, 413, 415}
    found = {str(status): good}
    if route.method == "GET" and not is_stream_only(route):
        found["304"] = {"description": _STATUS_WORDS[304]}
    problem = {MEDIA_TYPE: {"schema": by_kind(Problem)}}
    for code in sorted(statuses):
        named = [error.__name__ for error in route.raises if status_of(error) == code]
        words = _STATUS_WORDS[code] + (f" ({', '.join(named)})" if named else "")
        found[str(code)] = {"description": words, "content": problem}
    return found


def is_stream_only(route: Route) -> bool:
    """Whether a route answers with events, whatever the client accepts."""
    return route.is_streamed or route.stream is route.handler


def errors_of(routes: Iterable[Route]) -> set[type[ChatledgerError]]:
    """Return the errors that routes name."""
    return {error for route in routes for error in route.raises}
