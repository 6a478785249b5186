"""Threads in the form that clients read: their records, values and status."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from typing import Annotated, Any, Final, Literal, NamedTuple, cast

import msgspec
from langgraph.types import StateSnapshot

from chatledger.domain.chat.runs import MessageRun
from chatledger.domain.errors import AlreadyExistsError, InvalidValueError, NotFoundError
from chatledger.domain.values import Chat, MemberRole
from chatledger.domain.versioned.standing import CANCELLED, error_parts

from ....clock import clock_ms
from ....ledger.threads import Threads
from .contract import AgentCall
from .encoding import interrupt_of, time_of, to_plain
from .known_threads import KnownThread, count_threads, find_thread, list_newest, list_threads
from .run_records import is_over, namespace_of
from .states import StatePlace, place_of, places_of, read_snapshot, shown_error

Status = Literal["idle", "busy", "interrupted", "error"]
Field = Literal[
    "thread_id",
    "created_at",
    "updated_at",
    "state_updated_at",
    "metadata",
    "config",
    "context",
    "status",
    "values",
    "interrupts",
    "error",
]
Ids = Annotated[list[str], msgspec.Meta(max_length=10_000)]
SortBy = Literal["thread_id", "status", "created_at", "updated_at", "state_updated_at"]

_OF_STATE: Final = frozenset({"status", "values", "interrupts", "error"})
_MEMBERS: Final = "members"
_MINUTE_S: Final = 60
_CHUNK: Final = 50
_PATH: Final = re.compile(r"\.?([^.\[\]]+)|\[(-?\d+)\]")


class TimeToLive(msgspec.Struct):
    """
    The time that a thread lives from now on, in minutes.

    Only to be deleted: a thread is not pruned by itself.
    """

    ttl: Annotated[float, msgspec.Meta(gt=0)]
    strategy: Literal["delete", "keep_latest"] = "delete"


class Look(NamedTuple):
    """
    The state of a thread, as lists of threads show it.

    Args:
        status: `interrupted` as long as an assistant asks something, whatever others do; `busy` while a run is pending or
            running; `error` when a task failed; else `idle`.
        values: The values; None where there is no state, or that of several assistants.
        interrupts: The interrupts by the ids of their tasks, of all assistants that ask something.
        error: The error of a task that failed, as `error` and `message`.
    """

    status: Status = "idle"
    values: Any = None
    interrupts: Mapping[str, Any] = {}
    error: Mapping[str, str] | None = None


class ThreadFilter(msgspec.Struct, kw_only=True):
    """A filter of threads: their metadata and values contain these, and they have one of these ids, and this status."""

    metadata: dict[str, Any] | None = None
    values: dict[str, Any] | None = None
    ids: Ids | None = None
    status: Status | None = None

    def fits(self, thread: KnownThread) -> bool:
        """Whether the metadata fit. Ids are not looked at: they decide which threads are read."""
        return contains(thread.metadata, self.metadata or {})

    @property
    def needs_look(self) -> bool:
        """Whether states have to be read for it."""
        return self.status is not None or bool(self.values)

    @property
    def is_empty(self) -> bool:
        """Whether all threads are wanted."""
        return not self.metadata and not self.needs_look and self.ids is None

    def fits_look(self, look: Look) -> bool:
        """Whether the state fits."""
        if self.status not in {None, look.status}:
            return False
        return not self.values or contains(to_plain(look.values), self.values)


def contains(value: Any, wanted: Any) -> bool:
    """Whether a JSON value has all that another one has: the entries of objects, and of lists some element each."""
    if isinstance(wanted, dict):
        entries = cast("dict[str, Any]", wanted).items()
        return isinstance(value, dict) and all(key in value and contains(value[key], inner) for key, inner in entries)
    if isinstance(wanted, list):
        elements = cast("list[Any]", value) if isinstance(value, list) else None
        return elements is not None and all(
            any(contains(own, element) for own in elements) for element in cast("list[Any]", wanted)
        )
    # For Python `True == 1`, for JSON it is not.
    return type(value) is type(wanted) and value == wanted if isinstance(wanted, bool) else bool(value == wanted)


def create_thread(
    call: AgentCall,
    thread_id: str,
    *,
    metadata: dict[str, Any] | None = None,
    ttl: TimeToLive | None = None,
    may_exist: bool = False,
) -> tuple[KnownThread, bool]:
    """
    Make a thread, in a worker thread, and say whether it is new. Its metadata may name members, see `_without_members`.

    Raises:
        AlreadyExistsError: There is one of that id, and `may_exist` is not set; or it is another user's.
    """
    owner = call.principal.owner
    try:
        present = find_thread(call, thread_id)
    except NotFoundError:
        own, members = _without_members(call, metadata or {})
        others: dict[str, MemberRole] = {name: role for name, role in (members or {}).items() if name != owner}
        try:
            chat = call.ledger.create_chat(thread_id, owner, metadata=own, ttl_seconds=seconds_of(ttl), members=others)
        except AlreadyExistsError:
            present = None
        else:
            return KnownThread(chat.id, chat, None, chat.metadata or {}), True
    if may_exist and present is not None:
        return present, False
    msg = f"Thread with ID {thread_id} already exists"
    raise AlreadyExistsError(msg)


def _without_members(call: AgentCall, metadata: dict[str, Any]) -> tuple[dict[str, Any], dict[str, MemberRole] | None]:
    """
    Take the members out of the metadata that a user gives a thread; None where these name none.

    LangGraph's API has no other place for them. They are a list of users, who may all write, or roles by user; anything else of
    that name is metadata. They become members of the chat, and are not among its metadata.
    """
    try:
        users: list[str] | dict[str, MemberRole] = msgspec.convert(
            metadata.get(_MEMBERS), list[str] | dict[str, MemberRole]
        )
    except msgspec.ValidationError:
        return metadata, None
    if call.principal.user_id is None:  # everybody's ledger has no users to let in
        return metadata, None
    members: dict[str, MemberRole] = users if isinstance(users, dict) else dict.fromkeys(users, "writer")
    return {key: value for key, value in metadata.items() if key != _MEMBERS}, members


def update_thread(
    call: AgentCall, thread_id: str, metadata: dict[str, Any] | None, ttl: TimeToLive | None = None
) -> KnownThread:
    """Merge metadata into those of a thread, and set its end, in a worker thread. Where they name members, it has no others then."""
    ledger, thread = call.ledger, find_thread(call, thread_id)
    metadata, members = _without_members(call, metadata or {})
    if thread.chat is None:
        ledger.upsert_chat(thread_id, call.principal.owner if thread.owner is None else thread.owner)
    if metadata or ttl is not None or thread.chat is None:
        ledger.update_chat(thread_id, metadata=metadata, ttl_seconds=seconds_of(ttl))
    if members is not None:
        ledger.set_members(thread_id, members)
    return find_thread(call, thread_id)


def delete_thread(call: AgentCall, thread_id: str) -> None:
    """Delete a thread with all that was said and done on it, in a worker thread."""
    if find_thread(call, thread_id).chat is not None:
        call.ledger.delete_chat(thread_id)
    Threads(call.ledger).delete(thread_id)


def copy_thread(call: AgentCall, thread_id: str, new_id: str) -> None:
    """Copy a thread: its metadata, the messages of its active branch, and the states with their histories; in a worker thread."""
    ledger, thread = call.ledger, find_thread(call, thread_id)
    metadata = dict(thread.metadata)
    # A user's copy is that user's own; a caller that acts for everybody leaves it to the owner of the thread.
    owner = call.principal.owner if thread.owner is None or call.principal.user_id is not None else thread.owner
    branch = None if thread.chat is None else ledger.get_active_branch(thread_id)
    head = None if branch is None else branch.head_message_id
    if head is None:
        ledger.create_chat(new_id, owner, title=None if thread.chat is None else thread.chat.title, metadata=metadata)
    else:
        ledger.fork_chat(thread_id, head, new_chat_id=new_id, metadata=metadata)
    if thread.info is not None:
        Threads(ledger).copy(thread_id, new_id)


def seconds_of(ttl: TimeToLive | None) -> float | None:
    """Return how long a thread lives, in seconds; refuse one that is to be pruned at the end of it."""
    if ttl is None:
        return None
    if ttl.strategy != "delete":
        msg = f"the ttl strategy {ttl.strategy!r} is not supported: a thread that has ended is deleted; prune it when you want"
        raise InvalidValueError(msg)
    return ttl.ttl * _MINUTE_S


def shown_ttl(chat: Chat | None) -> dict[str, Any] | None:
    """Return when a thread ends, and the minutes until then; None for never."""
    if chat is None or chat.expires_at is None:
        return None
    left = timedelta(milliseconds=chat.expires_at - clock_ms()) / timedelta(minutes=1)
    return {"strategy": "delete", "ttl_minutes": round(left, 2), "expires_at": time_of(chat.expires_at)}


async def look_at(call: AgentCall, threads: Sequence[KnownThread]) -> list[Look]:
    """Read the states of threads."""

    def read(thread: KnownThread) -> tuple[StatePlace | None, list[StatePlace], list[MessageRun]]:
        usual: StatePlace | None = None
        with suppress(InvalidValueError):  # there are states of several assistants
            usual = None if thread.info is None else place_of(call, thread)
        unended = [] if thread.chat is None else call.ledger.runs(thread.thread_id, is_ended=False)
        return usual, places_of(call, thread), unended

    read_all = await call.run(lambda: list(map(read, threads)))
    return [await _look(call, *parts) for parts in read_all]


async def _look(
    call: AgentCall, usual: StatePlace | None, places: Sequence[StatePlace], unended: Sequence[MessageRun]
) -> Look:
    runs = [await call.runs.settle(call.async_ledger, run) for run in unended]
    at_work = {namespace_of(run) for run in runs if not is_over(run)}
    # Nodes are left to run also where a run was cancelled. With those of the usual assistant a client goes on.
    may_go_on = {namespace_of(run) for run in runs if run.status == "waiting"}
    may_go_on |= set() if usual is None else {usual.root}
    states = {place.root: await read_snapshot(call, place) for place in places}
    own = None if usual is None else states.get(usual.root)
    asking = [
        state
        for root, state in states.items()
        if state is not None and root not in at_work and _failure(state) is None
        if any(task.interrupts for task in state.tasks) or (state.next and root in may_go_on)
    ]
    interrupts = {
        task.id: [interrupt_of(interrupt) for interrupt in task.interrupts]
        for state in asking
        for task in state.tasks
        if task.interrupts and task.id
    }
    failed = None if own is None else _failure(own)
    status: Status = "error" if failed is not None else "idle"
    return Look(
        status="interrupted" if asking else "busy" if at_work else status,
        values=None if own is None else own.values,
        interrupts=interrupts,
        error=None if failed is None else _named_error(failed),
    )


def _failure(state: StateSnapshot) -> Any:
    """Return what a task failed with; None where none did, or another one asks something."""
    if any(task.interrupts for task in state.tasks):
        return None
    # While it streams messages, LangGraph keeps it as an error of a node that its run was ended on demand.
    errors = (task.error for task in state.tasks if task.error is not None)
    return next((error for error in errors if shown_error(error) != CANCELLED), None)


def _named_error(error: Any) -> dict[str, str]:
    kind, message = error_parts(shown_error(error)) or ("Error", shown_error(error))
    return {"error": kind, "message": message}


async def shown_threads(
    call: AgentCall,
    threads: Sequence[KnownThread],
    *,
    select: Collection[Field] | None = None,
    extract: Mapping[str, str] | None = None,
    looks: Sequence[Look] | None = None,
) -> list[dict[str, Any]]:
    """Return threads in the form that clients read: only these fields if given, and what is extracted besides."""
    paths = {alias: parse_path(path) for alias, path in (extract or {}).items()}
    named = {*(select or _OF_STATE), *(str(path[0]) for path in paths.values())}
    if looks is None:
        looks = await look_at(call, threads) if _OF_STATE & named else [Look()] * len(threads)
    selected: list[dict[str, Any]] = []
    for thread, look in zip(threads, looks, strict=True):
        shown = {
            "thread_id": thread.thread_id,
            "created_at": time_of(thread.created_at),
            "updated_at": time_of(thread.updated_at),
            "state_updated_at": time_of(thread.state_updated_at),
            "metadata": thread.metadata,
            "status": look.status,
            "config": {},
            "values": look.values,
            "interrupts": look.interrupts,
            "error": look.error,
        }
        picked = dict(shown) if select is None else {str(name): shown.get(name, {}) for name in select}
        if paths:
            picked["extracted"] = {alias: _extracted(shown, path) for alias, path in paths.items()}
        selected.append(picked)
    return selected


def parse_path(path: str) -> list[str | int]:
    """Read a path such as `values.messages[-1].content`."""
    parts: list[str | int] = []
    at = 0
    while at < len(path) and (step := _PATH.match(path, at)):
        parts.append(step[1] if step[2] is None else int(step[2]))
        at = step.end()
    if at < len(path) or not parts or isinstance(parts[0], int):
        msg = f"{path!r} is no path; write it as values.messages[-1].content"
        raise InvalidValueError(msg)
    return parts


def _extracted(thread: Mapping[str, Any], path: Sequence[str | int]) -> Any:
    value = to_plain(thread.get(str(path[0])))
    for part in path[1:]:
        if isinstance(part, int) and isinstance(value, list):
            elements = cast("list[Any]", value)
            value = elements[part] if -len(elements) <= part < len(elements) else None
        else:
            value = cast("dict[Any, Any]", value).get(part) if isinstance(value, dict) else None
    return value


async def find_threads(
    call: AgentCall, wanted: ThreadFilter, *, sort_by: SortBy, ascending: bool, until: int | None = None
) -> tuple[list[KnownThread], list[Look] | None]:
    """
    Find threads, in order; the first `until` of them.

    Those that changed last are read in the order of the index, until there are enough that fit; those that are named, by
    their ids; for another order all are read. A filter of states reads the states of those that fit otherwise.
    """
    if sort_by == "status":  # which is in no index: all states are read
        ordered, chunk_size = await call.run(_ordered, call, wanted, "thread_id", ascending=True), None
    else:
        ordered, chunk_size = await call.run(_ordered, call, wanted, sort_by, ascending=ascending), _CHUNK
        if not wanted.needs_look:
            return await call.run(lambda: list(islice(ordered, until))), None
    fits: list[tuple[KnownThread, Look]] = []
    while chunk := await call.run(lambda: list(islice(ordered, chunk_size))):
        looked = zip(chunk, await look_at(call, chunk), strict=True)
        fits += [pair for pair in looked if wanted.fits_look(pair[1])]
        if chunk_size is not None and until is not None and len(fits) >= until:
            break
    if sort_by == "status":
        fits.sort(key=lambda pair: (pair[1].status, pair[0].thread_id), reverse=not ascending)
    fits = fits[:until]
    return [thread for thread, _ in fits], [look for _, look in fits]


def _ordered(call: AgentCall, wanted: ThreadFilter, sort_by: SortBy, *, ascending: bool) -> Iterator[KnownThread]:
    """Return the threads that fit without a look at their states, in order; those that changed last are read as far as the caller goes on."""
    if wanted.ids is None and sort_by == "updated_at" and not ascending:
        return filter(wanted.fits, list_newest(call.ledger, call.assistants))
    threads = list_threads(call.ledger, call.assistants) if wanted.ids is None else _named_threads(call, wanted.ids)
    key: Callable[[KnownThread], Any] = lambda thread: (getattr(thread, sort_by), thread.thread_id)  # noqa: E731
    return iter(sorted(filter(wanted.fits, threads), key=key, reverse=not ascending))


def _named_threads(call: AgentCall, ids: Iterable[str]) -> Iterator[KnownThread]:
    for thread_id in dict.fromkeys(ids):
        with suppress(NotFoundError, InvalidValueError):
            yield find_thread(call, thread_id)


async def count_fitting(call: AgentCall, wanted: ThreadFilter) -> int:
    """Count the threads that fit; without a filter a row of the index is read for each."""
    if wanted.is_empty:
        return await call.run(count_threads, call.ledger)
    threads, _ = await find_threads(call, wanted, sort_by="thread_id", ascending=True)
    return len(threads)
