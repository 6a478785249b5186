"""`runs`: what assistants did in a chat."""

import click
from rich.text import Text

from chatledger.domain.chat.runs import RUN_STATUSES, MessageRun, RunStatus
from chatledger.domain.draw.outline import flat

from .lookup import require_chat
from .options import Settings, chat_argument, json_option, ledger_at, location_option
from .output import fields_of, format_time, print_json_list, print_lines, print_text

_STYLES = {"pending": "dim", "running": "yellow", "completed": "green", "error": "bold red"}


@click.command("runs")
@chat_argument
@click.option("--thread", "thread_id", metavar="ID", help="Only runs on this agent thread.")
@click.option("--assistant", "assistant_id", metavar="ID", help="Only runs of this assistant.")
@click.option("--status", type=click.Choice(RUN_STATUSES), help="Only runs with this status.")
@json_option
@location_option()
@click.pass_obj
def runs_command(
    settings: Settings,
    *,
    chat_id: str,
    thread_id: str | None,
    assistant_id: str | None,
    status: RunStatus | None,
    as_json: bool,
) -> None:
    """
    List the runs of assistants in CHAT, in the order in which they were recorded.

    Each with what triggered it and what it produced. With --json, an array with one run a line.
    """
    with ledger_at(settings) as ledger:
        require_chat(ledger, chat_id)
        found = ledger.runs(chat_id, thread_id=thread_id, assistant_id=assistant_id, status=status)
        stale = {message_id for message_id, said in ledger.get_annotations(chat_id).items() if said.stale}
        has_runs = bool(found) or bool(ledger.runs(chat_id))
    if as_json:
        print_json_list(map(fields_of, found))
    elif not found:
        print_text("No run matches." if has_runs else "No runs yet: programs record them with record_run.")
    else:
        print_lines((_line(run, is_stale=run.message_id in stale) for run in found), is_cut=True)


def _line(run: MessageRun, *, is_stale: bool) -> Text:
    line = Text(flat(run.run_id), style="bold")
    line.append(f"  {run.status:<9}  ", style=f"not bold {_STYLES[run.status]}")
    line.append(flat(run.assistant_id), style="not bold cyan")
    line.append(f"  {flat(_short(run.trigger_message_id))} -> {flat(_short(run.message_id))}", style="not bold")
    if is_stale:
        line.append("  stale", style="not bold red")
    if run.repeats is not None:
        line.append(f"  repeats {flat(run.repeats)}", style="not bold dim")
    line.append(f"  thread {flat(run.thread_id)}  {format_time(run.created_at)}", style="not bold dim")
    return line


def _short(message_id: str | None) -> str:
    return "-" if message_id is None else message_id[:8]
