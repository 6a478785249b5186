"""`threads`, `states` and `items`, `show --thread` and `prune`: what agents keep, how it stands, and the end of what is old."""

from collections.abc import Iterator
from typing import Any, Final, cast

import click
from rich.text import Text

from chatledger.domain.draw.escaping import escaped
from chatledger.domain.draw.state_tree import StateNode, changed_names, messages_in, state_tree, value_line
from chatledger.domain.errors import NotFoundError
from chatledger.domain.legal_hold import LegalHold
from chatledger.domain.versioned.keys import item_id
from chatledger.domain.versioned.pruning import Removal, plan_prune
from chatledger.domain.versioned.record import STATUSES, StatusName, VersionRecord
from chatledger.domain.versioned.standing import text_of_message
from chatledger.domain.wire import Value

from ...ledger.graph.state_store import StateStore
from ...ledger.graph.values import StateInfo
from ...ledger.items.item_store import NOBODY, ItemStore
from ...ledger.ledger import Ledger
from ...ledger.thread_lists import ThreadInfo
from ...ledger.thread_trace import (
    Trace,
    TraceLine,
    TraceStep,
    TraceTask,
    agents_of,
    metadata_of,
    need_metadata,
    read_trace,
    shown_values,
    trace_step,
)
from ...ledger.threads import IndexedVersioned, Threads
from ..agent_steps import assistants_of, duration
from .chats import held_column, hold_line
from .lookup import require_thread
from .options import ID, GlobalOptions, WholeNumber, ledger_at, ledger_options, limit_option, listing_options
from .output import (
    column,
    console,
    count,
    fields_of,
    format_minute,
    format_time,
    multiline,
    print_json,
    print_lines,
    print_more,
    print_text,
    print_values,
    role_style,
    table,
    table_width,
)

_SHOWN_STEPS: Final = 20
_EVERY: Final = 2**31
_FULL_WIDTH: Final = 110
_LEAST_WORDS: Final = 12
_STATE_STYLES: Final = {"waits": "yellow", "failed": "red", "running": "cyan", "finished": "green"}
_MARKS: Final = {"added": ("+", "green"), "removed": ("-", "red"), "inner": ("~", "yellow"), "": (" ", "")}


class ListedThread(Value, frozen=True, kw_only=True):
    """
    A thread of agents as `threads` lists it.

    Args:
        status: How it stands: `waits`, `running`, `failed`, `stopped` or `finished`.
        node: The node that waits or failed, or the next one; empty where it is finished.
        words: What it asks, the error, or the last message.
        steps: How many checkpoints it has, in all namespaces.
        work_ms: How long its tasks worked, in ms.
        created_at, updated_at: The times of its first and its last event.
    """

    thread_id: str
    owner: str | None
    status: StatusName
    node: str
    words: str
    steps: int
    work_ms: int
    assistants: list[str]
    namespaces: list[str]
    created_at: int
    updated_at: int
    hold: LegalHold | None


class ListedItem(Value, frozen=True, kw_only=True):
    """An item as `items` lists it: `id` is what `delete --item` takes."""

    id: str
    namespace: list[str]
    key: str
    version: int
    value: dict[str, Any]
    created_at: int
    updated_at: int
    expires_at: int | None
    hold: LegalHold | None


@click.command("threads")
@click.option(
    "--status", type=click.Choice(STATUSES), help="Only threads that stand so, such as those that wait for an answer."
)
@click.option("--user", "user_id", type=ID, help="Only threads of this owner.")
@click.option("--assistant", "assistant_id", metavar="ID", help="Only threads on which this assistant has checkpoints.")
@limit_option("threads")
@listing_options
def threads_command(
    settings: GlobalOptions,
    *,
    status: StatusName | None,
    user_id: str | None,
    assistant_id: str | None,
    limit: int | None,
) -> None:
    """
    List the threads of agents, those changed last first.

    Each with how it stands, its node, its steps, how long they worked, and what it asks or said last. With --json, an array with one
    thread a line.
    """
    with ledger_at(settings, is_read=True) as ledger:
        infos: list[ThreadInfo] = []
        after: str | None = None
        while limit is None or assistant_id is not None or len(infos) < limit:
            part = ledger.list_threads(status=status, user_id=user_id, after=after, limit=500)
            infos += part.threads
            after = part.next
            if after is None:
                break
        wanted = [info for info in infos if assistant_id is None or assistant_id in assistants_of(info.namespaces)]
        counts = ledger.count_threads(user_id=user_id)
        total = len(wanted) if assistant_id is not None else counts[status] if status else sum(counts.values())
    shown = list(map(_listed, wanted[:limit]))
    if settings.for_programs:
        print_values(shown, ListedThread, as_csv=settings.as_csv)
    elif not wanted:
        is_filtered = status is not None or user_id is not None or assistant_id is not None
        print_text(
            "No thread matches." if is_filtered else "No threads of agents yet: LedgerSaver keeps LangGraph's here."
        )
    else:
        print_lines(_thread_rows(shown))
        print_more(total - len(shown))


def _listed(info: ThreadInfo) -> ListedThread:
    stands = info.status
    return ListedThread(
        thread_id=info.thread_id,
        owner=info.owner,
        status=stands.status,
        node=stands.node,
        words=stands.words,
        steps=stands.steps,
        work_ms=stands.work_ms,
        assistants=assistants_of(info.namespaces),
        namespaces=info.namespaces,
        created_at=info.created_at,
        updated_at=info.updated_at,
        hold=info.hold,
    )


def _thread_rows(threads: list[ListedThread]) -> list[Text]:
    width = _width()
    columns = [
        column("thread", [thread.thread_id for thread in threads], style="cyan"),
        column("status", [thread.status for thread in threads]),
        column("node", [thread.node or "-" for thread in threads], width=None if width is None else 20),
        column("steps", [f"{thread.steps:,}" for thread in threads], align="right"),
        column("work", [duration(thread.work_ms) if thread.work_ms else "" for thread in threads], align="right"),
    ]
    for cell, thread in zip(columns[1][1:], threads, strict=True):
        cell.stylize(_STATE_STYLES.get(thread.status, ""))
    if width is None or width >= _FULL_WIDTH:
        columns += [
            column("changed (UTC)", [format_minute(thread.updated_at) for thread in threads], style="dim"),
            column("owner", [thread.owner or "" for thread in threads]),
        ]
    columns += held_column([thread.hold for thread in threads])
    room = None if width is None else max(width - table_width(columns), _LEAST_WORDS)
    return table([*columns, column("says", [thread.words for thread in threads], width=room)])


def _width() -> int | None:
    out = console()
    return out.width if out.file.isatty() else None


@click.command("states")
@click.option("--user", "user_id", type=ID, help="Only states of this user.")
@limit_option("states")
@listing_options
def states_command(settings: GlobalOptions, *, user_id: str | None, limit: int | None) -> None:
    """
    List the states of graphs, those changed last first.

    'delete --state ID' deletes one. With --json, an array with one state a line.
    """
    with ledger_at(settings, is_read=True) as ledger:
        states = StateStore(ledger).list(user_id=user_id)
    shown = states[:limit]
    columns = [
        column("state", [state.id for state in shown], style="cyan"),
        column("version", [f"{state.version:,}" for state in shown], align="right"),
        column("node", [state.node or "-" for state in shown]),
        column("bytes", [f"{state.size_bytes:,}" for state in shown], align="right"),
        column("changed (UTC)", [format_minute(state.updated_at) for state in shown], style="dim"),
        *held_column([state.hold for state in shown]),
    ]
    nothing = "" if states else "No states of graphs: StateStore keeps them here."
    settings.answer_list(shown, StateInfo, columns, nothing=nothing, left_out=len(states) - len(shown))


@click.command("items")
@click.argument("labels", metavar="[LABEL]...", nargs=-1)
@click.option("--user", "user_id", type=ID, help="The items of this user; those of nobody by default.")
@limit_option("items")
@listing_options
def items_command(settings: GlobalOptions, *, labels: tuple[str, ...], user_id: str | None, limit: int | None) -> None:
    """
    List what agents keep of a user, those changed last first; with LABELs only what is below that namespace.

    'delete --item ID' deletes one. With --json, an array with one item a line.
    """
    with ledger_at(settings, is_read=True) as ledger:
        own = ledger if user_id is None or settings.user_id is not None else ledger.for_user(user_id)
        items = ItemStore(own).list(labels)
        owner = settings.user_id if settings.user_id is not None else NOBODY if user_id is None else user_id
    shown = [
        ListedItem(
            id=item_id(owner, item.namespace, item.key),
            namespace=list(item.namespace),
            key=item.key,
            version=item.version,
            value=item.value,
            created_at=item.created_at,
            updated_at=item.updated_at,
            expires_at=item.expires_at,
            hold=item.hold,
        )
        for item in items[:limit]
    ]
    width = _width()
    columns = [
        column("item", [item.id for item in shown], style="cyan"),
        column("version", [f"{item.version:,}" for item in shown], align="right"),
        column("changed (UTC)", [format_minute(item.updated_at) for item in shown], style="dim"),
        *held_column([item.hold for item in shown]),
    ]
    room = None if width is None else max(width - table_width(columns), _LEAST_WORDS)
    columns.append(column("value", [value_line(item.value) for item in shown], width=room))
    nothing = "" if items else "No items: ItemStore keeps them here; --user names whose."
    settings.answer_list(shown, ListedItem, columns, nothing=nothing, left_out=len(items) - len(shown))


def show_thread(ledger: Ledger, thread_id: str, *, limit: int | None, as_json: bool) -> None:
    """Print a thread of agents: each agent's steps with their nodes and forks, the oldest first, and what waits, failed or is next."""
    info = require_thread(ledger, thread_id)
    most = limit if limit is not None else _EVERY if as_json else _SHOWN_STEPS
    with Threads(ledger).reading(info.thread_id) as thread:
        traces = {name: read_trace(thread, name, limit=max(most, 1)) for name in agents_of(info.namespaces)}
    if as_json:
        agents = [{"namespace": name, **fields_of(trace)} for name, trace in traces.items()]
        print_json({"thread": fields_of(info), "agents": agents})
        return
    stands = info.status
    print_lines(
        [
            Text(f"thread {escaped(info.thread_id)}  ", style="bold").append(
                stands.status, _STATE_STYLES.get(stands.status)
            )
        ]
    )
    owner = f"owner {info.owner} · " if info.owner else ""
    work = f" · {duration(stands.work_ms)} of work" if stands.work_ms else ""
    times = f"created {format_time(info.created_at)} · changed {format_time(info.updated_at)}"
    print_text(f"{owner}{count(info.checkpoint_count, 'checkpoint')}{work} · {times}", "dim")
    print_lines(hold_line(info.hold))
    for namespace, trace in traces.items():
        if trace.steps:
            print_lines(
                [Text(), *([Text(escaped(namespace), style="bold cyan")] if namespace else []), *_trace_rows(trace)]
            )
        if trace.earlier is not None:
            print_text("earlier steps are left out; --limit says how many are shown", "dim")
    print_text(
        f"'--at STEP' shows the state after a step; 'log chatledger:v:t:{info.thread_id}' prints the events", "dim"
    )


def _trace_rows(trace: Trace) -> list[Text]:
    """Return steps as a table: a line is drawn for each other one from the step at which it forks."""
    rows: list[tuple[str, TraceStep | None, TraceTask | None]] = []
    for step in trace.steps:
        rows += _step_rows("● ", "│ ", step)
        for line in trace.others if not step.is_pending else ():
            if line.forked_from == step.checkpoint_id:
                rows += _fork_rows(line)
    for line in trace.others:
        if line.forked_from not in {step.checkpoint_id for step in trace.steps}:
            rows += _fork_rows(line)
    columns = [
        column("", [mark for mark, _, _ in rows]),
        column("step", ["" if step is None else _number(step) for _, step, _ in rows], align="right"),
        column("node", [_words(step, task) for _, step, task in rows], width=None if _width() is None else 60),
        column("took", [_took(step, task) for _, step, task in rows], align="right", style="dim"),
        column(
            "checkpoint",
            ["" if step is None or step.is_pending else step.checkpoint_id for _, step, _ in rows],
            style="dim",
        ),
    ]
    return table(columns)


def _step_rows(mark: str, below: str, step: TraceStep) -> Iterator[tuple[str, TraceStep | None, TraceTask | None]]:
    yield mark, step, step.tasks[0] if step.task_count == 1 else None
    if step.task_count > 1:
        for task in step.tasks:
            yield f"{below}├", None, task


def _fork_rows(line: TraceLine) -> Iterator[tuple[str, TraceStep | None, TraceTask | None]]:
    for place, step in enumerate(line.steps):
        yield from _step_rows("│ ○ " if place else "├─○ ", "│ │ ", step)


def _number(step: TraceStep) -> str:
    return "-" if step.number is None or step.number < 0 else str(step.number)


def _words(step: TraceStep | None, task: TraceTask | None) -> str:
    if task is None:
        assert step is not None, "a row is a step or a task"
        state = " side by side" if step.tasks else f": {step.words}" if step.words else ""
        return f"{step.node}{state}"
    if task.state in {"waits", "failed"}:
        return f"{task.node} {task.state}{f': {task.words}' if task.words else ''}"
    is_next = task.state == "open" and step is not None and step.is_pending
    notes = [*(["answered"] if task.is_answered else []), *(["retried"] if task.is_retried else [])]
    return ", ".join([f"next: {task.node}" if is_next else task.node, *notes])


def _took(step: TraceStep | None, task: TraceTask | None) -> str:
    if task is not None:
        return "" if task.took_ms is None else duration(task.took_ms)
    ends = [] if step is None else [span.ended_at for each in step.tasks for span in each.spans if span.ended_at]
    return duration(max(ends) - step.began_at) if step is not None and ends else ""


def show_thread_at(ledger: Ledger, thread_id: str, at: str, *, as_json: bool) -> None:
    """Print the state of a thread after a step: what it holds, what the step changed, and its messages."""
    info = require_thread(ledger, thread_id)
    with Threads(ledger).reading(info.thread_id) as thread:
        record = _step_at(thread, info.namespaces, at)
        step = trace_step(thread, record)
        parent = None if record.parent is None else thread.version(record.line, record.parent)
        values = shown_values(thread, record)
        before = {} if parent is None or parent.skeleton is not None else shown_values(thread, parent)
    tree = state_tree(values, before)
    if as_json:
        print_json(
            {"thread": fields_of(info), "step": fields_of(step), "values": values, "changed": changed_names(tree)}
        )
        return
    print_text(f"thread {info.thread_id}, step {_number(step)} {step.node}", "bold")
    where = f" · {record.line}" if record.line else ""
    print_text(f"{step.checkpoint_id} · {format_time(step.created_at)}{where}", "dim")
    print_lines([Text(), *(line for node in tree for line in _tree_lines(node, 0))])
    for fields in messages_in(values):
        name = str(fields.get("role", fields.get("type")))
        print_lines([Text(), Text(escaped(name), style=f"bold {role_style(name)}")])
        print_lines(
            Text(f"  {line}".rstrip()) for line in multiline(text_of_message(fields) or "(no text)").split("\n")
        )


def _tree_lines(node: StateNode, depth: int) -> Iterator[Text]:
    mark, style = _MARKS[node.mark]
    name = f"{escaped(node.name)}: " if node.name else ""
    yield Text(f"{mark} {'  ' * depth}{name}{escaped(node.text)}", style=style)
    if node.mark == "inner":
        for child in node.children:
            yield from _tree_lines(child, depth + 1)


def _step_at(thread: IndexedVersioned, namespaces: list[str], at: str) -> VersionRecord:
    """Return the checkpoint of an id, or of the beginning of one, or the newest of a step's number, on the line that is read."""
    digits = at.removeprefix("-")
    if digits.isdecimal() and len(digits) < 8:
        number = int(at)
        for name in agents_of(namespaces):
            trace = read_trace(thread, name, limit=_EVERY)
            lines = [trace.steps, *(line.steps for line in trace.others)]
            for step in (step for steps in lines for step in steps):
                if step.number == number and not step.is_pending and not step.is_pruned:
                    return cast("VersionRecord", thread.version(name, step.checkpoint_id))
        numbers = [metadata_of(record).get("step") for name in namespaces for record in thread.versions(name)]
        step_numbers = [some for some in numbers if isinstance(some, int)]
        has = (
            f"it has steps {min(step_numbers)} to {max(step_numbers)}"
            if step_numbers
            else "its steps have no numbers; name a checkpoint"
        )
        msg = f"thread {thread.key!r} has no step {number}; {has}"
        raise NotFoundError(msg)
    for name in namespaces:
        exact = thread.version(name, at)
        ids = [at] if exact is not None else [some for some in thread.version_ids(name) if some.startswith(at)]
        record = thread.version(name, ids[0]) if len(ids) == 1 else None
        if record is not None and record.skeleton is None:
            return record
    msg = f"thread {thread.key!r} has no checkpoint {at!r}, or several that begin so; 'show --thread {thread.key}' lists them"
    raise NotFoundError(msg)


@click.command("prune")
@click.argument("thread_ids", metavar="THREAD...", type=ID, nargs=-1, required=True)
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
        removal = plan_prune(thread, lambda _namespace: True, need_metadata, keep_last=keep_last)
        pruned[thread.key] = len(removal.removed) + len(removal.skeletons)
        return removal

    with ledger_at(settings) as ledger:
        for info in [require_thread(ledger, thread_id) for thread_id in dict.fromkeys(thread_ids)]:
            Threads(ledger).remove(info.thread_id, plan, reason="pruned")
    lines = [
        f"Pruned thread {thread_id}: {count(number, 'checkpoint')} removed." for thread_id, number in pruned.items()
    ]
    settings.answer({"pruned": pruned}, *lines)
