"""`verify`, `anchor`, `prove`, `check-proof` and `check-receipt`: proof that nothing was changed, of messages, and of an erasure."""

import os
import sys
from pathlib import Path
from typing import Any

import click
from msgspec import UNSET
from rich.text import Text

from chatledger.domain.errors import ChainIntegrityError, ConfigurationError, CorruptStateError
from chatledger.domain.proof.anchors import Anchor
from chatledger.domain.proof.erasure_report import ErasureReport
from chatledger.domain.proof.excerpt import Excerpt, ExcerptStanding
from chatledger.domain.proof.verification import Verification
from chatledger.domain.values import preview

from ...ledger.log import kind_of
from ...ledger.persons import check_receipt
from ...ledger.proof import check_excerpt
from ...operating_system import private
from .options import GlobalOptions, ending_of, ledger_at, ledger_options, parsed, place_options
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
from .show import message_object

_SHOWN = 20
FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("verify")
@click.option("--anchor", "anchor_file", type=FILE, metavar="FILE", help="Also compare the log with this anchor.")
@click.option(
    "--public-key",
    type=FILE,
    metavar="FILE",
    help="The Ed25519 public key (PEM) of whom you trust to have signed the anchor; needs --anchor.",
)
@ledger_options
def verify_command(settings: GlobalOptions, *, anchor_file: Path | None, public_key: Path | None) -> None:
    """
    Check every event of the log, and that the index says the same.

    Names the first event that is not sound: missing, repeated, altered or out of order. With --anchor, it also finds whatever
    was changed, dropped or moved since the anchor was signed, also by somebody who computed all hashes anew. Changes
    nothing. Exit code 1 when something is wrong; with --json, 'ok' says the same.
    """
    if public_key is not None and anchor_file is None:
        click.get_current_context().fail("--public-key needs --anchor, whose signature it checks")
    try:
        anchor = None if anchor_file is None else Anchor.from_json(content_of(anchor_file, "anchor"))
        with ledger_at(settings, is_whole=True) as ledger, progress_bar("verifying") as progress:
            verification = ledger.verify(anchor=anchor, public_key=public_key, progress=progress)
    except (ChainIntegrityError, CorruptStateError) as error:
        if settings.as_json:
            where = {name: getattr(error, name) for name in ("position", "chat_id", "version")}
            print_json({"ok": False, "error": type(error).__name__, "message": str(error), **where})
        raise
    if not settings.as_json:
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
    broken = verification.broken_holds
    if broken:
        positions = ", ".join(f"{position:,}" for position in broken[:_SHOWN])
        print_note(f"broken holds: {count(len(broken), 'event')} deleted what a legal hold kept, at {positions}.")
    if verification.overdue_count:
        print_note(
            f"{count(verification.overdue_count, 'thing')} overdue: ended, or kept no longer by a rule; 'sweep' deletes them."
        )
    for stream in verification.redaction_pending[:_SHOWN]:
        what = f"messages of {kind_of(stream).describe(stream)} were redacted, and the log still has what they said"
        print_note(f"redaction-pending: {what}; the next open of the ledger erases it.")
    if anchor is not None and public_key is None:
        note_key(anchor, "anchor")


@click.command("anchor")
@click.option(
    "--key",
    type=FILE,
    required=True,
    metavar="FILE",
    help="An Ed25519 private key (PEM): openssl genpkey -algorithm ed25519 -out anchor.key",
)
@click.option("--out", type=FILE, metavar="FILE", help="Write the anchor there instead of printing it.")
@place_options
def anchor_command(settings: GlobalOptions, *, key: Path, out: Path | None) -> None:
    """
    Sign where every chat, thread and state ends now.

    The index is read, not the log: 'verify' before it, if you doubt the log. Keep the anchor where whoever can change the log cannot
    change it. Later, 'verify --anchor FILE' tells whether anything before it was changed.
    """
    refuse_to_overwrite(out)
    with ledger_at(settings, is_whole=True) as ledger:
        anchor = ledger.anchor(key)
    what = f"Anchored {count(anchor.count, 'stream')} up to position {anchor.position:,}"
    write_new(out, anchor.to_json(), f"{what} in {out}, signed with key {anchor.key_id}.")


def note_key(anchor: Anchor, source: str) -> None:
    """Say that a signature was checked with the key that came with it."""
    print_note(
        f"Signed with key {anchor.key_id}, which only the {source} vouches for; --public-key names the one you trust."
    )


def content_of(file: Path, what: str) -> bytes:
    """Return the content of a file, or raise `ConfigurationError`."""
    try:
        if file.is_char_device():
            msg = f"the {what} {file} cannot be read: it is a device"  # such as `/dev/full`, which has no end
            raise ConfigurationError(msg)
        return file.read_bytes()
    except OSError as error:
        msg = f"the {what} {file} cannot be read: {error.strerror or error}"
        raise ConfigurationError(msg) from error


def refuse_to_overwrite(out: Path | None) -> None:
    """Raise `ConfigurationError` where a file of that name exists."""
    if out is not None and out.exists():
        msg = f"{out} exists and is not overwritten; choose another name"
        raise ConfigurationError(msg)


def write_new(out: Path | None, text: str, outcome: str | None = None) -> None:
    """Write a file that was not there, synced to the disk, and print the outcome; or print the text where there is no file."""
    if out is None:
        sys.stdout.write(text)
        return
    try:
        # `x` fails where somebody made the file since; what is signed is never written over.
        with open(out, "x", encoding="utf-8", opener=private) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        msg = f"{out} cannot be written: {error.strerror or error}"
        raise ConfigurationError(msg) from error
    if outcome is not None:
        print_text(outcome)


@click.command("prove")
@click.argument("message_ids", metavar="MESSAGE...", nargs=-1, required=True)
@click.option("--key", type=FILE, metavar="FILE", help="An Ed25519 private key (PEM) to sign it with.")
@click.option(
    "--anchor", "anchor_file", type=FILE, metavar="FILE", help="An anchor made after the messages, to lead to."
)
@click.option("--audience", metavar="NAME", help="Whom it is for: nobody else accepts it.")
@click.option(
    "--expires",
    "ending",
    metavar="TIME|never",
    callback=parsed(ending_of, "is neither a time, e.g. 2026-02-07T17:29:24Z, nor 'never'"),
    help="When it ends; five minutes after it was signed by default.",
)
@click.option("--ttl", type=float, metavar="SECONDS", help="The same, as seconds from now on.")
@click.option("--out", type=FILE, metavar="FILE", help="Write the proof there instead of printing it.")
@place_options
def prove_command(
    settings: GlobalOptions,
    *,
    message_ids: tuple[str, ...],
    key: Path | None,
    anchor_file: Path | None,
    audience: str | None,
    ending: tuple[int | None] | None,
    ttl: float | None,
    out: Path | None,
) -> None:
    """
    Prove that messages of a chat were there: chosen ones, as one text to hand over.

    It is signed with --key, or leads to an --anchor that is signed, or both. It has these messages; of others nothing but hashes.
    Whoever gets it checks it by 'check-proof', without this ledger.
    """
    refuse_to_overwrite(out)
    anchor = None if anchor_file is None else Anchor.from_json(content_of(anchor_file, "anchor"))
    expires_at = UNSET if ending is None else ending[0]
    with ledger_at(settings, is_read=True) as ledger:
        excerpt = ledger.prove(
            message_ids, key=key, anchor=anchor, audience=audience, expires_at=expires_at, ttl_seconds=ttl
        )
    what = f"Proved {count(len(message_ids), 'message')} in {out}; 'chatledger check-proof {out}' checks it."
    write_new(out, excerpt + "\n", what)


@click.command("check-proof")
@click.argument("file", metavar="FILE", type=FILE)
@click.option(
    "--public-key", type=FILE, metavar="FILE", help="The Ed25519 public key (PEM) of whom you trust to have signed it."
)
@click.option(
    "--anchor-key", type=FILE, metavar="FILE", help="That of whom signed its anchor, if that is somebody else."
)
@click.option("--audience", metavar="NAME", help="Who you are, where it is for you alone.")
@click.option("--still-valid", "is_asked", is_flag=True, help="Also ask this ledger what became of the messages.")
@ledger_options
def check_proof_command(
    settings: GlobalOptions,
    *,
    file: Path,
    public_key: Path | None,
    anchor_key: Path | None,
    audience: str | None,
    is_asked: bool,
) -> None:
    """
    Check a proof of messages, and show what was proven. Needs no ledger.

    With --still-valid, it also says which were redacted, revoked (annotated as hidden) or superseded since, or are gone from this
    ledger; then the exit code is 1.
    """
    text = content_of(file, "proof").decode(errors="replace").strip()
    excerpt = check_excerpt(text, public_key, audience=audience, anchor_key=anchor_key)
    standing: ExcerptStanding | None = None
    if is_asked:
        with ledger_at(settings, is_read=True) as ledger:
            standing = ledger.still_valid(text)
    _print_excerpt(excerpt, standing, as_json=settings.as_json)
    if public_key is None:
        print_note("Only the proof itself vouches for its key; --public-key names the one you trust.")
    if standing is not None and not standing:
        click.get_current_context().exit(1)


def _print_excerpt(excerpt: Excerpt, standing: ExcerptStanding | None, *, as_json: bool) -> None:
    anchor = excerpt.anchor
    if as_json:
        facts = {name: getattr(excerpt, name) for name in ("chat_id", "issued_at", "expires_at", "audience", "key_id")}
        anchored = (
            None
            if anchor is None
            else {"position": anchor.position, "created_at": anchor.created_at, "key_id": anchor.key_id}
        )
        now = None if standing is None else fields_of(standing)
        print_json(
            {
                "ok": standing is None or bool(standing),
                **facts,
                "messages": list(map(message_object, excerpt.messages)),
                "anchor": anchored,
                "standing": now,
            }
        )
    else:
        of, where = count(len(excerpt.messages), "message"), f"chat {excerpt.chat_id}"
        if excerpt.issued_at is not None:
            ends = "" if excerpt.expires_at is None else f"; good until {format_time(excerpt.expires_at)}"
            print_text(
                f"{of} of {where}, as signed on {format_time(excerpt.issued_at)} with key {excerpt.key_id}{ends}:"
            )
        if anchor is not None:
            print_text(
                f"{of} of {where}, as anchored at position {anchor.position:,} on {format_time(anchor.created_at)}, signed with key {anchor.key_id}:"
            )
        for message in excerpt.messages:
            print_text(f'  {message.id} ({message.name}): "{preview(message.shown, message.form)}"')
        for what, ids in () if standing is None else fields_of(standing).items():
            if ids and what != "is_valid":
                print_text(f"{what}: {', '.join(ids)}")


@click.command("check-receipt")
@click.argument("file", metavar="FILE", type=FILE)
@click.option(
    "--public-key", type=FILE, metavar="FILE", help="The Ed25519 public key (PEM) of whom you trust to have signed it."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check_receipt_command(*, file: Path, public_key: Path | None, as_json: bool) -> None:
    """Check the receipt of an erasure, which 'delete --user' wrote, and show what it says. Needs no ledger."""
    report = ErasureReport.from_json(content_of(file, "receipt"))
    check_receipt(report, public_key)
    if as_json:
        print_json({"ok": True, **fields_of(report)})
        return
    numbers = ", ".join(count(number, kind) for kind, number in report.counts.items()) or "nothing"
    what = "Would have erased" if report.is_dry_run else "Erased"
    print_text(f"{what} of user {report.user_id}, by {format_time(report.ended_at)}: {numbers}.")
    print_text(
        f"Positions {report.position_before:,} to {report.position:,} of the log, signed with key {report.key_id}."
    )
    if report.earlier:
        print_text(f"Erased before: {count(len(report.earlier), 'thing')}.")
    for mention in report.mentions:
        print_text(f"Named in chat {mention.chat_id} as {mention.kind}: {mention.count:,}")
    for what in report.unreached:
        print_text(f"Not reached: {what}.")
