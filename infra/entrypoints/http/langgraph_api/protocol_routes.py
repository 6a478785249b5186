"""Routes of threads as a whole: their events, and LangGraph's thread protocol with its commands."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, Literal, cast

import msgspec
from starlette.responses import Response

from chatledger.domain.errors import ChatledgerError, InvalidValueError, NotFoundError

from ....clock import clock_ms
from ..problems import RequestError
from ..server_sent_events import ServerSentEvent
from .contract import AgentCall, Limit, route
from .encoding import encode
from .known_threads import ASSISTANT_ID, GRAPH_ID, find_thread
from .protocol_events import MODES, Subscription, Translating, envelope, number_of, place_before
from .run_events import END, METADATA
from .run_records import is_over
from .run_requests import NewRun
from .run_routes import begin_run
from .run_streams import ThreadEventPlace, list_all, place_after, read_thread, sent
from .states import StatePlace, find_place, places_of, read_history, read_state
from .threads import create_thread

_LATELY_MS: Final = 10_000
_JUST_MS: Final = 1000
_PYTHON: Final = "langgraph-sdk-py/"
_MODES: Final = ("run_modes", "lifecycle", "state_update")


class ProtocolCommand(msgspec.Struct):
    """A command of the protocol."""

    id: int | None = None
    method: str = ""
    params: dict[str, Any] = {}


class CommandError(Exception):
    """A command that was refused, with a code of the protocol."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


async def join_thread(
    call: AgentCall, thread_id: str, *, stream_mode: list[str] | None = None, stream_modes: list[str] | None = None
) -> Response:
    """Follow all runs of a thread: those that are not over, and those to come; or from `Last-Event-ID` on."""
    modes = {mode for text in (stream_mode or []) + (stream_modes or []) for mode in text.split(",") if mode}
    unknown = modes - set(_MODES)
    if unknown:
        msg = f"there is no stream_mode {', '.join(sorted(unknown))}; choose of {', '.join(_MODES)}"
        raise InvalidValueError(msg)
    place = await place_after(call, thread_id, call.request.headers.get("Last-Event-ID"))
    return sent(call, _joined(call, thread_id, place, modes or {"run_modes"}))


async def _joined(
    call: AgentCall, thread_id: str, place: ThreadEventPlace, modes: set[str]
) -> AsyncGenerator[ServerSentEvent]:
    async with aclosing(read_thread(call, thread_id, place)) as events:
        async for run, at, event in events:
            if event.base == END:
                done = encode({"status": "run_done", "run_id": run.run_id})
                yield ServerSentEvent(done, METADATA, at.text if event.number else f"{at.run}-*")
            elif "run_modes" in modes or (event.base == METADATA and "lifecycle" in modes):
                yield ServerSentEvent(event.data, event.name, at.text if event.number else None)


async def follow(call: AgentCall, thread_id: str, body: Subscription) -> Response:
    """
    Follow a thread by the protocol: after the event with the number `since`, of which 0 is before the first.

    Without it, the first run that is not over, and all after it; where all are over, what has ended lately. The client for JavaScript comes back
    like this when a connection is lost, and passes over the events that it has. That for Python does not, and takes the end of
    an earlier run for that of its own: it gets only what has just ended, which may be a short run that it has begun.
    """
    try:
        await list_all(call, thread_id)
    except NotFoundError:
        if not call.principal.may("write"):
            raise
        # A client follows a thread before its first run.
        await call.run(create_thread, call, thread_id, may_exist=True)
    return sent(call, _followed(call, thread_id, body))


async def _followed(call: AgentCall, thread_id: str, wanted: Subscription) -> AsyncGenerator[ServerSentEvent]:
    number = since = wanted.since or 0
    place = await _current(call, thread_id) if wanted.since is None else place_before(since)
    translating: Translating | None = None
    current: str | None = None
    async with aclosing(read_thread(call, thread_id, place)) as events:
        async for run, at, event in events:
            if current != run.run_id or translating is None:
                current, translating = run.run_id, Translating(run.metadata.get(GRAPH_ID))
            for part, translated in enumerate(translating.of(event)):
                # An event that is not stored has no number of its own: it follows the last one.
                number = number_of(at, part) if event.number else number + 1
                if number <= since or not wanted.fits(translated):
                    continue
                shown = envelope(run.run_id, at, part, translated, event.time_ms) | {"seq": number}
                yield ServerSentEvent(encode(shown), translated.method, str(number))


async def _current(call: AgentCall, thread_id: str) -> ThreadEventPlace:
    runs, now = await list_all(call, thread_id), clock_ms()
    is_python = call.request.headers.get("user-agent", "").startswith(_PYTHON)
    is_idle = all(map(is_over, runs))
    # For why, see `follow`: the two clients differ in what they make of the end of an earlier run.
    since = now - (_LATELY_MS if is_idle and not is_python else _JUST_MS)
    return ThreadEventPlace(
        next((at for at, run in enumerate(runs) if not is_over(run) or run.updated_at > since), len(runs))
    )


async def command(call: AgentCall, thread_id: str, body: ProtocolCommand) -> dict[str, Any]:
    """Do what a command of the protocol says."""
    method = body.method
    if method in _UNSUPPORTED:
        code = "not_supported"
        message = f"{method} is of WebSocket connections; over HTTP the body of POST /stream/events subscribes"
    elif method not in _COMMANDS:
        code, message = "unknown_command", f"Unknown protocol command: {method}"
    else:
        try:
            result = await _COMMANDS[method](call, thread_id, body.params)
        except CommandError as error:
            code, message = error.code, str(error)
        except NotFoundError as error:
            code, message = "no_such_run", str(error)
        except (InvalidValueError, RequestError, msgspec.ValidationError) as error:
            code, message = "invalid_argument", str(error)
        except ChatledgerError as error:
            code, message = "unknown_error", str(error)
        else:
            applied = 0
            if "run_id" in result:
                # The number of the last event before the run, after which the client that began it follows it.
                ids = [run.run_id for run in await list_all(call, thread_id)]
                applied = number_of(ThreadEventPlace(ids.index(result["run_id"])), 0)
            return {"type": "success", "id": body.id, "result": result, "meta": {"applied_through_seq": applied}}
    return {"type": "error", "id": body.id, "error": code, "message": message}


class _Begin(msgspec.Struct, kw_only=True):
    """Parameters of `run.start` and `state.fork` beside those of a run."""

    assistant_id: str | None = None
    checkpoint_id: str | None = None


class _InterruptAnswer(msgspec.Struct, kw_only=True):
    """An answer to what a run asked for."""

    interrupt_id: str | None = None
    response: Any = None


class _Respond(_InterruptAnswer, kw_only=True):
    """Parameters of `input.respond`: an answer, or several."""

    responses: list[_InterruptAnswer] = []
    update: Any = None
    goto: Any = None
    config: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None


class _InjectedMessage(msgspec.Struct, kw_only=True):
    role: Literal["user", "system"]
    content: str
    name: str | None = None


class _Inject(msgspec.Struct, kw_only=True):
    """Parameters of `input.inject`."""

    message: _InjectedMessage
    namespace: list[str] = []


class _Read(msgspec.Struct, kw_only=True):
    """Parameters of `state.get` and `state.listCheckpoints`."""

    namespace: list[str] = []
    keys: list[str] | None = None
    limit: Limit = 10
    before: str | None = None

    @property
    def checkpoint(self) -> dict[str, Any]:
        """The place of the state."""
        return {"checkpoint_ns": "|".join(self.namespace)}


async def _start(call: AgentCall, thread_id: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Begin a run; of the assistant that the thread names, unless the parameters name one."""
    assistant_id: Any = msgspec.convert(params, _Begin).assistant_id
    if not assistant_id:
        metadata = (await call.run(find_thread, call, thread_id)).metadata
        assistant_id = metadata.get(ASSISTANT_ID) or metadata.get(GRAPH_ID)
    if not isinstance(assistant_id, str):
        msg = f"thread {thread_id} names no assistant; send assistant_id"
        raise InvalidValueError(msg)
    defaults = {"stream_mode": list(MODES), "stream_subgraphs": True, "if_not_exists": "create", **params}
    run = await begin_run(call, msgspec.convert(defaults | {"assistant_id": assistant_id}, NewRun), thread_id)
    return {"run_id": run.run_id}


async def _respond(call: AgentCall, thread_id: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Answer what a run asked for, and go on."""
    # Any agent of the thread may have asked, not only the first that clients see. The answers of one call go to one agent.
    request = msgspec.convert(params, _Respond)
    places = await call.run(lambda: places_of(call, find_thread(call, thread_id)))
    asking = {interrupt["id"]: place for place in places for interrupt in (await read_state(call, place))["interrupts"]}
    resume: dict[str, Any] = {}
    answered: StatePlace | None = None
    for answer in request.responses or [request]:
        place = asking.get(answer.interrupt_id)
        if place is None or (answered is not None and place.root != answered.root):
            msg = f"nothing waits for an answer to {answer.interrupt_id!r}"
            raise CommandError(msg, "no_such_interrupt")
        resume[str(answer.interrupt_id)], answered = answer.response, place
    more = {name: value for name in ("update", "goto") if (value := getattr(request, name)) is not None}
    about = {name: value for name in ("config", "metadata") if (value := getattr(request, name)) is not None}
    agent = {"assistant_id": answered.assistant.assistant_id} if answered is not None and answered.assistant else {}
    return await _start(call, thread_id, {"command": {"resume": resume, **more}, **about, **agent})


async def _inject(call: AgentCall, thread_id: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Give the agent of a thread a message, in a run that waits for the one that is at work."""
    request = msgspec.convert(params, _Inject)
    if request.namespace:
        msg = "a message is given to the agent of the thread: a subgraph takes none"
        raise CommandError(msg, "not_supported")
    message = {name: value for name, value in msgspec.structs.asdict(request.message).items() if value is not None}
    return await _start(call, thread_id, {"input": {"messages": [message]}})


async def _get_state(call: AgentCall, thread_id: str, params: Mapping[str, Any]) -> dict[str, Any]:
    wanted = msgspec.convert(params, _Read)
    state = await read_state(call, await find_place(call, thread_id), wanted.checkpoint)
    values: Any = state["values"]
    if isinstance(values, dict) and wanted.keys is not None:
        entries = cast("dict[str, Any]", values).items()
        values = {name: value for name, value in entries if name in wanted.keys}
    shown: dict[str, Any] = {"values": values}
    if state["checkpoint_id"] is not None:
        shown["checkpoint"] = {"id": state["checkpoint_id"], "ns": wanted.checkpoint["checkpoint_ns"]}
    return shown


async def _list_checkpoints(call: AgentCall, thread_id: str, params: Mapping[str, Any]) -> dict[str, Any]:
    wanted = msgspec.convert(params, _Read)
    place = await find_place(call, thread_id)
    states = await read_history(call, place, limit=wanted.limit, before=wanted.before, checkpoint=wanted.checkpoint)
    return {
        "checkpoints": [
            {
                "id": state["checkpoint_id"],
                "timestamp": state["created_at"],
                "step": cast("dict[str, Any]", state["metadata"] or {}).get("step", 0),
                "metadata": state["metadata"] or {},
            }
            for state in states
        ]
    }


async def _fork(call: AgentCall, thread_id: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Begin a run at a checkpoint: another branch of the thread."""
    checkpoint_id = msgspec.convert(params, _Begin).checkpoint_id
    place = await find_place(call, thread_id)
    state = None if checkpoint_id is None else await read_state(call, place, {"checkpoint_id": checkpoint_id})
    if state is None or state["checkpoint_id"] != checkpoint_id:
        msg = f"thread {thread_id} has no checkpoint {checkpoint_id!r}"
        raise CommandError(msg, "no_such_checkpoint")
    return {**await _start(call, thread_id, params), "thread_id": thread_id}


async def _get_tree(call: AgentCall, thread_id: str, params: Mapping[str, Any]) -> dict[str, Any]:
    del params
    active = [run for run in await list_all(call, thread_id) if not is_over(run)]
    if not active:
        msg = "No active run is bound to this thread."
        raise CommandError(msg, "no_such_run")
    status = "running" if active[0].status == "running" else "started"
    return {"tree": {"namespace": [], "status": status, "graph_name": active[0].metadata.get(GRAPH_ID, "")}}


_COMMANDS: Final[dict[str, Callable[[AgentCall, str, Mapping[str, Any]], Awaitable[dict[str, Any]]]]] = {
    "run.start": _start,
    "input.respond": _respond,
    "input.inject": _inject,
    "state.get": _get_state,
    "state.listCheckpoints": _list_checkpoints,
    "state.fork": _fork,
    "agent.getTree": _get_tree,
}
_UNSUPPORTED: Final = frozenset({"subscription.subscribe", "subscription.unsubscribe", "subscription.reconnect"})

ROUTES: Final = [
    route("GET", "/threads/{thread_id}/stream", join_thread),
    route("POST", "/threads/{thread_id}/stream/events", follow, is_reading=True),
    route("POST", "/threads/{thread_id}/commands", command),
]
