"""`timestamp request`, `timestamp add` and `timestamp check`: when an anchor was there, as an authority says."""

from pathlib import Path

import click

from chatledger.domain.draw.escaping import escaped
from chatledger.domain.proof.anchors import Anchor

from ...ledger.timestamps import TimeStamp, check_timestamp, stamped, timestamp_request
from .output import fields_of, format_time, print_json, print_note, print_text
from .proofs import FILE, content_of, refuse_to_overwrite, write_new

_ANCHOR = click.argument("file", metavar="ANCHOR", type=FILE)


@click.group("timestamp", subcommand_metavar="request|add|check [ARGS]...")
def timestamp_command() -> None:
    """
    Have an authority say when an anchor was there (RFC 3161): else only its signer does.

    \b
    For example, with the authority at URL:
        chatledger timestamp request anchor.json -o anchor.tsq
        curl --data-binary @anchor.tsq -H "Content-Type: application/timestamp-query" -o anchor.tsr URL
        chatledger timestamp add anchor.json anchor.tsr -o stamped.json
        chatledger timestamp check stamped.json --roots roots.pem
    """  # noqa: D301 - click's mark for a paragraph that keeps its lines


def _read(file: Path) -> Anchor:
    return Anchor.from_json(content_of(file, "anchor"))


@timestamp_command.command("request")
@_ANCHOR
@click.option(
    "-o", "--out", type=FILE, required=True, metavar="FILE", help="Where the request goes, such as anchor.tsq."
)
def request_command(*, file: Path, out: Path) -> None:
    """Write the request for a time stamp of ANCHOR: a digest of its signature, and nothing of the log."""
    refuse_to_overwrite(out)
    out.write_bytes(timestamp_request(_read(file)))
    print_text(
        f"Wrote {out}: send it to an authority, and 'chatledger timestamp add {file} ANSWER' takes what comes back."
    )


@timestamp_command.command("add")
@_ANCHOR
@click.argument("answer", metavar="ANSWER", type=FILE)
@click.option(
    "-o", "--out", type=FILE, required=True, metavar="FILE", help="The anchor with the time stamp, a new file."
)
def add_command(*, file: Path, answer: Path, out: Path) -> None:
    """Write ANCHOR with the ANSWER of an authority. Bundles and proofs by that anchor have the time stamp."""
    refuse_to_overwrite(out)
    anchor = stamped(_read(file), content_of(answer, "answer"))
    write_new(out, anchor.to_json(), f"Wrote {out}; 'bundle create --anchor {out}' takes it along.")


@timestamp_command.command("check")
@_ANCHOR
@click.option(
    "--roots", type=FILE, metavar="FILE", help="The root certificates (PEM) of the authorities that you trust."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check_command(*, file: Path, roots: Path | None, as_json: bool) -> None:
    """Check the time stamp of ANCHOR, and say what it says. The signature of the anchor is not looked at."""
    stamp = check_timestamp(_read(file), roots)
    if as_json:
        print_json(None if stamp is None else fields_of(stamp))
    elif stamp is None:
        print_text(f"{file} has no time stamp; 'chatledger timestamp request {file}' writes the request for one.")
    else:
        print_stamp(stamp)


def print_stamp(stamp: TimeStamp) -> None:
    """Print what an authority says, and whether it is one that is trusted."""
    print_text(escaped(f"There at the latest on {format_time(stamp.at)}, as {stamp.authority or 'an authority'} says."))
    if not stamp.is_trusted:
        print_note("Anybody can make such a time stamp: name the root certificates that you trust.")
