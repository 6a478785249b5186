"""`compare`: the answers of several branches side by side, turn by turn."""

import click
from rich.text import Text

from chatledger.domain.draw.escaping import escaped

from .lookup import require_chat
from .options import GlobalOptions, chat_argument, ledger_at, ledger_options
from .output import fields_of, multiline, print_json, print_lines, print_text


@click.command("compare")
@chat_argument
@click.argument("branches", metavar="BRANCH...", nargs=-1, required=True)
@ledger_options
def compare_command(settings: GlobalOptions, *, chat_id: str, branches: tuple[str, ...]) -> None:
    """Show what each BRANCH of CHAT answered, turn by turn, with the tools it called, and the time and metadata of its run."""
    with ledger_at(settings, is_read=True) as ledger:
        require_chat(ledger, chat_id)
        turns = ledger.compare(chat_id, branches)
    if settings.as_json:
        print_json({"turns": [fields_of(turn) for turn in turns]})
        return
    for turn in turns:
        print_lines([Text(f"{turn.number}. {escaped(turn.said)}", style="bold")])
        for name, answer in turn.answers.items():
            run = answer.run
            facts = [
                *([f"tools: {', '.join(answer.tools)}"] if answer.tools else []),
                *([f"{run.updated_at - run.created_at:,} ms"] if run is not None and run.is_ended else []),
                *([f"{key}: {value}" for key, value in run.metadata.items()] if run is not None else []),
            ]
            head = Text(f"  {escaped(name)}", style="cyan")
            print_lines([head.append(escaped(f"  {'; '.join(facts)}".rstrip()), style="dim default")])
            answer_text = "\n".join(message.text for message in answer.messages if message.role == "assistant")
            print_lines(Text(f"    {line}".rstrip()) for line in multiline(answer_text).split("\n"))
    if not turns:
        print_text("no user has said anything on these branches")
