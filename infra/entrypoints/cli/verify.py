"""`verify` and `anchor`: proof that nothing was changed."""

import os
import sys
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from chatledger.domain.errors import ChainIntegrityError, ConfigurationError, CorruptStateError
from chatledger.domain.proof.anchors import Anchor
from chatledger.domain.proof.verification import Verification

from ...ledger.log import kind_of
from ...private_files import private
from .options import GlobalOptions, ledger_at, ledger_options, location_option
from .output import (
    count,
    count_streams,
    fields_of,
    format_time,
    print_json,
    print_lines,
    print_note,
    print_text,
    progress_bar,
)

_SHOWN = 20
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("verify")
@click.option("--anchor", "anchor_file", type=_FILE, metavar="FILE", help="Also compare the log with this anchor.")
@click.option(
    "--public-key",
    type=_FILE,
    metavar="FILE",
    help="The Ed25519 public key (PEM) of whom you trust to have signed the anchor; needs --anchor.",
)
@ledger_options
def verify_command(
    settings: GlobalOptions, *, anchor_file: Path | None, public_key: Path | None, as_json: bool
) -> None:
    """
    Check every event of the log, and that the index says the same.

    Names the first event that is not sound: missing, repeated, altered or out of order. With --anchor, it also finds whatever
    was changed, dropped or moved since the anchor was signed, also by somebody who computed all hashes anew. Changes
    nothing. Exit code 1 when something is wrong; with --json, 'ok' says the same.
    """
    if public_key is not None and anchor_file is None:
        msg = "--public-key needs --anchor, whose signature it checks"
        raise click.UsageError(msg)
    try:
        anchor = None if anchor_file is None else read_anchor(anchor_file)
        with ledger_at(settings, is_whole=True) as ledger, progress_bar("verifying") as progress:
            verification = ledger.verify(anchor=anchor, public_key=public_key, progress=progress)
    except (ChainIntegrityError, CorruptStateError) as error:
        if as_json:
            where = {name: getattr(error, name) for name in ("position", "chat_id", "version")}
            print_json({"ok": False, "error": type(error).__name__, "message": str(error), **where})
        raise
    if not as_json:
        _print_report(verification, anchor, public_key)
        return
    report: dict[str, Any] = {"ok": True, **fields_of(verification)}
    if anchor is not None:
        facts = {name: getattr(anchor, name) for name in ("position", "created_at", "count", "key_id")}
        report["anchor"] = {**facts, "is_key_given": public_key is not None}
    print_json(report)


def _print_report(verification: Verification, anchor: Anchor | None, public_key: Path | None) -> None:
    deletions = verification.deletion_count
    deleted = f", {count(deletions, 'deletion')}" if deletions else ""
    streams = count_streams(
        verification.chat_count,
        verification.message_count,
        threads=verification.thread_count,
        states=verification.state_count,
    )
    events = count(verification.event_count, "event")
    lines = [
        f"The log is sound: {events} up to position {verification.position:,}{deleted}.",
        f"The index equals it: {streams}.",
    ]
    if anchor is not None:
        erased = len(verification.erased_since_anchor)
        since = f", {count(erased, 'chat')} of it deleted since" if erased else ""
        lines.append(
            f"It has all that was anchored at position {anchor.position:,} on {format_time(anchor.created_at)}: "
            f"{count(anchor.count, 'stream')}{since}."
        )
    print_lines(Text(line) for line in lines)
    for foreign in verification.foreign[:_SHOWN]:
        whose = "" if foreign.chat_id is None else f", on the subject of chat {foreign.chat_id!r}, which is refused"
        where = f"Position {foreign.position:,} holds a message that is no event of chatledger"
        print_note(f"{where}{whose}: {foreign.why}.")
    if verification.foreign_count:
        foreigners = count(verification.foreign_count, "foreign message")
        print_note(f"{foreigners}; 'chatledger doctor --repair' removes them.")
    pending = verification.erasure_pending
    for stream in pending[:_SHOWN]:
        print_note(
            f"erasure-pending: {kind_of(stream).describe(stream)} was deleted, and the log still has events of it."
        )
    if pending:
        print_note(f"{count(len(pending), 'deletion')} to be finished; the next open of the ledger does that.")
    if anchor is not None and public_key is None:
        print_note(
            f"Signed with key {anchor.key_id}, which only the anchor vouches for; --public-key names the one you trust."
        )


@click.command("anchor")
@click.option(
    "--key",
    type=_FILE,
    required=True,
    metavar="FILE",
    help="An Ed25519 private key (PEM): openssl genpkey -algorithm ed25519 -out anchor.key",
)
@click.option("--out", type=_FILE, metavar="FILE", help="Write the anchor there instead of printing it.")
@location_option()
@click.pass_obj
def anchor_command(settings: GlobalOptions, *, key: Path, out: Path | None) -> None:
    """
    Sign where every chat, thread and state ends now.

    The index is read, not the log: 'verify' before it, if you doubt the log. Keep the anchor where whoever can change the log cannot
    change it. Later, 'verify --anchor FILE' tells whether anything before it was changed.
    """
    refuse_to_overwrite(out)
    with ledger_at(settings, is_whole=True) as ledger:
        anchor = ledger.anchor(key)
    if out is None:
        sys.stdout.write(anchor.to_json())
        return
    write_new(out, anchor.to_json())
    print_text(
        f"Anchored {count(anchor.count, 'stream')} up to position {anchor.position:,} in {out}, signed with key {anchor.key_id}."
    )


def read_anchor(file: Path) -> Anchor:
    """Return the anchor in a file."""
    return Anchor.from_json(read_file(file, "anchor"))


def read_file(file: Path, what: str) -> bytes:
    """Return the content of a file, or raise `ConfigurationError`."""
    try:
        return file.read_bytes()
    except OSError as error:
        msg = f"the {what} {file} cannot be read: {error.strerror or error}"
        raise ConfigurationError(msg) from error


def refuse_to_overwrite(out: Path | None) -> None:
    """Raise `ConfigurationError` where a file of that name exists."""
    if out is not None and out.exists():
        msg = f"{out} exists and is not overwritten; choose another name"
        raise ConfigurationError(msg)


def write_new(out: Path, text: str) -> None:
    """Write a file that was not there, synced to the disk, or raise `ConfigurationError`."""
    try:
        # `x` fails where somebody made the file since; what is signed is never written over.
        with open(out, "x", encoding="utf-8", opener=private) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        msg = f"{out} cannot be written: {error.strerror or error}"
        raise ConfigurationError(msg) from error
