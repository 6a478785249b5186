"""Routes of runs: begun, followed, waited for, listed, ended and deleted."""

import json
from collections.abc import AsyncGenerator, Collection
from typing import Any, Final, Literal, TypeVar, cast, get_args
from urllib.parse import quote
from uuid import UUID

import anyio
import msgspec
from langchain_core.utils.uuid import uuid7
from starlette.responses import Response

from chatledger.domain.chat.runs import MessageRun
from chatledger.domain.errors import ChatledgerError, InvalidValueError, NotFoundError

from ....ledger.ledger import Ledger
from ....ledger.threads import Threads
from ..problems import RequestError
from ..routing import JSON
from ..server_sent_events import EventStream, ServerSentEvent
from .assistants import Assistant
from .contract import AgentCall, Limit, Offset, route
from .encoding import encode
from .graph_events import Mode
from .known_threads import ASSISTANT_ID, GRAPH_ID, KnownThread, find_thread
from .run_events import END
from .run_records import Action, failure, is_deleted, is_over, reason, shown_run, status_of_run
from .run_requests import NewRun
from .run_streams import HEARTBEAT_S, find_run, position_after, read_run, sent, shown_events, values_of
from .threads import Ids, TimeToLive, create_thread, update_thread

T = TypeVar("T")
Status = Literal["pending", "running", "error", "success", "timeout", "interrupted"]
Field = Literal[
    "run_id",
    "thread_id",
    "assistant_id",
    "created_at",
    "updated_at",
    "status",
    "metadata",
    "kwargs",
    "multitask_strategy",
]
_TEMPORARY_MINUTES: Final = 25.0 * 60
"""The life of the thread of a run without one, should the server die before it deletes it: no run is followed for longer."""
_NOT_FOUND: Final = "Thread or assistant not found."
_MODES: Final = frozenset(get_args(Mode))


class ManyToCancel(msgspec.Struct):
    """The runs that are to end: some of a thread, or all of a status."""

    thread_id: str | None = None
    run_ids: Ids | None = None
    status: Literal["pending", "running", "all"] | None = None


async def create(call: AgentCall, thread_id: str, body: NewRun) -> dict[str, Any]:
    """Begin a run, and answer at once."""
    return _created(call, await begin_run(call, body, thread_id))


async def create_stateless(call: AgentCall, body: NewRun) -> dict[str, Any]:
    """Begin a run on a thread of its own, and answer at once."""
    return _created(call, await begin_run(call, body, None))


async def create_batch(call: AgentCall, body: list[NewRun]) -> list[dict[str, Any]]:
    """Begin several runs, each on a thread of its own."""
    # All or nothing: a batch that the server has no room for begins none of its runs.
    for request in body:
        request.check()
    call.runs.check_room(call.principal, len(body))
    return [shown_run(await begin_run(call, request, None)) for request in body]


async def stream(call: AgentCall, thread_id: str, body: NewRun) -> Response:
    """Begin a run, and follow it."""
    return _followed(call, await begin_run(call, body, thread_id), body)


async def stream_stateless(call: AgentCall, body: NewRun) -> Response:
    """Begin a run on a thread of its own, and follow it."""
    return _followed(call, await begin_run(call, body, None), body)


async def wait(call: AgentCall, thread_id: str, body: NewRun) -> Response:
    """Begin a run, and wait for the values at its end."""
    return _awaited(call, await begin_run(call, body, thread_id), body)


async def wait_stateless(call: AgentCall, body: NewRun) -> Response:
    """Begin a run on a thread of its own, and wait for the values at its end."""
    return _awaited(call, await begin_run(call, body, None), body)


async def get(call: AgentCall, thread_id: str, run_id: str) -> dict[str, Any]:
    """Read a run."""
    return shown_run(await find_run(call, thread_id, run_id))


async def list_runs(
    call: AgentCall,
    thread_id: str,
    *,
    limit: Limit = 10,
    offset: Offset = 0,
    status: Status | None = None,
    select: list[Field] | None = None,
) -> list[dict[str, Any]]:
    """List the runs of a thread, the newest first."""
    await call.run(find_thread, call, thread_id)
    visible_runs = [run for run in await call.async_ledger.runs(thread_id) if not is_deleted(run)]
    # A run whose server died must not be listed as running for ever.
    settled = [await call.runs.settle(call.async_ledger, run) for run in reversed(visible_runs)]
    wanted = [shown_run(run) for run in settled if status in {None, status_of_run(run)}][offset : offset + limit]
    return wanted if select is None else [{str(name): run[name] for name in select} for run in wanted]


async def join(call: AgentCall, thread_id: str, run_id: str, *, cancel_on_disconnect: bool = False) -> Response:
    """Wait for the end of a run, and for the values at it."""
    if cancel_on_disconnect:
        await call.async_ledger.check_may_write(thread_id)
    return _awaited(call, await find_run(call, thread_id, run_id), may_cancel=cancel_on_disconnect)


async def join_stream(
    call: AgentCall,
    thread_id: str,
    run_id: str,
    *,
    stream_mode: list[str] | None = None,
    cancel_on_disconnect: bool = False,
) -> Response:
    """Follow a run: after `Last-Event-ID`, or from its beginning."""
    if cancel_on_disconnect:
        await call.async_ledger.check_may_write(thread_id)
    after = position_after(call.request.headers.get("Last-Event-ID"))
    modes = _modes(stream_mode or [])
    run = await find_run(call, thread_id, run_id)
    return _followed(call, run, None, after=after, modes=modes, may_cancel=cancel_on_disconnect)


async def cancel(
    call: AgentCall,
    thread_id: str,
    run_id: str,
    *,
    wait: bool = False,
    action: Action = "interrupt",
) -> Response:
    """End a run before its time; with `rollback` also undo what it did. Again changes nothing."""
    run = await find_run(call, thread_id, run_id)
    if run.is_ended and status_of_run(run) != "interrupted":
        msg = f"Run {run_id} has ended by itself; there is nothing to cancel"
        raise NotFoundError(msg)
    await call.runs.cancel(call.async_ledger, run, action)
    if wait:
        return _awaited(call, run, has_values=False)
    return Response(None, 202, _places(run, "join"))


async def cancel_many(call: AgentCall, body: ManyToCancel, *, action: Action = "interrupt") -> None:
    """End several runs before their time."""
    if body.status is not None and (body.thread_id is not None or body.run_ids is not None):
        msg = (
            "When providing a 'status', 'thread_id' and 'run_ids' must be omitted. The 'status' parameter cancels all runs "
            "with the given status, regardless of thread or run ID."
        )
        raise InvalidValueError(msg)
    if body.status is not None:
        for run in await call.run(_unended, call.ledger, body.status):
            await call.runs.cancel(call.async_ledger, run, action)
        return
    if body.thread_id is None or not body.run_ids:
        msg = "give a 'status', or a 'thread_id' and 'run_ids'"
        raise InvalidValueError(msg)
    for run_id in body.run_ids:
        await call.runs.cancel(call.async_ledger, await find_run(call, body.thread_id, run_id), action)


async def delete(call: AgentCall, thread_id: str, run_id: str) -> None:
    """Delete a run; one that has not ended is ended first. What it did to the state of the thread stays."""
    run = await find_run(call, thread_id, run_id)
    if not is_over(run):
        await call.runs.cancel(call.async_ledger, run, "interrupt")
        run = await call.runs.wait(call.async_ledger, run)
    await call.runs.delete(call.async_ledger, run)


async def begin_run(call: AgentCall, request: NewRun, thread_id: str | None) -> MessageRun:
    """Begin a run on a thread, or on one of its own."""
    request.check()
    assistant = await _assistant(call, request.assistant_id)
    new_id = str(uuid7()) if thread_id is None else thread_id
    may_create = thread_id is None or request.if_not_exists == "create"
    is_temporary = thread_id is None and request.on_completion != "keep"
    ttl = TimeToLive(_TEMPORARY_MINUTES) if is_temporary else None
    namespace = request.namespace_for(assistant.assistant_id)
    place = request.place(namespace)
    stored = "|".join(filter(None, (namespace, place.get("checkpoint_ns"))))
    begins = (stored, place["checkpoint_id"]) if "checkpoint_id" in place else None
    thread = await call.run(_prepared, call, new_id, assistant, begins, may_create=may_create, ttl=ttl)
    metadata = {**assistant.metadata, **thread.metadata, **(request.metadata or {}), **_named(assistant)}
    return await call.runs.begin(
        call.principal,
        call.async_ledger,
        new_id,
        assistant,
        request,
        metadata,
        is_temporary=is_temporary,
    )


async def _assistant(call: AgentCall, assistant_id: str) -> Assistant:
    try:
        return await call.graphs.assistant(call.principal, assistant_id)
    except NotFoundError as error:
        try:
            UUID(assistant_id)
        except ValueError:
            msg = (
                f"Invalid assistant: '{assistant_id}'. Must be either:\n- A valid assistant UUID, or\n"
                f"- One of the registered graphs: {', '.join(call.graphs.names)}"
            )
            raise RequestError(422, msg) from error
        raise RequestError(404, _NOT_FOUND) from error


def _prepared(
    call: AgentCall,
    thread_id: str,
    assistant: Assistant,
    begins: tuple[str, str] | None,
    *,
    may_create: bool,
    ttl: TimeToLive | None,
) -> KnownThread:
    """Return the thread of a run, with a chat for the record of the run; `begins` is the checkpoint that it names, with its namespace."""
    named = _named(assistant)
    try:
        thread = find_thread(call, thread_id)
    except NotFoundError:
        if not may_create:
            raise NotFoundError(_NOT_FOUND) from None
        thread = None
    # Before anything is written: a run that cannot begin leaves no thread behind.
    if begins is not None:
        Threads(call.ledger).check_checkpoint(thread_id, *begins)
    if thread is None:
        thread, _ = create_thread(call, thread_id, metadata=named, ttl=ttl)
    recorded = {} if thread.chat is None else thread.chat.metadata or {}
    # Clients read from a thread's metadata which agent is at work on it, so the last one is named there.
    if thread.chat is None or any(recorded.get(name) != value for name, value in named.items()):
        thread = update_thread(call, thread_id, named)
    return thread


def _named(assistant: Assistant) -> dict[str, str]:
    return {GRAPH_ID: assistant.graph_id, ASSISTANT_ID: assistant.assistant_id}


def _unended(ledger: Ledger, status: str | None) -> list[MessageRun]:
    """Return the runs of all threads that have not ended. Costs the number of threads."""
    wanted = {"pending", "running"} if status == "all" else {status}
    return [run for chat in ledger.list_chats() for run in ledger.runs(chat.id, is_ended=False) if run.status in wanted]


def _modes(texts: Collection[str]) -> frozenset[str] | None:
    """Return the modes that a client names: one, several, or a JSON array in a text; None for all."""
    modes: set[str] = set()
    for text in texts:
        if text.startswith("["):
            try:
                modes.update(map(str, cast("list[Any]", json.loads(text))))
            except ValueError as error:
                msg = f"stream_mode is no list of modes: {error}"
                raise InvalidValueError(msg) from error
        elif text:
            modes.add(text)
    unknown = modes - _MODES
    if unknown:
        msg = f"there is no stream_mode {', '.join(sorted(unknown))}; choose of {', '.join(sorted(_MODES))}"
        raise InvalidValueError(msg)
    return frozenset(modes) or None


def _path(run: MessageRun) -> str:
    return f"/threads/{quote(run.thread_id, safe='')}/runs/{quote(run.run_id, safe='')}"


def _places(run: MessageRun, way: str) -> dict[str, str]:
    return {"Content-Location": _path(run), "Location": f"{_path(run)}/{way}"}


def _created(call: AgentCall, run: MessageRun) -> dict[str, Any]:
    call.headers["Content-Location"] = _path(run)
    return shown_run(run)


def _followed(
    call: AgentCall,
    run: MessageRun,
    request: NewRun | None,
    *,
    after: int = 0,
    modes: Collection[str] | None = None,
    may_cancel: bool = False,
) -> Response:
    may_cancel = may_cancel or (request is not None and request.on_disconnect == "cancel")
    shown = shown_events(read_run(call, run, after), modes)
    return sent(call, _cancelling(call, run, shown) if may_cancel else shown, _places(run, "stream"), is_endless=False)


async def _cancelling(call: AgentCall, run: MessageRun, chunks: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """Yield events or another answer; end the run when the reader goes before the end."""
    has_ended = False
    try:
        async for chunk in chunks:
            has_ended = not isinstance(chunk, ServerSentEvent) or chunk.event == END
            yield chunk
    finally:
        with anyio.CancelScope(shield=True):  # that the reader went has cancelled this
            await chunks.aclose()
            if not has_ended and not call.service.stopping.is_set():
                await call.runs.cancel(call.async_ledger, run, "interrupt")


def _awaited(
    call: AgentCall,
    run: MessageRun,
    request: NewRun | None = None,
    *,
    may_cancel: bool = False,
    has_values: bool = True,
) -> Response:
    """
    Answer with the values at the end of a run, or with an empty object; white space keeps the connection open until then.

    When the server stops before that, the connection is closed without an end, so that clients come back to `Location`.
    """
    may_cancel = may_cancel or (request is not None and request.on_disconnect == "cancel")
    result = _result(call, run, has_values=has_values)
    return EventStream(
        _cancelling(call, run, result) if may_cancel else result,
        stopping=call.service.stopping,
        headers={**_places(run, "join"), "Content-Type": JSON},
        heartbeat=b"\n",
        heartbeat_s=HEARTBEAT_S,
        retry_ms=None,
        end_s=0,
    )


async def _result(call: AgentCall, run: MessageRun, *, has_values: bool) -> AsyncGenerator[bytes]:
    """Wait for the end of a run; yield the values, or an error as `__error__`."""
    values: Any = None
    try:
        ended = await call.runs.wait(call.async_ledger, run)
        failed = reason(ended) if has_values else None
        if has_values and failed is None:
            values = await values_of(call, ended)
            if values is None:  # a run without checkpoints: they are in its stream
                async for event in read_run(call, ended):
                    values = msgspec.Raw(event.data) if event.name == "values" else values
    except ChatledgerError as error:
        failed = failure(error)
    yield encode({"__error__": failed} if failed is not None else {} if values is None else values)


ROUTES: Final = [
    route("POST", "/runs", create_stateless),
    route("POST", "/runs/batch", create_batch),
    route("POST", "/runs/stream", stream_stateless),
    route("POST", "/runs/wait", wait_stateless),
    route("POST", "/runs/cancel", cancel_many),
    route("POST", "/threads/{thread_id}/runs", create),
    route("GET", "/threads/{thread_id}/runs", list_runs),
    route("POST", "/threads/{thread_id}/runs/stream", stream),
    route("POST", "/threads/{thread_id}/runs/wait", wait),
    route("GET", "/threads/{thread_id}/runs/{run_id}", get),
    route("DELETE", "/threads/{thread_id}/runs/{run_id}", delete),
    route("GET", "/threads/{thread_id}/runs/{run_id}/join", join),
    route("GET", "/threads/{thread_id}/runs/{run_id}/stream", join_stream),
    route("POST", "/threads/{thread_id}/runs/{run_id}/cancel", cancel),
]
