"""`prune`: removing the old checkpoints of threads."""

from typing import Any

import click

from chatledger.domain.errors import ConfigurationError
from chatledger.domain.versioned.record import METADATA, VersionRecord

from ...ledger.threads import IndexedVersioned, Removal, Threads
from ..agent_steps import decode_metadata
from ..langgraph.pruning import plan_prune
from .lookup import require_thread
from .options import GlobalOptions, WholeNumber, ledger_at, ledger_options
from .output import count, print_json, print_text


@click.command("prune")
@click.argument("thread_ids", metavar="THREAD...", nargs=-1, required=True)
@click.option(
    "--keep-last",
    type=WholeNumber(1),
    metavar="N",
    default=1,
    show_default=True,
    help="How many checkpoints of each namespace stay: the newest ones.",
)
@ledger_options
def prune_command(settings: GlobalOptions, *, thread_ids: tuple[str, ...], keep_last: int, as_json: bool) -> None:
    """
    Remove the old checkpoints of threads of agents.

    The newest stay, with what they need: pending writes, subgraphs that wait, what delta channels are made from. What is
    removed leaves the index; its events stay on the log until the thread is deleted.
    """
    pruned: dict[str, int] = {}

    def plan(thread: IndexedVersioned) -> Removal:
        removal = plan_prune(thread, lambda _namespace: True, _metadata_of, keep_last=keep_last)
        pruned[thread.key] = len(removal.removed) + len(removal.skeletons)
        return removal

    with ledger_at(settings) as ledger:
        for info in [require_thread(ledger, thread_id) for thread_id in dict.fromkeys(thread_ids)]:
            Threads(ledger).remove(info.thread_id, plan, reason="pruned")
    if as_json:
        print_json({"pruned": pruned})
        return
    for thread_id, number in pruned.items():
        print_text(f"Pruned thread {thread_id}: {count(number, 'checkpoint')} removed.")


def _metadata_of(record: VersionRecord) -> dict[str, Any]:
    """The metadata of a checkpoint, which say what it needs. Raises `ConfigurationError` where that is not known."""
    metadata = decode_metadata(record.frames[METADATA])
    if metadata is None:
        msg = (
            f"the metadata of checkpoint {record.id!r} have the form {record.frames[METADATA][0]!r}, which only the "
            "serializer that wrote them reads; prune the thread with LedgerSaver(ledger, serde=...).prune"
        )
        raise ConfigurationError(msg)
    return metadata
