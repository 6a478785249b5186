"""`doctor`: what is wrong with a ledger, and its repair."""

from pathlib import Path

import click
from rich.text import Text

from chatledger.domain.draw.outline import escaped

from ...admin.doctor.diagnosing import diagnose, without_secrets
from ...admin.doctor.findings import Diagnosis
from ...admin.doctor.removing import give_up
from ...admin.replicas import compare_replicas, set_replica_aside
from ...ledger.environment import keys_given, login_for
from ...ledger.locations import is_on_nats
from .options import GlobalOptions, ledger_options, require_server
from .output import count, count_streams, fields_of, print_json, print_lines, print_text

_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
_FOLDER = click.Path(file_okay=False, path_type=Path)


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
    as_json: bool,
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
    _check_usage(is_repairing=is_repairing, backup=backup, given_up=given_up, server=server, store=store)
    location = settings.location
    require_server(location)
    if given_up:
        _give_up(location, given_up, as_json=as_json)
        return 0
    if is_comparing:
        return _compare(location, as_json=as_json)
    if server is not None and store is not None:
        _set_aside(location, server, store, as_json=as_json)
        return 0
    if is_repairing:
        # What a repair needs, a diagnosis does without.
        from ...admin.doctor.repairing import repair

        result = repair(location, backup=backup, encryption=keys_given(), login=login_for(location))
        if as_json:
            print_json(fields_of(result))
        else:
            print_lines(Text(escaped(line)) for line in result.describe())
        return 0
    diagnosis = diagnose(location, encryption=keys_given(), login=login_for(location))
    if as_json:
        print_json({"ok": diagnosis.is_healthy, **fields_of(diagnosis)})
    else:
        _print(diagnosis)
    return 0 if diagnosis.is_healthy else 1


def _check_usage(
    *, is_repairing: bool, backup: Path | None, given_up: tuple[str, ...], server: str | None, store: Path | None
) -> None:
    msg = None
    if (backup is not None or server is not None) and not is_repairing:
        msg = "--backup and --replica need --repair"
    elif given_up and is_repairing:
        msg = "--give-up is for after --repair"
    elif (server is None) != (store is None):
        msg = "--replica and --store belong together: the server, and the folder where it keeps its streams"
    if msg is not None:
        raise click.UsageError(msg)


def _compare(location: str, *, as_json: bool) -> int:
    if not is_on_nats(location):
        msg = f"--replicas compares the servers of a cluster (nats:// or tls://), and {without_secrets(location)} is one copy"
        raise click.UsageError(msg, click.get_current_context())
    damages = compare_replicas(location, login=login_for(location))
    if as_json:
        print_json(list(map(fields_of, damages)))
    elif damages:
        print_lines(Text(escaped(str(damage))) for damage in damages)
        print_text(
            "Stop that server, run 'chatledger doctor --repair --replica SERVER --store FOLDER' there, start it.", "dim"
        )
    else:
        print_text("All servers have the same.", "bold")
    return 1 if damages else 0


def _set_aside(location: str, server: str, store: Path, *, as_json: bool) -> None:
    aside = set_replica_aside(location, server, store, login=login_for(location))
    if as_json:
        print_json(fields_of(aside))
        return
    print_text(f"The copy of {server!r} is kept as {aside.kept_as}. Start it: it copies everything from the others.")
    print_text("Then run 'chatledger doctor --replicas'.", "dim")


def _give_up(location: str, chat_ids: tuple[str, ...], *, as_json: bool) -> None:
    streams = [give_up(location, chat_id) for chat_id in chat_ids]
    if as_json:
        print_json(list(map(fields_of, streams)))
        return
    print_lines(
        Text(f"Served again: {stream.id!r}, with {stream.kept:,} of at least {stream.seen:,} events.")
        for stream in streams
    )


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
    if diagnosis.server is not None:
        server = diagnosis.server
        print_text(f"Server: {server.path}, version {server.version}, SHA-256 {server.sha256}", "dim")
