"""An event of the log as a line of the terminal."""

from typing import Final

from rich.text import Text

from chatledger.domain.draw.event_words import EventWords
from chatledger.domain.draw.outline import escaped

from ...ledger.log import Recorded
from .output import format_time

_STYLES: Final = {
    "chat_created": "bold green",
    "chat_updated": "green",
    "chat_deleted": "bold red",
    "message_appended": "cyan",
    "branch_created": "yellow",
    "branch_activated": "yellow",
    "branch_renamed": "yellow",
    "branch_deleted": "red",
    "head_moved": "yellow",
    "checkpoint_set": "magenta",
    "checkpoint_deleted": "magenta",
    "member_set": "green",
    "member_removed": "red",
    "message_annotated": "blue",
    "run_recorded": "blue",
    "run_changed": "blue",
    "regeneration_begun": "blue",
    "regeneration_approved": "blue",
    "version_content_put": "cyan",
    "version_put": "cyan",
    "version_writes_put": "cyan",
    "versions_removed": "red",
    "versions_copied": "green",
    "versions_deleted": "bold red",
    "versions_expiry_set": "cyan",
}


def event_line(recorded: Recorded, words: EventWords, *, with_chat: bool = True) -> Text:
    """Position, time, actor, kind, what happened, what it belongs to and was caused by, and the chat."""
    line = Text(f"{recorded.position:>6}  ", style="bold")
    line.append(f"{format_time(recorded.occurred_at)}  ", style="not bold dim")
    line.append(f"{escaped(recorded.actor or '-'):<6}  ", style="not bold")
    line.append(f"{recorded.type:<16}  ", style=f"not bold {_STYLES.get(recorded.type, '')}")
    line.append(escaped(words.describe(recorded)), style="not bold")
    event = recorded.event
    for what, link in (("correlation", event.correlation_id), ("causation", event.causation_id)):
        if link is not None:
            line.append(f"  {what} {escaped(link)}", style="not bold dim")
    if with_chat:
        line.append(f"  [{escaped(recorded.chat_id)}]", style="not bold dim")
    return line
