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
from ..private_files import private
from .options import Settings, ledger_at, ledger_options, location_option
from .output import count, fields_of, format_time, print_json, print_lines, print_note, print_text, progress_bar

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
def verify_command(settings: Settings, *, anchor_file: Path | None, public_key: Path | None, as_json: bool) -> None:
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
            found = ledger.verify(anchor=anchor, public_key=public_key, progress=progress)
    except (ChainIntegrityError, CorruptStateError) as error:
        if as_json:
            _print_problem(error)
        raise
    if as_json:
        print_json(_object(found, anchor, is_key_given=public_key is not None))
    else:
        _print_report(found, anchor, public_key)


def _print_problem(error: ChainIntegrityError | CorruptStateError) -> None:
    where = {name: getattr(error, name) for name in ("position", "chat_id", "version")}
    print_json({"ok": False, "error": type(error).__name__, "message": str(error), **where})


def _object(found: Verification, anchor: Anchor | None, *, is_key_given: bool) -> dict[str, Any]:
    known: dict[str, Any] = {"ok": True, **fields_of(found)}
    if anchor is not None:
        facts = {name: getattr(anchor, name) for name in ("position", "created_at", "count", "key_id")}
        known["anchor"] = {**facts, "is_key_given": is_key_given}
    return known


def _streams(found: Verification) -> str:
    """The counts of a verification: chats with their messages, threads and states."""
    others = (
        (found.thread_count, "thread of agents", "threads of agents"),
        (found.state_count, "state of a graph", "states of graphs"),
    )
    parts = [count(number, *names) for number, *names in others if number]
    if found.chat_count or not parts:
        parts = [count(found.chat_count, "chat"), count(found.message_count, "message"), *parts]
    return ", ".join(parts)


def _print_report(found: Verification, anchor: Anchor | None, public_key: Path | None) -> None:
    deleted = f", {count(found.deletion_count, 'deletion')}" if found.deletion_count else ""
    lines = [
        f"The log is sound: {count(found.event_count, 'event')} up to position {found.position:,}{deleted}.",
        f"The index equals it: {_streams(found)}.",
    ]
    if anchor is not None:
        erased = len(found.erased_since_anchor)
        since = f", {count(erased, 'chat')} of it deleted since" if erased else ""
        lines.append(
            f"It has all that was anchored at position {anchor.position:,} on {format_time(anchor.created_at)}: "
            f"{count(anchor.count, 'stream')}{since}."
        )
    print_lines(Text(line) for line in lines)
    for one in found.foreign[:_SHOWN]:
        whose = "" if one.chat_id is None else f", on the subject of chat {one.chat_id!r}, which is refused"
        print_note(f"Position {one.position:,} holds a message that is no event of chatledger{whose}: {one.why}.")
    if found.foreign_count:
        print_note(f"{count(found.foreign_count, 'foreign message')}; 'chatledger doctor --repair' removes them.")
    for stream in found.erasure_pending[:_SHOWN]:
        print_note(
            f"erasure-pending: {kind_of(stream).describe(stream)} was deleted, and the log still has events of it."
        )
    if found.erasure_pending:
        print_note(
            f"{count(len(found.erasure_pending), 'deletion')} to be finished; the next open of the ledger does that."
        )
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
def anchor_command(settings: Settings, *, key: Path, out: Path | None) -> None:
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
        with open(out, "x", encoding="utf-8", opener=private) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        msg = f"{out} cannot be written: {error.strerror or error}"
        raise ConfigurationError(msg) from error
