"""`bundle create`, `bundle verify` and `bundle import`: chats as one file, with the proof that nothing in it was changed."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import click

from chatledger.domain.draw.escaping import escaped
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.proof.anchors import Anchor
from chatledger.domain.proof.bundle import BundleReport
from chatledger.domain.values import Message

from ...ledger.bundles import check_bundle
from ...ledger.timestamps import check_timestamp
from .options import ID, GlobalOptions, WholeNumber, ledger_at, ledger_options
from .output import count, fields_of, format_time, print_json, print_note, print_text
from .proofs import FILE, content_of, note_key, refuse_to_overwrite
from .stamps import print_stamp

_PUBLIC_KEY = click.option(
    "--public-key", type=FILE, metavar="FILE", help="The Ed25519 public key (PEM) of whom you trust to have signed it."
)


@click.group("bundle", subcommand_metavar="create|verify|import [ARGS]...")
def bundle_command() -> None:
    """
    Hand chats to others in a file that proves itself, and take such a file in.

    \b
    For example:
        chatledger bundle create trip -o trip.clb --key anchor.key
        chatledger bundle verify trip.clb --public-key anchor.pub
        chatledger --location elsewhere bundle import trip.clb
    """  # noqa: D301 - click's mark for a paragraph that keeps its lines


_SELECTED: Final = {"id": "id", "role": "name", "sender": "sender_id"}


def _selected(
    ctx: click.Context, option: click.Parameter, selectors: Sequence[str]
) -> Callable[[Message], bool] | None:
    """Return what selects messages, such as `id:m3`, `role:tool` and `sender:ada`; None where nothing does."""
    pairs = [(kind, value) for kind, _, value in (selector.partition(":") for selector in selectors)]
    for kind, value in pairs:
        if kind not in _SELECTED or not value:
            msg = f"'{kind}' is none of id:MESSAGE, role:ROLE and sender:USER"
            raise click.BadParameter(msg, ctx, option)

    def is_selected(message: Message) -> bool:
        return any(getattr(message, _SELECTED[kind]) == value for kind, value in pairs)

    return is_selected if pairs else None


@bundle_command.command("create")
@click.argument("chat_ids", metavar="CHAT...", type=ID, nargs=-1, required=True)
@click.option("-o", "--out", type=FILE, required=True, metavar="FILE", help="The file to write, such as trip.clb.")
@click.option(
    "--since",
    type=WholeNumber(min=0),
    default=0,
    metavar="POSITION",
    help="Only what was written after this position on the log: whoever takes the file in has the rest.",
)
@click.option(
    "--redact",
    multiple=True,
    metavar="SELECTOR",
    callback=_selected,
    help="Keep the content of these messages back, such as role:tool, sender:ada or id:m3. May be repeated.",
)
@click.option("--key", type=FILE, metavar="FILE", help="Sign it, with this Ed25519 private key (PEM).")
@click.option(
    "--anchor", "anchor_file", type=FILE, metavar="FILE", help="Prove it by an anchor that was signed before."
)
@ledger_options
def create_bundle_command(
    settings: GlobalOptions,
    *,
    chat_ids: tuple[str, ...],
    out: Path,
    since: int,
    redact: Callable[[Message], bool] | None,
    key: Path | None,
    anchor_file: Path | None,
) -> None:
    """Write CHATs to a file that anybody can verify without this ledger: events, large data, and the proof that they are what was signed."""
    if key is not None and anchor_file is not None:
        click.get_current_context().fail("--key signs a new anchor, --anchor names one: give one of them")
    refuse_to_overwrite(out)
    anchor = None if anchor_file is None else Anchor.from_json(content_of(anchor_file, "anchor"))
    with ledger_at(settings, is_read=key is None, is_whole=key is not None) as ledger:
        report = ledger.bundle(chat_ids, out, since=since, redact=redact, anchor=anchor, key=key)
    if settings.as_json:
        print_json({"file": str(out), **fields_of(report)})
        return
    size = out.stat().st_size
    print_text(
        f"Wrote {count(len(report.chats), 'chat')} to {out} ({size:,} bytes); 'chatledger bundle verify {out}' checks it."
    )
    _print_chats(report)


@bundle_command.command("verify")
@click.argument("file", metavar="FILE", type=FILE)
@_PUBLIC_KEY
@click.option(
    "--timestamp-roots",
    "roots",
    type=FILE,
    metavar="FILE",
    help="Root certificates (PEM) of the time stamp authorities that you trust: it must have a time stamp of one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify_bundle_command(*, file: Path, public_key: Path | None, roots: Path | None, as_json: bool) -> None:
    """Verify FILE, and show what it holds. Needs no ledger."""
    report = check_bundle(file, public_key)
    if report.anchor is None and roots is not None:
        msg = "nobody signed this bundle, so it has no time stamp either; ask for one with an anchor"
        raise InvalidValueError(msg)
    stamp = None if report.anchor is None else check_timestamp(report.anchor, roots)
    if as_json:
        print_json({"ok": True, **fields_of(report), "timestamp": None if stamp is None else fields_of(stamp)})
        return
    print_text(f"The bundle holds: {count(len(report.chats), 'chat')}.")
    _print_chats(report)
    if report.anchor is not None and public_key is None:
        note_key(report.anchor, "bundle")
    if stamp is not None:
        print_stamp(stamp)


@bundle_command.command("import")
@click.argument("file", metavar="FILE", type=FILE)
@_PUBLIC_KEY
@ledger_options
def import_bundle_command(settings: GlobalOptions, *, file: Path, public_key: Path | None) -> None:
    """Take the chats of FILE in, with their ids, times and hashes; what is here already stays, and chats that went on there go on here."""
    check_bundle(file, public_key).check_whole()  # before a ledger is made for what cannot be taken in
    with ledger_at(settings, create=True, is_whole=True) as ledger:
        adopted = ledger.import_bundle(file, public_key=public_key)
    if settings.as_json:
        print_json({"chats": [fields_of(chat) for chat in adopted]})
        return
    for chat in adopted:
        what = "was deleted here, and stays so" if chat.is_deleted else count(chat.added, "new event")
        print_text(f"Chat {escaped(chat.chat_id)}: {what}.")


def _print_chats(report: BundleReport) -> None:
    for chat in report.chats:
        title = "" if chat.title is None else f' "{chat.title}"'
        versions = f"events {chat.first_version:,} to {chat.version:,}, {count(chat.messages, 'message')}"
        gone = [f"{count(chat.redacted, 'part')} redacted"] if chat.redacted else []
        gone += [f"content of {count(chat.withheld, 'part')} kept back"] if chat.withheld else []
        print_text(escaped(f"  {chat.chat_id}{title}: {', '.join([versions, *gone])}"))
        if chat.signed_version is not None and chat.signed_version < chat.version:
            print_note(
                f"Chat {escaped(chat.chat_id)} is proven up to event {chat.signed_version:,}: the anchor is older than the rest."
            )
    anchor = report.anchor
    if anchor is None:
        print_note("Nobody signed it: it agrees with itself, and who made it could have made up all of it.")
    else:
        print_text(
            f"As signed on {format_time(anchor.created_at)} at position {anchor.position:,}, with key {anchor.key_id}."
        )
