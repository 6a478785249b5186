"""Values on the wire: as JSON objects, and as fields of pydantic models and answers of FastAPI, without importing either."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from typing import (
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    Protocol,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec
from msgspec import UNSET, UnsetType

from .packing import readable

Times = Literal["ms", "iso"]
"""How times are written: integer milliseconds since the Unix epoch, or ISO 8601 in UTC (`2026-03-01T09:30:00.000Z`)."""


_AS_THEY_ARE: Final = frozenset({str, int, float, bool, type(None)})


class SchemaHandler(Protocol):
    """The part of pydantic's `GetCoreSchemaHandler` that is used here."""

    def generate_schema(self, source_type: Any, /) -> Any: ...


class Value(msgspec.Struct, frozen=True):
    """
    A value that can be sent over the wire.

    `to_dict()` gives JSON. In a pydantic model, and as the answer of a FastAPI route, it is a field like any other: the same
    JSON comes out, an object of that form is accepted, and the generated schema (OpenAPI) names its fields.
    """

    derived: ClassVar[tuple[str, ...]] = ()
    """The properties that the JSON shows beside the fields."""

    def to_dict(self, *, times: Times = "ms") -> dict[str, Any]:
        """
        Return all fields as JSON values, independent copies: `{"id": ..., "text": ..., "created_at": ...}`.

        Args:
            times: `ms` for integer milliseconds since the Unix epoch, `iso` for text that people read
                (`2026-03-01T09:30:00.000Z`). It concerns the fields whose names end in `_at`, in inner values too.
        """
        config = self.__struct_config__
        found: dict[str, Any] = {} if config.tag is None else {cast("str", config.tag_field): config.tag}
        for name in (*self.__struct_fields__, *self.derived):
            value = getattr(self, name)
            if value is UNSET:
                continue
            found[name] = value if type(value) in _AS_THEY_ARE else to_json(value, times)
        if times == "iso":
            found |= {name: iso(value) for name, value in found.items() if name.endswith("_at") and type(value) is int}
        return found

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, handler: SchemaHandler) -> dict[str, Any]:
        if cls.to_dict is not Value.to_dict:
            return {"type": "is-instance", "cls": cls, "serialization": _written(cls, {"type": "dict"})}
        fields = msgspec.structs.fields(cls)
        schemas = {field.name: handler.generate_schema(_described(field.type)) for field in fields}
        answered = {
            name: handler.generate_schema(get_type_hints(getattr(cls, name).fget)["return"]) for name in cls.derived
        }

        # A tuple is a list in JSON, and so in what `to_dict` gives.
        answered |= {
            field.name: {"type": "list", "items_schema": handler.generate_schema(get_args(field.type)[0])}
            for field in fields
            if get_origin(field.type) is tuple and get_args(field.type)[-1] is Ellipsis
        }

        def made(given: dict[str, Any]) -> Value:
            return cls(**given)

        from_json: dict[str, Any] = {
            "type": "function-after",
            "function": {"type": "no-info", "function": made},
            "schema": _object(cls, schemas, optional={field.name for field in fields if not field.required}),
        }
        return {
            "type": "json-or-python",
            "json_schema": from_json,
            "python_schema": {"type": "union", "choices": [{"type": "is-instance", "cls": cls}, from_json]},
            "serialization": _written(cls, _object(cls, schemas | answered)),
            "ref": f"{cls.__module__}.{cls.__qualname__}:{id(cls)}",
        }


class InNotebook:
    """A value that a notebook shows as HTML or Markdown: `draw_html`, `draw_markdown`."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        drawn: str = _notebook().draw_html(self)
        return drawn

    def _repr_markdown_(self) -> str:
        drawn: str = _notebook().draw_markdown(self)
        return drawn


def _notebook() -> Any:
    # By its name, when a notebook asks: the module that draws values is about them, and no value is about it.
    return import_module(".draw.notebook", __package__)


def _described(kind: Any) -> Any:
    """
    Return the type that pydantic describes: without `UnsetType`, which says that a field may be left out, and which it does not know. It
    refuses a `TypedDict` of the standard library before Python 3.12.
    """
    if UnsetType in get_args(kind):
        return Union[tuple(one for one in get_args(kind) if one is not UnsetType)]  # noqa: UP007 - of a list of types
    return dict[str, Any] if is_typeddict(kind) else kind


def _object(cls: type, schemas: Mapping[str, Any], *, optional: set[str] | None = None) -> dict[str, Any]:
    return {
        "type": "typed-dict",
        "fields": {
            name: {"type": "typed-dict-field", "schema": schema, "required": name not in (optional or ())}
            for name, schema in schemas.items()
        },
        "cls_name": cls.__name__,
    }


def _written(cls: type[Value], schema: dict[str, Any]) -> dict[str, Any]:
    def written(value: Any) -> Any:
        return value.to_dict() if isinstance(value, cls) else value

    return {"type": "function-plain", "function": written, "return_schema": schema}


def to_json(value: Any, times: Times = "ms") -> Any:
    """Return a value as JSON: inner values by their own `to_dict`, lists and tuples item by item, others by msgspec."""
    if isinstance(value, Value):
        return value.to_dict(times=times)
    if isinstance(value, list | tuple) and not hasattr(cast("object", value), "_fields"):
        return [to_json(item, times) for item in cast("list[Any]", value)]
    return msgspec.to_builtins(value, str_keys=True)


def encode_json(value: Any) -> bytes:
    """Return what `to_json` returns, encoded; without the copies that `to_json` makes. See `encode_plain`."""
    return encode_plain(_to_be_encoded(value))


def encode_plain(value: Any) -> bytes:
    """
    Return a value as JSON that everybody reads: half an emoji as U+FFFD, NaN and infinities as null.

    Integers beyond 64 bits have all their digits.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(readable(msgspec.to_builtins(value, str_keys=True)))


def _to_be_encoded(value: Any) -> Any:
    if isinstance(value, Value):
        form = _form_of(type(value))
        if form.is_own:
            return value.to_dict()
        found = form.tag | msgspec.structs.asdict(value)
        for name in form.derived:
            found[name] = getattr(value, name)
        for name in form.nested:
            found[name] = _to_be_encoded(found[name])
        return found
    if isinstance(value, list | tuple) and not hasattr(cast("object", value), "_fields"):
        return [_to_be_encoded(item) for item in cast("list[Any]", value)]
    return cast("Any", value)


class _Form(NamedTuple):
    """The form of a type of values: its tag, the properties shown beside the fields, and what of both may hold values."""

    is_own: bool
    tag: dict[str, Any]
    derived: tuple[str, ...]
    nested: tuple[str, ...]


@cache
def _form_of(kind: type[Value]) -> _Form:
    config = kind.__struct_config__
    hints = get_type_hints(kind)
    hints |= {name: get_type_hints(getattr(kind, name).fget)["return"] for name in kind.derived}
    shown = (*kind.__struct_fields__, *kind.derived)
    return _Form(
        is_own=kind.to_dict is not Value.to_dict,
        tag={} if config.tag is None else {cast("str", config.tag_field): config.tag},
        derived=kind.derived,
        nested=tuple(name for name in shown if _may_hold_values(hints[name])),
    )


def _may_hold_values(kind: Any) -> bool:
    """Whether a field of this type may hold values; one of any type holds JSON."""
    inner = get_args(kind)
    return any(map(_may_hold_values, inner)) if inner else isinstance(kind, type) and issubclass(kind, Value)


def iso(milliseconds: int) -> str | int:
    """Return a time as ISO 8601 in UTC, with milliseconds; one beyond the year 9999 as it is."""
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return milliseconds
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
