"""`merge`: a branch brought back to another one."""

from typing import TYPE_CHECKING

import click

from .lookup import require_branch, require_chat
from .options import ID, GlobalOptions, chat_argument, ledger_at, ledger_options
from .output import count, fields_of

if TYPE_CHECKING:
    from chatledger.domain.chat.merging import MergeHow


@click.command("merge")
@chat_argument
@click.argument("source", metavar="BRANCH", type=ID)
@click.option("--into", metavar="BRANCH", type=ID, default="main", help="The branch that goes on. By default main.")
@click.option("--summary", metavar="TEXT", help="Append this text, which sums BRANCH up.")
@click.option("--pick", metavar="ID", type=ID, multiple=True, help="Append a copy of this message. May be repeated.")
@click.option(
    "--rebase", is_flag=True, help="Append copies of all messages of BRANCH that the other one does not have."
)
@ledger_options
def merge_command(
    settings: GlobalOptions,
    *,
    chat_id: str,
    source: str,
    into: str,
    summary: str | None,
    pick: tuple[str, ...],
    rebase: bool,
) -> None:
    """
    Merge BRANCH of CHAT into another branch: the message that is appended last has both heads as its parents.

    BRANCH stays as it is. Merging it again takes what was said there since. Where nothing was said on the other branch, --rebase
    moves its head and copies nothing.
    """
    if (summary is not None) + bool(pick) + rebase != 1:
        click.get_current_context().fail("say how: --summary TEXT, --pick ID or --rebase")
    how: MergeHow = "pick" if pick else "rebase" if rebase else "summary"
    with ledger_at(settings) as ledger:
        require_chat(ledger, chat_id)
        for name in (source, into):
            require_branch(ledger, chat_id, name)
        merge = ledger.merge(chat_id, source, into, how=how, summary=summary, pick=pick or None)
    told = {
        "merged": f"Merged {source} into {into}: {count(len(merge.messages), 'message')} appended.",
        "fast_forward": f"Moved {into} to {merge.source_head}, the head of {source}.",
        "already_merged": f"Nothing changed: {into} has all of {source} already.",
    }
    settings.answer(fields_of(merge), told[merge.outcome])
