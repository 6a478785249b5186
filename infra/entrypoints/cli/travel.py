"""`remote`, `pull`, `push` and `sync`: chats that travel between two ledgers."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chatledger.domain.draw.escaping import escaped
from chatledger.domain.remotes import Remote

from ...ledger.bundles import is_bundle
from ...ledger.environment import absolute_path
from .options import ID, GlobalOptions, ledger_at, ledger_options, listing_options
from .output import column, count, fields_of, print_json, print_text, progress_bar

if TYPE_CHECKING:
    from ...exchange.remote import RemoteLedger
    from ...ledger.ledger import Ledger
    from ...ledger.sync import PullReport

_OTHER = click.argument("other", metavar="REMOTE")
_CHATS = click.argument("chat_ids", metavar="[CHAT]...", nargs=-1, type=ID)
_NAME = click.option(
    "--name",
    metavar="NAME",
    help="What the other ledger is called here, where both went on with a branch. By default its name as a remote, or the last part of its location.",
)
_OWN_NAME = click.option(
    "--own-name",
    metavar="NAME",
    help="What this ledger is called there. By default as the remote has it, or the last part of its location.",
)
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Only say what would be done.")


@click.group("remote", subcommand_metavar="add|list|remove [ARGS]...")
def remote_command() -> None:
    """
    Give other ledgers names, by which 'pull', 'push' and 'sync' know them.

    \b
    For example:
        chatledger remote add office https://chats.example.com --key-env OFFICE_KEY
        chatledger remote add disk /media/disk/chats
        chatledger sync office
    """  # noqa: D301 - click's mark for a paragraph that keeps its lines


@remote_command.command("add")
@click.argument("name", type=ID)
@click.argument("other", metavar="LOCATION")
@click.option("--own-name", metavar="NAME", help="What this ledger is called there, where it pushes.")
@click.option(
    "--key-env",
    metavar="VARIABLE",
    help="The environment variable with the key for a server; CHATLEDGER_SERVER_KEY without it.",
)
@ledger_options
def add_command(settings: GlobalOptions, *, name: str, other: str, own_name: str | None, key_env: str | None) -> None:
    """
    Call the ledger at LOCATION by NAME, or another one than before: a location, the address of a server, or a bundle.

    No secret is kept: keys and logins are in the environment. With --json, the remote.
    """
    location = other if "://" in other else str(absolute_path(other))
    with ledger_at(settings, create=True, is_whole=True) as ledger:
        before = {each.name: each.location for each in ledger.remotes()}.get(name, location)
        remote = ledger.add_remote(name, location, own_name=own_name, key_env=key_env)
    was = "" if before == location else f"; it was {escaped(before)}"
    settings.answer(fields_of(remote), f"{escaped(name)} is {escaped(other)}{was}.")


@remote_command.command("list")
@listing_options
def list_command(settings: GlobalOptions) -> None:
    """List the other ledgers that have names."""
    with ledger_at(settings, is_whole=True, is_read=True) as ledger:
        remotes = ledger.remotes()
    columns = [
        column("remote", [remote.name for remote in remotes], style="cyan"),
        column("location", [remote.location for remote in remotes]),
        column("own name", [remote.own_name or "" for remote in remotes]),
        column("key", [remote.key_env or "" for remote in remotes]),
    ]
    settings.answer_list(remotes, Remote, columns, end=f"{count(len(remotes), 'remote')}.")


@remote_command.command("remove")
@click.argument("name", type=ID)
@ledger_options
def remove_command(settings: GlobalOptions, *, name: str) -> None:
    """Forget the remote NAME. What was pulled stays. With --json, whether there was one."""
    with ledger_at(settings, is_whole=True) as ledger:
        is_removed = ledger.remove_remote(name)
    done = f"Forgot {escaped(name)}." if is_removed else f"There was no remote {escaped(name)}."
    settings.answer({"removed": is_removed}, done)


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
    Take over what the ledger REMOTE has of chats and this one lacks; only CHATs, if there are any.

    REMOTE is a name that 'remote add' gave, or a location, the address of a 'chatledger serve', or a bundle. Ids, times and hashes stay.
    Where both went on with a branch, that of the other comes as NAME/BRANCH. What was deleted or redacted there is here too. The
    key for a server is in CHATLEDGER_SERVER_KEY, or where the remote says. Keys for encryption that the environment names are for both.
    """
    with _both(settings, other, create=not dry_run) as (here, there, remote), progress_bar("pulling") as progress:
        pulled = here.pull(
            there, name=name or remote.name, chat_ids=chat_ids or None, dry_run=dry_run, progress=progress
        )
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
    """
    Have the ledger REMOTE take over what this one has of chats and it lacks; only CHATs, if there are any.

    A server takes what its key may write, and the answer names what it refused. See 'pull'.
    """
    with _both(settings, other, makes=not dry_run) as (here, there, remote), progress_bar("pushing") as progress:
        own_name = own_name or remote.own_name or _name_of(settings.location)
        pushed = here.push(there, name=own_name, chat_ids=chat_ids or None, dry_run=dry_run, progress=progress)
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
    """Pull from the ledger REMOTE and push to it, so that both have the same messages, and the same ends of branches. See 'pull'."""
    chats = chat_ids or None
    with _both(settings, other, create=True) as (here, there, remote):
        with progress_bar("pulling") as progress:
            pulled = here.pull(there, name=name or remote.name, chat_ids=chats, progress=progress)
        own_name = own_name or remote.own_name or _name_of(settings.location)
        with progress_bar("pushing") as progress:
            pushed = here.push(there, name=own_name, chat_ids=chats, progress=progress)
    _print(settings, {"pulled": pulled, "pushed": pushed})


@contextmanager
def _both(
    settings: GlobalOptions, other: str, *, create: bool = False, makes: bool = False
) -> "Generator[tuple[Ledger, Ledger | RemoteLedger, Remote]]":
    """This ledger and the other one, open. `create`: whether this one is made where it is absent, `makes`: the other one."""
    from ...exchange.remote import open_remote

    with ledger_at(settings, create=create, is_whole=True) as here:
        remotes = {remote.name: remote for remote in here.remotes()}
        # A name that was mistyped would be a folder, in which a push makes a ledger.
        near = get_close_matches(other, remotes, n=1) if "/" not in other and not Path(other).exists() else []
        if other not in remotes and near:
            msg = f"there is no remote {other!r}; did you mean {near[0]!r}? A folder of that name is './{other}'"
            raise click.UsageError(msg, click.get_current_context())
        remote = remotes.get(other) or Remote(name=_name_of(other), location=other)
        if makes and is_bundle(remote.location):
            msg = "a bundle is only pulled from: 'chatledger bundle create' makes one"
            raise click.UsageError(msg, click.get_current_context())
        with open_remote(remote, create=makes) as there:
            yield here, there, remote


def _name_of(location: str) -> str:
    """`office` of `nats://host/office`, `/backups/office`, `sqlite:///office.db` and `office.clb`."""
    last = location.partition("?")[0].rstrip("/").rpartition("/")[2]
    return last.removesuffix(".db").removesuffix(".clb") or location


def _print(settings: GlobalOptions, pulls: "dict[str, PullReport]", *, dry_run: bool = False) -> None:
    if settings.as_json:
        print_json({way: fields_of(pulled) for way, pulled in pulls.items()})
        return
    for way, pulled in pulls.items():
        print_pull(f"{'To be ' if dry_run else ''}{way}", pulled)


def print_pull(way: str, pulled: "PullReport") -> None:
    """Print what a pull brought, chat by chat."""
    print_text(f"{way}: {count(pulled.compared, 'chat')} compared, {count(len(pulled.chats), 'difference')}.")
    for hold in pulled.holds:
        print_text(escaped(f"  held: {hold.kind} {hold.id}"))
    for chat in pulled.chats:
        parts: Sequence[str] = [
            chat.outcome,
            *([count(chat.events, "event")] if chat.events else []),
            *([count(chat.messages, "message")] if chat.messages else []),
            *([f"in {', '.join(chat.branches)}"] if chat.branches else []),
            *([f"{count(len(chat.copies), 'copy', 'copies')} redacted"] if chat.copies else []),
        ]
        print_text(escaped(f"  {chat.chat_id}: {', '.join(parts)}{f': {chat.why}' if chat.why else ''}"))
