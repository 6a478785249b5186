"""`chats`, `runs`, `sweep` and `erasures`: which conversations there are, what assistants did in them, and the end of those that expired."""

import contextlib
import re

import click
import msgspec
from rich.text import Text

from chatledger.domain.chat.runs import RUN_STATUSES, MessageRun, RunStatus
from chatledger.domain.draw.outline import escaped
from chatledger.domain.errors import ChatNotFoundError
from chatledger.domain.values import Chat, Swept

from .lookup import others_of, require_chat, unknown_chat
from .options import GlobalOptions, chat_argument, ledger_at, ledger_options, limit_option, listing_options, parsed
from .output import (
    column,
    console,
    count,
    fields_of,
    format_minute,
    format_time,
    print_json,
    print_lines,
    print_text,
    print_values,
    table,
    table_width,
)

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def _metadata_entry(value: str) -> tuple[str, str | float]:
    """`KEY=VALUE`: a text, unless it reads as a JSON number, true or false; a text in quotes always is one."""
    key, _, text = value.partition("=")
    if not key or "=" not in value:
        raise ValueError
    if _NUMBER.fullmatch(text) or text in {"true", "false"} or (len(text) > 1 and text[0] == text[-1] == '"'):
        with contextlib.suppress(msgspec.DecodeError):
            return key, msgspec.json.decode(text, type=str | bool | int | float)
    return key, text


_FULL_WIDTH = 110
"""In narrower terminals the owner and the time give way."""
_LEAST_TITLE, _OWNER_WIDTH = 12, 12


@click.command("chats")
@click.option("--user", "user_id", metavar="ID", help="Only chats of this owner.")
@click.option(
    "--meta",
    callback=parsed(_metadata_entry, "is not KEY=VALUE"),
    metavar="KEY=VALUE",
    help="Only chats with this entry in their metadata. Numbers, true and false are such, unless quoted: 'year=\"2026\"'.",
)
@limit_option("chats")
@click.option("--after", metavar="CHAT", help="Only those listed after this chat: the last one of the page before.")
@listing_options
def chats_command(
    settings: GlobalOptions,
    *,
    user_id: str | None,
    meta: tuple[str, str | float] | None,
    limit: int | None,
    after: str | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """
    List the chats, those changed last first.

    Below them stands how many threads of agents and states of graphs there are besides. With --json, an array with one chat
    a line.
    """
    with ledger_at(settings, is_read=True) as ledger:
        # One more than asked for tells whether there is another page.
        page = None if limit is None else limit + 1
        try:
            chats = ledger.list_chats(user_id=user_id, metadata=meta, limit=page, after=after)
        except ChatNotFoundError:
            raise unknown_chat(ledger, str(after)) from None
        has_chats = bool(chats) or bool(ledger.list_chats(limit=1))
        others = None if as_json or as_csv else others_of(ledger)
    shown = chats[:limit]
    if others is None:
        print_values(shown, Chat, as_csv=as_csv)
        return
    if chats:
        print_lines(chat_rows(shown))
        if limit is not None and shown and len(chats) > limit:
            print_text(f"More with --after {shown[-1].id}", "dim")
    elif has_chats:
        print_text("No chat matches.")
    elif not others:
        print_text("No chats yet: 'chatledger import FILE' takes some in.")
    if others and not (user_id or meta or after):
        beside = "Besides: " if has_chats else "No chats, but "
        print_text(f"{beside}{others}.", "dim" if has_chats else "")


def chat_rows(chats: list[Chat]) -> list[Text]:
    """Chats as lines of a table: ids whole; on a terminal titles are cut, and on a narrow one some columns left out."""
    out = console()
    width = out.width if out.file.isatty() else None
    is_full = width is None or width >= _FULL_WIDTH
    columns = [
        column("chat", [chat.id for chat in chats], style="cyan"),
        column("messages", [f"{chat.message_count:,}" for chat in chats], align="right"),
        column("branches", [f"{chat.branch_count:,}" for chat in chats], align="right"),
    ]
    if is_full:
        columns += [
            column("changed (UTC)", [format_minute(chat.updated_at) for chat in chats], style="dim"),
            column("owner", [chat.user_id for chat in chats], width=None if width is None else _OWNER_WIDTH),
        ]
    room = None if width is None else max(width - table_width(columns), _LEAST_TITLE)
    columns.append(column("title", [chat.title or "" for chat in chats], width=room))
    return table(columns)


def chat_heading(chat: Chat, *, checkpoints: int) -> list[Text]:
    """Return the heading of a chat, on two lines."""
    numbers = (
        count(chat.message_count, "message"),
        count(chat.branch_count, "branch", "branches"),
        count(checkpoints, "checkpoint"),
    )
    facts = [f"chat {chat.id}", *([f"owner {chat.user_id}"] if chat.user_id else []), *numbers]
    return [Text(escaped(chat.title or chat.id), style="bold"), Text(escaped(" · ".join(facts)), style="dim")]


_RUN_STYLES = {"pending": "dim", "running": "yellow", "waiting": "magenta", "completed": "green", "error": "bold red"}


@click.command("runs")
@chat_argument
@click.option("--thread", "thread_id", metavar="ID", help="Only runs on this agent thread.")
@click.option("--assistant", "assistant_id", metavar="ID", help="Only runs of this assistant.")
@click.option("--status", type=click.Choice(RUN_STATUSES), help="Only runs with this status.")
@listing_options
def runs_command(
    settings: GlobalOptions,
    *,
    chat_id: str,
    thread_id: str | None,
    assistant_id: str | None,
    status: RunStatus | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """
    List the runs of assistants in CHAT, in the order in which they were recorded.

    Each with what triggered it and what it produced. With --json, an array with one run a line.
    """
    with ledger_at(settings, is_read=True) as ledger:
        require_chat(ledger, chat_id)
        runs = ledger.runs(chat_id, thread_id=thread_id, assistant_id=assistant_id, status=status)
        annotations = ledger.get_annotations(chat_id).items()
        stale = {message_id for message_id, annotation in annotations if annotation.stale}
        has_runs = bool(runs) or bool(ledger.runs(chat_id))
    if as_json or as_csv:
        print_values(runs, MessageRun, as_csv=as_csv)
    elif not runs:
        print_text("No run matches." if has_runs else "No runs yet: programs record them with record_run.")
    else:
        print_lines((_run_line(run, is_stale=run.message_id in stale) for run in runs), is_cut=True)


def _run_line(run: MessageRun, *, is_stale: bool) -> Text:
    line = Text(escaped(run.run_id), style="bold")
    line.append(f"  {run.status:<9}  ", style=f"not bold {_RUN_STYLES[run.status]}")
    line.append(escaped(run.assistant_id), style="not bold cyan")
    line.append(f"  {escaped(_short(run.trigger_message_id))} -> {escaped(_short(run.message_id))}", style="not bold")
    if is_stale:
        line.append("  stale", style="not bold red")
    if run.repeats is not None:
        what = "repeats" if run.regeneration_id is not None else "carried over from"
        line.append(f"  {what} {escaped(run.repeats)}", style="not bold dim")
    line.append(f"  thread {escaped(run.thread_id)}  {format_time(run.created_at)}", style="not bold dim")
    return line


def _short(message_id: str | None) -> str:
    return "-" if message_id is None else message_id[:8]


@click.command("sweep")
@click.option("--dry-run", is_flag=True, help="Only say which chats are due.")
@limit_option("chats")
@ledger_options
def sweep_command(settings: GlobalOptions, *, dry_run: bool, limit: int | None, as_json: bool) -> None:
    """
    Delete the chats that have ended: those whose 'expires_at' is past. Threads, states of graphs and items that expired go too.

    Their content is erased as by a deletion; the history says who did it: chatledger:sweeper. For a timer, such as cron.
    """
    with ledger_at(settings) as ledger:
        swept = Swept(chats=ledger.due_chats(limit=limit)) if dry_run else ledger.sweep(limit=limit)
        if not dry_run:
            ledger.wait_erased()
    if as_json:
        print_json({"due": swept.chats} if dry_run else {"deleted": swept.chats, "versioned": swept.versioned})
        return
    for chat_id in swept.chats:
        print_text(chat_id)
    number = count(len(swept.chats), "chat")
    more = f", {swept.versioned:,} threads, states and items" if swept.versioned else ""
    print_text(f"{number} due." if dry_run else f"Deleted {number}{more}.", "dim")


@click.command("erasures")
@click.option("--pending", "is_pending", is_flag=True, help="Only those whose bytes are still to be erased.")
@click.option("--wait", "is_awaited", is_flag=True, help="First erase what is left to be erased.")
@ledger_options
def erasures_command(settings: GlobalOptions, *, is_pending: bool, is_awaited: bool, as_json: bool) -> None:
    """
    Show the receipts of deletions: what was deleted when, and when its bytes were gone from the log and the index.

    Those of the last 30 days, the oldest first. What an interrupted process left is erased by opening the ledger, and so by this.
    """
    with ledger_at(settings) as ledger:
        if is_awaited:
            ledger.wait_erased()
        receipts = ledger.erasures(is_pending=True if is_pending else None)
    if as_json:
        print_json([fields_of(receipt) for receipt in receipts])
        return
    for receipt in receipts:
        erased = "pending" if receipt.erased_at is None else f"erased {format_time(receipt.erased_at)}"
        print_text(
            f"{receipt.kind} {escaped(receipt.id)}  {count(receipt.event_count, 'event')}, "
            f"deleted {format_time(receipt.deleted_at)} at {receipt.position}, {erased}"
        )
    left = sum(receipt.erased_at is None for receipt in receipts)
    print_text(f"{count(len(receipts), 'deletion')}, {left} to be erased.", "dim")
