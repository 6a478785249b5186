"""`threads`, `show --thread` and `prune`: the threads of agents, their steps, what they wait for, and the end of old ones."""

import logging
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

import click
import msgspec
from rich.text import Text

from chatledger.domain.draw.outline import escaped
from chatledger.domain.errors import ConfigurationError
from chatledger.domain.values import preview
from chatledger.domain.versioned.record import METADATA, VersionRecord
from chatledger.domain.wire import Value, to_json

from ...ledger.ledger import Ledger
from ...ledger.threads import IndexedVersioned, Removal, ThreadInfo, Threads
from ..agent_steps import assistants_of, decode_metadata, step_of
from ..langgraph.pruning import plan_prune
from .lookup import require_thread
from .options import GlobalOptions, WholeNumber, ledger_at, ledger_options, limit_option, listing_options
from .output import (
    column,
    console,
    count,
    fields_of,
    format_minute,
    format_time,
    print_json,
    print_lines,
    print_more,
    print_note,
    print_text,
    print_values,
    table,
    table_width,
)

_SHOWN_STEPS: Final = 20
_FULL_WIDTH: Final = 110
_LEAST_NAMES, _STEP_WIDTH = 12, 12


class ListedThread(Value, frozen=True, kw_only=True):
    """
    A thread of agents as `threads` lists it.

    Args:
        thread_id: Its id.
        owner: The user whose it is; None when it is nobody's.
        checkpoint_count: How many checkpoints it has, in all namespaces.
        assistants: The assistants that have checkpoints on it.
        namespaces: All its namespaces, in the order in which they came up.
        last_step, last_source: Of its newest checkpoint, where its framework says them.
        created_at, updated_at: The times of its first and its last event.
    """

    thread_id: str
    owner: str | None
    checkpoint_count: int
    assistants: list[str]
    namespaces: list[str]
    last_step: int | None
    last_source: str | None
    created_at: int
    updated_at: int


class ShownStep(Value, frozen=True, kw_only=True):
    """
    A checkpoint of a thread.

    Of the tasks of the next step: the `name` of the node, the `interrupts` that it waits for, the `error` that it failed with, and
    `is_done`. `next` and `tasks` are None where LangGraph's library, which tells them, is not installed.
    """

    namespace: str
    checkpoint_id: str
    parent_id: str | None
    step: int | None
    source: str | None
    created_at: int
    next: list[str] | None
    tasks: list[dict[str, Any]] | None


@click.command("threads")
@click.option("--user", "user_id", metavar="ID", help="Only threads of this owner.")
@click.option("--assistant", "assistant_id", metavar="ID", help="Only threads on which this assistant has checkpoints.")
@limit_option("threads")
@listing_options
def threads_command(
    settings: GlobalOptions,
    *,
    user_id: str | None,
    assistant_id: str | None,
    limit: int | None,
) -> None:
    """
    List the threads of agents, those changed last first.

    Each with its checkpoints, its assistants (or namespaces), and the last step. With --json, an array with one thread a line.
    """
    with ledger_at(settings, is_read=True) as ledger:
        infos = sorted(Threads(ledger).infos(), key=lambda info: (-info.updated_at, info.thread_id))
        wanted = [
            info
            for info in infos
            if (user_id is None or info.owner == user_id)
            and (assistant_id is None or assistant_id in assistants_of(info.namespaces))
        ]
        shown = [_listed(ledger, info) for info in wanted[:limit]]
    if settings.for_programs:
        print_values(shown, ListedThread, as_csv=settings.as_csv)
    elif not wanted:
        print_text("No thread matches." if infos else "No threads of agents yet: LedgerSaver keeps LangGraph's here.")
    else:
        print_lines(_thread_rows(shown))
        print_more(len(wanted) - len(shown))


def _listed(ledger: Ledger, info: ThreadInfo) -> ListedThread:
    with Threads(ledger).reading(info.thread_id) as thread:
        latest = filter(None, map(thread.newest, info.namespaces))
        newest = max(latest, key=lambda checkpoint: checkpoint.stored_at, default=None)
    step, source = (None, None) if newest is None else step_of(newest.frames[METADATA])
    return ListedThread(
        thread_id=info.thread_id,
        owner=info.owner,
        checkpoint_count=info.checkpoint_count,
        assistants=assistants_of(info.namespaces),
        namespaces=info.namespaces,
        last_step=step,
        last_source=source,
        created_at=info.created_at,
        updated_at=info.updated_at,
    )


def _thread_rows(threads: list[ListedThread]) -> list[Text]:
    out = console()
    width = out.width if out.file.isatty() else None
    steps = [
        f"{'-' if thread.last_step is None else thread.last_step} {thread.last_source or ''}".rstrip()
        for thread in threads
    ]
    columns = [
        column("thread", [thread.thread_id for thread in threads], style="cyan"),
        column("checkpoints", [f"{thread.checkpoint_count:,}" for thread in threads], align="right"),
        column("last step", steps, width=_STEP_WIDTH),
    ]
    if width is None or width >= _FULL_WIDTH:
        columns += [
            column("changed (UTC)", [format_minute(thread.updated_at) for thread in threads], style="dim"),
            column("owner", [thread.owner or "" for thread in threads]),
        ]
    room = None if width is None else max(width - table_width(columns), _LEAST_NAMES)
    names = [", ".join(thread.assistants or filter(None, thread.namespaces)) for thread in threads]
    columns.append(column("assistants or namespaces", names, width=room))
    return table(columns)


def show_thread(ledger: Ledger, thread_id: str, *, limit: int | None, as_json: bool) -> None:
    """Print a thread of agents: its steps by namespace, the oldest first, and what is to run or waits at the end of each."""
    info = require_thread(ledger, thread_id)
    most = None if limit is None and as_json else _SHOWN_STEPS if limit is None else limit
    with Threads(ledger).reading(info.thread_id) as thread:
        stored = chain.from_iterable(map(thread.versions, info.namespaces))
        # Of a checkpoint that a prune reduced, only the skeleton is left, for those that stand on it.
        records = sorted((record for record in stored if record.skeleton is None), key=lambda record: record.id)
    steps = list(map(_step, records if most is None else records[max(len(records) - most, 0) :]))
    live = [] if not steps else _live(ledger, info)
    if as_json:
        print_json({"thread": fields_of(info), "steps": list(map(fields_of, steps)), "now": list(map(fields_of, live))})
        return
    owner = f"owner {info.owner} · " if info.owner else ""
    print_text(f"thread {info.thread_id}", "bold")
    times = f"created {format_time(info.created_at)} · changed {format_time(info.updated_at)}"
    print_text(f"{owner}{count(info.checkpoint_count, 'checkpoint')} · {times}", "dim")
    for namespace in info.namespaces:
        own = [step for step in steps if step.namespace == namespace]
        now = next((step for step in live if step.namespace == namespace), None)
        if own or now is not None:
            print_lines([Text(), *_namespace_lines(namespace, own, now)])
    if len(steps) < info.checkpoint_count:
        print_text(f"{info.checkpoint_count - len(steps):,} earlier steps, --limit cut them", "dim")
    if any(step.next is None for step in live):
        print_note("what is to run next is told with LangGraph's library: pip install 'chatledger[langgraph]'")


def _step(record: VersionRecord) -> ShownStep:
    number, source = step_of(record.frames[METADATA])
    return ShownStep(
        namespace=record.line,
        checkpoint_id=record.id,
        parent_id=record.parent,
        step=number,
        source=source,
        created_at=record.stored_at,
        next=None,
        tasks=None,
    )


def _live(ledger: Ledger, info: ThreadInfo) -> list[ShownStep]:
    """The newest step of each namespace, with what is to run after it."""
    with Threads(ledger).reading(info.thread_id) as thread:
        newest = list(map(_step, filter(None, map(thread.newest, info.namespaces))))
    # What runs next only LangGraph's library can tell; the rest is shown without it.
    try:
        from ..langgraph.saver import LedgerSaver
    except ImportError:
        return newest
    # Values are not shown, so it does not matter which of their classes are not loaded.
    logging.getLogger("langgraph").setLevel(logging.ERROR)
    saver = LedgerSaver(ledger)
    return [_with_tasks(step, saver.get_thread_state(info.thread_id, step.namespace)) for step in newest]


def _with_tasks(step: ShownStep, state: Any) -> ShownStep:
    if state is None:
        return step
    tasks: list[dict[str, Any]] = [
        {
            "name": task.name,
            "interrupts": [_plain(getattr(interrupt, "value", interrupt)) for interrupt in task.interrupts],
            "error": _plain(task.error),
            "is_done": task.is_done,
        }
        for task in state.tasks
    ]
    return msgspec.structs.replace(step, next=state.next, tasks=tasks)


def _plain(value: Any) -> Any:
    """A value of an agent as JSON; as text where it is of a class that JSON does not know."""
    try:
        return to_json(value)
    except TypeError:
        return str(value)


def _namespace_lines(namespace: str, steps: list[ShownStep], now: ShownStep | None) -> Iterator[Text]:
    if namespace:
        yield Text(escaped(namespace), style="bold cyan")
    if steps:
        columns = [
            column("step", ["-" if step.step is None else str(step.step) for step in steps], align="right"),
            column("source", [step.source or "-" for step in steps]),
            column("time (UTC)", [format_time(step.created_at)[:19].replace("T", " ") for step in steps], style="dim"),
            column("checkpoint", [step.checkpoint_id for step in steps], style="dim"),
        ]
        yield from table(columns)
    if now is None or now.next is None:
        return
    yield Text.assemble("next: ", (escaped(", ".join(now.next)) or "nothing, it is finished", "bold"))
    for task in now.tasks or []:
        name = escaped(task["name"]) or "a task"
        for interrupt in task["interrupts"]:
            yield Text(f"  {name} waits: ", style="yellow").append(escaped(_brief(interrupt)), style="default")
        if task["error"] is not None:
            yield Text(f"  {name} failed: ", style="red").append(escaped(_brief(task["error"])), style="default")
        if task["is_done"]:
            yield Text(f"  {name} is done", style="dim")


def _brief(value: Any) -> str:
    return value if isinstance(value, str) else preview(value)


@click.command("prune")
@click.argument("thread_ids", metavar="THREAD...", nargs=-1, required=True)
@click.option(
    "--keep-last",
    type=WholeNumber(1),
    metavar="N",
    default=1,
    show_default=True,
    help="How many checkpoints of each namespace stay: the newest ones.",
)
@ledger_options
def prune_command(settings: GlobalOptions, *, thread_ids: tuple[str, ...], keep_last: int) -> None:
    """
    Remove the old checkpoints of threads of agents.

    The newest stay, with what they need: pending writes, subgraphs that wait, what delta channels are made from. What is
    removed leaves the index; its events stay on the log until the thread is deleted.
    """
    pruned: dict[str, int] = {}

    def plan(thread: IndexedVersioned) -> Removal:
        removal = plan_prune(thread, lambda _namespace: True, _metadata_of, keep_last=keep_last)
        pruned[thread.key] = len(removal.removed) + len(removal.skeletons)
        return removal

    with ledger_at(settings) as ledger:
        for info in [require_thread(ledger, thread_id) for thread_id in dict.fromkeys(thread_ids)]:
            Threads(ledger).remove(info.thread_id, plan, reason="pruned")
    lines = [
        f"Pruned thread {thread_id}: {count(number, 'checkpoint')} removed." for thread_id, number in pruned.items()
    ]
    settings.answer({"pruned": pruned}, *lines)


def _metadata_of(record: VersionRecord) -> dict[str, Any]:
    """The metadata of a checkpoint, which say what it needs. Raises `ConfigurationError` where that is not known."""
    metadata = decode_metadata(record.frames[METADATA])
    if metadata is None:
        msg = (
            f"the metadata of checkpoint {record.id!r} have the form {record.frames[METADATA][0]!r}, which only the "
            "serializer that wrote them reads; the program that has it can prune the thread"
        )
        raise ConfigurationError(msg)
    return metadata
