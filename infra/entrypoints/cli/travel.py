"""`pull`, `push` and `sync`: chats that travel between two ledgers."""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from chatledger.domain.draw.escaping import escaped

from .options import ID, GlobalOptions, ledger_at, ledger_options
from .output import count, fields_of, print_json, print_text

if TYPE_CHECKING:
    from ...ledger.ledger import Ledger
    from ...ledger.sync import PullReport, PullSource

SERVER_KEY_ENV: Final = "CHATLEDGER_SERVER_KEY"

_OTHER = click.argument("other", metavar="LOCATION")
_CHATS = click.argument("chat_ids", metavar="[CHAT]...", nargs=-1, type=ID)
_NAME = click.option(
    "--name",
    metavar="NAME",
    help="What the other ledger is called here, where both went on with a branch. By default the last part of its location.",
)
_OWN_NAME = click.option(
    "--own-name",
    metavar="NAME",
    help="What this ledger is called there. By default the last part of its location.",
)
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Only say what would be done.")


@click.command("pull")
@_OTHER
@_CHATS
@_NAME
@_DRY_RUN
@ledger_options
def pull_command(
    settings: GlobalOptions, *, other: str, chat_ids: tuple[str, ...], name: str | None, dry_run: bool
) -> None:
    """
    Take over what the ledger at LOCATION has of chats and this one lacks; only CHATs, if there are any.

    Ids, times and hashes stay. Where both went on with a branch, that of the other comes as NAME/BRANCH. What was deleted or redacted
    there is here too. LOCATION may be the address of a `chatledger serve`, https://..., whose key is in CHATLEDGER_SERVER_KEY. Keys for
    encryption that the environment names are for both.
    """
    with (
        ledger_at(settings, create=not dry_run, is_whole=True) as here,
        _source_at(settings, other) as there,
    ):
        pulled = here.pull(there, name=name or _name_of(other), chat_ids=chat_ids or None, dry_run=dry_run)
    _print(settings, {"pulled": pulled}, dry_run=dry_run)


@click.command("push")
@_OTHER
@_CHATS
@_OWN_NAME
@_DRY_RUN
@ledger_options
def push_command(
    settings: GlobalOptions, *, other: str, chat_ids: tuple[str, ...], own_name: str | None, dry_run: bool
) -> None:
    """Have the ledger at LOCATION pull from this one; only CHATs, if there are any."""
    with (
        ledger_at(settings, is_whole=True) as here,
        ledger_at(_at(settings, other), create=not dry_run, is_whole=True) as there,
    ):
        own_name = own_name or _name_of(settings.location)
        pushed = there.pull(here, name=own_name, chat_ids=chat_ids or None, dry_run=dry_run)
    _print(settings, {"pushed": pushed}, dry_run=dry_run)


@click.command("sync")
@_OTHER
@_CHATS
@_NAME
@_OWN_NAME
@ledger_options
def sync_command(
    settings: GlobalOptions, *, other: str, chat_ids: tuple[str, ...], name: str | None, own_name: str | None
) -> None:
    """Pull from the ledger at LOCATION and push to it, so that both have the same messages, and the same ends of branches."""
    with (
        ledger_at(settings, create=True, is_whole=True) as here,
        ledger_at(_at(settings, other), is_whole=True) as there,
    ):
        chats = chat_ids or None
        pulled = here.pull(there, name=name or _name_of(other), chat_ids=chats)
        pushed = there.pull(here, name=own_name or _name_of(settings.location), chat_ids=chats)
    _print(settings, {"pulled": pulled, "pushed": pushed})


@contextmanager
def _source_at(settings: GlobalOptions, location: str) -> "Generator[Ledger | PullSource]":
    """The other ledger, open, or one behind a server."""
    if location.startswith(("http://", "https://")):
        from ...exchange.remote import RemoteLedger

        yield RemoteLedger(location, key=os.environ.get(SERVER_KEY_ENV))
    else:
        with ledger_at(_at(settings, location), is_whole=True) as ledger:
            yield ledger


def _at(settings: GlobalOptions, location: str) -> GlobalOptions:
    if location.startswith(("http://", "https://")):
        msg = "a server is only pulled from: run 'chatledger pull' there, with a location or a server of this ledger"
        raise click.UsageError(msg, click.get_current_context())
    return replace(settings, location=location, is_named=True)


def _name_of(location: str) -> str:
    """`office` of `nats://host/office`, `/backups/office` and `sqlite:///office.db`."""
    last = location.partition("?")[0].rstrip("/").rpartition("/")[2]
    return last.removesuffix(".db") or location


def _print(settings: GlobalOptions, pulls: "dict[str, PullReport]", *, dry_run: bool = False) -> None:
    if settings.as_json:
        print_json({way: fields_of(pulled) for way, pulled in pulls.items()})
        return
    for way, pulled in pulls.items():
        what = f"{count(pulled.compared, 'chat')} compared, {count(len(pulled.chats), 'difference')}"
        print_text(f"{'To be ' if dry_run else ''}{way}: {what}.")
        for chat in pulled.chats:
            parts: Sequence[str] = [
                chat.outcome,
                *([count(chat.events, "event")] if chat.events else []),
                *([count(chat.messages, "message")] if chat.messages else []),
                *([f"in {', '.join(chat.branches)}"] if chat.branches else []),
            ]
            print_text(escaped(f"  {chat.chat_id}: {', '.join(parts)}"))
