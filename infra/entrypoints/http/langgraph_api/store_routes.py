"""Routes of the store: items under a namespace and a key, the long-term memory of agents; each user has their own."""

from collections.abc import Awaitable
from typing import Annotated, Any, Final, TypeVar, cast

import msgspec
from langgraph.store.base import InvalidNamespaceError
from langgraph.store.base import Item as StoredItem

from ..problems import RequestError
from .contract import AgentCall, Limit, Offset, route

T = TypeVar("T")
Labels = list[str]
"""A namespace: labels without dots."""


class NewItem(msgspec.Struct):
    """An item to be stored; `ttl` in minutes."""

    namespace: Labels
    key: str
    value: dict[str, Any]
    index: bool | list[str] | None = None
    ttl: Annotated[float, msgspec.Meta(gt=0)] | None = None


class ItemPlace(msgspec.Struct):
    """The place of an item."""

    namespace: Labels
    key: str


class ItemSearch(msgspec.Struct):
    """A page of the items under a namespace, with filters."""

    namespace_prefix: Labels = msgspec.field(default_factory=list[str])
    filter: dict[str, Any] | None = None
    limit: Limit = 10
    offset: Offset = 0
    query: str | None = None
    refresh_ttl: bool | None = None


class NamespaceSearch(msgspec.Struct):
    """A page of namespaces, with filters; `*` stands for any label."""

    prefix: Labels | None = None
    suffix: Labels | None = None
    max_depth: Annotated[int, msgspec.Meta(ge=1)] | None = None
    limit: Limit = 100
    offset: Offset = 0


async def put_item(call: AgentCall, body: NewItem) -> None:
    """Store an item, as the next version where there is one."""
    index: Any = body.index
    await _checked(call.store.aput(tuple(body.namespace), body.key, body.value, index, ttl=body.ttl))


async def get_item(call: AgentCall, namespace: str, key: str, *, refresh_ttl: bool | None = None) -> Any:
    """Read an item; null when there is none. `namespace` has its labels with dots between them."""
    item = await _checked(call.store.aget(tuple(namespace.split(".")), key, refresh_ttl=refresh_ttl))
    # As LangGraph's server: a body of `null`, where None alone would be an answer without a body.
    return msgspec.Raw(b"null") if item is None else _shown(item)


async def delete_item(call: AgentCall, body: ItemPlace) -> None:
    """Erase an item with all its versions."""
    await _checked(call.store.adelete(tuple(body.namespace), body.key))


async def search_items(call: AgentCall, body: ItemSearch | None = None) -> dict[str, Any]:
    """List the items under a namespace that fit a filter, the last changed first; with a query the best first."""
    fields = msgspec.structs.asdict(body or ItemSearch())
    items = await _checked(call.store.asearch(tuple(fields.pop("namespace_prefix")), **fields))
    return {"items": [_shown(item) for item in items]}


async def list_namespaces(call: AgentCall, body: NamespaceSearch | None = None) -> dict[str, Any]:
    """List the namespaces that have items, in order."""
    fields = msgspec.structs.asdict(body or NamespaceSearch())
    for name in ("prefix", "suffix"):
        fields[name] = None if fields[name] is None else tuple(fields[name])
    namespaces = await _checked(call.store.alist_namespaces(**fields))
    return {"namespaces": [list(namespace) for namespace in namespaces]}


async def _checked(answer: Awaitable[T]) -> T:
    try:
        return await answer
    except InvalidNamespaceError as error:
        raise RequestError(422, str(error)) from error


def _shown(item: StoredItem) -> dict[str, Any]:
    return cast("dict[str, Any]", item.dict())  # pyright: ignore[reportUnknownMemberType]  # LangGraph says only that it is a dict


ROUTES: Final = [
    route("PUT", "/store/items", put_item),
    route("GET", "/store/items", get_item),
    route("DELETE", "/store/items", delete_item),
    route("POST", "/store/items/search", search_items, is_reading=True),
    route("POST", "/store/namespaces", list_namespaces, is_reading=True),
]
