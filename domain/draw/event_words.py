"""An event of the log in words."""

from collections.abc import Iterable, Sequence
from typing import Final, cast

from ..chat import events as chat
from ..values import MAIN, MAIN_NUMBER, Message, preview
from ..versioned import events as versioned
from ..versioned.keys import VERSIONED_PREFIX, family_of_stream
from ..wire import iso

_SHOWN_MESSAGES: Final = 2


class EventWords:
    """
    Describes events one after the other.

    Events name branches by number. The names are those that earlier events of the same chat gave; where none was seen, the first
    branch is called `main` and others by their number.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[str, int], str] = {}

    def describe(self, recorded: chat.Recorded) -> str:
        """Return a short description of the next event."""
        match recorded.body:
            case chat.ChatCreated():
                self._names[recorded.chat_id, MAIN_NUMBER] = MAIN
            case chat.BranchCreated(number=number, name=name) | chat.BranchRenamed(number=number, new_name=name):
                self._names[recorded.chat_id, number] = name
            case _:
                pass
        branch = getattr(recorded.body, "branch", None)
        return describe_event(
            recorded, self._names.get((recorded.chat_id, branch)) if isinstance(branch, int) else None
        )


def branch_words(number: int) -> str:
    """Return what a branch is called whose name is not at hand."""
    return MAIN if number == MAIN_NUMBER else f"branch {number}"


def messages_of(recorded: chat.Recorded) -> set[str]:
    """Return the ids of the messages that an event made, moved a pointer to, or annotated."""
    match recorded.body:
        case chat.MessagesAppended(messages=messages):
            return {message.id for message in messages}
        case chat.HeadMoved(to_head=head) | chat.BranchCreated(head_message_id=head):
            return set() if head is None else {head}
        case chat.CheckpointSet(message_id=message_id):
            return {message_id}
        case chat.MessagesAnnotated(message_ids=message_ids):
            return set(message_ids)
        case _:
            return set()


def describe_event(recorded: chat.Recorded, branch_name: str | None = None, *, quotes_messages: bool = True) -> str:
    """
    Return a short description of an event.

    Args:
        recorded: The event.
        branch_name: The name of the branch that messages were appended to, if it is known.
        quotes_messages: Whether the text of appended messages is in it; without it their roles and ids are.
    """
    match recorded.body:
        case chat.ChatCreated(user_id=user_id, title=title):
            return _join(f'"{title}"' if title else "", f"owner {user_id}" if user_id else "no owner")
        case chat.ChatUpdated(changes=changes):
            title = changes.get("title")
            return _join(f'title "{title}"' if title else "", f"changed {', '.join(sorted(changes))}")
        case chat.ChatDeleted() as body:
            erased = (
                f"{_count(body.message_count, 'message')} and {_count(body.branch_count, 'branch', 'branches')} erased"
            )
            last_hash = recorded.event.previous_hash.hex()[:12]
            return f"{erased}, {_count(body.event_count, 'event')}, last hash {last_hash}"
        case chat.MessagesAppended(messages=messages, branch=branch) if not quotes_messages:
            named = ", ".join(f"{message.name} {message.id}" for message in messages)
            return named if branch is None else f"to {branch_name or branch_words(branch)}: {named}"
        case chat.MessagesAppended(messages=messages, branch=branch):
            where = "no branch" if branch is None else branch_name or branch_words(branch)
            return _join(_quote(messages), f"to {where}")
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
        case chat.MemberSet(user_id=user_id, role=role):
            return f"{user_id}, {role}"
        case chat.MemberRemoved(user_id=user_id):
            return user_id
        case _:
            return _describe_runs(recorded)


def _describe_runs(recorded: chat.Recorded) -> str:
    match recorded.body:
        case chat.MessagesAnnotated(message_ids=message_ids, changes=changes):
            which = _short(message_ids[0]) if len(message_ids) == 1 else _count(len(message_ids), "message")
            return _join(which, *(f"{name} {_shown(value)}" for name, value in changes.items()))
        case chat.RunRecorded(run=run):
            trigger = run.trigger_message_id
            what = "" if trigger is None else f"triggered by {_short(trigger)}"
            how = "repeats" if run.regeneration_id is not None else "carried over from"
            repeats = "" if run.repeats is None else f"{how} {run.repeats}"
            return _join(f"{run.run_id} of {run.assistant_id}", run.status, what, repeats)
        case chat.RunChanged(run_id=run_id, changes=changes):
            answer = changes.get("message_id")
            return _join(run_id, str(changes.get("status", "")), "" if answer is None else f"answer {_short(answer)}")
        case chat.RegenerationBegun(edited_message_id=edited, new_message_id=new, runs=runs):
            return _join(f"{_short(edited)} became {_short(new)}", f"{_count(len(runs), 'run')} to repeat")
        case chat.RegenerationApproved(run_ids=run_ids):
            return f"{_count(len(run_ids), 'run')} approved"
        case body:
            return _describe_version(recorded.chat_id, body) if recorded.chat_id.startswith(VERSIONED_PREFIX) else ""


def _describe_version(stream_id: str, body: chat.Body) -> str:
    family = family_of_stream(stream_id)
    match body:
        case versioned.VersionContentPut(pieces=pieces):
            return f"{_count(len(pieces), 'piece')} of the version that follows"
        case versioned.VersionPut(begins=begins, node=node) as put if family.is_numbered:
            name = "" if begins is None else f"{family.shown(begins.key)} "
            by = "" if node is None else f", by {node}"
            return f"{name}version {int(put.id)}{by}{', final' if put.is_final else ''}"
        case versioned.VersionPut() as put:
            below = "" if put.parent is None else f" after {put.parent}"
            writes = f", with {_channels(put.writes)} of that" if put.writes else ""
            return f"{put.id}{below}{_within(put.line)}, {_count(len(put.pieces), 'new piece')}{writes}"
        case versioned.VersionWritesPut() as put:
            return f"{_channels(put.tasks)} at {put.id}{_within(put.line)}"
        case versioned.VersionsRemoved() as removed:
            parts = [f"namespace {line!r}" for line in removed.lines]
            parts += [_count(len(removed.versions), "version")] if removed.versions else []
            parts += [f"{_count(len(removed.skeletons), 'version')} reduced"] if removed.skeletons else []
            return f"{', '.join(parts)} ({removed.reason})".lstrip()
        case versioned.VersionsCopied(source_key=source, within=within):
            return f"from {source}" + ("" if within is None else _within(within))
        case versioned.VersionsExpirySet(expires_at=expires_at):
            return "does not expire" if expires_at is None else f"expires at {iso(expires_at)}"
        case versioned.VersionsDeleted(version_count=versions, event_count=events, reason=reason):
            return f"{_count(versions, 'version')} erased, {_count(events, 'event')}, {reason.replace('_', ' ')}"
        case _:
            return ""


def _channels(tasks: Iterable[versioned.TaskWrites]) -> str:
    return ", ".join(dict.fromkeys(slot.channel for task in tasks for slot in task.slots))


def _within(namespace: str) -> str:
    return f" in {namespace}" if namespace else ""


def _shown(value: object) -> str:
    """An annotation's value: metadata by their names only."""
    if isinstance(value, dict):
        return "of " + (", ".join(sorted(cast("dict[str, object]", value))) or "nothing")
    if isinstance(value, str):
        return _short(value)
    return "nothing" if value is None else "yes" if value else "no"


def _quote(messages: Sequence[Message]) -> str:
    shown = [f'{message.name} "{preview(message.data, message.form)}"' for message in messages[:_SHOWN_MESSAGES]]
    rest = len(messages) - len(shown)
    return ", ".join(shown) + (f" and {rest:,} more" if rest else "")


def _short(message_id: str | None) -> str:
    return "the start" if message_id is None else message_id[:8]


def _join(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _count(number: int, thing: str, plural: str | None = None) -> str:
    return f"{number:,} {thing if number == 1 else plural or thing + 's'}"
