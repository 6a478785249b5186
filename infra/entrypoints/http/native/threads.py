"""Threads of agents: what all of them did there, the newest first."""

from itertools import islice
from typing import Annotated, Any, Final

import msgspec

from chatledger.domain.errors import InvalidValueError, NotFoundError
from chatledger.domain.versioned.record import METADATA
from chatledger.domain.wire import Value

from ....ledger.threads import StoredCheckpoint, Threads
from ...agent_steps import assistants_of, decode_metadata
from ..routing import HttpCall, Limit, Route


class ThreadVersion(Value, frozen=True):
    """
    A version of the state of an agent on a thread: a checkpoint, without its values.

    `namespace` is as it is stored, such as `assistant:<id>`, and `assistant_id` the assistant that it belongs to; null where it
    is none's. `created_at` is the time when it was stored, in ms since the epoch. `metadata` are those that the runtime gave
    it; null where they cannot be read without it.
    """

    id: str
    namespace: str
    assistant_id: str | None
    parent_id: str | None
    created_at: int
    runtime: str
    run_id: str | None
    metadata: dict[str, Any] | None


class ThreadVersions(Value, frozen=True):
    """Versions, and what is to be sent as `before` for those that follow; null where there are no more."""

    versions: list[ThreadVersion]
    next: str | None


def list_thread_versions(
    call: HttpCall,
    thread_id: str,
    namespace: Annotated[str, msgspec.Meta(description="Only of this namespace, as it is stored.")] | None = None,
    limit: Limit = 50,
    before: Annotated[str, msgspec.Meta(description="The `next` of the page before.")] | None = None,
) -> ThreadVersions:
    """List the versions of the states of all agents on a thread, the newest first, each with its namespace and assistant."""
    threads = Threads(call.ledger)
    with threads.reading(thread_id) as thread:
        is_there = thread.record is not None
    if not is_there and call.ledger.get_chat(thread_id) is None:
        msg = f"no thread {thread_id!r}"
        raise NotFoundError(msg)
    bound: str | None = None
    skipped: set[str] = set()
    if before is not None:
        try:
            bound, *last = msgspec.json.decode(before, type=list[str])
        except (msgspec.DecodeError, ValueError):
            msg = f"before is {before!r}, which is no `next` of a page of versions"
            raise InvalidValueError(msg) from None
        skipped = set(last)
        threads.check_checkpoint(thread_id, last[-1] if last else "", bound)
    # Checkpoints that were copied to another namespace have one id, so the page that ends with one says which it had.
    newest = threads.checkpoints(
        thread_id,
        namespace,
        before=None if bound is None else bound + "\0",
        keep=lambda _thread_id, record: record.id != bound or record.line not in skipped,
        limit=limit + 1,
        is_known=lambda _digest: True,
    )
    page = [_version(stored) for stored in islice(newest, limit + 1)]
    rest, page = page[limit:], page[:limit]
    if not rest:
        return ThreadVersions(page, None)
    end = page[-1].id
    had = {version.namespace for version in page if version.id == end}
    if end == bound:
        had |= skipped
    return ThreadVersions(page, msgspec.json.encode([end, *sorted(had)]).decode())


def _version(stored: StoredCheckpoint) -> ThreadVersion:
    record = stored.record
    return ThreadVersion(
        id=record.id,
        namespace=record.line,
        assistant_id=next(iter(assistants_of([record.line])), None),
        parent_id=stored.parent_id,
        created_at=record.stored_at,
        runtime=record.runtime,
        run_id=record.run_id,
        metadata=decode_metadata(record.frames[METADATA]),
    )


ROUTES: Final = [
    Route("GET", "/threads/{thread_id}/versions", list_thread_versions, raises=[NotFoundError], has_moment=False),
]
