"""`cache-report`: where the prompts of a conversation stopped being the continuation of those before."""

from collections import Counter

import click
from rich.text import Text

from chatledger.domain.context.caching import CacheTurn, cache_report
from chatledger.domain.draw.outline import escaped

from .lookup import require_branch, require_chat
from .options import GlobalOptions, chat_argument, ledger_at, ledger_options
from .output import count, print_json_list, print_lines, print_text


@click.command("cache-report")
@chat_argument
@click.option("--branch", metavar="NAME", help="A branch of the chat. The active one if absent.")
@ledger_options
def cache_report_command(settings: GlobalOptions, *, chat_id: str, branch: str | None, as_json: bool) -> None:
    """
    Tell where the prompts of CHAT changed at the front, so that a provider's cache was of no use, and what changed them.

    Compares each prompt that was made by 'resolve(cache=...)' and answered on the branch with the one before. With --json, an
    array with one prompt a line.
    """
    with ledger_at(settings, is_read=True) as ledger:
        require_chat(ledger, chat_id)
        if branch is not None:
            require_branch(ledger, chat_id, branch)
        turns = cache_report(ledger.get_messages(chat_id, branch=branch))
    if as_json:
        print_json_list(turns)
    elif not turns:
        print_text(
            "No answer on this branch carries the prefixes of its prompt: programs record them with "
            "resolve(cache=...) before they save the answer."
        )
    else:
        print_lines(map(_line, turns), is_cut=True)
        kept_count = sum(turn.is_kept for turn in turns)
        causes = Counter(turn.fragment for turn in turns if turn.fragment is not None).most_common(1)
        worst = f" Most often by fragment {escaped(causes[0][0])}." if causes else ""
        prompts = f"{kept_count:,} of {count(len(turns), 'prompt')}"
        print_text(f"{prompts} kept the prefix of the one before.{worst}", "dim")


def _line(turn: CacheTurn) -> Text:
    line = Text(escaped(turn.message_id[:8]), style="bold")
    line.append(f"  {escaped(turn.provider)}  ", style="not bold dim")
    line.append("kept   " if turn.is_kept else "changed", style="not bold green" if turn.is_kept else "not bold yellow")
    if turn.part is not None:
        line.append(f"  {turn.part}: {escaped(turn.reason)}", style="not bold")
    return line
