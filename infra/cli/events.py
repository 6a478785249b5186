"""An event of the log in words."""

from collections.abc import Sequence
from typing import Final

from rich.text import Text

from chatledger.domain.drawing.labels import flat
from chatledger.domain.events import (
    BranchActivated,
    BranchCreated,
    ChatCreated,
    ChatDeleted,
    ChatUpdated,
    CheckpointDeleted,
    CheckpointSet,
    HeadMoved,
    MessagesAppended,
    Recorded,
)
from chatledger.domain.text import preview
from chatledger.domain.values import Message

from .output import count, format_time

_SHOWN_MESSAGES: Final = 2
_STYLES: Final = {
    "chat_created": "bold green",
    "chat_updated": "green",
    "chat_deleted": "bold red",
    "message_appended": "cyan",
    "branch_created": "yellow",
    "branch_activated": "yellow",
    "head_moved": "yellow",
    "checkpoint_set": "magenta",
    "checkpoint_deleted": "magenta",
}


def event_line(recorded: Recorded, *, with_chat: bool = True) -> Text:
    """Position, time, actor, kind, what happened, what it belongs to and was caused by, and the chat."""
    line = Text(f"{recorded.position:>6}  ", style="bold")
    line.append(f"{format_time(recorded.occurred_at)}  ", style="not bold dim")
    line.append(f"{flat(recorded.actor or '-'):<6}  ", style="not bold")
    line.append(f"{recorded.type:<16}  ", style=f"not bold {_STYLES.get(recorded.type, '')}")
    line.append(flat(describe(recorded)), style="not bold")
    event = recorded.event
    for what, given in (("correlation", event.correlation_id), ("causation", event.causation_id)):
        if given is not None:
            line.append(f"  {what} {flat(given)}", style="not bold dim")
    if with_chat:
        line.append(f"  [{flat(recorded.chat_id)}]", style="not bold dim")
    return line


def describe(recorded: Recorded) -> str:
    """What an event did, in a few words."""
    match recorded.body:
        case ChatCreated(user_id=user_id, title=title):
            return _join(f'"{title}"' if title else "", f"owner {user_id}" if user_id else "no owner")
        case ChatUpdated(changes=changes):
            title = changes.get("title")
            return _join(f'title "{title}"' if title else "", f"changed {', '.join(sorted(changes))}")
        case ChatDeleted() as body:
            erased = (
                f"{count(body.message_count, 'message')} and {count(body.branch_count, 'branch', 'branches')} erased"
            )
            last_hash = recorded.event.previous_hash.hex()[:12]
            return f"{erased}, {count(body.event_count, 'event')}, last hash {last_hash}"
        case MessagesAppended(messages=messages, branch=branch):
            return _join(_quote(messages), f"to {branch}" if branch is not None else "to no branch")
        case BranchCreated(name=name, head_message_id=head, is_active=is_active):
            return _join(f"{name} at {_short(head)}", "active" if is_active else "")
        case BranchActivated(name=name):
            return name
        case HeadMoved(branch=branch, from_head=from_head, to_head=to_head):
            return f"{branch} from {_short(from_head)} to {_short(to_head)}"
        case CheckpointSet(name=name, message_id=message_id):
            return f"{name} at {_short(message_id)}"
        case CheckpointDeleted(name=name):
            return name
        case _:
            return ""


def _quote(messages: Sequence[Message]) -> str:
    shown = [f'{message.name} "{preview(message.data)}"' for message in messages[:_SHOWN_MESSAGES]]
    rest = len(messages) - len(shown)
    return ", ".join(shown) + (f" and {rest:,} more" if rest else "")


def _short(message_id: str | None) -> str:
    return "the start" if message_id is None else message_id[:8]


def _join(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
