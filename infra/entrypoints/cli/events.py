"""An event of the log in words."""

from collections.abc import Sequence
from typing import Final, cast

from rich.text import Text

from chatledger.domain.chat import events as chat
from chatledger.domain.draw.outline import escaped
from chatledger.domain.graph import events as graph
from chatledger.domain.thread import events as thread
from chatledger.domain.values import Message, preview

from .output import count, format_time

_SHOWN_MESSAGES: Final = 2
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
    "message_annotated": "blue",
    "run_recorded": "blue",
    "run_changed": "blue",
    "regeneration_begun": "blue",
    "regeneration_approved": "blue",
    "agent_content_put": "cyan",
    "agent_checkpoint_put": "cyan",
    "agent_writes_put": "cyan",
    "agent_checkpoints_deleted": "red",
    "agent_thread_copied": "green",
    "agent_thread_deleted": "bold red",
    "state_put": "blue",
    "state_deleted": "bold red",
}


def event_line(recorded: chat.Recorded, *, with_chat: bool = True) -> Text:
    """Position, time, actor, kind, what happened, what it belongs to and was caused by, and the chat."""
    line = Text(f"{recorded.position:>6}  ", style="bold")
    line.append(f"{format_time(recorded.occurred_at)}  ", style="not bold dim")
    line.append(f"{escaped(recorded.actor or '-'):<6}  ", style="not bold")
    line.append(f"{recorded.type:<16}  ", style=f"not bold {_STYLES.get(recorded.type, '')}")
    line.append(escaped(describe_event(recorded)), style="not bold")
    event = recorded.event
    for what, given in (("correlation", event.correlation_id), ("causation", event.causation_id)):
        if given is not None:
            line.append(f"  {what} {escaped(given)}", style="not bold dim")
    if with_chat:
        line.append(f"  [{escaped(recorded.chat_id)}]", style="not bold dim")
    return line


def describe_event(recorded: chat.Recorded) -> str:
    """Return a short description of an event."""
    match recorded.body:
        case chat.ChatCreated(user_id=user_id, title=title):
            return _join(f'"{title}"' if title else "", f"owner {user_id}" if user_id else "no owner")
        case chat.ChatUpdated(changes=changes):
            title = changes.get("title")
            return _join(f'title "{title}"' if title else "", f"changed {', '.join(sorted(changes))}")
        case chat.ChatDeleted() as body:
            erased = (
                f"{count(body.message_count, 'message')} and {count(body.branch_count, 'branch', 'branches')} erased"
            )
            last_hash = recorded.event.previous_hash.hex()[:12]
            return f"{erased}, {count(body.event_count, 'event')}, last hash {last_hash}"
        case chat.MessagesAppended(messages=messages, branch=branch):
            return _join(_quote(messages), f"to {branch}" if branch is not None else "to no branch")
        case chat.BranchCreated(name=name, head_message_id=head, is_active=is_active):
            return _join(f"{name} at {_short(head)}", "active" if is_active else "")
        case chat.BranchActivated(name=name) | chat.BranchDeleted(name=name):
            return name
        case chat.BranchRenamed(name=name, new_name=new_name):
            return f"{name} to {new_name}"
        case chat.HeadMoved(branch=branch, from_head=from_head, to_head=to_head):
            return f"{branch} from {_short(from_head)} to {_short(to_head)}"
        case chat.CheckpointSet(name=name, message_id=message_id):
            return f"{name} at {_short(message_id)}"
        case chat.CheckpointDeleted(name=name):
            return name
        case _:
            return _describe_runs(recorded)


def _describe_runs(recorded: chat.Recorded) -> str:
    match recorded.body:
        case chat.MessagesAnnotated(message_ids=message_ids, changes=changes):
            which = _short(message_ids[0]) if len(message_ids) == 1 else count(len(message_ids), "message")
            return _join(which, *(f"{name} {_shown(value)}" for name, value in changes.items()))
        case chat.RunRecorded(run=run):
            trigger = run.trigger_message_id
            what = "" if trigger is None else f"triggered by {_short(trigger)}"
            how = "repeats" if run.regeneration_id is not None else "carried over from"
            repeats = "" if run.repeats is None else f"{how} {run.repeats}"
            return _join(f"{run.run_id} of {run.assistant_id}", run.status, what, repeats)
        case chat.RunChanged(run_id=run_id, changes=changes):
            made = changes.get("message_id")
            return _join(run_id, str(changes.get("status", "")), "" if made is None else f"answer {_short(made)}")
        case chat.RegenerationBegun(edited_message_id=edited, new_message_id=new, runs=runs):
            return _join(f"{_short(edited)} became {_short(new)}", f"{count(len(runs), 'run')} to repeat")
        case chat.RegenerationApproved(run_ids=run_ids):
            return f"{count(len(run_ids), 'run')} approved"
        case body:
            return _describe_thread(body) or _describe_graph(body)


def _describe_thread(body: chat.Body) -> str:
    match body:
        case thread.AgentContentPut(pieces=pieces):
            return count(len(pieces), "piece")
        case thread.AgentCheckpointPut() as put:
            below = "" if put.parent_id is None else f" after {put.parent_id}"
            return f"{put.checkpoint_id}{below}{_within(put.namespace)}, {count(len(put.pieces), 'new piece')}"
        case thread.AgentWritesPut() as put:
            channels = ", ".join(dict.fromkeys(slot.channel for slot in put.writes))
            return f"{channels} at {put.checkpoint_id}{_within(put.namespace)}"
        case thread.AgentCheckpointsDeleted() as deleted:
            parts = [f"namespace {name!r}" for name in deleted.namespaces]
            parts += [count(len(deleted.checkpoints), "checkpoint")] if deleted.checkpoints else []
            parts += [f"{count(len(deleted.skeletons), 'checkpoint')} reduced"] if deleted.skeletons else []
            return f"{', '.join(parts)} ({deleted.reason})"
        case thread.AgentThreadCopied(source_thread_id=source, within=within):
            return f"from {source}" + ("" if within is None else _within(within))
        case thread.AgentThreadDeleted() as deleted:
            return f"{count(deleted.checkpoint_count, 'checkpoint')} erased, {count(deleted.event_count, 'event')}"
        case _:
            return ""


def _within(namespace: str) -> str:
    return f" in {namespace}" if namespace else ""


def _describe_graph(body: chat.Body) -> str:
    match body:
        case graph.StatePut(state_id=state_id, version=version, node=node, is_final=is_final):
            by = "" if node is None else f", by {node}"
            return f"{graph.shown_id(state_id)} version {version}{by}{', final' if is_final else ''}"
        case graph.StateContentPut(pieces=pieces):
            return f"{count(len(pieces), 'piece')} of the version that follows"
        case graph.StateDeleted(version_count=versions, reason=reason):
            return f"{count(versions, 'version')} erased, {reason.replace('_', ' ')}"
        case _:
            return ""


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
