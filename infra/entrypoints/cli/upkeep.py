"""`backup`, `restore` and `doctor`: the log copied while it is in use, and what is wrong with a ledger, and its repair."""

from pathlib import Path

import click
from rich.text import Text

from chatledger.domain.draw.escaping import escaped

from ...admin.backups import Backup, check_backup, restore
from ...admin.doctor.checks import Diagnosis
from ...admin.doctor.diagnosing import diagnose, without_secrets
from ...admin.doctor.removing import give_up
from ...admin.replicas import compare_replicas, set_replica_aside
from ...ledger.environment import NEW_KEY_ENV, is_on_nats, keys_given, login_for, new_keys_given
from .options import GlobalOptions, ledger_at, ledger_options, require_server
from .output import count, count_streams, fields_of, print_json, print_lines, print_text, progress_bar

_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command("backup")
@click.argument("folder", metavar="FOLDER", type=_FOLDER)
@click.option("--check", "is_check", is_flag=True, help="Read the backup back instead, and verify every hash chain.")
@click.option(
    "--files-only", is_flag=True, help="With --check: only the digests of its files, for which no key is needed."
)
@click.option(
    "--gone",
    "is_gone",
    is_flag=True,
    help="Say instead that the backup was deleted: reports of erasures name it no more.",
)
@ledger_options
def backup_command(settings: GlobalOptions, *, folder: Path, is_check: bool, files_only: bool, is_gone: bool) -> None:
    """
    Back up the log into a folder, or bring the backup there up to date.

    Others may write meanwhile. A later run adds what is new and removes what was deleted since. Encrypted events stay so,
    and no key is in the backup.
    """
    if is_gone and is_check:
        click.get_current_context().fail("--gone and --check do not go together")
    if files_only and not is_check:
        click.get_current_context().fail("--files-only needs --check")
    if is_check:
        with progress_bar("checking") as progress:
            backup = check_backup(folder, encryption=keys_given(), files_only=files_only, progress=progress)
        _report(settings, backup, "The backup is sound")
        return
    if is_gone:
        with ledger_at(settings, is_whole=True) as ledger:
            is_forgotten = ledger.forget_backup(folder)
        done = f"{folder} is named no more." if is_forgotten else f"No report would have named {folder}."
        settings.answer({"forgotten": is_forgotten}, done)
        return
    with ledger_at(settings, is_whole=True) as ledger, progress_bar("backing up") as progress:
        backup = ledger.backup(folder, progress=progress)
    _report(settings, backup, f"Added {count(backup.added_count, 'event')}, removed {backup.erased_count:,}")


@click.command("restore")
@click.argument("folder", metavar="FOLDER", type=_FOLDER)
@click.argument("place", metavar="[PLACE]", required=False)
@click.option(
    "--rekey", "is_rekeyed", is_flag=True, help=f"Encrypt all of it anew, with the key in {NEW_KEY_ENV}: 'id:base64'."
)
@ledger_options
def restore_command(settings: GlobalOptions, *, folder: Path, place: str | None, is_rekeyed: bool) -> None:
    """
    Make a ledger from a backup, in an empty place, and verify it.

    PLACE is a new directory, nats://host:port/stream, sqlite:///file.db or postgresql://host/database; --location when it is
    left out. Every event keeps its position. When it is interrupted, run it again: it goes on
    where it stood, from a backup that has not changed since.
    """
    with progress_bar("restoring") as progress:
        target = place or settings.location
        require_server(target)
        rekey = new_keys_given() if is_rekeyed else None
        backup = restore(
            folder, target, encryption=keys_given(), rekey=rekey, login=login_for(target), progress=progress
        )
    _report(settings, backup, "Restored and verified")


def _report(settings: GlobalOptions, backup: Backup, outcome: str) -> None:
    content = f"{count(backup.event_count, 'event')} of {count(backup.stream_count, 'stream')}"
    place = f"up to position {backup.position:,}, {backup.size_bytes:,} bytes"
    settings.answer(fields_of(backup), f"{outcome}: {content} {place}.")


@click.command("doctor")
@click.option("--repair", "is_repairing", is_flag=True, help="Make a sound log beside a damaged one.")
@click.option("--backup", type=_FOLDER, metavar="FOLDER", help="With --repair: also take events from this backup.")
@click.option(
    "--give-up", "given_up", multiple=True, metavar="CHAT", help="Serve what is left of a chat that is in quarantine."
)
@click.option("--replicas", "is_comparing", is_flag=True, help="On a cluster: compare what each server has instead.")
@click.option(
    "--replica",
    "server",
    metavar="SERVER",
    help="With --repair: set the copy of this stopped server of a cluster aside.",
)
@click.option("--store", type=_FOLDER, metavar="FOLDER", help="With --replica: the store_dir of that server.")
@ledger_options
def doctor_command(
    settings: GlobalOptions,
    *,
    is_repairing: bool,
    backup: Path | None,
    given_up: tuple[str, ...],
    is_comparing: bool,
    server: str | None,
    store: Path | None,
) -> int:
    """
    Say what is wrong with a ledger and what can be done, also when it does not open.

    Looks at files, lock, server, log, every hash chain, index and feeds, and changes nothing. With --repair, a damaged
    directory that nobody has open is replaced by a sound one and kept under another name; from a log elsewhere, also while
    it is in use, what others published into it is removed. A chat that lost events which
    nothing could bring back is refused from then on, until --repair --backup restores it, or --give-up accepts what is left.
    On a cluster, --replicas names servers whose copy is damaged; --repair --replica lets one copy from the others. Exit code 0
    when there is nothing to do, 1 when there is.
    """
    usage = click.get_current_context()
    if (backup is not None or server is not None) and not is_repairing:
        usage.fail("--backup and --replica need --repair")
    if given_up and is_repairing:
        usage.fail("--give-up is for after --repair")
    if (server is None) != (store is None):
        usage.fail("--replica and --store belong together: the server, and the folder where it keeps its streams")
    location = settings.location
    require_server(location)
    login = login_for(location)
    if given_up:
        served = [give_up(location, chat_id) for chat_id in given_up]
        lines = [
            f"Served again: {stream.id!r}, with {stream.kept:,} of at least {stream.seen:,} events."
            for stream in served
        ]
        settings.answer(list(map(fields_of, served)), *lines)
    elif is_comparing:
        return _compare(settings)
    elif server is not None and store is not None:
        aside = set_replica_aside(location, server, store, login=login)
        settings.answer(
            fields_of(aside),
            f"The copy of {server!r} is kept as {aside.kept_as}. Start it: it copies everything from the others.",
            "Then run 'chatledger doctor --replicas'.",
        )
    elif is_repairing:
        # What a repair needs, a diagnosis does without.
        from ...admin.doctor.repairing import repair

        repaired = repair(location, backup=backup, encryption=keys_given(), login=login)
        settings.answer(fields_of(repaired), *repaired.describe())
    else:
        diagnosis = diagnose(location, encryption=keys_given(), login=login)
        if settings.as_json:
            print_json({"ok": diagnosis.is_healthy, **fields_of(diagnosis)})
        else:
            _print(diagnosis)
        return 0 if diagnosis.is_healthy else 1
    return 0


def _compare(settings: GlobalOptions) -> int:
    location = settings.location
    if not is_on_nats(location):
        place = without_secrets(location)
        msg = f"--replicas compares the servers of a cluster (nats:// or tls://), and {place} is one copy"
        click.get_current_context().fail(msg)
    damages = compare_replicas(location, login=login_for(location))
    remedy = "Stop that server, run 'chatledger doctor --repair --replica SERVER --store FOLDER' there, start it."
    lines = [*map(str, damages), remedy] if damages else ["All servers have the same."]
    settings.answer(list(map(fields_of, damages)), *lines)
    return 1 if damages else 0


def _print(diagnosis: Diagnosis) -> None:
    for finding in diagnosis.findings:
        print_lines(
            [
                Text.assemble(
                    (f"{finding.severity}: ", _STYLES[finding.severity]),
                    escaped(f"{finding.where}: {finding.what}"),
                ),
                Text(escaped(f"    {finding.remedy}"), style="dim"),
            ]
        )
    threads, states = diagnosis.thread_count, diagnosis.state_count
    streams = count_streams(diagnosis.stream_count - threads - states, threads=threads, states=states)
    read = f"{count(diagnosis.event_count, 'event')} of {streams}"
    if diagnosis.is_healthy:
        print_text(f"Healthy: {read} up to position {diagnosis.position:,}.", "bold")
    else:
        print_text(f"Not healthy. What could be read: {read}.", "bold")
    if diagnosis.key_ids:
        print_text(f"Encrypted with: {', '.join(diagnosis.key_ids)}.")
    if diagnosis.server is not None:
        server = diagnosis.server
        print_text(f"Server: {server.path}, version {server.version}, SHA-256 {server.sha256}", "dim")
