"""`sweep`: the end of chats whose time has come."""

import click

from .options import Settings, json_option, ledger_at, limit_option, location_option
from .output import count, print_json, print_text


@click.command("sweep")
@click.option("--dry-run", is_flag=True, help="Only say which chats are due.")
@limit_option("chats")
@json_option
@location_option()
@click.pass_obj
def sweep_command(settings: Settings, *, dry_run: bool, limit: int | None, as_json: bool) -> None:
    """
    Delete the chats that have ended: those whose 'expires_at' is past.

    Their content is erased as by a deletion; the history says who did it: chatledger:sweeper. For a timer, such as cron.
    """
    with ledger_at(settings) as ledger:
        found = ledger.due_chats(limit=limit) if dry_run else ledger.sweep(limit=limit)
    if as_json:
        print_json({"due" if dry_run else "deleted": found})
        return
    for chat_id in found:
        print_text(chat_id)
    print_text(f"{count(len(found), 'chat')} due." if dry_run else f"Deleted {count(len(found), 'chat')}.", "dim")
