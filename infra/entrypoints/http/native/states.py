"""
States of graphs, and threads of agents: by version, the newest first.

What needs the graph's own functions stays in the process that has them: reducing an update into a state, the node that comes
next, observers, and checkpointing in the background.
"""

from itertools import islice
from typing import Annotated, Any, Final

import msgspec

from chatledger.domain.errors import (
    HeldError,
    InvalidValueError,
    NotFoundError,
    PayloadTooLargeError,
    StateConflictError,
)
from chatledger.domain.versioned.keys import shown_id
from chatledger.domain.versioned.record import METADATA, StatusName
from chatledger.domain.wire import Value

from ....ledger.graph.state_store import StateStore, StateView
from ....ledger.graph.values import StateInfo, StateVersion
from ....ledger.thread_lists import ThreadInfo
from ....ledger.thread_trace import decode_metadata
from ....ledger.threads import StoredCheckpoint, Threads
from ...agent_steps import assistants_of
from ..routing import IDEMPOTENCY_KEY, HttpCall, Limit, Route, existing
from .chats import Deleted

Version = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class State(Value, frozen=True):
    """A state of a graph: its values at a version."""

    id: str
    version: int
    values: dict[str, Any]


class NewState(msgspec.Struct, forbid_unknown_fields=True):
    """A whole state, stored as the next version; with `expected_version` only after that one, 0 for none yet."""

    values: dict[str, Any]
    expected_version: Version | None = None
    node: str | None = None


class Stored(Value, frozen=True):
    """The version that was stored."""

    version: int


def list_states(call: HttpCall, user_id: str | None = None, conversation_id: str | None = None) -> list[StateInfo]:
    """List the states of graphs, the last changed first."""
    return _at(call).list(user_id=user_id, conversation_id=conversation_id)


def get_state(call: HttpCall, state_id: str, version: Version | None = None) -> State:
    """Read a state: the newest version, or the one that is named."""
    store = StateStore(call.ledger)
    if call.moment is not None:
        newest = store.as_of(call.moment).get_version(state_id)
        version = newest if version is None else version
        if not 0 < version <= newest:
            raise _absent(state_id)  # later versions were not there at that moment
    snapshot = existing(store.resume(state_id, version), _absent, state_id)
    return State(state_id, snapshot.version, snapshot.state)


def list_state_versions(
    call: HttpCall, state_id: str, limit: Limit = 50, before: Version | None = None
) -> list[StateVersion]:
    """List the versions of a state, the newest first, without their values."""
    return _at(call).history(state_id, limit=limit, before=before)


def put_state(call: HttpCall, state_id: str, body: NewState) -> Stored:
    """
    Store a whole state as the next version. The id names its owner: `chat:<user id>:<conversation id>`.

    What makes repeating safe is `expected_version`: an `Idempotency-Key` without it is refused.
    """
    if call.header(IDEMPOTENCY_KEY) is not None and body.expected_version is None:
        msg = f"states know no {IDEMPOTENCY_KEY}: send expected_version, so that repeating stores nothing twice"
        raise InvalidValueError(msg)
    version = StateStore(call.ledger).put(state_id, body.values, expected_version=body.expected_version, node=body.node)
    return Stored(version)


def delete_state(call: HttpCall, state_id: str) -> Deleted:
    """Delete a state with all its versions, and erase them from the log."""
    return Deleted(StateStore(call.ledger).delete(state_id))


def _at(call: HttpCall) -> StateStore | StateView:
    """Return the states, as of the moment of a call that names one."""
    store = StateStore(call.ledger)
    return store if call.moment is None else store.as_of(call.moment)


def _absent(state_id: str) -> NotFoundError:
    return NotFoundError(f"no state {shown_id(state_id)!r}, or not of that version")


class ThreadPage(Value, frozen=True):
    """Threads, and what is to be sent as `after` for those that follow; null where there are no more."""

    threads: list[ThreadInfo]
    next: str | None


class ThreadCounts(Value, frozen=True):
    """The numbers of threads of agents that stand in each way, and of all."""

    waits: int
    running: int
    failed: int
    stopped: int
    finished: int
    all: int


def list_threads(
    call: HttpCall,
    status: Annotated[StatusName | None, msgspec.Meta(description="Only those that stand so.")] = None,
    user_id: str | None = None,
    limit: Limit = 50,
    after: Annotated[str | None, msgspec.Meta(description="The `next` of the page before.")] = None,
) -> ThreadPage:
    """List the threads of agents, the last changed first, each with its status: what waits for whom, what failed, what is finished."""
    return ThreadPage(*call.ledger.list_threads(status=status, user_id=user_id, limit=limit, after=after))


def count_threads(call: HttpCall, user_id: str | None = None) -> ThreadCounts:
    """Count the threads of agents by status."""
    counts = call.ledger.count_threads(user_id=user_id)
    return ThreadCounts(**counts, all=sum(counts.values()))


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


ROUTES: Final = {
    "states": [
        Route("GET", "/states", list_states),
        Route("GET", "/states/{state_id}", get_state, raises=[NotFoundError]),
        Route("GET", "/states/{state_id}/versions", list_state_versions),
        Route("PUT", "/states/{state_id}", put_state, raises=[StateConflictError, PayloadTooLargeError]),
        Route("DELETE", "/states/{state_id}", delete_state, raises=[HeldError]),
    ],
    "threads": [
        Route("GET", "/threads", list_threads, has_moment=False),
        Route("GET", "/threads/count", count_threads, has_moment=False),
        Route("GET", "/threads/{thread_id}/versions", list_thread_versions, raises=[NotFoundError], has_moment=False),
    ],
}
