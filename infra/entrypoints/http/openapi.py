"""OpenAPI 3.1: the document of the routes, made from them and from the structs that they take and give."""

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast, get_args, get_type_hints

import msgspec

from chatledger.domain.wire import Value

from .problems import MEDIA_TYPE, ProblemDetails, status_of
from .routing import EVENTS, IDEMPOTENCY_KEY, KEY, LAST_ID, POSITION, TAG, WAIT_FOR, Route

_REFERENCE: Final = "#/components/schemas/{name}"
_ALWAYS: Final = (401, 403, 422, 503)
_STATUSES: Final = {
    304: ("NotModified", "Not modified: the ETag is the one that was sent"),
    400: ("NoJson", "The body is no JSON"),
    401: ("Unauthenticated", "Nobody who is known asks"),
    403: ("Forbidden", "Not allowed"),
    404: ("NotFound", "Not there, or not yours to see"),
    409: ("Conflict", "Somebody was faster, or the name is taken; nothing was written"),
    413: ("TooLarge", "Too large"),
    415: ("Encoded", "The body is encoded"),
    422: ("InvalidValue", "A value breaks a rule; nothing was written"),
    423: ("Held", "A legal hold keeps it; nothing was deleted"),
    429: ("TooMany", "Too many streams are open; try later"),
    500: ("Failed", "The server's log says what happened"),
    502: ("GivenCodeFailed", "Code that the server was given failed"),
    503: ("Unavailable", "The log did not answer, or the position did not come; retrying is safe"),
    507: ("Full", "The disk is full; nothing was written"),
}
"""The name of the shared response of each status, and what it means."""

_POSITION_TEXT: Final = {"type": "string", "pattern": "^[0-9]{1,18}$"}
_QUOTED_ID: Final = {"type": "string", "pattern": rf"^(\*|{TAG.pattern})$"}


def _header(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": description}


_HEADERS: Final = {
    "WaitFor": _header(WAIT_FOR, _POSITION_TEXT, "Answer only when reads know the log up to this position."),
    "LastEventId": _header(LAST_ID, _POSITION_TEXT, "Of a stream: go on after the event that had this `id`."),
    "IdempotencyKey": _header(
        IDEMPOTENCY_KEY,
        {"type": "string", "pattern": f"^{KEY.pattern}$"},
        "A write that is repeated with the same key happens once.",
    ),
    "IfMatch": _header(
        "If-Match",
        _QUOTED_ID,
        "Write only if this message is at the head of the branch: its id, percent-encoded, in double quotes.",
    ),
    "IfNoneMatch": _header("If-None-Match", {"type": "string", "enum": ["*"]}, "Write only if the branch is empty."),
}
"""Headers of requests, as shared parameters."""


_ByKind = Callable[[Any], dict[str, Any]]
"""The schema of a type."""


def document(areas: Mapping[str, Sequence[Route]], *, title: str, version: str, prefix: str = "") -> dict[str, Any]:
    """Return the OpenAPI document of routes, by tag. What several have in common is among its components."""
    # In one call, so that msgspec shares the structs of all routes as components.
    kinds = _kinds([route for routes in areas.values() for route in routes])
    built, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    schemas = list(built)

    def by_kind(kind: Any) -> dict[str, Any]:  # looked for in a list, as annotated types need not be hashable
        return next(schema for described, schema in zip(kinds, schemas, strict=True) if described is kind)

    _add_derived(kinds, components)
    _make_plain([schemas, components])
    paths: dict[str, dict[str, Any]] = {}
    for area, routes in areas.items():
        for route in routes:
            paths.setdefault(prefix + route.path, {})[route.method.lower()] = _operation(area, route, by_kind)
    problem = {MEDIA_TYPE: {"schema": by_kind(ProblemDetails)}}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "parameters": _share_parameters(paths) | _HEADERS,
            "responses": {
                name: {"description": words} | ({} if status == 304 else {"content": problem})
                for status, (name, words) in _STATUSES.items()
            },
            "headers": {
                "Position": {
                    "schema": {"type": "string"},
                    "description": "The position up to which the answer knows the log.",
                }
            },
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
                "token": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{}, {"key": []}, {"token": []}],
    }


def _share_parameters(paths: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Move parameters that several operations have to the components: of each name, the form that most of them have."""
    lists = [operation["parameters"] for methods in paths.values() for operation in methods.values()]
    seen: dict[str, Counter[bytes]] = {}
    for parameter in (parameter for parameters in lists for parameter in parameters if "$ref" not in parameter):
        seen.setdefault(parameter["name"], Counter())[msgspec.json.encode(parameter)] += 1
    most = {name: counted.most_common(1)[0] for name, counted in sorted(seen.items())}
    shared = {name: msgspec.json.decode(encoded) for name, (encoded, count) in most.items() if count > 1}
    for parameters in lists:
        parameters[:] = [
            _reference("parameters", parameter["name"])
            if parameter == shared.get(parameter.get("name", ""))
            else parameter
            for parameter in parameters
        ]
    return shared


def _reference(kind: str, name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/{kind}/{name}"}


def _kinds(routes: Sequence[Route]) -> list[Any]:
    kinds: list[Any] = [ProblemDetails]
    for route in routes:
        parameters = [*route.in_path.values(), *([] if route.body is None else [route.body])]
        kinds.extend(parameter.kind for parameter in parameters if parameter.kind is not bytes)
        kinds.extend(field.type for field in msgspec.structs.fields(route.query))
        if route.answers is not None and not route.is_stream:
            kinds.append(route.answers)
    return [kind for at, kind in enumerate(kinds) if all(kind is not before for before in kinds[:at])]


def _add_derived(kinds: Sequence[Any], components: dict[str, Any]) -> None:
    for kind in _values_in(kinds):
        schema = components.get(kind.__name__)
        if schema is None:
            continue
        derived: dict[str, Any] = {}
        for name in kind.derived:
            returned = get_type_hints(getattr(kind, name).fget)["return"]
            derived[name] = msgspec.json.schema(returned)
        # What is left out of a request has a default; in answers every field is there.
        schema["properties"] = {
            name: {key: value for key, value in field.items() if key != "default"}
            for name, field in (schema["properties"] | derived).items()
        }
        schema["required"] = list(schema["properties"])


def _make_plain(schema: Any) -> None:
    """Give arrays the form that generators of clients read: each has `items`, unless it is a tuple, which ends by `maxItems`."""
    if isinstance(schema, dict):
        fields = cast("dict[str, Any]", schema)
        if fields.get("items") is False:
            del fields["items"]
        elif fields.get("type") == "array":
            fields.setdefault("items", {})
        for inner in list(fields.values()):
            _make_plain(inner)
    elif isinstance(schema, list):
        for item in cast("list[Any]", schema):
            _make_plain(item)


def _values_in(kinds: Sequence[Any]) -> set[type[Value]]:
    values: set[type[Value]] = set()
    seen: list[Any] = []

    def look(kind: Any) -> None:
        if any(kind is before for before in seen):
            return
        seen.append(kind)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if issubclass(kind, Value):
                values.add(kind)
            for field in msgspec.structs.fields(kind):
                look(field.type)
        for inner in get_args(kind):
            look(inner)

    for kind in kinds:
        look(kind)
    return values


def _operation(area: str, route: Route, by_kind: _ByKind) -> dict[str, Any]:
    documentation = inspect.getdoc(route.handler) or route.name
    summary, _, description = documentation.partition("\n")
    parameters = [
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
        parameters.append(parameter)
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": summary,
        "tags": [area],
        "parameters": [*parameters, *_headers(route)],
        "responses": _responses(route, by_kind),
    }
    if description.strip():
        operation["description"] = description.strip()
    if route.body is not None:
        kind = route.body.kind
        operation["requestBody"] = {
            "required": not route.body.has_default,
            "content": {route.body_type: {"schema": {"type": "string"} if kind is bytes else by_kind(kind)}},
        }
    return operation


def _headers(route: Route) -> list[dict[str, Any]]:
    names = ["WaitFor"]
    if route.is_stream or route.stream is not None:
        names.append("LastEventId")
    if route.method != "GET":
        names.append("IdempotencyKey")
    if route.has_head:
        names += ["IfMatch", "IfNoneMatch"]
    return [_reference("parameters", name) for name in names]


def _responses(route: Route, by_kind: _ByKind) -> dict[str, Any]:
    status = 204 if route.answers is None and not route.is_stream and route.status == 200 else route.status
    statuses = {*_ALWAYS, *route.statuses, *(status_of(error) for error in route.raises)}
    if route.body is not None:
        statuses |= {400, 413, 415}
    responses = {str(status): _good(route, by_kind)}
    if route.method == "GET" and not route.is_stream:
        responses["304"] = _reference("responses", _STATUSES[304][0])
    for code in sorted(statuses):
        name, words = _STATUSES[code]
        responses[str(code)] = _reference("responses", name)
        named = [error.__name__ for error in route.raises if status_of(error) == code]
        if named:  # beside a reference, a description takes the place of the shared one (OpenAPI 3.1, Reference Object)
            responses[str(code)]["description"] = f"{words} ({', '.join(named)})"
    return responses


def _good(route: Route, by_kind: _ByKind) -> dict[str, Any]:
    if route.is_stream:
        return {"description": "Events, as long as they come", "content": {EVENTS: {}}}
    headers = {POSITION: _reference("headers", "Position")}
    if route.answers is None:
        return {"description": "Done", "headers": headers}
    content: dict[str, Any] = {route.media_type: {"schema": by_kind(route.answers)}}
    if route.stream is not None:
        content[EVENTS] = {}
    return {"description": "The answer", "headers": headers, "content": content}


def without_references(document: dict[str, Any]) -> dict[str, Any]:
    """Put parameters and responses in place of the references to them. What stands beside a reference is kept."""
    components = document["components"]

    def resolved(kind: str, entry: dict[str, Any]) -> dict[str, Any]:
        return {**components[kind][entry["$ref"].rpartition("/")[2]], **entry} if "$ref" in entry else entry

    for operation in (entry for methods in document["paths"].values() for entry in methods.values()):
        operation["parameters"] = [resolved("parameters", entry) for entry in operation["parameters"]]
        operation["responses"] = {code: resolved("responses", entry) for code, entry in operation["responses"].items()}
    return document
