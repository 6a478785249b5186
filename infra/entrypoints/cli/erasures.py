"""The verb that shows receipts of deletions."""

import click

from chatledger.domain.draw.outline import escaped

from .options import GlobalOptions, ledger_at, ledger_options
from .output import count, fields_of, format_time, print_json, print_text


@click.command("erasures")
@click.option("--pending", "is_pending", is_flag=True, help="Only those whose bytes are still to be erased.")
@click.option("--wait", "is_awaited", is_flag=True, help="First erase what is left to be erased.")
@ledger_options
def erasures_command(settings: GlobalOptions, *, is_pending: bool, is_awaited: bool, as_json: bool) -> None:
    """
    Show the receipts of deletions: what was deleted when, and when its bytes were gone from the log and the index.

    Those of the last 30 days, the oldest first. What an interrupted process left is erased by opening the ledger, and so by this.
    """
    with ledger_at(settings) as ledger:
        if is_awaited:
            ledger.wait_erased()
        receipts = ledger.erasures(is_pending=True if is_pending else None)
    if as_json:
        print_json([fields_of(receipt) for receipt in receipts])
        return
    for receipt in receipts:
        erased = "pending" if receipt.erased_at is None else f"erased {format_time(receipt.erased_at)}"
        print_text(
            f"{receipt.kind} {escaped(receipt.id)}  {count(receipt.event_count, 'event')}, "
            f"deleted {format_time(receipt.deleted_at)} at {receipt.position}, {erased}"
        )
    left = sum(receipt.erased_at is None for receipt in receipts)
    print_text(f"{count(len(receipts), 'deletion')}, {left} to be erased.", "dim")
