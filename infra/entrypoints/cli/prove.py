"""`prove` and `check-proof`: proof of one message for somebody who does not get the ledger."""

import sys
from pathlib import Path

import click

from chatledger.domain.proof.message_proof import MessageProof
from chatledger.domain.values import preview

from ...ledger.proof import check_message_proof
from .options import GlobalOptions, ledger_at, location_option
from .output import format_time, print_json, print_note, print_text
from .show import message_object
from .verify import read_anchor, read_file, refuse_to_overwrite, write_new

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("prove")
@click.argument("message_id", metavar="MESSAGE")
@click.option(
    "--anchor", "anchor_file", type=_FILE, required=True, metavar="FILE", help="An anchor made after the message."
)
@click.option("--out", type=_FILE, metavar="FILE", help="Write the proof there instead of printing it.")
@location_option()
@click.pass_obj
def prove_command(settings: GlobalOptions, *, message_id: str, anchor_file: Path, out: Path | None) -> None:
    """
    Prove that a message was there when an anchor was signed.

    The proof is a file with the message and those that were written in the same call; of others it has nothing but hashes.
    Whoever gets it checks it by 'check-proof', without this ledger.
    """
    refuse_to_overwrite(out)
    anchor = read_anchor(anchor_file)
    with ledger_at(settings, is_read=True) as ledger:
        proof = ledger.prove(message_id, anchor)
    if out is None:
        sys.stdout.write(proof.to_json())
        return
    write_new(out, proof.to_json())
    print_text(
        f"Proved message {message_id} of chat {proof.chat_id} in {out}; 'chatledger check-proof {out}' checks it."
    )


@click.command("check-proof")
@click.argument("file", metavar="FILE", type=_FILE)
@click.option(
    "--public-key", type=_FILE, metavar="FILE", help="The Ed25519 public key (PEM) of whom you trust to have signed it."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check_proof_command(*, file: Path, public_key: Path | None, as_json: bool) -> None:
    """Check the proof of a message, and show what was proven. Needs no ledger."""
    proof = MessageProof.from_json(read_file(file, "proof"))
    message, anchor = check_message_proof(proof, public_key), proof.anchor
    if as_json:
        facts = {"position": anchor.position, "created_at": anchor.created_at, "key_id": anchor.key_id}
        print_json({"ok": True, "chat_id": proof.chat_id, "message": message_object(message), "anchor": facts})
    else:
        print_text(
            f"Message {message.id} was in chat {proof.chat_id} at position {anchor.position:,}, "
            f"as signed on {format_time(anchor.created_at)}:"
        )
        print_text(f'  ({message.name}): "{preview(message.data, message.form)}"')
    if public_key is None:
        print_note(
            f"Signed with key {anchor.key_id}, which only the proof vouches for; --public-key names the one you trust."
        )
