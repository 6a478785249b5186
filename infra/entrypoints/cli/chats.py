"""`chats`, `branches`, `checkpoints`, `runs` and `cache-report`: which conversations there are, what points into them, and what assistants did there."""

import contextlib
import re
from collections import Counter
from typing import Any

import click
import msgspec
from rich.text import Text

from chatledger.domain.chat.runs import RUN_STATUSES, MessageRun
from chatledger.domain.context.caching import CacheTurn, cache_report
from chatledger.domain.draw.escaping import escaped, short_id
from chatledger.domain.errors import ChatNotFoundError, NotFoundError
from chatledger.domain.legal_hold import LegalHold
from chatledger.domain.values import Branch, Chat, Checkpoint

from .lookup import others_of, require_branch, require_chat, unknown_chat
from .options import (
    ID,
    GlobalOptions,
    chat_argument,
    ledger_at,
    ledger_options,
    limit_option,
    listing_options,
    parsed,
)
from .output import (
    ACTIVE_HEAD,
    CHECKPOINT,
    HEAD,
    column,
    console,
    count,
    format_minute,
    format_time,
    print_json_list,
    print_lines,
    print_text,
    print_values,
    table,
    table_width,
)

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def metadata_entry(value: str) -> tuple[str, str | float]:
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
@click.option("--user", "user_id", type=ID, help="Only chats of this owner.")
@click.option(
    "--meta",
    callback=parsed(metadata_entry, "is not KEY=VALUE"),
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
        others = None if settings.for_programs else others_of(ledger)
    shown = chats[:limit]
    if others is None:
        print_values(shown, Chat, as_csv=settings.as_csv)
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
    columns += held_column([chat.hold for chat in chats])
    room = None if width is None else max(width - table_width(columns), _LEAST_TITLE)
    columns.append(column("title", [chat.title or "" for chat in chats], width=room))
    return table(columns)


def chat_heading(chat: Chat, *, checkpoints: int) -> list[Text]:
    """Return the heading of a chat, on two lines; on three where it is held."""
    numbers = (
        count(chat.message_count, "message"),
        count(chat.branch_count, "branch", "branches"),
        count(checkpoints, "checkpoint"),
    )
    facts = [f"chat {chat.id}", *([f"owner {chat.user_id}"] if chat.user_id else []), *numbers]
    heading = [Text(escaped(chat.title or chat.id), style="bold"), Text(escaped(" · ".join(facts)), style="dim")]
    return [*heading, *hold_line(chat.hold)]


def held_column(holds: list[LegalHold | None]) -> list[list[Text]]:
    """Return the column of a list that says what is held; none where nothing is."""
    return [column("held", ["held" if hold else "" for hold in holds])] if any(holds) else []


def hold_line(hold: LegalHold | None) -> list[Text]:
    """Return the line of a hold below the heading of what it covers; none without one."""
    if hold is None:
        return []
    what = "its owner" if hold.kind == "user" else f"{hold.kind} {hold.id}"
    by = f" by {hold.held_by}" if hold.held_by else ""
    why = f": {hold.reason}" if hold.reason else ""
    return [Text(escaped(f"legal hold on {what} since {format_time(hold.held_at)}{by}{why}"), style="bold")]


@click.command("branches")
@click.argument("chat_id", metavar="[CHAT]", type=ID, required=False)
@click.option(
    "--id", "branch_id", metavar="ID", help="Only the branch of this id. Without CHAT, says which chat has it."
)
@limit_option("branches, the oldest ones")
@listing_options
def branches_command(
    settings: GlobalOptions,
    *,
    chat_id: str | None,
    branch_id: str | None,
    limit: int | None,
) -> None:
    """
    List the branches of CHAT, the oldest first; * is the active one.

    Each with the length of its chain, its head, and when it was made. With --json, an array with one branch a line, with its
    id and that of its chat.
    """
    if chat_id is None and branch_id is None:
        click.get_current_context().fail("name a chat, or the id of a branch with --id")
    with ledger_at(settings, is_read=True) as ledger:
        if chat_id is not None:
            require_chat(ledger, chat_id)
        if branch_id is None:
            branches = ledger.list_branches(str(chat_id))
        elif (branch := ledger.get_branch(chat_id, id=branch_id)) is not None:
            branches = [branch]
        else:
            where = "" if chat_id is None else f" in chat {chat_id!r}"
            msg = f"there is no branch with the id {branch_id!r}{where}"
            raise NotFoundError(msg)
    shown = branches[:limit]
    chats = [column("chat", [branch.chat_id for branch in shown], style="cyan")] if branch_id is not None else []
    columns = [
        *chats,
        column(" ", ["*" if branch.is_active else " " for branch in shown], style=ACTIVE_HEAD),
        column("branch", [branch.name for branch in shown], style=HEAD),
        column("messages", [f"{branch.message_count:,}" for branch in shown], align="right"),
        column("head", [short_id(branch.head_message_id or "(empty)") for branch in shown], style="dim"),
        column("created", [format_time(branch.created_at) for branch in shown], style="dim"),
    ]
    settings.answer_list(shown, Branch, columns, left_out=len(branches) - len(shown))


@click.command("checkpoints")
@chat_argument
@limit_option("checkpoints, the oldest ones")
@listing_options
def checkpoints_command(settings: GlobalOptions, *, chat_id: str, limit: int | None) -> None:
    """
    List the checkpoints of CHAT, the oldest first.

    Each with its message, and when it was set. With --json, an array with one checkpoint a line.
    """
    with ledger_at(settings, is_read=True) as ledger:
        require_chat(ledger, chat_id)
        checkpoints = ledger.list_checkpoints(chat_id)
    shown = checkpoints[:limit]
    columns = [
        column("checkpoint", [checkpoint.name for checkpoint in shown], style=CHECKPOINT),
        column("message", [checkpoint.message_id for checkpoint in shown]),
        column("set", [format_time(checkpoint.created_at) for checkpoint in shown], style="dim"),
    ]
    nothing = "" if checkpoints else "No checkpoints yet: programs and the explorer set them."
    settings.answer_list(shown, Checkpoint, columns, nothing=nothing, left_out=len(checkpoints) - len(shown))


_RUN_STYLES = {"pending": "dim", "running": "yellow", "waiting": "magenta", "completed": "green", "error": "bold red"}


@click.command("runs")
@chat_argument
@click.option("--thread", "thread_id", type=ID, help="Only runs on this agent thread.")
@click.option("--assistant", "assistant_id", metavar="ID", help="Only runs of this assistant.")
@click.option("--status", type=click.Choice(RUN_STATUSES), help="Only runs with this status.")
@listing_options
def runs_command(
    settings: GlobalOptions,
    *,
    chat_id: str,
    **filters: Any,
) -> None:
    """
    List the runs of assistants in CHAT, in the order in which they were recorded.

    Each with what triggered it and what it produced. With --json, an array with one run a line.
    """
    with ledger_at(settings, is_read=True) as ledger:
        require_chat(ledger, chat_id)
        runs = ledger.runs(chat_id, **filters)
        annotations = ledger.get_annotations(chat_id).items()
        stale = {message_id for message_id, annotation in annotations if annotation.stale}
        has_runs = bool(runs) or bool(ledger.runs(chat_id))
    if settings.for_programs:
        print_values(runs, MessageRun, as_csv=settings.as_csv)
    elif not runs:
        print_text("No run matches." if has_runs else "No runs yet: programs record them.")
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


@click.command("cache-report")
@chat_argument
@click.option("--branch", metavar="NAME", type=ID, help="A branch of the chat. The active one if absent.")
@ledger_options
def cache_report_command(settings: GlobalOptions, *, chat_id: str, branch: str | None) -> None:
    """
    Tell where the prompts of CHAT changed at the front, so that a provider's cache was of no use, and what changed them.

    Compares each prompt that was made by 'resolve(cache=...)' and answered on the branch with the one before. With --json, an
    array with one prompt a line.
    """
    with ledger_at(settings, is_read=True) as ledger:
        require_chat(ledger, chat_id)
        if branch is not None:
            require_branch(ledger, chat_id, branch)
        turns = cache_report(ledger.get_messages(chat_id, branch=branch))
    if settings.as_json:
        print_json_list(turns)
    elif not turns:
        print_text(
            "No answer on this branch carries the prefixes of its prompt: programs record them that arrange prompts "
            "for a provider's cache."
        )
    else:
        print_lines(map(_turn_line, turns), is_cut=True)
        kept_count = sum(turn.is_kept for turn in turns)
        causes = Counter(turn.fragment for turn in turns if turn.fragment is not None).most_common(1)
        worst = f" Most often by fragment {escaped(causes[0][0])}." if causes else ""
        prompts = f"{kept_count:,} of {count(len(turns), 'prompt')}"
        print_text(f"{prompts} kept the prefix of the one before.{worst}", "dim")


def _turn_line(turn: CacheTurn) -> Text:
    line = Text(escaped(turn.message_id[:8]), style="bold")
    line.append(f"  {escaped(turn.provider)}  ", style="not bold dim")
    line.append("kept   " if turn.is_kept else "changed", style="not bold green" if turn.is_kept else "not bold yellow")
    if turn.part is not None:
        line.append(f"  {turn.part}: {escaped(turn.reason)}", style="not bold")
    return line
