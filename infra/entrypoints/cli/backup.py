"""`backup` and `restore`: the log copied while it is in use, and a ledger made from the copy."""

from pathlib import Path

import click

from ...admin.backup.checking import Backup, check_backup
from ...admin.backup.restoring import restore
from ...ledger.environment import keys_given, login_for
from .options import GlobalOptions, ledger_at, ledger_options, require_server
from .output import count, fields_of, print_json, print_text, progress_bar

_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command("backup")
@click.argument("folder", metavar="FOLDER", type=_FOLDER)
@click.option("--check", "is_check", is_flag=True, help="Read the backup back instead, and verify every hash chain.")
@click.option(
    "--files-only", is_flag=True, help="With --check: only the digests of its files, for which no key is needed."
)
@ledger_options
def backup_command(settings: GlobalOptions, *, folder: Path, is_check: bool, files_only: bool, as_json: bool) -> None:
    """
    Back up the log into a folder, or bring the backup there up to date.

    Others may write meanwhile. A later run adds what is new and removes what was deleted since. Encrypted events stay so,
    and no key is in the backup.
    """
    if files_only and not is_check:
        msg = "--files-only needs --check"
        raise click.UsageError(msg)
    if is_check:
        with progress_bar("checking") as progress:
            backup = check_backup(folder, encryption=keys_given(), files_only=files_only, progress=progress)
        _report(backup, "The backup is sound", as_json=as_json)
        return
    with ledger_at(settings, is_whole=True) as ledger, progress_bar("backing up") as progress:
        backup = ledger.backup(folder, progress=progress)
    _report(backup, f"Added {count(backup.added_count, 'event')}, removed {backup.erased_count:,}", as_json=as_json)


@click.command("restore")
@click.argument("folder", metavar="FOLDER", type=_FOLDER)
@click.argument("place", metavar="[PLACE]", required=False)
@ledger_options
def restore_command(settings: GlobalOptions, *, folder: Path, place: str | None, as_json: bool) -> None:
    """
    Make a ledger from a backup, in an empty place, and verify it.

    PLACE is a new directory, nats://host:port/stream, sqlite:///file.db or postgresql://host/database; --location when it is
    left out. Every event keeps its position. When it is interrupted, run it again.
    """
    with progress_bar("restoring") as progress:
        target = place or settings.location
        require_server(target)
        backup = restore(folder, target, encryption=keys_given(), login=login_for(target), progress=progress)
    _report(backup, "Restored and verified", as_json=as_json)


def _report(backup: Backup, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json(fields_of(backup))
        return
    content = f"{count(backup.event_count, 'event')} of {count(backup.stream_count, 'stream')}"
    print_text(f"{what}: {content} up to position {backup.position:,}, {backup.size_bytes:,} bytes.")
