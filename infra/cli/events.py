"""An event of the log in words."""

from collections.abc import Sequence
from typing import Final, cast

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
from chatledger.domain.runs.events import (
    MessagesAnnotated,
    RegenerationApproved,
    RegenerationBegun,
    RunChanged,
    RunRecorded,
)
from chatledger.domain.text import preview
from chatledger.domain.values import Message

from .agent_events import AGENT_STYLES, describe_agent_event
from .output import count, format_time
from .state_events import STATE_STYLES, describe_state_event

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
    "message_annotated": "blue",
    "run_recorded": "blue",
    "run_changed": "blue",
    "regeneration_begun": "blue",
    "regeneration_approved": "blue",
    **AGENT_STYLES,
    **STATE_STYLES,
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
            return _describe_runs(recorded)


def _describe_runs(recorded: Recorded) -> str:
    match recorded.body:
        case MessagesAnnotated(message_ids=message_ids, changes=changes):
            which = _short(message_ids[0]) if len(message_ids) == 1 else count(len(message_ids), "message")
            return _join(which, *(f"{name} {_shown(value)}" for name, value in changes.items()))
        case RunRecorded(run=run):
            trigger = run.trigger_message_id
            what = "" if trigger is None else f"triggered by {_short(trigger)}"
            repeats = "" if run.repeats is None else f"repeats {run.repeats}"
            return _join(f"{run.run_id} of {run.assistant_id}", run.status, what, repeats)
        case RunChanged(run_id=run_id, changes=changes):
            made = changes.get("message_id")
            return _join(run_id, str(changes.get("status", "")), "" if made is None else f"answer {_short(made)}")
        case RegenerationBegun(edited_message_id=edited, new_message_id=new, runs=runs):
            return _join(f"{_short(edited)} became {_short(new)}", f"{count(len(runs), 'run')} to repeat")
        case RegenerationApproved(run_ids=run_ids):
            return f"{count(len(run_ids), 'run')} approved"
        case body:
            return describe_agent_event(body) or describe_state_event(body)


def _shown(value: object) -> str:
    """An annotation's value: metadata by their names only."""
    if isinstance(value, dict):
        return "of " + (", ".join(sorted(cast("dict[str, object]", value))) or "nothing")
    if isinstance(value, str):
        return _short(value)
    return "nothing" if value is None else "yes" if value else "no"


def _quote(messages: Sequence[Message]) -> str:
    shown = [f'{message.name} "{preview(message.data)}"' for message in messages[:_SHOWN_MESSAGES]]
    rest = len(messages) - len(shown)
    return ", ".join(shown) + (f" and {rest:,} more" if rest else "")


def _short(message_id: str | None) -> str:
    return "the start" if message_id is None else message_id[:8]


def _join(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
