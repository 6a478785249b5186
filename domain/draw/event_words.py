"""An event of the log in words."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, cast

import msgspec

from ..chat import events as chat
from ..values import MAIN, MAIN_NUMBER, Message, preview
from ..versioned import events as versioned
from ..versioned.checkpoint_packing import unpack
from ..versioned.content import Leaf
from ..versioned.events import TaskWrites, VersionPut, VersionWritesPut
from ..versioned.keys import ASSISTANT, VERSIONED_PREFIX, family_of_stream
from ..versioned.record import CHECKPOINT, METADATA, StoredWrite, VersionRecord
from ..versioned.serials import plain_value
from ..versioned.standing import (
    ERROR,
    INTERRUPT,
    JOIN,
    OF_GRAPH,
    RESUME,
    START,
    ReadPlain,
    error_words,
    is_of_task,
    next_nodes,
    node_of,
    question_words,
    shortened,
    shown_node,
    words_of_input,
)
from ..wire import iso

_NAMED: Final = 6


def step_words(put: VersionPut, *, quotes: bool) -> str:
    """Return what a checkpoint is: `step 3 write, next review: draft, sources changed`; with `quotes` the input too."""
    metadata, bookkeeping = _decoded(put.frames, METADATA), _decoded(put.frames, CHECKPOINT)
    number, source = metadata.get("step"), metadata.get("source")
    read = _reader_of(put)

    if source == "input":
        text = ""
        if quotes and START in put.fields:
            text = words_of_input(read(put.fields[START].digest))
        return f"input{_in_namespace(put.line)}{f': {text}' if text else ''}"
    nodes = _nodes_run(bookkeeping) or [shown_node(node) for node in _nodes_of(put.writes or (), read)]
    version = VersionRecord(put.line, put.id, put.parent, put.fields)
    updated = bookkeeping.get("updated_channels")
    following = [shown_node(node) for node in next_nodes(version, read)]
    # A join whose value stood on the log before is told by the nodes that it waited for, if these ran now.
    joins = [
        name
        for name in cast("list[str]", updated or [])
        if name.startswith(JOIN) and name in put.fields and read(put.fields[name].digest) is None
    ]
    following += [name.rpartition(":")[2] for name in joins if {*name.split(":")[1].split("+")} <= {*nodes}]
    channels: Iterable[str] = cast("list[str]", updated) if isinstance(updated, list) else _new_fields(put)
    what = f"step {number}" if isinstance(number, int) and number >= 0 else "checkpoint"
    by_whom = (
        f" {_list(nodes)}" if nodes and source in {"loop", None} else f" by an {source}" if source == "update" else ""
    )
    onward = f", next {_list(following)}" if following else ", finished" if bookkeeping and not joins else ""
    changed = _list(sorted(name for name in channels if not name.startswith(OF_GRAPH)))
    return f"{what}{by_whom}{_in_namespace(put.line)}{onward}{f': {changed} changed' if changed else ''}"


def writes_words(put: VersionWritesPut, *, quotes: bool) -> str:
    """Return what tasks did: `review waits: Publish this report?`, `write failed: ValueError: ...`, or `search done: sources`."""
    read = _reader_of(put)

    parts: list[str] = []
    for task in put.tasks:
        slots = {slot.channel: slot.digest for slot in task.slots}
        if not is_of_task(task.task_id, task.task_path):
            parts.append("answered" if RESUME in slots else f"{_channels(slots)} written from outside")
            continue
        node = shown_node(next(iter(_nodes_of([task], read)), ""))
        if INTERRUPT in slots:
            text = shortened(question_words(read(slots[INTERRUPT]))) if quotes else ""
            parts.append(f"{node} waits{f': {text}' if text else ''}")
        elif ERROR in slots:
            text = shortened(error_words(read(slots[ERROR]))) if quotes else ""
            parts.append(f"{node} failed{f': {text}' if text else ''}")
        else:
            channels = _channels(slots)
            parts.append(f"{node} done{f': {channels}' if channels else ''}")
    return "; ".join(parts) + _in_namespace(put.line)


def _reader_of(put: VersionPut | VersionWritesPut) -> ReadPlain:
    values = {piece.digest: piece.content for piece in put.pieces}

    def read(digest: bytes) -> Any:
        content = values.get(digest)
        return plain_value(content.type, content.data) if isinstance(content, Leaf) else None

    return read


def _decoded(frames: tuple[tuple[str, bytes], ...], place: int) -> dict[str, Any]:
    """Return a frame of a checkpoint as LangGraph's own serializer wrote it; nothing where another one did."""
    try:
        form, data = frames[place]
        value: Any = msgspec.msgpack.decode(data) if form == "msgpack" else {}
        fields: Any = unpack(value, "") if place == CHECKPOINT else value
    except Exception:  # noqa: BLE001 - whatever a foreign frame holds: the event is told in fewer words
        return {}
    return cast("dict[str, Any]", fields) if isinstance(fields, dict) else {}


def _nodes_run(checkpoint: Mapping[str, Any]) -> list[str]:
    """Return the nodes that ran last, which saw the newest versions: in a step LangGraph gives all channels the same one."""
    seen: Any = checkpoint.get("versions_seen")
    if not isinstance(seen, dict):
        return []
    latest: dict[str, str] = {}
    for node, versions in cast("dict[str, dict[str, Any]]", seen).items():
        numbers = [str(version).partition(".")[0].zfill(32) for version in versions.values()]
        if numbers and not (node.startswith("__") and node != START):
            latest[node] = max(numbers)
    last = max(latest.values(), default="")
    return sorted(shown_node(node) for node, number in latest.items() if number == last)


def _nodes_of(tasks: Iterable[TaskWrites], read: Any) -> list[str]:
    nowhere = VersionRecord("", "", None, {})
    first = (
        StoredWrite(task.task_id, 0, task.task_path, "", b"")
        for task in tasks
        if is_of_task(task.task_id, task.task_path)
    )
    return list(dict.fromkeys(node_of(write, nowhere, read) for write in first))


def _new_fields(put: VersionPut) -> list[str]:
    new = {piece.digest for piece in put.pieces}
    return [name for name, field in put.fields.items() if field.digest in new]


def _channels(names: Iterable[str]) -> str:
    return _list(sorted({name for name in names if not name.startswith(OF_GRAPH)}))


def _list(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(chain(listed[:_NAMED], [f"{len(listed) - _NAMED:,} more"] if len(listed) > _NAMED else []))


def _in_namespace(namespace: str) -> str:
    """Return where something is: the names of nodes that run subgraphs, without the ids of tasks, or the assistant."""
    parts = namespace.split("|") if namespace else []
    names = [part if part.startswith(ASSISTANT) else part.partition(":")[0] for part in parts]
    return f" in {' / '.join(names)}" if names else ""


_SHOWN_MESSAGES: Final = 2

_BODIES: Final[dict[str, tuple[type[chat.Body], ...]]] = {
    "chats": (chat.MessagesAppended, chat.ChatCreated),
    "edit": (chat.MessagesAnnotated, chat.ChatUpdated),
    "fork": (chat.BranchCreated, chat.BranchActivated, chat.BranchRenamed, chat.BranchDeleted, chat.HeadMoved),
    "checkpoint": (chat.CheckpointSet, chat.CheckpointDeleted),
    "play": chat.RUN_BODIES[1:],
    "agents": versioned.VERSIONED_BODIES,
    "proof": (*chat.MEMBER_BODIES, *chat.LINK_BODIES),
    "stop": (chat.ChatDeleted, chat.ContentRedacted),
}
TYPES: Final[dict[str, str]] = {
    body.TOPIC.removeprefix("chatledger.").partition("/")[0]: drawing
    for drawing, bodies in _BODIES.items()
    for body in bodies
}
"""The types of events, each with the drawing that stands for it; those first that are looked for most."""


class EventWords:
    """
    Describes events one after the other.

    Events name branches by number. The names are those that earlier events of the same chat gave; where none was seen, the first
    branch is called `main` and others by their number.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[str, int], str] = {}

    def describe(self, recorded: chat.Recorded) -> str:
        match recorded.body:
            case chat.ChatCreated():
                self._names[recorded.chat_id, MAIN_NUMBER] = MAIN
            case chat.BranchCreated(number=number, name=name) | chat.BranchRenamed(number=number, new_name=name):
                self._names[recorded.chat_id, number] = name or branch_words(number)
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
        case chat.MessagesAnnotated(message_ids=message_ids) | chat.ContentRedacted(message_ids=message_ids):
            return set(message_ids)
        case _:
            return set()


def describe_event(recorded: chat.Recorded, branch_name: str | None = None, *, quotes_messages: bool = True) -> str:
    """
    Return a short description of an event.

    `branch_name`: the name of the branch that messages were appended to, if it is known. `quotes_messages`: whether the
    text of messages is in it, and what threads of agents ask; without it their roles and ids are.
    """
    match recorded.body:
        case chat.ChatCreated(user_id=user_id, title=title):
            return _join(f'"{title}"' if title else "", f"owner {user_id}" if user_id else "no owner")
        case chat.ChatUpdated(changes=changes) if "holds" in changes:
            return _hold_words(changes["holds"], changes.get("hold_notes"))
        case chat.ChatUpdated(changes=changes):
            title = changes.get("title")
            others = sorted(changes.keys() - {"user_id", *(["title"] if title else [])})
            return _join(f'title "{title}"' if title else "", f"changed {', '.join(others)}" if others else "")
        case chat.ChatDeleted() as body:
            erased = (
                f"{_count(body.message_count, 'message')} and {_count(body.branch_count, 'branch', 'branches')} erased"
            )
            last_hash = recorded.event.previous_hash.hex()[:12]
            return f"{erased}, {_count(body.event_count, 'event')}, last hash {last_hash}"
        case chat.ContentRedacted() as body if body.takes_names:
            return _join(f"{_count(len(body.targets), 'event')} without the name of a person", body.cause)
        case chat.ContentRedacted(message_ids=(), targets=targets, cause=cause, reason=reason):
            return _join(f"words of {_count(len(targets), 'earlier event')}", cause if reason is None else reason)
        case chat.ContentRedacted(message_ids=message_ids, cause=cause, reason=reason):
            shown = ", ".join(map(_short, message_ids[:_SHOWN_MESSAGES]))
            more = len(message_ids) - _SHOWN_MESSAGES
            return _join(f"{shown} and {more} more" if more > 0 else shown, cause, reason or "")
        case chat.MessagesAppended(messages=messages, branch=branch) if not quotes_messages:
            named = ", ".join(f"{message.name} {message.id}" for message in messages)
            return named if branch is None else f"to {branch_name or branch_words(branch)}: {named}"
        case chat.MessagesAppended(messages=messages, branch=branch):
            where = "no branch" if branch is None else branch_name or branch_words(branch)
            return _join(_quote(messages), f"to {where}")
        case chat.BranchCreated(number=number, name=name, head_message_id=head, is_active=is_active):
            return _join(f"{name or branch_words(number)} at {_short(head)}", "active" if is_active else "")
        case chat.BranchActivated(number=number, name=name) | chat.BranchDeleted(number=number, name=name):
            return name or branch_words(number)
        case chat.BranchRenamed(number=number, name=name, new_name=new_name):
            return f"{name or branch_words(number)} to {new_name or 'another name'}"
        case chat.HeadMoved(number=number, branch=branch, from_head=from_head, to_head=to_head):
            return f"{branch or branch_words(number)} from {_short(from_head)} to {_short(to_head)}"
        case chat.CheckpointSet(name=name, message_id=message_id):
            return f"{name or 'one without its name'} at {_short(message_id)}"
        case chat.CheckpointDeleted(name=name):
            return name or "one without its name"
        case chat.MemberSet(user_id=user_id, role=role):
            return _join(user_id or "", role)
        case chat.MemberRemoved(user_id=user_id):
            return user_id or ""
        case chat.LinkCreated(link_id=link_id) | chat.LinkRevoked(link_id=link_id):
            return link_id
        case _:
            return _describe_runs(recorded, quotes=quotes_messages)


def _describe_runs(recorded: chat.Recorded, *, quotes: bool) -> str:
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
            is_versioned = recorded.chat_id.startswith(VERSIONED_PREFIX)
            return _describe_version(recorded.chat_id, body, quotes=quotes) if is_versioned else ""


def _describe_version(stream_id: str, body: chat.Body, *, quotes: bool) -> str:
    family = family_of_stream(stream_id)
    match body:
        case versioned.VersionContentPut(pieces=pieces):
            return f"values of the events that follow, {_count(len(pieces), 'piece')}"
        case versioned.VersionPut(begins=begins, node=node) as put if family.is_numbered:
            name = "" if begins is None else f"{family.shown(begins.key)} "
            by = "" if node is None else f", by {node}"
            return f"{name}version {int(put.id)}{by}{', final' if put.is_final else ''}"
        case versioned.VersionPut() as put:
            return step_words(put, quotes=quotes)
        case versioned.VersionWritesPut() as put:
            return writes_words(put, quotes=quotes)
        case versioned.VersionsKept(rests=rests):
            return f"what stays of {_count(len(rests), 'version')}"
        case versioned.VersionsRemoved() as removed:
            parts = [f"namespace {line!r}" for line in removed.lines]
            parts += [_count(len(removed.versions), "version")] if removed.versions else []
            parts += [f"{_count(len(removed.skeletons), 'version')} reduced"] if removed.skeletons else []
            return f"{', '.join(parts)} ({removed.reason})".lstrip()
        case versioned.VersionsCopied(source_key=source, within=within):
            return f"from {source}" + ("" if within is None else _within(within))
        case versioned.VersionsExpirySet(holds=holds, hold_notes=notes) if holds is not None:
            return _hold_words(holds, notes)
        case versioned.VersionsExpirySet(expires_at=expires_at):
            return "does not expire" if expires_at is None else f"expires at {iso(expires_at)}"
        case versioned.VersionsDeleted(version_count=versions, event_count=events, reason=reason):
            return f"{_count(versions, 'version')} erased, {_count(events, 'event')}, {reason.replace('_', ' ')}"
        case _:
            return ""


def _hold_words(holds: Mapping[str, int], notes: Mapping[str, Sequence[str | None]] | None) -> str:
    """Words for the holds that are there since; without ids, as one may be a user's."""
    reasons = {kind: (notes or {}).get(kind, (None, None, None))[2] for kind in holds}
    held = ", ".join(kind + ("" if reason is None else f' ("{reason}")') for kind, reason in reasons.items())
    return f"held with the {held}" if held else "not held any more"


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
    shown = [f'{message.name} "{preview(message.shown, message.form)}"' for message in messages[:_SHOWN_MESSAGES]]
    rest = len(messages) - len(shown)
    return ", ".join(shown) + (f" and {rest:,} more" if rest else "")


def _short(message_id: str | None) -> str:
    return "the start" if message_id is None else message_id[:8]


def _join(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _count(number: int, thing: str, plural: str | None = None) -> str:
    return f"{number:,} {thing if number == 1 else plural or thing + 's'}"
