"""`branches` and `checkpoints`: what points into a chat."""

from collections.abc import Callable
from typing import TypeVar

import click

from chatledger.domain.draw.outline import short_id
from chatledger.domain.errors import NotFoundError
from chatledger.domain.values import Branch, Checkpoint

from ...ledger.ledger import Ledger
from .lookup import require_chat
from .options import GlobalOptions, chat_argument, ledger_at, limit_option, listing_options
from .output import ACTIVE_HEAD, CHECKPOINT, HEAD, column, format_time, print_lines, print_text, print_values, table

T = TypeVar("T", Branch, Checkpoint)


@click.command("branches")
@click.argument("chat_id", metavar="[CHAT]", required=False)
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
    as_json: bool,
    as_csv: bool,
) -> None:
    """
    List the branches of CHAT, the oldest first; * is the active one.

    Each with the length of its chain, its head, and when it was made. With --json, an array with one branch a line, with its
    id and that of its chat.
    """
    if branch_id is not None:
        branches = [_with_id(settings, chat_id, branch_id)]
    elif chat_id is not None:
        branches = _pointers(settings, chat_id, Ledger.list_branches)
    else:
        msg = "name a chat, or the id of a branch with --id"
        raise click.UsageError(msg, click.get_current_context())
    shown = branches[:limit]
    if as_json or as_csv:
        print_values(shown, Branch, as_csv=as_csv)
        return
    chats = [column("chat", [branch.chat_id for branch in shown], style="cyan")] if branch_id is not None else []
    columns = [
        *chats,
        column(" ", ["*" if branch.is_active else " " for branch in shown], style=ACTIVE_HEAD),
        column("branch", [branch.name for branch in shown], style=HEAD),
        column("messages", [f"{branch.message_count:,}" for branch in shown], align="right"),
        column("head", [short_id(branch.head_message_id or "(empty)") for branch in shown], style="dim"),
        column("created", [format_time(branch.created_at) for branch in shown], style="dim"),
    ]
    print_lines(table(columns))
    _say_rest(len(branches) - len(shown))


@click.command("checkpoints")
@chat_argument
@limit_option("checkpoints, the oldest ones")
@listing_options
def checkpoints_command(
    settings: GlobalOptions, *, chat_id: str, limit: int | None, as_json: bool, as_csv: bool
) -> None:
    """
    List the checkpoints of CHAT, the oldest first.

    Each with its message, and when it was set. With --json, an array with one checkpoint a line.
    """
    checkpoints = _pointers(settings, chat_id, Ledger.list_checkpoints)
    shown = checkpoints[:limit]
    if as_json or as_csv:
        print_values(shown, Checkpoint, as_csv=as_csv)
        return
    if not checkpoints:
        print_text("No checkpoints: set_checkpoint makes them.")
        return
    columns = [
        column("checkpoint", [checkpoint.name for checkpoint in shown], style=CHECKPOINT),
        column("message", [checkpoint.message_id for checkpoint in shown]),
        column("set", [format_time(checkpoint.created_at) for checkpoint in shown], style="dim"),
    ]
    print_lines(table(columns))
    _say_rest(len(checkpoints) - len(shown))


def _pointers(settings: GlobalOptions, chat_id: str, list_them: Callable[[Ledger, str], list[T]]) -> list[T]:
    with ledger_at(settings, is_read=True) as ledger:
        require_chat(ledger, chat_id)
        return list_them(ledger, chat_id)


def _with_id(settings: GlobalOptions, chat_id: str | None, branch_id: str) -> Branch:
    with ledger_at(settings, is_read=True) as ledger:
        if chat_id is not None:
            require_chat(ledger, chat_id)
        branch = ledger.get_branch(chat_id, id=branch_id)
    if branch is None:
        where = "" if chat_id is None else f" in chat {chat_id!r}"
        msg = f"there is no branch with the id {branch_id!r}{where}"
        raise NotFoundError(msg)
    return branch


def _say_rest(number: int) -> None:
    if number > 0:
        print_text(f"{number:,} more, --limit cut them", "dim")
