"""`doctor`: what is wrong with a ledger, and its repair."""

import os
from pathlib import Path

import click
from rich.text import Text

from ..doctor.diagnosing import diagnose
from ..doctor.findings import Diagnosis
from ..encryption import KEY_ENV, Encryption
from .options import Settings, json_option, location_option
from .output import count, fields_of, print_json, print_lines, print_text

_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command("doctor")
@click.option("--repair", "is_repairing", is_flag=True, help="Make a sound log beside a damaged one.")
@click.option("--backup", type=_FOLDER, metavar="FOLDER", help="With --repair: also take events from this backup.")
@json_option
@location_option()
@click.pass_context
def doctor_command(ctx: click.Context, *, is_repairing: bool, backup: Path | None, as_json: bool) -> int:
    """
    Say what is wrong with a ledger and what can be done, also when it does not open.

    Looks at files, lock, server, log, every hash chain, index and feeds, and changes nothing. With --repair, a damaged
    directory that nobody has open is replaced by a sound one and kept under another name. Exit code 0 when there is nothing
    to do, 1 when there is.
    """
    if backup is not None and not is_repairing:
        msg = "--backup needs --repair"
        raise click.UsageError(msg)
    settings = ctx.ensure_object(Settings)
    encryption = Encryption.from_environment() if KEY_ENV in os.environ else None
    if is_repairing:
        from ..doctor.repairing import repair

        done = repair(settings.location, backup=backup, encryption=encryption)
        if as_json:
            print_json(fields_of(done))
        else:
            print_lines(Text(line) for line in done.describe())
        return 0
    diagnosis = diagnose(settings.location, encryption=encryption)
    if as_json:
        print_json({"ok": diagnosis.is_healthy, **fields_of(diagnosis)})
    else:
        _print(diagnosis)
    return 0 if diagnosis.is_healthy else 1


def _print(diagnosis: Diagnosis) -> None:
    for finding in diagnosis.findings:
        print_lines(
            [
                Text.assemble((f"{finding.severity}: ", _STYLES[finding.severity]), f"{finding.where}: {finding.what}"),
                Text(f"    {finding.remedy}", style="dim"),
            ]
        )
    read = f"{count(diagnosis.event_count, 'event')} of {count(diagnosis.stream_count, 'chat')}"
    if diagnosis.is_healthy:
        print_text(f"Healthy: {read} up to position {diagnosis.position:,}.", "bold")
    else:
        print_text(f"Not healthy. What could be read: {read}.", "bold")
