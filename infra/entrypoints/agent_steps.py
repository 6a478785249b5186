"""Steps of agents: what the checkpoints of their threads say by themselves, without the framework that wrote them."""

from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import msgspec

from chatledger.domain.errors import NamespaceError
from chatledger.domain.versioned.namespaces import assistant_of

_METADATA_FORMS: Final[dict[str, Callable[[bytes], Any]]] = {
    "msgpack": msgspec.msgpack.decode,
    "json": msgspec.json.decode,
}


def step_of(metadata: tuple[str, bytes]) -> tuple[int | None, str | None]:
    """Return the number and the source of a step, where its metadata can be read without the framework that wrote them."""
    fields = decode_metadata(metadata) or {}
    step, source = fields.get("step"), fields.get("source")
    return step if isinstance(step, int) else None, source if isinstance(source, str) else None


def decode_metadata(metadata: tuple[str, bytes]) -> dict[str, Any] | None:
    """Return the metadata of a checkpoint, where they can be read without the framework that wrote them; None otherwise."""
    form, data = metadata
    decode = _METADATA_FORMS.get(form)
    try:
        found: Any = None if decode is None else decode(data)
    except (msgspec.DecodeError, ValueError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def assistants_of(namespaces: Iterable[str]) -> list[str]:
    """Return the assistants that namespaces belong to, in the order in which they came up."""
    return list(dict.fromkeys(filter(None, map(_assistant_of, namespaces))))


def _assistant_of(namespace: str) -> str | None:
    try:
        return assistant_of(namespace)
    except NamespaceError:
        return None
