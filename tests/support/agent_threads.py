"""Threads of agents for tests: putting values, and reading them back."""

from typing import Any, cast

from chatledger.domain.versioned.content import (
    DIGEST_BYTES,
    DictNode,
    Edited,
    Leaf,
    ListNode,
    Parts,
    Serial,
    Tree,
    dict_tree,
    leaf_tree,
    list_tree,
    references_of,
)
from chatledger.domain.versioned.record import PutVersion
from chatledger.infra.ledger.threads import StoredCheckpoint, Threads
from chatledger.projections.versioned.pieces import base_of
from chatledger.projections.versioned.reader import IndexedVersioned


def tree_of(value: Any) -> Tree:
    """A value in pieces, with text as leaves."""
    if isinstance(value, list):
        return list_tree([tree_of(element) for element in cast("list[Any]", value)])
    if isinstance(value, dict):
        return dict_tree({key: tree_of(element) for key, element in cast("dict[str, Any]", value).items()})
    return leaf_tree("text", value.encode())


def value_of(stored: StoredCheckpoint, digest: bytes) -> Any:
    """The value that was put in."""
    content = stored.pieces[digest]
    if isinstance(content, Leaf):
        return content.data.decode()
    assert not isinstance(content, Edited)
    children = [content.children[at : at + DIGEST_BYTES] for at in range(0, len(content.children), DIGEST_BYTES)]
    if isinstance(content, Parts):
        return "".join(value_of(stored, child) for child in children)
    if isinstance(content, DictNode):
        return {key: value_of(stored, child) for key, child in zip(content.keys, children, strict=True)}
    assert isinstance(content, ListNode)
    kept: list[Any] = value_of(stored, content.base)[: content.keep] if content.base else []
    return [*kept, *(value_of(stored, child) for child in children)]


def put(
    threads: Threads,
    thread_id: str,
    checkpoint_id: str,
    values: dict[str, Any],
    *,
    parent_id: str | None = None,
    namespace: str = "",
    **more: Any,
) -> None:
    """Store a checkpoint with these values."""
    threads.put_checkpoint(
        thread_id,
        PutVersion(
            line=namespace,
            id=checkpoint_id,
            parent=parent_id,
            frames=(("text", b"checkpoint " + checkpoint_id.encode()), ("text", b"metadata")),
            # A text comes as LangGraph's serializer gives one: it is cut by what stood in its place.
            values={
                name: Serial("text", value.encode()) if isinstance(value, str) else tree_of(value)
                for name, value in values.items()
            },
            **more,
        ),
    )


def values_of(stored: StoredCheckpoint | None) -> dict[str, Any]:
    """The values of the channels of a checkpoint that is there."""
    assert stored is not None
    return {name: value_of(stored, ref.digest) for name, ref in stored.record.fields.items()}


def check_reached(value: IndexedVersioned) -> None:
    """Check that the pieces of a versioned value are those that its versions and writes are made of, and no others."""
    reached: set[bytes] = set()
    pending = value.roots(value.lines())
    while pending:
        digest = pending.pop()
        if digest not in reached:
            reached.add(digest)
            pending += references_of(value.need_content(digest))
    assert dict(value.stored_pieces()).keys() == reached
    stored = [value.stored_content(digest) for digest in reached]
    assert {base_of(piece.content) for piece in stored if piece is not None} <= {b"", *reached}
